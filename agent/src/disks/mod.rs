//! The machine's disks as a set: whether every bus has been scanned, which generation of the set is there, and what the
//! disks carry. "Exactly one disk matches" means something only of a complete set.

mod contents;
mod probe;
mod receipts;
mod scan;

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_api::{DiskFacts, DiskId, DiskSelector};
use landfall_disk::{Disk, SelectError, SelectionGuard, is_disk_name, list_disks};
use tokio::{sync::watch, time::timeout};

use self::contents::Contents;
#[cfg(test)]
pub(crate) use self::receipts::tests::done_by;
pub(crate) use self::receipts::{OnDisks, Receipts};
use self::scan::{LIMIT, Scan, Verdict};
use crate::drivers;
use crate::drivers::{Storage, Uevents};
use crate::thread::on_thread;

/// Between looks where the kernel's notices are not available.
const BLIND: Duration = Duration::from_secs(1);

/// Which set of disks there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    /// Rises by one when a disk appeared, disappeared or changed; from 1.
    pub(crate) generation: u64,
    /// Every bus has been scanned.
    pub(crate) complete: bool,
    /// What the scan gave up to wait for, for people; empty if it came to its end. A disk may be missing then.
    pub(crate) gave_up: Arc<[String]>,
}

impl Set {
    fn of(scan: &Scan) -> Self {
        Self { generation: scan.generation(), complete: scan.is_complete(), gave_up: scan.gave_up() }
    }
}

/// The disks of this machine, watched for as long as the agent lives.
#[derive(Clone)]
pub(crate) struct Disks {
    set: watch::Receiver<Set>,
    receipts: Receipts,
    contents: Contents,
}

impl Disks {
    /// Watches the disks from now on. `drivers` says when the drivers of every device are loaded; without it this is a
    /// system that has been up for long, and its buses were scanned before.
    pub(crate) fn watch(drivers: Option<watch::Receiver<bool>>) -> Self {
        let scan = Scan::new(Instant::now(), drivers.is_none());
        let (tell, set) = watch::channel(Set::of(&scan));
        tokio::spawn(follow(scan, drivers, tell));
        Self { set, receipts: Receipts::new(), contents: Contents::new() }
    }

    /// Which set there is now.
    pub(crate) fn set(&self) -> Set {
        self.set.borrow().clone()
    }

    /// Waits for a set that is complete and passes `wanted`. Bounded by the limit of a scan where `wanted` accepts any.
    pub(crate) async fn complete(&self, wanted: impl Fn(&Set) -> bool) {
        let complete = |set: &Set| set.complete && wanted(set);
        if self.set.clone().wait_for(complete).await.is_err() {
            tracing::error!("the watch over this machine's disks failed; continuing with the disks found so far");
            // Where the watch fails, nothing ever changes.
            if !complete(&self.set()) {
                std::future::pending().await
            }
        }
    }

    /// Reads receipts.
    pub(crate) const fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    /// Reads what is on the disks, for people.
    pub(crate) const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// A guard over a disk that `selector` chose from the set of this generation: it holds as long as the set is the same
    /// and complete, and the selector still chooses that disk.
    pub(crate) fn guard(&self, generation: u64, selector: &DiskSelector, chosen: &DiskId) -> SelectionGuard {
        let (disks, selector, chosen) = (self.clone(), selector.clone(), chosen.clone());
        SelectionGuard::new(move || {
            let now = list_disks().map_err(|error| error.to_string())?;
            still_chosen(&disks.set(), generation, &selector, &chosen, &now)
        })
    }
}

/// Whether the selector still chooses that disk from a set that is still the one of that generation.
fn still_chosen(
    set: &Set, generation: u64, selector: &DiskSelector, chosen: &DiskId, disks: &[DiskFacts],
) -> Result<(), String> {
    if set.generation != generation {
        return Err("a disk appeared, disappeared or changed".into());
    }
    if !set.complete {
        return Err("the kernel announced a storage device, and its bus is being scanned".into());
    }
    match Disk::select(selector, disks) {
        Ok(now) if now.id.same_disk(chosen) => Ok(()),
        Ok(now) => Err(format!("the selector chooses {} now", now.id.name)),
        Err(error @ SelectError::Selector(_)) => Err(error.to_string()),
        Err(error) => Err(format!("now {error}")),
    }
}

/// Follows the kernel's notices for ever.
async fn follow(mut scan: Scan, drivers: Option<watch::Receiver<bool>>, tell: watch::Sender<Set>) -> Infallible {
    let mut uevents = Uevents::subscribe()
        .inspect_err(|error| {
            tracing::warn!("no device notices ({error}): the agent looks at its disks every {} s", BLIND.as_secs());
        })
        .ok();
    let mut loaded = drivers;
    let mut said = Vec::new();
    loop {
        let (disks, buses) = look().await;
        let now = Instant::now();
        let verdict = scan.look(now, disks, &buses);
        speak(&scan, &verdict, &mut said);
        tell.send_if_modified(|set| {
            let new = Set::of(&scan);
            let changed = *set != new;
            *set = new;
            changed
        });
        let limit = match (scan.look_again(now), &uevents) {
            (Some(again), _) => again,
            (None, None) => BLIND,
            (None, Some(_)) => Duration::MAX,
        };
        tokio::select! {
            () = settled(&mut loaded) => scan.drivers_loaded(Instant::now()),
            notice = timeout(limit, storage(&mut uevents)) => {
                if let Ok(Storage::Opens) = notice {
                    scan.announced(Instant::now());
                }
            }
        }
    }
}

/// Once the drivers are loaded; then, and without drivers to wait for, pending for ever.
async fn settled(drivers: &mut Option<watch::Receiver<bool>>) {
    match drivers {
        // Drivers that will never be loaded are waited for no more.
        Some(waits) => drop(waits.wait_for(|settled| *settled).await),
        None => std::future::pending().await,
    }
    *drivers = None;
}

/// The next notice about storage; pending for ever without notices.
async fn storage(uevents: &mut Option<Uevents>) -> Storage {
    let Some(socket) = uevents else { return std::future::pending().await };
    match socket.next(|message| drivers::storage(message, is_disk_name)).await {
        Ok(Some(notice)) => notice,
        // Some were dropped.
        Ok(None) => Storage::Opens,
        Err(error) => {
            tracing::warn!("device notices ended ({error}): the agent looks at its disks every {} s", BLIND.as_secs());
            *uevents = None;
            Storage::Opens
        }
    }
}

/// What sysfs has now. sysfs answers from the kernel's memory, but a driver may hold its lock while it resets a device.
async fn look() -> (Vec<DiskId>, scan::Buses) {
    let looked = on_thread("disk-scan", || {
        let disks = list_disks().unwrap_or_else(|error| {
            tracing::warn!("{error}; no disk is seen");
            Vec::new()
        });
        let buses = scan::Buses { drivers: drivers::hiding_disks(), ..probe::buses(Path::new("/sys")) };
        (disks.into_iter().map(|disk| disk.id).collect(), buses)
    });
    looked.await.unwrap_or_else(|error| {
        tracing::warn!("cannot look at the disks: {error}");
        Default::default()
    })
}

/// Says on the console and in the session what a scan waits for, when that changes, and how it ended.
fn speak(scan: &Scan, verdict: &Verdict, said: &mut Vec<String>) {
    match verdict {
        Verdict::Same => {}
        Verdict::Waits(waits) if waits == said => {}
        Verdict::Waits(waits) => {
            tracing::info!("waiting for disks, {} s at most: {}", LIMIT.as_secs(), waits.join(", "));
            said.clone_from(waits);
        }
        Verdict::Complete => {
            tracing::info!("every bus is scanned (disk generation {})", scan.generation());
            said.clear();
        }
        Verdict::GaveUp(waits) => {
            tracing::warn!(
                "disks: the scan took {} s; continuing without what it waited for: {}",
                LIMIT.as_secs(),
                waits.join(", ")
            );
            said.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str) -> DiskFacts {
        let id = DiskId { name: name.into(), serial: name.into(), size_bytes: 1 << 30, ..DiskId::default() };
        DiskFacts { id, ..DiskFacts::default() }
    }

    #[test]
    fn a_selection_holds_for_one_complete_generation() {
        let (any, disks) = (DiskSelector::default(), [disk("vda")]);
        let holds = |generation, complete, disks: &[DiskFacts]| {
            still_chosen(&Set { generation, complete, gave_up: Arc::default() }, 1, &any, &disk("vda").id, disks)
        };
        assert_eq!(holds(1, true, &disks), Ok(()));
        assert!(holds(2, true, &disks).unwrap_err().contains("appeared"));
        assert!(holds(1, false, &disks).unwrap_err().contains("scanned"));
        // The notice of it has not come yet.
        let both = [disk("vda"), disk("vdb")];
        assert!(holds(1, true, &both).unwrap_err().contains("more than one disk matches"));
        assert!(holds(1, true, &both[1..]).unwrap_err().contains("chooses vdb now"));
    }

    #[tokio::test]
    async fn a_running_system_has_its_disks_at_once() {
        let disks = Disks::watch(None);
        timeout(Duration::from_secs(60), disks.complete(|_| true)).await.unwrap();
        assert_eq!(disks.set().generation, 1);
    }
}
