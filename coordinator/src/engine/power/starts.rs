//! How many machines are being started: as many as may be installed at once, since each that comes is.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Machines that are being started, by name.
#[derive(Default)]
pub(super) struct Starts(Mutex<HashSet<String>>);

impl Starts {
    /// Whether a machine may be started while there are so many places; it has one from then on. One that has keeps it.
    pub(super) fn take(&self, machine: &str, places: usize) -> bool {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !under_way.contains(machine) && under_way.len() >= places {
            return false;
        }
        under_way.insert(machine.to_owned());
        true
    }

    /// It has come, or will not.
    pub(super) fn give_back(&self, machine: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(machine);
    }
}
