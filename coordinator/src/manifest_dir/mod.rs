//! Documents from a directory of YAML files: applied at the start, and whenever a file changes.
//!
//! A file says what it wants once: it is applied when its content changes, not again and again. So what a person changes
//! over the API stays changed, and what a person deletes stays deleted, until the file itself changes; the history names
//! who wrote last. What was applied is remembered in the store, so that a restored backup remembers what it knew.
//!
//! A file asks for no run: workflows in files are refused like anywhere else, and applying every file again installs
//! nothing. A document that goes from the files stays, unless `prune` is on.

mod read;
mod reconcile;
mod report;
#[cfg(test)]
mod tests;
mod watch;

use std::{sync::Arc, time::Duration};

use landfall_api::ManifestReport;
use tokio::{sync::watch as channel, time::timeout};
use tokio_util::sync::CancellationToken;

pub use read::{FileContent, Scan, scan};
pub use report::Manifests;

use crate::{config::ManifestsConfig, state::Coordinator};
use reconcile::Reconciler;
use watch::Changes;

/// A change is acted on once the directory has been quiet for this long: an editor writes a file in several steps.
const QUIET: Duration = Duration::from_millis(250);
/// But at the latest after this.
const BUSY: Duration = Duration::from_secs(2);

/// Keeps the store in line with the directory that `settings` names, until `stop`.
pub async fn run(
    coordinator: Arc<Coordinator>, mut settings: channel::Receiver<ManifestsConfig>, stop: CancellationToken,
) {
    let mut reconciler = Reconciler::new(coordinator.engine.clone(), coordinator.store.clone());
    loop {
        let now = settings.borrow_and_update().clone();
        let Some(directory) = now.directory.clone() else {
            coordinator.ops.manifests.publish(ManifestReport::default());
            tokio::select! {
                changed = settings.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = stop.cancelled() => return,
            }
        };
        // Watched before it is read, and anew each time: a directory that was replaced is another one.
        let changes = Changes::of(&directory);
        let path = directory.clone();
        let read = tokio::task::spawn_blocking(move || scan(&path)).await;
        match read {
            Ok(found) => coordinator.ops.manifests.publish(reconciler.apply(&directory, found, now.prune).await),
            Err(error) => tracing::error!(%error, "cannot read the manifests; the next scan retries"),
        }
        tokio::select! {
            () = settled(changes) => {}
            () = tokio::time::sleep(now.rescan.get()) => {}
            changed = settings.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Waits for a change, and then until there is quiet.
async fn settled(changes: Option<Changes>) {
    let Some(changes) = changes else { return std::future::pending().await };
    changes.next().await;
    let quiet = async { while timeout(QUIET, changes.next()).await.is_ok() {} };
    // Whether it became quiet or not, it is time to look.
    let _busy = timeout(BUSY, quiet).await;
}
