//! What a BMC's servers share with the test.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::State;
use crate::quirks::Quirks;

/// The state, and word of each change.
#[derive(Clone)]
pub(crate) struct Shared {
    state: Arc<Mutex<State>>,
    pub(crate) changed: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn new(quirks: Quirks) -> Self {
        let state = State { quirks, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), changed: watch::Sender::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked over it has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}
