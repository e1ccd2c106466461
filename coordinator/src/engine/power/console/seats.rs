//! Who reads which machine's console: one person each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{BmcSpec, ConsoleInput};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::super::control::Control;
use super::INPUTS;
use super::output::Reader;

/// For the ends of all consoles when the coordinator stops.
const STOP: Duration = Duration::from_secs(5);

/// A console, as others see it.
pub(super) struct Held {
    pub(super) id: Uuid,
    /// Who reads it.
    pub(super) person: String,
    pub(super) since: Timestamp,
    spec: Arc<BmcSpec>,
    pub(super) reader: Reader,
    pub(super) input: mpsc::Sender<ConsoleInput>,
    /// The number of the newest input.
    pub(super) taken: AsyncMutex<u64>,
    /// It is to end; and why, for its reader.
    pub(super) ends: CancellationToken,
    why: Mutex<String>,
    /// It has ended.
    pub(super) gone: CancellationToken,
}

impl Held {
    /// Has it end.
    pub(super) fn end(&self, why: &str) {
        let mut said = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_empty() {
            why.clone_into(&mut said);
        }
        drop(said);
        self.ends.cancel();
    }

    /// Why it is to end.
    pub(super) fn why(&self) -> String {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type Open = Arc<Mutex<HashMap<String, Arc<Held>>>>;

fn lock(open: &Open) -> MutexGuard<'_, HashMap<String, Arc<Held>>> {
    // Every change of it is one insertion or removal.
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The consoles that are open, by machine.
#[derive(Default)]
pub(in crate::engine::power) struct Seats {
    open: Open,
    tasks: TaskTracker,
    /// Of this term: one of several coordinators may lead again.
    stop: Mutex<CancellationToken>,
}

/// The right to read a machine's console, until it is dropped.
pub(super) struct Seat {
    pub(super) held: Arc<Held>,
    machine: String,
    open: Open,
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.machine);
        self.held.gone.cancel();
    }
}

impl Seat {
    /// Runs a task that has the seat until its end.
    pub(super) fn task<F: Future<Output = ()> + Send + 'static>(
        self, tasks: &TaskTracker, task: impl FnOnce(Arc<Held>) -> F,
    ) {
        let running = task(self.held.clone());
        tasks.spawn(async move {
            running.await;
            drop(self);
        });
    }
}

impl Seats {
    /// The seat, and where its input comes out; or who has it.
    pub(super) fn take(
        &self, machine: &str, person: &str, spec: Arc<BmcSpec>, reader: Reader, now: Timestamp,
    ) -> Result<(Seat, mpsc::Receiver<ConsoleInput>), Arc<Held>> {
        let mut open = lock(&self.open);
        if let Some(held) = open.get(machine) {
            return Err(held.clone());
        }
        let (input, inputs) = mpsc::channel(INPUTS);
        let held = Arc::new(Held {
            id: Uuid::new_v4(),
            person: person.to_owned(),
            since: now,
            spec,
            reader,
            input,
            taken: AsyncMutex::default(),
            ends: self.stop().child_token(),
            why: Mutex::default(),
            gone: CancellationToken::new(),
        });
        open.insert(machine.to_owned(), held.clone());
        Ok((Seat { held, machine: machine.to_owned(), open: self.open.clone() }, inputs))
    }

    /// The console with that id.
    pub(super) fn held(&self, machine: &str, id: Uuid) -> Option<Arc<Held>> {
        lock(&self.open).get(machine).filter(|held| held.id == id).cloned()
    }

    /// It ends them all.
    pub(super) fn stop(&self) -> CancellationToken {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Consoles may be opened from now on.
    pub(in crate::engine::power) fn begin(&self) {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        if stop.is_cancelled() {
            *stop = CancellationToken::new();
            self.tasks.reopen();
        }
    }

    pub(super) const fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Ends those whose machine is gone, or has another BMC.
    pub(in crate::engine::power) fn follow(&self, wanted: &HashMap<String, Control>) {
        for (machine, held) in lock(&self.open).iter() {
            if wanted.get(machine).is_none_or(|control| *control != Control::Bmc(held.spec.clone())) {
                held.end("the machine's document has changed its BMC");
            }
        }
    }

    /// Ends all, when the coordinator stops, or leads no more.
    pub(in crate::engine::power) async fn close(&self) {
        self.stop().cancel();
        self.tasks.close();
        if timeout(STOP, self.tasks.wait()).await.is_err() {
            tracing::debug!("a console's session stays open until the BMC ends it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_leads_again_opens_consoles_again() {
        let seats = Seats::default();
        seats.begin();
        seats.close().await;
        assert!(seats.stop().is_cancelled());
        seats.begin();
        assert!(!seats.stop().is_cancelled() && !seats.tasks().is_closed());
    }
}
