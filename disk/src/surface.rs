//! Tests the medium of a disk: reads it, or writes it and reads back what was written.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use landfall_api::{DiskFacts, Progress};

use crate::buffer::Buffer;
use crate::write::opened;
use crate::{Authority, BlockDevice, LogLevel, Observer, Order, ReadAt as _, RealDevice, WriteError, device_path};

/// Read or written at once, bytes: enough for the kernel to keep a fast disk busy.
const STEP: u64 = 4 << 20;
/// Both ends of a disk that is written stay zero, so that it starts nothing at any instant. Bytes; as of an erasure.
const ENDS: u64 = 1 << 20;
/// After so many errors nothing more is learned: each may take the kernel half a minute.
const MAX_ERRORS: u64 = 100;
/// Errors that are logged with their place.
const NAMED: u64 = 10;
/// Between two reports of progress, as [`Observer::progress`] says.
const THINNED: Duration = Duration::from_millis(250);

/// What a test of a disk's medium found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surface {
    /// Read, and compared where it was written before.
    pub bytes: u64,
    /// Bytes per second; where it was also written, of writing or reading, whichever was slower.
    pub bytes_per_second: u64,
    /// The longest single read or write.
    pub slowest: Duration,
    /// Pieces that could not be read or written, or were not what was written. From the 100th on no more is
    /// tested, and what was written is still zeroed, which can add as many again.
    pub errors: u64,
    /// The first of them, in words.
    pub first_error: Option<String>,
}

/// Reads so many percent of a disk (1 to 100), in pieces from its start to its end. What cannot be read is counted. **Blocking.**
///
/// # Errors
/// [`WriteError`]: the disk is not there any more or cannot be opened, or the caller may not go on.
pub fn read_surface(
    disk: &DiskFacts, percent: u8, authority: &Authority, observer: &dyn Observer,
) -> Result<Surface, WriteError> {
    let path = device_path(disk);
    let name = path.display().to_string();
    let device = opened(RealDevice::open_read_only(&path), disk, &name)?;
    let may_act = || authority.may_act(&name);
    let mut run = Run::new(&device, &name, &may_act, observer, 1);
    let (began, mut space) = (Instant::now(), Buffer::new(STEP as usize));
    for piece in pieces(0..device.size(), percent) {
        let into = &mut space.space()[..(piece.end - piece.start) as usize];
        let read = run.timed(|| device.read_at(piece.start, into));
        if run.counts(read, &format!("cannot read {} bytes at {}", piece.end - piece.start, piece.start)) {
            run.found.bytes += piece.end - piece.start;
        }
        if !run.goes_on(&piece, percent)? {
            break;
        }
    }
    run.found.bytes_per_second = speed(run.found.bytes, began.elapsed());
    Ok(run.found)
}

/// Writes so many percent of a disk that nothing starts from any more, reads it back, and zeroes it. Its ends and its receipt are left
/// alone. `seed`: another one each time, so that what an earlier test left is no proof.
///
/// # Errors
/// [`WriteError`] of the order's checks. What fails on the disk is counted.
pub(crate) fn write_surface(
    device: &dyn BlockDevice, percent: u8, seed: u64, order: &Order<'_>, observer: &dyn Observer,
) -> Result<Surface, WriteError> {
    let (mut space, mut content) = (Buffer::new(STEP as usize), Buffer::new(STEP as usize));
    let sector = u64::from(device.logical_sector());
    let size = device.size() / sector * sector;
    let within = ENDS.min(size / 2)..size - ENDS.min(size / 2);
    let mut run = Run::new(device, order.device, order.may_act, observer, 3);
    let began = Instant::now();
    let (mut written, mut bad) = (0, Vec::new());
    for piece in pieces(within.clone(), percent) {
        pattern(seed, &piece, &mut content);
        let wrote = run.timed(|| device.write_at(piece.start, content.data()));
        if run.counts(wrote, &format!("cannot write {} bytes at {}", piece.end - piece.start, piece.start)) {
            written += piece.end - piece.start;
        } else {
            bad.push(piece.start);
        }
        if !run.goes_on(&piece, percent)? {
            break;
        }
    }
    let flushed = device.flush();
    run.counts(flushed, "cannot flush what was written");
    let (wrote_at, began) = (speed(written, began.elapsed()), Instant::now());
    let dead = run.found.errors >= MAX_ERRORS;
    for piece in pieces(within.clone(), percent).filter(|piece| !dead && !bad.contains(&piece.start)) {
        let length = piece.end - piece.start;
        let into = &mut space.space()[..length as usize];
        let read = run.timed(|| device.read_at(piece.start, &mut *into));
        if run.counts(read, &format!("cannot read {length} bytes at {}", piece.start)) {
            run.found.bytes += length;
            pattern(seed, &piece, &mut content);
            // Comparing the whole piece first is many times faster.
            let wrong = *into != *content.data();
            let differs =
                wrong.then(|| into.iter().zip(content.data()).position(|(found, wrote)| found != wrote)).flatten();
            if let Some(at) = differs {
                run.error(format!("the byte at {} is not the one that was written", piece.start + at as u64));
            }
        }
        if !run.goes_on(&piece, percent)? {
            break;
        }
    }
    run.found.bytes_per_second = speed(run.found.bytes, began.elapsed()).min(wrote_at);
    // However bad the disk is: what the test wrote goes.
    let mut not_zeroed = 0;
    for piece in pieces(within, percent) {
        let zeroed = device.zero_range(piece.start, piece.end - piece.start);
        if !run.counts(zeroed, &format!("cannot zero {} bytes at {}", piece.end - piece.start, piece.start)) {
            not_zeroed += 1;
        }
        run.goes_on(&piece, percent)?;
        if not_zeroed >= MAX_ERRORS {
            break;
        }
    }
    run.counts(device.flush(), "cannot flush the zeroes");
    Ok(run.found)
}

/// So many percent of a range, in pieces that are spread evenly and include its first and its last.
fn pieces(within: Range<u64>, percent: u8) -> impl Iterator<Item = Range<u64>> {
    let all = (within.end - within.start).div_ceil(STEP);
    let count = (all * u64::from(percent)).div_ceil(100).min(all);
    (0..count).map(move |n| {
        let index = if count < 2 { n } else { n * (all - 1) / (count - 1) };
        let start = within.start + index * STEP;
        start..(start + STEP).min(within.end)
    })
}

/// Bytes that depend on their place and on the seed, so that a piece that ended elsewhere is found out.
fn pattern(seed: u64, piece: &Range<u64>, buffer: &mut Buffer) {
    buffer.len = (piece.end - piece.start) as usize;
    for (n, word) in (piece.start / 8..).zip(buffer.space_used().chunks_exact_mut(8)) {
        word.copy_from_slice(&mixed(seed ^ n).to_le_bytes());
    }
}

/// SplitMix64's output function (Steele, Lea, Flood 2014).
const fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

fn speed(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 / time.as_secs_f64().max(0.001)) as u64
}

/// A test under way.
struct Run<'a> {
    name: &'a str,
    may_act: &'a dyn Fn() -> Result<(), WriteError>,
    observer: &'a dyn Observer,
    found: Surface,
    /// Bytes that are behind it, of how many, and when that was reported last.
    done: u64,
    /// How often each piece is passed.
    passes: u64,
    size: u64,
    began: Instant,
    said: Cell<Option<Instant>>,
}

impl<'a> Run<'a> {
    fn new(
        device: &dyn BlockDevice, name: &'a str, may_act: &'a dyn Fn() -> Result<(), WriteError>,
        observer: &'a dyn Observer, passes: u64,
    ) -> Self {
        let (size, began) = (device.size(), Instant::now());
        let found = Surface::default();
        Self { name, may_act, observer, found, done: 0, passes, size, began, said: Cell::new(None) }
    }

    fn timed<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = act();
        self.found.slowest = self.found.slowest.max(began.elapsed());
        result
    }

    /// Whether it worked; else it is counted.
    fn counts<T>(&mut self, result: std::io::Result<T>, what: &str) -> bool {
        result.map_err(|error| self.error(format!("{what}: {error}"))).is_ok()
    }

    fn error(&mut self, words: String) {
        self.found.errors += 1;
        if self.found.errors <= NAMED {
            self.observer.log(LogLevel::Warn, &format!("{}: {words}", self.name));
        }
        self.found.first_error.get_or_insert(words);
    }

    /// After each piece: whether there is a point in going on, and whether it may.
    fn goes_on(&mut self, piece: &Range<u64>, percent: u8) -> Result<bool, WriteError> {
        (self.may_act)()?;
        self.done += piece.end - piece.start;
        if self.said.get().is_none_or(|said| said.elapsed() >= THINNED) {
            self.said.set(Some(Instant::now()));
            let total = self.size / 100 * u64::from(percent) * self.passes;
            self.observer.progress(&Progress {
                stage: "test".into(),
                raw_bytes: self.done.min(total),
                raw_total: total,
                bytes_per_second: speed(self.done, self.began.elapsed()),
                ..Progress::default()
            });
        }
        Ok(self.found.errors < MAX_ERRORS)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use landfall_api::ReceiptState;

    use super::*;
    use crate::receipt::tests::mark;
    use crate::{ReadAt, Unobserved};

    const SIZE: u64 = 64 << 20;

    /// A disk on which something is wrong with one place.
    struct Faulty {
        bytes: Mutex<Vec<u8>>,
        at: u64,
        wrong: Wrong,
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Wrong {
        Nothing,
        Reads,
        Writes,
        /// A bit of it is always 0.
        Stuck,
        /// What is written there ends a MiB before.
        Elsewhere,
    }

    impl Faulty {
        fn new(wrong: Wrong) -> Self {
            Self { bytes: Mutex::new(vec![0; SIZE as usize]), at: 40 << 20, wrong }
        }
        fn meets(&self, offset: u64, length: usize) -> bool {
            (offset..offset + length as u64).contains(&self.at)
        }
    }

    impl ReadAt for Faulty {
        fn size(&self) -> u64 {
            SIZE
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            if self.wrong == Wrong::Reads && self.meets(offset, buffer.len()) {
                return Err(io::Error::other("medium error"));
            }
            self.bytes.lock().unwrap().as_slice().read_at(offset, buffer)
        }
    }

    impl BlockDevice for Faulty {
        fn logical_sector(&self) -> u32 {
            512
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            if self.wrong == Wrong::Writes && self.meets(offset, data.len()) {
                return Err(io::Error::other("write fault"));
            }
            let elsewhere = self.wrong == Wrong::Elsewhere && self.meets(offset, data.len());
            let start = offset as usize - if elsewhere { 1 << 20 } else { 0 };
            let mut bytes = self.bytes.lock().unwrap();
            bytes[start..start + data.len()].copy_from_slice(data);
            if self.wrong == Wrong::Stuck {
                bytes[self.at as usize] = 0;
            }
            Ok(())
        }
        fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool> {
            self.write_at(offset, &vec![0; length as usize]).map(|()| false)
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(disk: &Faulty, percent: u8) -> Surface {
        let order = Order::plain("/dev/sda", mark(ReceiptState::Intent, 0));
        write_surface(disk, percent, 7, &order, &Unobserved).unwrap()
    }

    #[test]
    fn each_kind_of_bad_place_is_found() {
        for (wrong, words) in [
            (Wrong::Reads, "cannot read 4194304 bytes at 38797312: medium error"),
            (Wrong::Writes, "cannot write 4194304 bytes at 38797312: write fault"),
            (Wrong::Stuck, "the byte at 41943040 is not the one that was written"),
            (Wrong::Elsewhere, "the byte at 37748736 is not the one that was written"),
        ] {
            let found = written(&Faulty::new(wrong), 100);
            assert_eq!(found.first_error.as_deref(), Some(words), "{wrong:?}");
        }
    }

    #[test]
    fn a_good_disk_passes_and_is_empty_afterwards() {
        for percent in [1, 30, 100] {
            let disk = Faulty::new(Wrong::Nothing);
            let found = written(&disk, percent);
            assert_eq!((found.errors, found.first_error), (0, None));
            assert!(found.bytes_per_second > 0 && found.bytes <= SIZE - 2 * ENDS);
            assert!(disk.bytes.lock().unwrap().iter().all(|byte| *byte == 0), "{percent} %");
        }
    }

    #[test]
    fn the_pieces_are_spread_over_the_whole_disk() {
        let of = |percent| pieces(ENDS..SIZE - ENDS, percent).collect::<Vec<_>>();
        let all = of(100);
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{all:?}");
        assert_eq!((all[0].start, all.last().unwrap().end), (ENDS, SIZE - ENDS));
        let some = of(20);
        assert_eq!((some.len(), some[0].start, some.last().unwrap().end), (4, ENDS, SIZE - ENDS));
        assert_eq!(of(1).len(), 1);
    }

    #[test]
    fn a_dead_disk_ends_the_test_early() {
        let dead = tempfile::NamedTempFile::new().unwrap();
        dead.as_file().set_len(0).unwrap();
        let device = RealDevice::open_read_only(dead.path()).unwrap();
        assert_eq!(pieces(0..device.size(), 100).count(), 0, "an empty disk has nothing to read");
        let may_act = || Ok(());
        let mut run = Run::new(&device, "/dev/sda", &may_act, &Unobserved, 1);
        let failed = |n: u64| io::Result::<()>::Err(io::Error::other(format!("{n}")));
        let went_on = (0..200).take_while(|n| {
            run.counts(failed(*n), "cannot read");
            run.goes_on(&(0..STEP), 100).unwrap()
        });
        assert_eq!(went_on.count() as u64, MAX_ERRORS - 1);
    }
}
