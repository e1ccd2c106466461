//! `reboot` and `powerOff`: all written data reaches its device. The runner's caller restarts the machine after the
//! report: the event must be sent before the network goes down.

use std::time::Duration;

use landfall_api::message::ActionResult;
use tokio::time::timeout;

use crate::{runner::Failure, thread::on_thread};

/// A device that answers within this has its data synced. One that hangs must not keep the machine from its restart: each
/// action flushed what it wrote.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// Syncs every file system, and says that the machine may restart.
pub(super) async fn reboot() -> Result<ActionResult, Failure> {
    sync().await;
    Ok(ActionResult::Reboot)
}

/// Syncs every file system, and says that the machine may be turned off.
pub(super) async fn off() -> Result<ActionResult, Failure> {
    sync().await;
    Ok(ActionResult::PowerOff)
}

async fn sync() {
    match timeout(SYNC_LIMIT, on_thread("sync", nix::unistd::sync)).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::warn!("cannot start a thread that syncs the file systems: {e}"),
        Err(_) => tracing::warn!(
            "a device does not answer; the machine goes down without waiting for it after {} s",
            SYNC_LIMIT.as_secs()
        ),
    }
}
