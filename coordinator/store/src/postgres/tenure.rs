//! How sure a coordinator is of its session with the database.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::CONFIRMED_WITHIN;

/// From the first answer in a session.
pub(super) struct Tenure {
    confirmed: Mutex<Duration>,
    /// The session is lost, and there is no other yet.
    is_lost: AtomicBool,
    is_over: AtomicBool,
}

impl Tenure {
    /// Of a session to which the server answered what was asked at `asked`, of [`since_boot`].
    pub(super) fn new(asked: Duration) -> Self {
        Self { confirmed: Mutex::new(asked), is_lost: AtomicBool::new(false), is_over: AtomicBool::new(false) }
    }

    /// The server answered in the session what was asked at `asked`, of [`since_boot`].
    pub(super) fn confirmed(&self, asked: Duration) {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = asked;
        self.is_lost.store(false, Ordering::Release);
    }

    /// The session is lost.
    pub(super) fn lost(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// There will be no other.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// For how long nothing has confirmed it.
    pub(super) fn unconfirmed(&self) -> Duration {
        if self.is_over() {
            return Duration::MAX;
        }
        let at = *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let age = since_boot().saturating_sub(at);
        // Another may take its place at once, but this one need not be given up so soon.
        if self.is_lost.load(Ordering::Acquire) { age.max(CONFIRMED_WITHIN) } else { age }
    }
}

/// By the clock that runs on while the host sleeps.
pub(super) fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}
