//! How many machines are being started: as many as may be installed at once, since each that comes is.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The tasks that start a machine.
#[derive(Default)]
pub(super) struct Starts {
    under_way: Mutex<HashSet<u64>>,
    next: AtomicU64,
}

/// A task's place, which it may have or not; it has none once it is dropped.
pub(super) struct Place {
    starts: Arc<Starts>,
    /// Not the machine's name: a task that ends may still be there while the next of its machine begins.
    task: u64,
}

impl Starts {
    /// For one more task.
    pub(super) fn place(self: &Arc<Self>) -> Place {
        Place { starts: self.clone(), task: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<u64>> {
        // Every change of it is one insertion or removal.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether it is there, or would be among so many.
    pub(super) fn is_free(&self, places: usize) -> bool {
        let under_way = self.starts.under_way();
        under_way.contains(&self.task) || under_way.len() < places
    }

    /// Takes it if there is one among so many.
    pub(super) fn take(&self, places: usize) -> bool {
        let mut under_way = self.starts.under_way();
        let free = under_way.contains(&self.task) || under_way.len() < places;
        if free {
            under_way.insert(self.task);
        }
        free
    }

    /// The machine has come, or will not.
    pub(super) fn give_back(&self) {
        self.starts.under_way().remove(&self.task);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
    }
}
