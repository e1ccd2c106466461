//! How many machines are being started, as many as may be installed at once, since each that comes is; and how far apart they are
//! switched on.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The tasks that start a machine.
#[derive(Default)]
pub(super) struct Starts {
    under_way: Mutex<HashSet<u64>>,
    next: AtomicU64,
    /// When the last one was switched on.
    last_on: Mutex<Option<Instant>>,
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

    /// Takes the turn to switch a machine on, if it has come; otherwise how long it is away. The next one is `apart`.
    pub(super) fn take_turn(&self, apart: Duration) -> Result<(), Duration> {
        let mut last = self.last_on.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let left = last.map_or(Duration::ZERO, |last| apart.saturating_sub(now - last));
        if left.is_zero() {
            *last = Some(now);
            return Ok(());
        }
        Err(left)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn machines_are_switched_on_one_after_the_other() {
        let (starts, apart) = (Starts::default(), Duration::from_secs(5));
        assert_eq!(starts.take_turn(apart), Ok(()));
        assert_eq!(starts.take_turn(apart), Err(apart));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(starts.take_turn(apart), Err(Duration::from_secs(2)), "one that was not taken costs nothing");
        assert_eq!(starts.take_turn(Duration::from_secs(3)), Ok(()), "a shorter interval counts at once");
        assert_eq!(starts.take_turn(Duration::ZERO), Ok(()));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((starts.take_turn(apart), starts.take_turn(apart)), (Ok(()), Err(apart)));
    }
}
