//! What every part of the engine shares: the documents, the index over them, each machine's lock, the settings and the time.

mod beside;
mod clock;
mod index;
mod live;
mod queue;
mod reservations;
mod settings;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use landfall_api::{Document, ErrorCode, Kind, Machine, Problem, Shared, Workflow, edit_distance};
use landfall_machine::{Horizon, Limits, Now, Steady};
use landfall_proto::OLDEST_PROTOCOL;
use landfall_store::{CONFIRMED_WITHIN, Store, StoreError, audit::Note};
use tokio::time::Instant;
use uuid::Uuid;

pub use beside::Beside;
pub use clock::{Clock, Timepiece};
pub use settings::Settings;

pub(in crate::engine) use index::Index;
pub(in crate::engine) use live::Live;
pub(in crate::engine) use queue::PLACES;

use live::Machines;

/// After so long without a word of the store. A database that restarts takes less, and disturbs no agent.
pub(in crate::engine) const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Writes that lose a compare-and-swap this often in a row give up: another writer writes without end.
pub(in crate::engine) const CAS_TRIES: usize = 16;

/// The machines and workflows there are, and what is known of them beyond their documents.
pub struct Fleet {
    store: Store,
    /// A reload replaces them while they are read.
    settings: ArcSwap<Settings>,
    clock: Clock,
    /// When this process started.
    begun: Instant,
    horizon: Horizon,
    index: Mutex<Index>,
    machines: Machines,
    beside: Beside,
}

impl Fleet {
    /// The fleet of a store whose documents `index` has taken in.
    pub(in crate::engine) fn new(
        store: Store, settings: Settings, clock: Clock, horizon: Horizon, index: Index,
    ) -> Self {
        Self {
            begun: clock.steady(),
            beside: Beside::new(settings.own.clone(), store.clone(), clock.clone()),
            store,
            settings: ArcSwap::from_pointee(settings),
            clock,
            horizon,
            index: Mutex::new(index),
            machines: Machines::default(),
        }
    }

    /// Where the documents are.
    pub(in crate::engine) const fn store(&self) -> &Store {
        &self.store
    }

    /// Whether what is promised to an agent now holds: no other coordinator can have taken its machine over.
    pub(in crate::engine) fn may_promise(&self) -> bool {
        self.store.documents().unconfirmed() < CONFIRMED_WITHIN
    }

    /// The same, for what must not be done otherwise.
    pub(in crate::engine) fn is_sure(&self) -> Result<(), Problem> {
        if self.may_promise() {
            return Ok(());
        }
        let unsure = "the database has not answered this coordinator for some seconds";
        Err(Problem::new(ErrorCode::StoreUnavailable, unsure)
            .hint("check the database; another coordinator may have taken this one's place"))
    }

    /// Takes in what other coordinators have stored until now.
    ///
    /// # Errors
    /// [`Problem`] with code `StoreUnavailable`: the store does not answer, or 2 s were not enough.
    pub(in crate::engine) async fn hear_others(&self) -> Result<(), Problem> {
        let newest = self.store.documents().newest().await?;
        if self.beside.hear_of(newest).await {
            return Ok(());
        }
        Err(Self::has_not_heard())
    }

    /// Why nothing is refused by what another coordinator may have changed.
    pub(in crate::engine) fn has_not_heard() -> Problem {
        let late = "this coordinator has not yet taken in what other coordinators stored";
        Problem::new(ErrorCode::StoreUnavailable, late).hint("ask again in some seconds")
    }

    /// Whether what one of several coordinators does alone may be done now.
    ///
    /// # Errors
    /// [`Problem`] with code `StoreUnavailable`.
    pub(crate) fn is_sure_to_lead(&self) -> Result<(), Problem> {
        if self.leads() {
            return self.is_sure();
        }
        let unsure = "this coordinator does not lead any more";
        Err(Problem::new(ErrorCode::StoreUnavailable, unsure).hint("ask again in some seconds"))
    }

    /// Whether this coordinator has lost its store for so long that agents and machines are better off with another one, if there is one.
    pub fn has_lost_store(&self) -> bool {
        self.store.documents().unconfirmed() > GIVE_UP_AFTER
    }

    /// What this coordinator is among others with one database.
    pub const fn beside(&self) -> &Beside {
        &self.beside
    }

    /// This coordinator's URL, where several have one database.
    pub fn own(&self) -> Option<Arc<str>> {
        self.beside.own()
    }

    /// Whether this coordinator does what one of several does alone.
    pub fn leads(&self) -> bool {
        self.beside.leads()
    }

    /// As [`Beside::has`].
    pub(in crate::engine) fn has(&self, machine: &Machine) -> bool {
        self.beside.has(machine)
    }

    /// The same by the machine's name; not of one that is gone.
    pub(in crate::engine) async fn has_named(&self, name: &str) -> Result<bool, Problem> {
        Ok(self.own().is_none() || self.store.machine(name).await?.is_some_and(|machine| self.has(&machine)))
    }

    /// Every machine's lock.
    pub(in crate::engine) const fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Goes by other settings from now on. What was already promised (a lease, a deadline) stands.
    pub(in crate::engine) fn reload(&self, settings: Settings) {
        // Where there is more room now, the next tick lets the next begin.
        self.index().admission.allow(settings.parallel_installs);
        self.settings.store(Arc::new(settings));
    }

    /// The time, by the wall's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// This moment, by both clocks.
    pub(in crate::engine) fn moment(&self) -> Now {
        let passed = self.clock.steady().saturating_duration_since(self.begun);
        Now { wall: self.now(), steady: Steady::after_start(passed) }
    }

    /// The time so long from now.
    pub(in crate::engine) fn after(&self, duration: Duration) -> Timestamp {
        self.now().checked_add(duration).unwrap_or(Timestamp::MAX)
    }

    /// What a step goes by.
    pub(in crate::engine) fn limits(&self) -> Limits {
        let settings = self.settings.load();
        Limits {
            lease: settings.lease,
            heartbeat: settings.heartbeat,
            phone_home_deadline: settings.phone_home_deadline,
            netboot_deadline: settings.netboot_deadline,
            oldest_protocol: OLDEST_PROTOCOL,
            horizon: self.horizon,
        }
    }

    /// The settings it goes by.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// The index, locked. Never held over an await.
    pub(in crate::engine) fn index(&self) -> MutexGuard<'_, Index> {
        // Every change of the index is a single insertion or removal, so a poisoned lock is still good.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::engine) async fn machine_by_uid(&self, uid: Uuid) -> Result<Shared<Machine>, Problem> {
        let name = self.machine_name(uid)?;
        self.store.machine(&name).await?.ok_or_else(|| no_machine(uid))
    }

    /// The name alone: most who hear of a machine need no more, and its document is large.
    pub(in crate::engine) fn machine_name(&self, uid: Uuid) -> Result<String, Problem> {
        self.index().machine_name(uid).ok_or_else(|| no_machine(uid))
    }

    /// The machine of that name.
    pub(in crate::engine) async fn described(&self, name: &str) -> Result<Shared<Machine>, Problem> {
        match self.store.machine(name).await? {
            Some(machine) => Ok(machine),
            None => Err(self.not_found(Kind::Machine, name).await),
        }
    }

    /// `NotFound`, with the names that are near, or all if there are few.
    pub(in crate::engine) async fn not_found(&self, kind: Kind, name: &str) -> Problem {
        let problem =
            Problem::new(ErrorCode::NotFound, format!("there is no {kind} \"{name}\"")).at(format!("{kind}/{name}"));
        let names = match self.store.documents().list(kind).await {
            Ok((documents, _)) => documents.iter().map(|d| d.metadata().name.clone()).collect::<Vec<_>>(),
            Err(error) => return error.into(),
        };
        let mut near: Vec<_> = names.iter().map(|known| (edit_distance(name, known), known)).collect();
        near.sort();
        let limit = name.len() / 3 + 1;
        let close: Vec<_> = near.iter().filter(|(d, _)| *d <= limit).take(5).map(|(_, n)| n.as_str()).collect();
        if !close.is_empty() {
            problem.hint(format!("did you mean {}?", close.join(" or ")))
        } else if names.is_empty() {
            problem.hint(format!("there are no {} yet; create one with: landfall apply -f FILE", kind.plural()))
        } else {
            let some: Vec<_> = near.iter().take(8).map(|(_, n)| n.as_str()).collect();
            problem.hint(format!("there are: {}", some.join(", ")))
        }
    }

    /// The machine's newest workflow.
    pub(in crate::engine) async fn current_workflow(
        &self, machine: &Machine,
    ) -> Result<Option<Shared<Workflow>>, Problem> {
        match machine.status.as_ref().and_then(|s| s.workflow.as_deref()) {
            Some(name) => Ok(self.store.workflow(name).await?),
            None => Ok(None),
        }
    }

    /// Every workflow of a machine.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn workflows_of(&self, machine: &str) -> Result<Vec<Shared<Workflow>>, StoreError> {
        let names = self.index().runs_of(machine);
        let mut workflows = Vec::with_capacity(names.len());
        for name in names {
            workflows.extend(self.store.workflow(&name).await?);
        }
        Ok(workflows)
    }

    /// Changes a machine document by compare-and-swap, for what no step is about: keys, facts, alarms.
    pub(in crate::engine) async fn mutate_machine(
        &self, name: &str, mut change: impl FnMut(&mut Machine) + Send,
    ) -> Result<Shared<Machine>, Problem> {
        let always = |machine: &mut Machine| {
            change(machine);
            Ok(())
        };
        self.mutate_machine_if(name, always).await
    }

    /// The same, unless `change` refuses the newest document: another coordinator may have stored one that this one had not heard of.
    pub(in crate::engine) async fn mutate_machine_if(
        &self, name: &str, mut change: impl FnMut(&mut Machine) -> Result<(), Problem> + Send,
    ) -> Result<Shared<Machine>, Problem> {
        for _ in 0..CAS_TRIES {
            let Some(mut machine) = self.store.machine(name).await? else {
                return Err(StoreError::NotFound { kind: Kind::Machine, name: name.to_owned() }.into());
            };
            let before = machine.clone();
            change(&mut machine)?;
            if machine == before {
                return Ok(machine);
            }
            match self.store.documents().update(Document::from(machine)).await {
                Ok(Document::Machine(machine)) => return Ok(machine),
                Ok(_) => return Err(Problem::new(ErrorCode::Internal, "the store answered another kind of document")),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(contended(name))
    }

    /// Makes an entry of the audit log.
    pub async fn audit(&self, note: Note) {
        self.store.audit().note(self.now(), note).await;
    }
}

/// Each of [`CAS_TRIES`] met another writer: as if the store were not to be written.
pub(in crate::engine) fn contended(machine: &str) -> Problem {
    Problem::new(ErrorCode::StoreUnavailable, format!("machine \"{machine}\" is being changed without end"))
        .hint("find what changes it, then repeat the request")
}

fn no_machine(uid: Uuid) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("no machine document has the uid {uid}"))
        .hint("apply the machine again, then restart it so that it enrols again")
}
