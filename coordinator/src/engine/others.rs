//! What other coordinators store, where several have one database: the index takes it in, agents that are here are instructed by it,
//! machines of one that is gone get another, and what was withdrawn elsewhere is withdrawn here.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use landfall_api::{Document, Kind, Machine, Problem, Shared, Workflow};
use landfall_machine::{Input, elsewhere, has_begun, is_open};
use landfall_store::{Change, ChangeOp, Watch, WatchError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::fleet::{Fleet, Index};
use super::steps::Steps;
use super::telemetry::Telemetry;
use super::upkeep::Upkeep;

/// Machines whose locks are waited for at once.
const SIDE_BY_SIDE: usize = 64;
/// Between two looks at the tokens and withdrawn certificates.
const GRANTS: Duration = Duration::from_secs(1);

/// What others store.
pub struct Others {
    fleet: Arc<Fleet>,
    steps: Steps,
    telemetry: Arc<Telemetry>,
    upkeep: Arc<Upkeep>,
    /// Machines that are to be taken over, until all of that is done.
    owed: Mutex<BTreeSet<String>>,
}

impl Others {
    pub(in crate::engine) const fn new(
        fleet: Arc<Fleet>, steps: Steps, telemetry: Arc<Telemetry>, upkeep: Arc<Upkeep>,
    ) -> Self {
        Self { fleet, steps, telemetry, upkeep, owed: Mutex::new(BTreeSet::new()) }
    }

    fn owed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the store until `stop`, or until it is shut down.
    pub async fn follow(&self, stop: CancellationToken) {
        let concerned = Concerned::default();
        // A machine whose lock is held keeps the index behind for none, and no withdrawn token good.
        let all = async {
            tokio::select! {
                biased;
                () = self.take_in_until_closed(&concerned) => {}
                () = self.heed_all(&concerned) => {}
                () = self.take_grants_in() => {}
            }
        };
        stop.run_until_cancelled(all).await;
    }

    /// Takes in which tokens were made and deleted elsewhere, and which certificates were withdrawn.
    async fn take_grants_in(&self) {
        let mut every = tokio::time::interval(GRANTS);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failed = false;
        loop {
            every.tick().await;
            let taken = self.fleet.store().access().refresh().await;
            // Once for each outage.
            if let (Err(error), false) = (&taken, failed) {
                tracing::error!(%error, "tokens and withdrawn certificates cannot be read; they are read again each second");
            }
            failed = taken.is_err();
        }
    }

    async fn take_in_until_closed(&self, concerned: &Concerned) {
        let mut watch = None;
        loop {
            let step = async {
                let mut following = match watch.take() {
                    Some(following) => following,
                    None => self.take_all_in(concerned).await?,
                };
                self.take_in(&mut following, concerned).await?;
                Ok::<_, Lost>(following)
            };
            match step.await {
                Err(Lost::Watch(WatchError::Closed)) => return,
                Ok(following) => watch = Some(following),
                Err(Lost::Watch(WatchError::Expired { .. })) => {
                    tracing::info!(
                        "changes of other coordinators are no longer kept; every document is taken in again"
                    );
                }
                Err(Lost::Store(problem)) => {
                    tracing::error!(%problem, "the documents of other coordinators cannot be read; they are read again");
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn heed_all(&self, concerned: &Concerned) {
        loop {
            concerned.any.notified().await;
            self.heed(concerned.take()).await;
        }
    }

    /// Takes in everything there is, and follows from there.
    async fn take_all_in(&self, concerned: &Concerned) -> Result<Watch, Lost> {
        let documents = self.fleet.store().documents();
        // The older of the two revisions: what came between is taken in twice.
        let (machines, revision) = documents.list(Kind::Machine).await.map_err(Problem::from)?;
        let workflows = documents.list(Kind::Workflow).await.map_err(Problem::from)?.0;
        let watch = documents.watch(None, revision)?;
        let all: Vec<_> = machines.into_iter().chain(workflows).collect();
        {
            let mut index = self.fleet.index();
            index.retain(&all);
            all.iter().for_each(|document| put(&mut index, document));
        }
        concerned.add(all.iter().filter_map(machine_of));
        self.fleet.beside().followed(revision);
        Ok(watch)
    }

    /// Takes in the next change. Who makes a change here instructs the machine's agent, and puts it into the index; but where that was
    /// given up in between, only this brings the index up to date.
    async fn take_in(&self, watch: &mut Watch, concerned: &Concerned) -> Result<(), Lost> {
        let change = watch.next().await?;
        self.note(&change).await?;
        if change.is_of_others() {
            concerned.add(machine_of(&change.document));
        }
        self.fleet.beside().followed(change.revision);
        Ok(())
    }

    /// As it is now, and not as it was: a step here may have stored something newer, and the index know it.
    async fn note(&self, change: &Change) -> Result<(), Problem> {
        let document = &change.document;
        let now = self.fleet.store().documents().get(document.kind(), &document.metadata().name).await?;
        let is_same = now.as_ref().is_some_and(|now| now.metadata().uid == document.metadata().uid);
        if change.op == ChangeOp::Deleted && !is_same {
            match document {
                Document::Machine(machine) => self.fleet.index().drop_machine(machine),
                Document::Workflow(run) => {
                    self.fleet.index().drop_workflow(run);
                    run.metadata.uid.into_iter().for_each(|uid| self.telemetry.forget(uid));
                }
                _ => {}
            }
        }
        now.iter().for_each(|document| put(&mut self.fleet.index(), document));
        Ok(())
    }

    /// Lets the agents of these machines that are here heed what others have stored, and those go on that wait for room.
    async fn heed(&self, machines: BTreeSet<String>) {
        let look = |name: String| async move {
            let uid = self.fleet.store().machine(&name).await.ok().flatten().and_then(|machine| machine.metadata.uid);
            let Some(uid) = uid.filter(|uid| self.fleet.machines().knows(*uid)) else { return };
            let mut live = self.fleet.machines().lock(uid).await;
            if let Err(problem) = self.steps.heed_others(&mut live, &name).await {
                tracing::warn!(machine = name, %problem, "the session is closed; its agent reconnects");
                live.cut();
            }
        };
        futures::stream::iter(machines).for_each_concurrent(SIDE_BY_SIDE, look).await;
        self.steps.wake_queue();
    }

    /// Goes on with the machines of coordinators that are not there.
    ///
    /// # Errors
    /// The first [`Problem`] of the store; the others are taken over all the same.
    pub async fn take_over(&self, is_there: &(impl Fn(&str) -> bool + Sync)) -> Result<(), Problem> {
        let Some(own) = self.fleet.own() else { return Ok(()) };
        let is_gone =
            |machine: &Shared<Machine>| elsewhere::other(machine, Some(&own)).is_some_and(|holder| !is_there(holder));
        // Also what one of them stored at the end.
        self.fleet.hear_others().await?;
        let machines = self.fleet.store().machines().await?;
        self.owed().extend(machines.iter().filter(|machine| is_gone(machine)).map(|gone| gone.metadata.name.clone()));
        let owed = self.owed().clone();
        let taken = futures::stream::iter(owed)
            .map(|machine| async move {
                self.take_over_one(&machine, is_there).await?;
                self.owed().remove(&machine);
                Ok(())
            })
            .buffer_unordered(SIDE_BY_SIDE)
            .collect::<Vec<_>>()
            .await;
        taken.into_iter().collect()
    }

    async fn take_over_one(&self, name: &str, is_there: &(impl Fn(&str) -> bool + Sync)) -> Result<(), Problem> {
        let Some(machine) = self.fleet.store().machine(name).await? else { return Ok(()) };
        let gone = match elsewhere::other(&machine, self.fleet.own().as_deref()) {
            // Its agent has come to another one meanwhile, which goes on with it.
            Some(holder) if is_there(holder) => return Ok(()),
            holder => holder.map(str::to_owned),
        };
        if let Some(gone) = gone {
            tracing::warn!(machine = name, gone, "taken over from a coordinator that is gone");
            self.steps.hand_in(name, Input::TakeOver(gone)).await?;
        }
        // What the log has and the status has not: that one died between the two.
        let run = self.fleet.current_workflow(&machine).await?;
        match run.filter(|run: &Shared<Workflow>| is_open(run) && has_begun(run)) {
            Some(run) => self.upkeep.catch_up(&run).await,
            None => Ok(()),
        }
    }
}

/// The machines that what was taken in is about, until their agents are looked at.
#[derive(Default)]
struct Concerned {
    machines: Mutex<BTreeSet<String>>,
    any: Notify,
}

impl Concerned {
    fn add<'m>(&self, machines: impl IntoIterator<Item = &'m str>) {
        let machines = machines.into_iter().map(str::to_owned);
        self.machines.lock().unwrap_or_else(PoisonError::into_inner).extend(machines);
        self.any.notify_one();
    }

    fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.machines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Why nothing more is followed.
enum Lost {
    Watch(WatchError),
    Store(Problem),
}

impl From<WatchError> for Lost {
    fn from(error: WatchError) -> Self {
        Self::Watch(error)
    }
}

impl From<Problem> for Lost {
    fn from(problem: Problem) -> Self {
        Self::Store(problem)
    }
}

fn put(index: &mut Index, document: &Document) {
    match document {
        Document::Machine(machine) => index.put_machine(machine),
        Document::Workflow(run) => index.put_workflow(run),
        _ => {}
    }
}

/// The machine that a document is about.
fn machine_of(document: &Document) -> Option<&str> {
    match document {
        Document::Machine(machine) => Some(&machine.metadata.name),
        Document::Workflow(run) => Some(&run.spec.machine),
        _ => None,
    }
}
