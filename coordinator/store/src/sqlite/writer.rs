//! The writer thread: drains its queue into one transaction, commits, then answers.

use std::{collections::VecDeque, fs::File, path::PathBuf, sync::Arc, thread::JoinHandle, time::Instant};

use nix::fcntl::Flock;
use rusqlite::{Connection, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::unwritten::{Key, Unwritten};
use super::wal::Wal;
use super::{snapshot, vacuum};
use crate::open_error::OpenError;
use crate::{Change, StoreError, memory::Table, overlay::Overlay};
use landfall_edge::metrics::metrics;

/// Operations that may wait in the queue; further callers wait outside.
const QUEUE: usize = 1024;
/// Operations in one transaction at most, so that an answer is never far away.
const BATCH: usize = 256;
/// Revisions that are taken on the disk ahead of their use. A change that is written later has its revision in memory alone,
/// and after a crash no other change may get that one: a reader would take the two for the same.
const REVISIONS_AHEAD: u64 = 1 << 16;

/// A transaction under way, as an operation sees it.
pub(super) struct Batch<'c> {
    pub(super) transaction: Transaction<'c>,
    pub(super) overlay: Overlay<'c>,
    /// What the disk does not have yet.
    pub(super) unwritten: &'c mut Unwritten,
    /// Of these, what it has once this is committed.
    pub(super) written: Vec<Key>,
    /// SQLite ended the transaction by itself, as it may when the disk fails: nothing after this belongs to it.
    lost: Option<Arc<rusqlite::Error>>,
}

/// Learns whether the commit held, and answers the caller.
type Answer = Box<dyn FnOnce(Result<(), Arc<rusqlite::Error>>) + Send>;
/// Does its work in the transaction, or learns why there is none.
type Job = Box<dyn FnOnce(Result<&mut Batch<'_>, StoreError>) -> Answer + Send>;

enum Task {
    Write(Job),
    Snapshot { to: PathBuf, reply: oneshot::Sender<Result<(), StoreError>> },
}

pub(super) struct Writer {
    /// `None` only while being dropped.
    tasks: Option<mpsc::Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection, wal: Wal, lock: Flock<File>, table: Arc<Table>, revision: u64, last: Last,
    ) -> Result<Self, OpenError> {
        let (tasks, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                let progress = Progress { wal, table, revision, taken: revision, unwritten: Unwritten::default() };
                run(&connection, progress, queue, last);
                drop(connection);
                // Only now may another process have the files.
                drop(lock);
            })
            .map_err(|source| OpenError::Io { path: PathBuf::from("the store's writer thread"), source })?;
        Ok(Self { tasks: Some(tasks), thread: Some(thread) })
    }

    async fn send(&self, task: Task) -> Result<(), StoreError> {
        let tasks = self.tasks.as_ref().ok_or(StoreError::Closed)?;
        tasks.send(task).await.map_err(|_| StoreError::Closed)
    }

    /// Waits until the thread has ended, which it does by a panic alone.
    pub(super) async fn ended(&self) {
        if let Some(tasks) = &self.tasks {
            tasks.closed().await;
        }
    }

    /// Runs `operation` in the next transaction; returns after its commit. An error undoes this operation alone.
    pub(super) async fn submit<T: Send + 'static>(
        &self, operation: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |batch| {
            let result = batch.and_then(|batch| in_savepoint(batch, operation));
            Box::new(move |commit| {
                // The caller may have gone; what it asked for stands all the same.
                let _gone = reply.send(result.and_then(|value| commit.map(|()| value).map_err(StoreError::Commit)));
            })
        });
        self.send(Task::Write(job)).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Copies the database, while it is written to.
    pub(super) async fn snapshot(&self, to: PathBuf) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Snapshot { to, reply }).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has said so already; nothing is left to do here.
            let _panicked = thread.join();
        }
    }
}

/// What the writer knows besides its connection.
struct Progress {
    wal: Wal,
    table: Arc<Table>,
    revision: u64,
    /// The highest revision that the disk says may be in use.
    taken: u64,
    unwritten: Unwritten,
}

fn run(connection: &Connection, mut progress: Progress, mut queue: mpsc::Receiver<Task>, last: Last) {
    while let Some(first) = queue.blocking_recv() {
        let mut waiting = VecDeque::from_iter(serve(connection, &mut progress, Some(first), &mut queue));
        // One copy at a time: a request for another one waits, and all writes continue.
        while let Some((to, reply)) = waiting.pop_front() {
            let copied = snapshot::copy(connection, &to, || {
                waiting.extend(serve(connection, &mut progress, None, &mut queue));
            });
            let _gone = reply.send(copied);
        }
    }
    if let Err(error) = end(connection, &mut progress, last) {
        tracing::warn!(%error, "the newest statuses were not written; the next start makes them up from the events");
    }
    if let Err(error) = vacuum::rebuild(connection) {
        tracing::warn!(%error, "the database was not rebuilt; the next stop tries again");
    }
    if let Err(error) = super::wal::fold(connection) {
        tracing::warn!(%error, "the write-ahead log was not checkpointed; the next start does it");
    }
}

/// What the last transaction does.
pub(super) type Last = fn(&mut Batch<'_>) -> Result<(), StoreError>;

/// The last transaction; after it the disk has the revision as it is.
fn end(connection: &Connection, progress: &mut Progress, last: Last) -> Result<(), StoreError> {
    let transaction = connection.unchecked_transaction()?;
    let overlay = Overlay::new(&progress.table, Vec::new(), progress.revision);
    let mut batch = Batch { transaction, overlay, unwritten: &mut progress.unwritten, written: Vec::new(), lost: None };
    last(&mut batch)?;
    note_revision(&batch.transaction, progress.revision)?;
    Ok(batch.transaction.commit()?)
}

fn note_revision(transaction: &Transaction<'_>, revision: u64) -> rusqlite::Result<()> {
    transaction.prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'revision'")?.execute([revision]).map(drop)
}

/// A snapshot asked for: where to, and who waits for it.
type Asked = (PathBuf, oneshot::Sender<Result<(), StoreError>>);

/// Commits and answers what waits, as far as one transaction goes; answers a snapshot that was asked for.
fn serve(
    connection: &Connection, progress: &mut Progress, first: Option<Task>, queue: &mut mpsc::Receiver<Task>,
) -> Option<Asked> {
    let mut jobs = Vec::new();
    let mut snapshot = None;
    let mut next = first.or_else(|| queue.try_recv().ok());
    while let Some(task) = next.take() {
        match task {
            Task::Write(job) => jobs.push(job),
            Task::Snapshot { to, reply } => {
                snapshot = Some((to, reply));
                break;
            }
        }
        if jobs.len() < BATCH {
            next = queue.try_recv().ok();
        }
    }
    if jobs.is_empty() {
        return snapshot;
    }
    metrics().commit_operations.observe(jobs.len() as f64);
    let begun = Instant::now();
    let (answers, outcome) = commit(connection, progress, jobs);
    metrics().commit_seconds.took(begun.elapsed());
    let outcome = outcome.map(|(changes, written, revision)| {
        written.iter().for_each(|key| progress.unwritten.written(key));
        for change in changes {
            progress.revision = change.revision;
            let key = (change.document.kind(), change.document.metadata().name.clone());
            if change.is_written {
                progress.unwritten.written(&key);
            } else {
                progress.unwritten.note(key, begun);
            }
            progress.table.apply(change);
        }
        if revision > progress.revision {
            // It has left some out.
            progress.revision = revision;
            progress.table.leave_out(revision);
        }
    });
    if let Err(error) = &outcome {
        metrics().commit_failures.add(1);
        tracing::error!(%error, "the database refused a commit; none of its writes was acknowledged");
    }
    for answer in answers {
        answer(outcome.clone());
    }
    if outcome.is_ok()
        && let Err(error) = vacuum::give_back(connection)
    {
        tracing::warn!(%error, "the database keeps the room of deleted rows");
    }
    progress.wal.keep_bounded(connection);
    snapshot
}

fn commit(
    connection: &Connection, progress: &mut Progress, jobs: Vec<Job>,
) -> (Vec<Answer>, Result<Committed, Arc<rusqlite::Error>>) {
    if let Err(error) = progress.wal.admit(connection) {
        let (path, bytes) = match error {
            StoreError::WalFull { path, bytes } => (path, bytes),
            StoreError::Database(error) => return refuse(jobs, &Arc::new(error)),
            _ => return refuse(jobs, &Arc::new(rusqlite::Error::InvalidQuery)),
        };
        tracing::error!(path = %path.display(), bytes, "writes wait until another program stops reading");
        let full = || StoreError::WalFull { path: path.clone(), bytes };
        return (jobs.into_iter().map(|job| job(Err(full()))).collect(), Ok(Committed::default()));
    }
    let transaction = match connection.unchecked_transaction() {
        Ok(transaction) => transaction,
        Err(error) => return refuse(jobs, &Arc::new(error)),
    };
    let overlay = Overlay::new(&progress.table, Vec::new(), progress.revision);
    let mut batch = Batch { transaction, overlay, unwritten: &mut progress.unwritten, written: Vec::new(), lost: None };
    let answers = jobs.into_iter().map(|job| job(Ok(&mut batch))).collect();
    let Batch { transaction, overlay: Overlay { revision, changes, .. }, written, lost, .. } = batch;
    let taken = progress.taken;
    let finish = || {
        if let Some(error) = lost {
            return Err(error);
        }
        if revision > taken {
            note_revision(&transaction, revision + REVISIONS_AHEAD)?;
        }
        transaction.commit().map_err(Arc::new)
    };
    let committed = finish().map(|()| (changes, written, revision));
    if committed.is_ok() && revision > taken {
        progress.taken = revision + REVISIONS_AHEAD;
    }
    (answers, committed)
}

/// The changes of a transaction, what it wrote of what was left unwritten, and the store's revision after it.
type Committed = (Vec<Change>, Vec<Key>, u64);

/// There is no transaction: everybody learns why.
fn refuse(jobs: Vec<Job>, error: &Arc<rusqlite::Error>) -> (Vec<Answer>, Result<Committed, Arc<rusqlite::Error>>) {
    let answers = jobs.into_iter().map(|job| job(Err(StoreError::Commit(error.clone())))).collect();
    (answers, Err(error.clone()))
}

fn in_savepoint<T>(
    batch: &mut Batch<'_>, operation: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if let Some(error) = &batch.lost {
        return Err(StoreError::Commit(error.clone()));
    }
    let (begun, written) = ((batch.overlay.revision, batch.overlay.changes.len()), batch.written.len());
    let result = savepoint(batch, operation);
    if result.is_err() {
        batch.overlay.back_to(begun);
        batch.written.truncate(written);
    }
    // A full disk or a failing one makes SQLite roll the whole transaction back. Outside of it every further statement
    // would commit by itself, and be stored although its caller got an error.
    if batch.transaction.is_autocommit() {
        let error = match result {
            Err(StoreError::Database(error)) => error,
            _ => rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), None),
        };
        let error = Arc::new(error);
        batch.lost = Some(error.clone());
        return Err(StoreError::Commit(error));
    }
    result
}

fn savepoint<T>(
    batch: &mut Batch<'_>, operation: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    run_cached(&batch.transaction, "SAVEPOINT operation")?;
    let result = operation(batch);
    if batch.transaction.is_autocommit() {
        return result;
    }
    if result.is_err() {
        run_cached(&batch.transaction, "ROLLBACK TO operation")?;
    }
    run_cached(&batch.transaction, "RELEASE operation")?;
    result
}

/// Compiled once: every operation needs it.
fn run_cached(transaction: &Transaction<'_>, statement: &str) -> rusqlite::Result<()> {
    transaction.prepare_cached(statement)?.execute([]).map(drop)
}
