//! What is on the disks, and what they say of their health, for people. Nothing waits for this longer than a moment, and nothing decides by it.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use landfall_api::{DiskContents, DiskFacts, DiskHealth};
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
type Ask = dyn Fn(&DiskFacts) -> Result<Option<DiskHealth>, DiskError> + Send + Sync;

/// What a disk is asked. The contents of all disks come first: people decide by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Contents,
    Health,
}

/// One answer of a disk's.
enum Answer {
    Contents(DiskContents),
    Health(Option<DiskHealth>),
}

/// Reads contents; remembers which disks hang, so that a second look does not start with them again.
#[derive(Clone)]
pub(crate) struct Contents {
    read: Arc<Read>,
    ask: Arc<Ask>,
    limit: Duration,
    room: usize,
    /// What is being asked of which device.
    busy: Arc<Mutex<BTreeSet<(Question, PathBuf)>>>,
}

impl Contents {
    /// Of this machine's disks.
    pub(super) fn new() -> Self {
        Self::with(landfall_disk::read_contents, landfall_disk::read_health, LIMIT, ROOM)
    }

    fn with(
        read: impl Fn(&Path) -> Result<DiskContents, DiskError> + Send + Sync + 'static,
        ask: impl Fn(&DiskFacts) -> Result<Option<DiskHealth>, DiskError> + Send + Sync + 'static, limit: Duration,
        room: usize,
    ) -> Self {
        Self { read: Arc::new(read), ask: Arc::new(ask), limit, room, busy: Arc::default() }
    }

    /// Fills in what is on those of these disks that are `wanted`, and with `health` what they say of it. Blocking, for 5 s at most; what
    /// is not known by then stays absent.
    pub(crate) fn fill(&self, disks: &mut [DiskFacts], wanted: impl Fn(&DiskFacts) -> bool, health: bool) {
        let chosen = disks.iter().cloned().enumerate().filter(|(_, disk)| wanted(disk));
        let chosen = chosen.map(|(at, disk)| (at, Question::Contents, disk));
        let queue: VecDeque<_> = chosen.filter(|(_, question, disk)| !self.is_busy(*question, disk)).collect();
        let queue = Arc::new(Mutex::new(queue));
        let (tell, answers) = mpsc::channel();
        for _ in 0..AT_ONCE {
            let (contents, queue, tell) = (self.clone(), queue.clone(), tell.clone());
            let work = move || {
                while let Some((at, question, disk)) = contents.next(&queue) {
                    let answer = match question {
                        Question::Contents => (contents.read)(&device_path(&disk)).map(Answer::Contents),
                        Question::Health => (contents.ask)(&disk).map(Answer::Health),
                    };
                    contents.busy().remove(&(question, device_path(&disk)));
                    // Behind the contents of all, and only of a disk that let itself be read.
                    if question == Question::Contents && health && !contents.is_busy(Question::Health, &disk) {
                        queue.lock().unwrap_or_else(PoisonError::into_inner).push_back((at, Question::Health, disk));
                    }
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
                Ok(Answer::Contents(contents)) => disks[at].contents = Some(contents),
                Ok(Answer::Health(health)) => disks[at].health = health,
                Err(error) => tracing::warn!("what is on a disk, or its health, is unknown: {error}"),
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

    fn next(&self, queue: &Mutex<VecDeque<(usize, Question, DiskFacts)>>) -> Option<(usize, Question, DiskFacts)> {
        let (at, question, disk) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        self.busy().insert((question, device_path(&disk)));
        Some((at, question, disk))
    }

    fn is_busy(&self, question: Question, disk: &DiskFacts) -> bool {
        self.busy().contains(&(question, device_path(disk)))
    }

    fn busy(&self) -> MutexGuard<'_, BTreeSet<(Question, PathBuf)>> {
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
        // One hangs when it is asked for its health, after it was read.
        let (release_asked, asked) = mpsc::channel::<()>();
        let asked = Mutex::new(asked);
        let ask = move |disk: &DiskFacts| match disk.id.name.as_str() {
            "vdb" => {
                asked.lock().unwrap().recv().unwrap_or_default();
                Ok(None)
            }
            name => Ok(Some(DiskHealth { failing: name == "vdc", ..DiskHealth::default() })),
        };
        let contents = Contents::with(read, ask, Duration::from_secs(2), ROOM);
        let mut found = disks(&["hangs", "fails", "vda", "vdb", "vdc", "vdd", "left"]);
        contents.fill(&mut found, |disk| disk.id.name != "left", true);
        assert_eq!(known(&found), ["vda", "vdb", "vdc", "vdd"]);
        let health: Vec<_> =
            found.iter().filter_map(|disk| Some((&*disk.id.name, disk.health.as_ref()?.failing))).collect();
        assert_eq!(health, [("fails", false), ("vda", false), ("vdc", true), ("vdd", false)]);
        // A second look does not wait for it.
        let begun = Instant::now();
        contents.fill(&mut found, |_| true, true);
        assert!(begun.elapsed() < Duration::from_secs(2) && known(&found).contains(&"left"));
        drop((release, release_asked));
    }

    #[test]
    fn a_single_disk_is_asked_for_both() {
        let ask = |_: &DiskFacts| Ok(Some(DiskHealth::default()));
        let contents = Contents::with(|_: &Path| Ok(some()), ask, Duration::from_secs(60), ROOM);
        for health in [false, true] {
            let mut found = disks(&["vda"]);
            contents.fill(&mut found, |_| true, health);
            assert_eq!((known(&found), found[0].health.is_some()), (vec!["vda"], health));
        }
    }

    #[test]
    fn contents_that_exceed_their_room_are_left_out() {
        let contents = Contents::with(|_: &Path| Ok(some()), |_| Ok(None), Duration::from_secs(60), 200);
        let mut found = disks(&["vda", "vdb", "vdc"]);
        contents.fill(&mut found, |_| true, true);
        let size = serde_json::to_string(&found[0].contents).unwrap().len();
        assert!(known(&found).len() == 200 / size && 200 / size < 3, "{size}");
    }
}
