//! What is on the disks, for people. Nothing waits for this longer than a moment, and nothing decides by it.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use landfall_api::{DiskContents, DiskFacts};
use landfall_disk::{DiskError, device_path};

/// For all disks together: the coordinator waits for the report of them. A spinning disk needs some seeks a partition.
const LIMIT: Duration = Duration::from_secs(5);
/// Disks that are read at once; each takes 2 MiB of memory meanwhile.
const AT_ONCE: usize = 4;
/// Bytes of stack of a thread that reads one disk.
const STACK: usize = 256 << 10;
/// What the contents of all disks may take of the facts as JSON, bytes: half of what a coordinator takes. The contents of
/// the disks beyond are left out.
const ROOM: usize = 128 << 10;

type Read = dyn Fn(&Path) -> Result<DiskContents, DiskError> + Send + Sync;

/// Reads contents; remembers which disks hang, so that a second look does not start with them again.
#[derive(Clone)]
pub(crate) struct Contents {
    read: Arc<Read>,
    limit: Duration,
    room: usize,
    /// Devices that are being read.
    busy: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Contents {
    /// Of this machine's disks.
    pub(super) fn new() -> Self {
        Self::with(landfall_disk::read_contents, LIMIT, ROOM)
    }

    fn with(
        read: impl Fn(&Path) -> Result<DiskContents, DiskError> + Send + Sync + 'static, limit: Duration, room: usize,
    ) -> Self {
        Self { read: Arc::new(read), limit, room, busy: Arc::default() }
    }

    /// Fills in what is on those of these disks that are `wanted`. Blocking, for 5 s at most; what is not known by then
    /// stays absent.
    pub(crate) fn fill(&self, disks: &mut [DiskFacts], wanted: impl Fn(&DiskFacts) -> bool) {
        let paths = disks.iter().enumerate().filter(|(_, disk)| wanted(disk)).map(|(at, disk)| (at, device_path(disk)));
        let queue: VecDeque<_> = paths.filter(|(_, path)| !self.busy().contains(path)).collect();
        let queue = Arc::new(Mutex::new(queue));
        let (tell, answers) = mpsc::channel();
        for _ in 0..AT_ONCE {
            let (contents, queue, tell) = (self.clone(), queue.clone(), tell.clone());
            let work = move || {
                while let Some((at, path)) = contents.next(&queue) {
                    let answer = (contents.read)(&path);
                    contents.busy().remove(&path);
                    // The one that asked may have stopped waiting; then nothing more is read.
                    if tell.send((at, answer)).is_err() {
                        break;
                    }
                }
            };
            if let Err(error) = thread::Builder::new().name("disk-contents".into()).stack_size(STACK).spawn(work) {
                tracing::warn!("cannot start a thread to read disks: {error}");
            }
        }
        drop(tell);
        let (end, mut left) = (Instant::now() + self.limit, self.room);
        while let Ok((at, answer)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            match answer {
                Ok(contents) => disks[at].contents = Some(contents),
                Err(error) => tracing::warn!("what is on a disk is unknown: {error}"),
            }
        }
        for disk in disks {
            let size = serde_json::to_string(&disk.contents).map_or(usize::MAX, |json| json.len());
            match left.checked_sub(size) {
                Some(rest) => left = rest,
                None => disk.contents = None,
            }
        }
    }

    fn next(&self, queue: &Mutex<VecDeque<(usize, PathBuf)>>) -> Option<(usize, PathBuf)> {
        let (at, path) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        self.busy().insert(path.clone());
        Some((at, path))
    }

    fn busy(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        // Every statement leaves the set consistent.
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use landfall_api::DiskId;

    use super::*;

    fn disks(names: &[&str]) -> Vec<DiskFacts> {
        let disk = |name: &&str| DiskFacts {
            id: DiskId { name: (*name).into(), ..DiskId::default() },
            ..DiskFacts::default()
        };
        names.iter().map(disk).collect()
    }

    fn known(disks: &[DiskFacts]) -> Vec<&str> {
        disks.iter().filter(|d| d.contents.is_some()).map(|d| d.id.name.as_str()).collect()
    }

    fn some() -> DiskContents {
        DiskContents {
            seen_at: jiff::Timestamp::UNIX_EPOCH,
            table: "gpt".into(),
            volumes: Vec::new(),
            partitions: Vec::new(),
            more_partitions: 0,
            unknown_data: false,
        }
    }

    #[test]
    fn a_hanging_disk_keeps_no_other_from_being_read() {
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = Mutex::new(hangs);
        let read = move |path: &Path| match path.to_str() {
            Some("/dev/hangs") => {
                hangs.lock().unwrap().recv().unwrap_or_default();
                Ok(some())
            }
            Some("/dev/fails") => Err(DiskError::Read { path: path.into(), source: io::Error::other("broken") }),
            _ => Ok(some()),
        };
        let contents = Contents::with(read, Duration::from_secs(2), ROOM);
        let mut found = disks(&["hangs", "fails", "vda", "vdb", "vdc", "vdd", "left"]);
        contents.fill(&mut found, |disk| disk.id.name != "left");
        assert_eq!(known(&found), ["vda", "vdb", "vdc", "vdd"]);
        // A second look does not wait for it.
        let begun = Instant::now();
        contents.fill(&mut found, |_| true);
        assert!(begun.elapsed() < Duration::from_secs(2) && known(&found).contains(&"left"));
        drop(release);
    }

    #[test]
    fn contents_that_exceed_their_room_are_left_out() {
        let contents = Contents::with(|_: &Path| Ok(some()), Duration::from_secs(60), 200);
        let mut found = disks(&["vda", "vdb", "vdc"]);
        contents.fill(&mut found, |_| true);
        let size = serde_json::to_string(&found[0].contents).unwrap().len();
        assert!(known(&found).len() == 200 / size && 200 / size < 3, "{size}");
    }
}
