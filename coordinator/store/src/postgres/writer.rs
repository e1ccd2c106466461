//! The task that writes, and follows what other coordinators write.
//!
//! It *is* the group commit: it drains what waits in its queue into one transaction, and answers after the commit. It alone
//! changes the documents in memory, so no change is taken in twice or out of order. When its connection is lost it refuses what it
//! is asked for, at once, until it has another one and has caught up.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use landfall_api::Kind;
use landfall_edge::metrics::metrics;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use uuid::Uuid;

use super::batch::{self, Committed, Failed, Ground};
use super::connect::{ANSWER, Link, within};
use super::error::PostgresError;
use super::hints::Hints;
use super::job::Job;
use super::load;
use super::reader::Reader;
use super::session::Session;
use super::tenure::{Tenure, since_boot};
use crate::CONFIRMED_WITHIN;
use crate::StoreError;
use crate::memory::Table;
use crate::traits::{Ended, Unreadable};

/// Operations that may wait in the queue; further callers wait outside.
const QUEUE: usize = 1024;
/// Operations in one transaction at most, so that an answer is never far away.
const BATCH: usize = 256;
/// What others wrote is found this late, at the latest.
const POLL: Duration = Duration::from_millis(500);
/// Between two tries to connect: the first, and the longest.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// Changes kept for other coordinators, and the bytes of their documents: what a coordinator misses in a minute of many writes. One
/// that has missed more loads everything.
const CHANGES: i64 = 8192;
const CHANGE_BYTES: i64 = 256 << 20;
/// Older ones are dropped once in so many.
const TRIM_EVERY: u64 = 1024;
/// Who met what others had written expects for so long to meet more.
const BESIDE: Duration = Duration::from_secs(10);
/// A transaction that met another one is tried so often.
const TRIES: usize = 4;

/// Takes operations for the task.
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    tenure: Arc<Tenure>,
    unreadable: Arc<ArcSwap<Vec<Unreadable>>>,
    task: JoinHandle<()>,
}

impl Writer {
    pub(super) fn start(
        (link, id, incarnation): (Link, Uuid, Option<Vec<u8>>), reader: Reader, table: Arc<Table>,
        unreadable: Vec<Unreadable>, session: Session,
    ) -> Self {
        let (jobs, queue) = mpsc::channel(QUEUE);
        // It confirms nothing before its first answer, which comes at once.
        let tenure = Arc::new(Tenure::new(since_boot().saturating_sub(CONFIRMED_WITHIN)));
        let (says_unreadable, hints) = (Arc::<ArcSwap<_>>::default(), Hints::default());
        let mut keeper = Keeper {
            link,
            id,
            incarnation,
            reader,
            table,
            unreadable: HashSet::new(),
            says_unreadable: says_unreadable.clone(),
            hints,
            beside: None,
            tenure: tenure.clone(),
        };
        keeper.take_names(unreadable);
        Self { jobs, tenure, unreadable: says_unreadable, task: tokio::spawn(run(keeper, session, queue)) }
    }

    /// Waits until the task has ended: it panicked, or the database is not what it was.
    pub(super) async fn ended(&self) -> Ended {
        self.jobs.closed().await;
        if self.tenure.is_over() { Ended::WentBack } else { Ended::Failed }
    }

    /// The documents that this version cannot read, as they were loaded last.
    pub(super) fn unreadable(&self) -> Arc<Vec<Unreadable>> {
        self.unreadable.load_full()
    }

    pub(super) fn unconfirmed(&self) -> Duration {
        self.tenure.unconfirmed()
    }

    /// How many operations wait for the task.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.jobs.max_capacity() - self.jobs.capacity()
    }

    /// Asks for an operation; its answer comes after the commit.
    pub(super) async fn submit<T>(
        &self, job: impl FnOnce(tokio::sync::oneshot::Sender<Result<T, StoreError>>) -> Job,
    ) -> Result<T, StoreError> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.jobs.send(job(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // What is in flight was not acknowledged; the server ends it with the connection.
        self.task.abort();
    }
}

/// What the task knows besides its session.
struct Keeper {
    link: Link,
    id: Uuid,
    incarnation: Option<Vec<u8>>,
    /// Its connections are of the server that was lost, if one was.
    reader: Reader,
    table: Arc<Table>,
    /// Documents that this version cannot read: their names are taken.
    unreadable: HashSet<(Kind, String)>,
    /// The same, as it is answered.
    says_unreadable: Arc<ArcSwap<Vec<Unreadable>>>,
    hints: Hints,
    /// When a transaction met last what others had written.
    beside: Option<Instant>,
    tenure: Arc<Tenure>,
}

async fn run(mut keeper: Keeper, mut session: Session, mut queue: mpsc::Receiver<Job>) {
    loop {
        let Some(lost) = keeper.serve(session, &mut queue).await else { break };
        keeper.tenure.lost();
        keeper.reader.empty();
        match keeper.connect_again(lost, &mut queue).await {
            Some(another) => session = another,
            None => break,
        }
    }
}

/// `None`: this version knows no such kind.
fn kind_of(unreadable: &Unreadable) -> Option<Kind> {
    Kind::ALL.into_iter().find(|known| known.as_str() == unreadable.kind)
}

/// Adds what waits in the queue.
fn take_more(jobs: &mut Vec<Job>, queue: &mut mpsc::Receiver<Job>) {
    while jobs.len() < BATCH
        && let Ok(job) = queue.try_recv()
    {
        jobs.push(job);
    }
}

impl Keeper {
    /// Writes and follows until the store is dropped (`None`), or the connection cannot be used any more.
    async fn serve(&mut self, mut session: Session, queue: &mut mpsc::Receiver<Job>) -> Option<PostgresError> {
        let session = &mut session;
        let mut poll = interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let (hints, asked) = (session.hints.clone(), since_boot());
            let outcome = tokio::select! {
                job = queue.recv() => {
                    let mut jobs = vec![job?];
                    take_more(&mut jobs, queue);
                    self.write(session, jobs, queue).await
                }
                () = hints.notified() => self.follow(session).await,
                _ = poll.tick() => self.follow(session).await,
                () = self.hints.due() => self.hint(session).await,
            };
            if let Err(error) = outcome {
                return Some(error);
            }
            self.tenure.confirmed(asked);
        }
    }

    async fn hint(&mut self, session: &Session) -> Result<(), PostgresError> {
        self.hints.wrote(true);
        within(async { Ok(session.client.execute(&session.statements.notify, &[]).await.map(drop)?) }).await
    }

    /// Takes in what others have written.
    async fn follow(&mut self, session: &mut Session) -> Result<(), PostgresError> {
        if !within(load::catch_up(session, &self.table)).await? {
            self.load(session).await?;
        }
        self.forget_readable();
        Ok(())
    }

    /// Documents that could not be read, and that another coordinator has written in a form that can be.
    fn forget_readable(&mut self) {
        let unread = |of: &Unreadable| kind_of(of).is_none_or(|kind| self.table.get(kind, &of.name).is_none());
        let before = self.says_unreadable.load_full();
        if !before.iter().all(unread) {
            self.take_names(before.iter().filter(|of| unread(of)).cloned().collect());
        }
    }

    /// Loads everything again. As long as it takes: each of its statements has a limit.
    async fn load(&mut self, session: &mut Session) -> Result<(), PostgresError> {
        let (loaded, revision) = load::documents(&mut session.client).await?;
        tracing::warn!(
            revision,
            "changes of other coordinators are no longer kept, or not to be read: all documents were loaded again"
        );
        self.take_names(loaded.unreadable);
        self.table.replace(loaded.documents, revision);
        Ok(())
    }

    /// These are the documents that this version cannot read.
    fn take_names(&mut self, unreadable: Vec<Unreadable>) {
        self.unreadable = unreadable.iter().filter_map(|of| Some((kind_of(of)?, of.name.clone()))).collect();
        self.says_unreadable.store(Arc::new(unreadable));
    }

    /// Writes in one transaction, and answers. An error means that the session cannot be used any more.
    async fn write(
        &mut self, session: &mut Session, mut jobs: Vec<Job>, queue: &mut mpsc::Receiver<Job>,
    ) -> Result<(), PostgresError> {
        let (begun, asked) = (Instant::now(), since_boot());
        let outcome = self.commit(session, &mut jobs, queue).await;
        metrics().commit_operations.observe(jobs.len() as f64);
        metrics().commit_seconds.took(begun.elapsed());
        match outcome {
            Ok(committed) => {
                // Before the answers: who has one goes on to promise something.
                self.tenure.confirmed(asked);
                let trims = committed.changes.iter().any(|change| change.revision.is_multiple_of(TRIM_EVERY));
                let loaded = match committed.others {
                    Some(others) => {
                        others.into_iter().chain(committed.changes).for_each(|change| self.table.apply(change));
                        Ok(())
                    }
                    None => self.load(session).await,
                };
                for (job, planned) in jobs.into_iter().zip(committed.planned) {
                    job.answer(planned, &committed.positions);
                }
                loaded?;
                self.forget_readable();
                if trims { self.trim(session).await } else { Ok(()) }
            }
            Err(error) => {
                metrics().commit_failures.add(1);
                tracing::error!(%error, "PostgreSQL refused a commit; none of its writes was acknowledged");
                let (is_silent, error) = (matches!(error, PostgresError::Silent(_)), Arc::new(error));
                for job in jobs {
                    job.refuse(StoreError::Postgres(error.clone()));
                }
                if is_silent {
                    return Err(PostgresError::Silent(ANSWER));
                }
                within(async { Ok(session.client.batch_execute("ROLLBACK").await?) }).await
            }
        }
    }

    async fn trim(&self, session: &Session) -> Result<(), PostgresError> {
        let trim = session.client.execute(&session.statements.trim_changes, &[&CHANGES, &CHANGE_BYTES]);
        within(async { Ok(trim.await.map(drop)?) }).await
    }

    async fn commit(
        &mut self, session: &mut Session, jobs: &mut Vec<Job>, queue: &mut mpsc::Receiver<Job>,
    ) -> Result<Committed, PostgresError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let hints = self.hints.may_give();
            let is_beside = self.beside.is_some_and(|last| last.elapsed() < BESIDE);
            let ground = Ground { session, table: &self.table, unreadable: &self.unreadable, is_beside, hints };
            let commit = batch::commit(&ground, jobs, |jobs| take_more(jobs, queue));
            let failed = match timeout(ANSWER, commit).await {
                Ok(Ok(committed)) => {
                    if committed.others.as_ref().is_none_or(|others| !others.is_empty()) {
                        self.beside = Some(Instant::now());
                    }
                    if !committed.changes.is_empty() {
                        self.hints.wrote(hints);
                    }
                    return Ok(committed);
                }
                Ok(Err(failed)) => failed,
                Err(_) => return Err(PostgresError::Silent(ANSWER)),
            };
            match failed {
                Failed::Error(error) if tries == TRIES || !error.is_collision() => return Err(error),
                Failed::Deleted if tries == TRIES => return Err(PostgresError::Deleted),
                Failed::Behind if tries == TRIES => return Err(PostgresError::Another),
                _ => within(async { Ok(session.client.batch_execute("ROLLBACK").await?) }).await?,
            }
            if matches!(failed, Failed::Behind) && !within(load::catch_up(session, &self.table)).await? {
                self.load(session).await?;
            }
        }
    }

    /// Connects again; refuses everything until then. `None` if the store is dropped, or the database is not what it was.
    async fn connect_again(&mut self, mut why: PostgresError, queue: &mut mpsc::Receiver<Job>) -> Option<Session> {
        let [mut pause, longest] = BACKOFF;
        let tenure = self.tenure.clone();
        let mut logged = String::new();
        if matches!(why, PostgresError::WentBack { .. }) {
            // What others write meanwhile could hide it.
            tracing::error!(error = %why, "this coordinator starts anew with what is there");
            tenure.end();
            return None;
        }
        loop {
            // Each reason once: it may last for days.
            let reason = why.to_string();
            if reason != logged {
                tracing::error!(
                    error = reason,
                    "the connection to PostgreSQL is lost; writes are refused until there is another"
                );
                logged = reason;
            }
            let refusal = Arc::new(why);
            let wait = pause;
            let connecting = async {
                sleep(wait).await;
                let mut session = Session::again(&self.link, self.id, self.incarnation.as_deref()).await?;
                within(load::refuse_another_past(&session, &self.table)).await?;
                if !within(load::catch_up(&session, &self.table)).await? {
                    self.load(&mut session).await?;
                }
                // Again: another coordinator may have begun one since, and then revisions do not show that it went back.
                within(session.refuse_another_incarnation(self.incarnation.as_deref())).await?;
                Ok::<_, PostgresError>(session)
            };
            let mut connecting = std::pin::pin!(connecting);
            why = loop {
                tokio::select! {
                    outcome = &mut connecting => match outcome {
                        Ok(session) => {
                            tracing::info!("connected to PostgreSQL again");
                            return Some(session);
                        }
                        Err(error) if error.begins_anew() => {
                            tracing::error!(%error, "this coordinator starts anew with what is there");
                            tenure.end();
                            return None;
                        }
                        Err(error) => break error,
                    },
                    job = queue.recv() => job?.refuse(StoreError::Postgres(refusal.clone())),
                }
            };
            pause = longest.min(wait * 2);
        }
    }
}
