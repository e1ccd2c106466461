//! The receipts on disks of which any may hang: each is read on a thread of its own, with a deadline.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use landfall_api::{DiskFacts, DiskReceipt, Receipt, message::UnreadableDisk};
use landfall_disk::{DiskError, device_path};

/// For all disks together. A disk that spins up or retries a sector takes seconds; one that takes longer cannot be
/// installed either.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of stack of a thread that reads one receipt: it holds 4 KiB of it.
const STACK: usize = 256 << 10;

type Read = dyn Fn(&Path) -> Result<Option<Receipt>, DiskError> + Send + Sync;

/// Reads receipts; remembers which disks hang, so that a second look does not wait for them again.
#[derive(Clone)]
pub(crate) struct Receipts {
    read: Arc<Read>,
    limit: Duration,
    /// Devices whose thread has not come back, and since when.
    stuck: Arc<Mutex<BTreeMap<PathBuf, Instant>>>,
}

/// What was found on the disks of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OnDisks {
    /// Every receipt, under the identity that its disk has now.
    pub(crate) receipts: Vec<DiskReceipt>,
    /// The disks of which that is unknown.
    pub(crate) unreadable: Vec<UnreadableDisk>,
}

impl Receipts {
    /// Of this machine's disks.
    pub(crate) fn new() -> Self {
        Self::with(landfall_disk::read_receipt, LIMIT)
    }

    fn with(
        read: impl Fn(&Path) -> Result<Option<Receipt>, DiskError> + Send + Sync + 'static, limit: Duration,
    ) -> Self {
        Self { read: Arc::new(read), limit, stuck: Arc::default() }
    }

    /// Reads the receipts of all these disks at once. Blocking, for 10 s at most.
    pub(crate) fn on(&self, disks: &[DiskFacts]) -> OnDisks {
        let (tell, answers) = mpsc::channel();
        let mut found = OnDisks::default();
        let mut waiting = BTreeMap::new();
        for (at, disk) in disks.iter().enumerate() {
            let path = device_path(disk);
            if let Some(since) = self.stuck().get(&path) {
                found.unreadable.push(unreadable(disk, format!("no answer for {} s", since.elapsed().as_secs())));
                continue;
            }
            match self.begin(at, &path, tell.clone()) {
                Ok(()) => drop(waiting.insert(at, path)),
                Err(error) => found.unreadable.push(unreadable(disk, format!("cannot start a thread: {error}"))),
            }
        }
        drop(tell);
        let end = Instant::now() + self.limit;
        while !waiting.is_empty() {
            let Ok((at, answer)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) else { break };
            waiting.remove(&at);
            let disk = &disks[at];
            match answer {
                Ok(Some(receipt)) => found.receipts.push(DiskReceipt { disk: disk.id.clone(), receipt }),
                Ok(None) => {}
                Err(error) => {
                    let cause =
                        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                    found.unreadable.push(unreadable(disk, cause));
                }
            }
        }
        for at in waiting.into_keys() {
            found.unreadable.push(unreadable(&disks[at], format!("no answer for {} s", self.limit.as_secs())));
        }
        // In the order of the disks, not of their answers.
        found.receipts.sort_by_key(|found| disks.iter().position(|disk| disk.id == found.disk));
        for unread in &found.unreadable {
            tracing::warn!("cannot read the receipt of disk {}: {}", unread.disk.name, unread.reason);
        }
        found
    }

    fn begin(
        &self, at: usize, path: &Path, tell: mpsc::Sender<(usize, Result<Option<Receipt>, DiskError>)>,
    ) -> std::io::Result<()> {
        let (receipts, device) = (self.clone(), path.to_owned());
        // Before the thread runs: it may come back at once.
        self.stuck().insert(path.to_owned(), Instant::now());
        let name = format!("receipt-{}", path.file_name().unwrap_or_default().to_string_lossy());
        let started = thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
            let answer = (receipts.read)(&device);
            receipts.stuck().remove(&device);
            // The one that asked may have stopped waiting.
            drop(tell.send((at, answer)));
        });
        if started.is_err() {
            self.stuck().remove(path);
        }
        started.map(drop)
    }

    fn stuck(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Instant>> {
        // Every statement leaves the map consistent.
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreadable(disk: &DiskFacts, reason: String) -> UnreadableDisk {
    UnreadableDisk { disk: disk.id.clone(), reason }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;

    use landfall_api::{DiskId, ReceiptState};
    use uuid::Uuid;

    use super::*;

    fn disk(name: &str) -> DiskFacts {
        DiskFacts { id: DiskId { name: name.into(), ..DiskId::default() }, ..DiskFacts::default() }
    }

    /// That the first action of that workflow is done.
    pub(crate) fn done_by(workflow: u128) -> Receipt {
        Receipt {
            machine_uid: Uuid::nil(),
            workflow_uid: Uuid::from_u128(workflow),
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
            image_digest: None,
            state: ReceiptState::Done,
            written_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_hanging_disk_is_named_and_hides_no_other() {
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = Mutex::new(hangs);
        let read = move |path: &Path| match path.to_str() {
            Some("/dev/hangs") => {
                hangs.lock().unwrap().recv().unwrap_or_default();
                Ok(None)
            }
            Some("/dev/fails") => Err(DiskError::Read { path: path.into(), source: io::Error::other("broken") }),
            Some("/dev/blank") => Ok(None),
            _ => Ok(Some(done_by(7))),
        };
        let limit = Duration::from_secs(3);
        let receipts = Receipts::with(read, limit);
        let disks = ["hangs", "fails", "blank", "vdb", "vda"].map(disk);
        let found = receipts.on(&disks);
        let names: Vec<_> = found.receipts.iter().map(|r| r.disk.name.as_str()).collect();
        assert_eq!(names, ["vdb", "vda"]);
        let mut unread: Vec<_> = found.unreadable.iter().map(|u| (u.disk.name.as_str(), u.reason.as_str())).collect();
        unread.sort_unstable();
        assert_eq!(unread, [("fails", "broken"), ("hangs", "no answer for 3 s")]);
        // Nothing waits for it a second time, and no second thread is started for it.
        let begun = Instant::now();
        let again = receipts.on(&disks[..1]);
        assert!(begun.elapsed() < limit && again.unreadable.len() == 1);
        // A thread lets go of it some time after its answer.
        while Arc::strong_count(&receipts.stuck) > 2 {
            assert!(begun.elapsed() < 20 * limit, "one thread and this test");
            thread::yield_now();
        }
        release.send(()).unwrap();
        while !receipts.stuck().is_empty() {
            thread::yield_now();
        }
        drop(release);
        assert_eq!(receipts.on(&disks[..1]), OnDisks::default(), "it answers again");
    }
}
