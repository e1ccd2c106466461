//! Limits of time.

use std::time::Duration;

use jiff::Timestamp;

/// Whether so much time has passed since; never if it was not.
pub(super) fn over(since: Option<Timestamp>, limit: Duration, now: Timestamp) -> bool {
    since.is_some_and(|since| Duration::try_from(now.duration_since(since)).is_ok_and(|passed| passed >= limit))
}
