//! Machines' power, through their BMCs: one task a machine, so that a BMC that hangs delays no other.

mod boot;
mod by_hand;
mod connection;
mod console;
mod control;
mod documents;
mod driver;
mod known;
mod leave;
mod logins;
mod make;
mod record;
mod request;
mod starts;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_api::Kind;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use super::identities::Identities;
use super::secrets::Vault;
use super::steps::Steps;
pub use console::OpenConsole;
use console::Seats;
pub(in crate::engine) use control::Control;
pub(in crate::engine) use driver::Driver;
use known::Known;
use logins::Logins;
use request::Asked;
use starts::Starts;

/// A machine's power must read off for so long before its lease counts as ended: some BMCs read off in the middle of a restart.
const OFF_FOR: Duration = Duration::from_secs(10);
/// How often the documents are compared with the tasks.
const TICK: Duration = Duration::from_secs(1);

/// What the tasks share.
pub(in crate::engine) struct Shared {
    pub(in crate::engine) fleet: Arc<Fleet>,
    steps: Steps,
    vault: Arc<Vault>,
    identities: Arc<Identities>,
    logins: Logins,
    starts: Arc<Starts>,
    known: Known,
}

/// A machine's task, as its keeper sees it.
struct Line {
    control: Control,
    wake: Arc<Notify>,
    noted: Arc<Mutex<Noted>>,
    /// Where persons' requests go.
    asked: mpsc::Sender<Asked>,
    stop: CancellationToken,
}

/// Requests of persons that may wait for one BMC; more are refused.
const REQUESTS: usize = 8;

/// What a task has seen; when there is something newer, it looks at once.
#[derive(Debug, Default)]
struct Noted {
    /// The workflow that it has dealt with.
    workflow: Option<String>,
    /// It waits for another version of this Secret's document: the account is missing or refused.
    secret: Option<(String, u64)>,
}

fn lock(noted: &Mutex<Noted>) -> MutexGuard<'_, Noted> {
    // Every change of it is one assignment.
    noted.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Machines' power.
pub struct Power {
    shared: Arc<Shared>,
    lines: Mutex<HashMap<String, Line>>,
    seats: Seats,
}

impl Power {
    pub(in crate::engine) fn new(
        fleet: Arc<Fleet>, steps: Steps, vault: Arc<Vault>, identities: Arc<Identities>,
    ) -> Self {
        let (starts, known) = (Arc::default(), Known::default());
        let logins = Logins::default();
        let shared = Arc::new(Shared { fleet, steps, vault, identities, logins, starts, known });
        Self { shared, lines: Mutex::default(), seats: Seats::default() }
    }

    /// Keeps one task for each machine whose power is controlled, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let mut every = tokio::time::interval(TICK);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tasks = JoinSet::new();
        self.seats.begin();
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            self.follow(&mut tasks, &stop);
            while tasks.try_join_next().is_some() {}
            self.wake().await;
        }
        // They close their sessions.
        self.seats.close().await;
        while tasks.join_next().await.is_some() {}
    }

    /// Begins and ends tasks as the documents have BMCs.
    fn follow(&self, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        let (wanted, mut lines) = (self.shared.fleet.index().controls(), self.lines());
        self.seats.follow(&wanted);
        lines.retain(|name, line| {
            let stays = wanted.get(name).is_some_and(|control| *control == line.control) && !line.asked.is_closed();
            if !stays {
                line.stop.cancel();
            }
            stays
        });
        for (name, control) in wanted {
            if lines.contains_key(&name) {
                continue;
            }
            let (asked, requests) = mpsc::channel(REQUESTS);
            let line = Line {
                control: control.clone(),
                wake: Arc::default(),
                noted: Arc::default(),
                asked,
                stop: stop.child_token(),
            };
            let driver = Driver::new(self.shared.clone(), name.clone(), control, line.noted.clone());
            tasks.spawn(driver.run(line.wake.clone(), requests, line.stop.clone()));
            lines.insert(name, line);
        }
    }

    /// Has those look at once that have something new to see.
    async fn wake(&self) {
        let active = self.shared.fleet.index().active();
        let active: HashMap<_, _> = active.into_iter().map(|(workflow, machine)| (machine, workflow)).collect();
        let mut waiting = Vec::new();
        for (name, line) in self.lines().iter() {
            let noted = lock(&line.noted);
            if active.get(name).is_some_and(|workflow| noted.workflow.as_ref() != Some(workflow)) {
                line.wake.notify_one();
            }
            waiting.extend(noted.secret.clone().map(|secret| (secret, line.wake.clone())));
        }
        for ((secret, version), wake) in waiting {
            if let Ok(found) = self.shared.fleet.store().documents().get(Kind::Secret, &secret).await
                && found.is_some_and(|document| document.metadata().resource_version != version)
            {
                wake.notify_one();
            }
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<String, Line>> {
        // Every change of it is one insertion or removal.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task's look, for tests.
    #[cfg(test)]
    pub(in crate::engine) fn driver(&self, machine: &str) -> Option<Driver> {
        let control = self.shared.fleet.index().controls().remove(machine)?;
        Some(Driver::new(self.shared.clone(), machine.to_owned(), control, Arc::default()))
    }
}
