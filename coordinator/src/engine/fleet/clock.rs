//! Where the engine reads the time.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

/// Where the engine reads the time; a test's own clock stands in for it.
pub type Clock = Arc<dyn Timepiece>;

/// Two clocks: the wall's, and one that is never set.
pub trait Timepiece: Send + Sync {
    /// By the wall's clock.
    fn wall(&self) -> Timestamp;

    /// By a clock that is never set and never goes back.
    fn steady(&self) -> Instant {
        Instant::now()
    }
}

impl<F: Fn() -> Timestamp + Send + Sync> Timepiece for F {
    fn wall(&self) -> Timestamp {
        self()
    }
}
