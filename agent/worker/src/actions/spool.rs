//! An archive's stored bytes in a file without a name, on a disk of the installed system: proven before anything is unpacked, so
//! that bytes of an unproven download are never part of the system, not even for a time.

use std::fs::File;
use std::io;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::Instant;

use landfall_api::{Digest, ErrorCode, Problem, Progress};
use landfall_disk::{CancelFlag, Image, ImageSource, ProvenFile, WriteError, open_file, open_source, shown_name};
use rustix::fs::{AtFlags, Mode, OFlags, fstatvfs, openat, unlinkat};
use rustix::io::Errno;

use crate::{Failure, Reporter};

/// Bytes that are hashed and written at a time: they are in a processor's cache still.
const PIECE: usize = 256 * 1024;
/// The file's name for the instant in which it has one, and where the power goes out in that instant. The next run removes it.
const NAME: &str = ".landfall-spool";

/// What is fetched.
pub(super) struct Wanted<'a> {
    /// Where it is.
    pub(super) image: &'a Image,
    /// Digest of its stored bytes.
    pub(super) digest: Digest,
    /// Its stored bytes, where they are known before.
    pub(super) size: Option<u64>,
}

/// Proven bytes.
pub(super) struct Spool {
    file: File,
    name: String,
}

impl Spool {
    /// Fetches and proves it, in the file system of one of these directories: where the most room is.
    pub(super) fn fetch(wanted: &Wanted<'_>, directories: &[&OwnedFd], report: &Reporter) -> Result<Self, Failure> {
        let name = shown_name(wanted.image);
        let (directory, free) = roomiest(directories).map_err(|e| unwritten(&e, &name, 0))?;
        fits(wanted.size, free, &name)?;
        let mut file = nameless(directory).map_err(|e| unwritten(&e, &name, 0))?;
        let never = CancelFlag::new();
        let source = open_source(wanted.image, true, report).map_err(|e| unfetched(&e))?;
        let mut proven = ProvenFile::of(source, wanted.digest, u64::MAX, &never);
        let mut piece = vec![0; PIECE];
        let (begun, mut stored) = (Instant::now(), 0);
        loop {
            let count = match proven.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => return Err(unread(proven, &error, &name)),
            };
            if stored == 0 {
                fits(proven.total(), free, &name)?;
            }
            let bytes = piece.get(..count).unwrap_or_default();
            file.write_all(bytes).map_err(|e| unwritten(&e, &name, stored))?;
            stored += count as u64;
            report.progress(&progress(stored, proven.total().or(wanted.size), begun));
        }
        file.rewind().map_err(|e| unwritten(&e, &name, stored))?;
        Ok(Self { file, name })
    }

    /// The bytes from their start. The file is gone once they are read.
    pub(super) fn into_source(self) -> Box<dyn ImageSource> {
        open_file(&self.name, self.file)
    }
}

/// Whether so many bytes have room; unknown ones may.
fn fits(needed: Option<u64>, free: u64, name: &str) -> Result<(), Failure> {
    let Some(needed) = needed.filter(|needed| *needed > free) else { return Ok(()) };
    let message = format!(
        "{name} has {needed} bytes, and the file system that it is to be unpacked to has {free} bytes free; nothing was unpacked"
    );
    Err(Failure::last(Problem::new(ErrorCode::DiskTooSmall, message).hint(ROOM).at(name)))
}

const ROOM: &str = "make the file system larger: until it is unpacked, the archive is stored there as it was fetched, beside what it holds";

/// The directory in whose file system the most bytes are free, and how many; of equal ones the first.
fn roomiest<'a>(directories: &[&'a OwnedFd]) -> io::Result<(&'a OwnedFd, u64)> {
    let mut best = None;
    for directory in directories {
        let about = fstatvfs(directory)?;
        // Root may use what is reserved.
        let free = about.f_frsize.saturating_mul(about.f_bfree);
        if best.is_none_or(|(_, most)| free > most) {
            best = Some((*directory, free));
        }
    }
    best.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// A file that is gone when it is closed, and after a power cut.
fn nameless(directory: &OwnedFd) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match openat(directory, ".", flags, Mode::RUSR | Mode::WUSR) {
        Err(errno) if means_none(errno) => unlinked(directory),
        other => Ok(File::from(other?)),
    }
}

/// What a file system says that has no files without a name, FAT among them.
fn means_none(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL)
}

/// The same in two steps.
fn unlinked(directory: &OwnedFd) -> io::Result<File> {
    let remove = || match unlinkat(directory, NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e),
    };
    remove()?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, NAME, flags, Mode::RUSR | Mode::WUSR)?;
    remove()?;
    Ok(File::from(file))
}

fn progress(stored: u64, total: Option<u64>, begun: Instant) -> Progress {
    let pace = stored as f64 / begun.elapsed().as_secs_f64().max(1e-3);
    let left = total.unwrap_or_default().saturating_sub(stored);
    Progress {
        stage: "fetch".into(),
        stored_bytes: stored,
        stored_total: total.unwrap_or_default(),
        bytes_per_second: pace as u64,
        eta_seconds: (left as f64 / pace.max(1.0)).ceil() as u64,
        ..Progress::default()
    }
}

fn unread(file: ProvenFile<'_>, error: &io::Error, name: &str) -> Failure {
    let unknown = || Failure::last(Problem::new(ErrorCode::SourceUnreachable, error.to_string()).at(name));
    file.into_failure().map_or_else(unknown, |failure| unfetched(&failure))
}

pub(crate) fn unfetched(error: &WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}

fn unwritten(error: &io::Error, name: &str, stored: u64) -> Failure {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let (code, hint) = match full {
        true => (ErrorCode::DiskTooSmall, ROOM),
        false => (ErrorCode::DeviceIo, "check the disk and the file system that the archive is unpacked to"),
    };
    let message = format!("cannot store {name} after {stored} bytes of it; nothing was unpacked");
    Failure::last(Problem::new(code, message).caused_by(error).hint(hint).at(name))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Command};

    use landfall_disk::{Proof, image_at};

    use super::*;

    fn open(directory: &Path) -> OwnedFd {
        OwnedFd::from(File::open(directory).unwrap())
    }

    /// Mounts a new file system of 16 MiB; skipped, loudly, where that is impossible.
    struct Mounted(tempfile::TempDir);

    impl Mounted {
        fn new(kind: &str) -> Option<Self> {
            let home = tempfile::tempdir().unwrap();
            let (file, at) = (home.path().join("disk"), home.path().join("at"));
            fs::create_dir(&at).unwrap();
            File::create(&file).unwrap().set_len(16 << 20).unwrap();
            let run = |program: &str, arguments: &[&str]| {
                Command::new(program).args(arguments).output().map_err(|e| e.to_string()).and_then(|output| {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    if output.status.success() { Ok(()) } else { Err(said) }
                })
            };
            let (file, point) = (file.display().to_string(), at.display().to_string());
            let made =
                run(&format!("mkfs.{kind}"), &[&file]).and_then(|()| run("mount", &["-o", "loop", &file, &point]));
            match made {
                Ok(()) => Some(Self(home)),
                Err(why) => {
                    eprintln!("SKIPPED: {kind} cannot be mounted here: {why}");
                    None
                }
            }
        }
        fn at(&self) -> std::path::PathBuf {
            self.0.path().join("at")
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            // Nothing more can be done about a mount that stays.
            let _ = Command::new("umount").arg(self.at()).status();
        }
    }

    #[test]
    fn the_file_has_no_name_where_it_can_be() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(NAME), "left over").unwrap();
        for make in [nameless, unlinked] {
            let mut file = make(&open(home.path())).unwrap();
            file.write_all(b"bytes").unwrap();
            file.rewind().unwrap();
            assert_eq!(io::read_to_string(&file).unwrap(), "bytes");
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn fat_has_files_without_a_name_as_well() {
        let Some(fat) = Mounted::new("vfat") else { return };
        let mut file = nameless(&open(&fat.at())).unwrap();
        file.write_all(b"bytes").unwrap();
        assert_eq!(fs::read_dir(fat.at()).unwrap().count(), 0);
    }

    #[test]
    fn only_a_missing_ability_leads_to_a_name() {
        // The answer of the kernel's FAT, which not every machine can mount.
        assert!(means_none(Errno::from_raw_os_error(95)));
        assert!(!means_none(Errno::NOSPC) && !means_none(Errno::ROFS) && !means_none(Errno::DQUOT));
    }

    #[test]
    fn a_file_without_room_is_refused_with_both_sizes() {
        assert!(fits(None, 0, "x").is_ok() && fits(Some(5), 5, "x").is_ok());
        let failure = fits(Some(6), 5, "http://h/x").unwrap_err();
        assert_eq!((failure.problem.code, failure.retryable), (ErrorCode::DiskTooSmall, false));
        assert!(failure.problem.message.contains("6 bytes") && failure.problem.message.contains("5 bytes free"));
        let full = unwritten(&io::Error::from_raw_os_error(28), "http://h/x", 7);
        assert_eq!((full.problem.code, full.retryable), (ErrorCode::DiskTooSmall, false));
        let broken = unwritten(&io::Error::from_raw_os_error(5), "http://h/x", 7);
        assert_eq!((broken.problem.code, broken.retryable), (ErrorCode::DeviceIo, false));
    }

    fn fetched(url: String, size: Option<u64>, to: &OwnedFd) -> Failure {
        let digest = Digest::from_sha256([0; 32]);
        let image = image_at(url, Proof::Stored(digest));
        let wanted = Wanted { image: &image, digest, size };
        Spool::fetch(&wanted, &[to], &Reporter::new(io::sink())).err().unwrap()
    }

    #[test]
    fn a_stated_length_is_refused_before_the_download() {
        let Some(small) = Mounted::new("ext4") else { return };
        let (to, file) = (open(&small.at()), tempfile::NamedTempFile::new().unwrap());
        file.as_file().set_len(17 << 20).unwrap();
        let url = format!("file://{}", file.path().display());
        // As the source says, and as a manifest says of a source that is not even asked.
        for failure in [fetched(url, None, &to), fetched("http://127.0.0.1:1/x".into(), Some(17 << 20), &to)] {
            assert_eq!(failure.problem.code, ErrorCode::DiskTooSmall, "{failure:?}");
            assert!(failure.problem.message.contains("17825792 bytes"), "{failure:?}");
        }
    }

    #[test]
    fn the_file_system_with_more_room_is_taken() {
        let (Some(small), home) = (Mounted::new("ext4"), tempfile::tempdir().unwrap()) else { return };
        let (small, large) = (open(&small.at()), open(home.path()));
        for both in [[&small, &large], [&large, &small]] {
            let (best, free) = roomiest(&both).unwrap();
            assert!(std::ptr::eq(best, &large) && free > 16 << 20, "{free}");
        }
        assert!(std::ptr::eq(roomiest(&[&small, &small]).unwrap().0, &small));
    }
}
