//! Reading back while writing goes on: what is read was flushed before, what is wrong ends the write at once, and what is
//! lost later is found all the same.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::common::device::{eio, overlap};
use crate::common::order::order;
use crate::common::{MIB, MemorySource, digest, gpt_image, mark};
use landfall_disk::judge::Findings;
use landfall_disk::{BlockDevice, Expectation, ImageSource, Installed, Order, ReadAt, Unobserved, WriteError, install};

const DISK: u64 = 32 * MIB;
/// No wait is longer.
const BOUND: Duration = Duration::from_secs(60);

/// 14 MiB of which no sector is zero; with a hole, zero from 4 to 8 MiB.
fn image(hole: bool) -> Vec<u8> {
    let mut image = gpt_image(14 * MIB, 512, &[(2048, 14 * 2048 - 100)], 3);
    for (number, bytes) in (0_u64..).zip(image[MIB as usize..13 * MIB as usize].chunks_exact_mut(8)) {
        bytes.copy_from_slice(&(number | 1 << 63).to_le_bytes());
    }
    if hole {
        image[4 * MIB as usize..8 * MIB as usize].fill(0);
    }
    image
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Written(Range<u64>),
    FlushBegins,
    FlushEnds,
    ReadBegins(Range<u64>),
}

/// A disk in memory that notes the order of what is done.
struct Disk {
    bytes: Mutex<Vec<u8>>,
    /// Bytes that it really has; those beyond are stored over the first ones.
    real: u64,
    /// Reading these bytes fails.
    bad: Range<u64>,
    /// With each flush these bytes become what they were before.
    forgets: Range<u64>,
    /// Bytes of which the write returns after this many others.
    late: Option<(Range<u64>, usize)>,
    events: Mutex<Vec<Event>>,
    changed: Condvar,
}

impl Disk {
    fn new() -> Self {
        Self {
            bytes: Mutex::new(vec![0x77; DISK as usize]),
            real: DISK,
            bad: 0..0,
            forgets: 0..0,
            late: None,
            events: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.changed.notify_all();
    }

    /// Waits until this many ranges of the image's second MiB and after were written.
    fn wait_written(&self, ranges: usize) {
        let written = |event: &&Event| matches!(event, Event::Written(range) if range.start >= MIB);
        let few = |events: &mut Vec<Event>| events.iter().filter(written).count() < ranges;
        let (events, out) = self.changed.wait_timeout_while(self.events.lock().unwrap(), BOUND, few).unwrap();
        drop(events);
        assert!(!out.timed_out(), "{ranges} ranges were not written");
    }

    /// Waits until this was written and read since.
    fn wait_read_back(&self, range: &Range<u64>) {
        let read = |events: &mut Vec<Event>| {
            let written = events.iter().position(|event| matches!(event, Event::Written(it) if it == range));
            written.is_some_and(|at| events[at..].contains(&Event::ReadBegins(range.clone())))
        };
        let (events, out) =
            self.changed.wait_timeout_while(self.events.lock().unwrap(), BOUND, |events| !read(events)).unwrap();
        drop(events);
        assert!(!out.timed_out(), "{range:?} was not read back while writing went on");
    }

    fn install(&self, image: &[u8], source: &mut dyn ImageSource) -> Result<Installed, WriteError> {
        let order = order(Expectation::Stored(digest(image)), mark(image, DISK));
        let order = Order { device: "watched", read_back: true, ..order };
        install(self, source, &order, &Unobserved)
    }
}

impl ReadAt for Disk {
    fn size(&self) -> u64 {
        DISK
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + buffer.len() as u64;
        self.note(Event::ReadBegins(range.clone()));
        if overlap(&range, &self.bad) {
            return Err(eio());
        }
        let bytes = self.bytes.lock().unwrap();
        for (at, sector) in (offset..).step_by(512).zip(buffer.chunks_mut(512)) {
            bytes.read_at(at % self.real, sector)?;
        }
        Ok(())
    }
}

impl BlockDevice for Disk {
    fn logical_sector(&self) -> u32 {
        512
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap();
        for (at, sector) in (offset..).step_by(512).zip(data.chunks(512)) {
            let at = (at % self.real) as usize;
            bytes[at..at + 512].copy_from_slice(sector);
        }
        drop(bytes);
        let range = offset..offset + data.len() as u64;
        if let Some((_, others)) = self.late.as_ref().filter(|(late, _)| overlap(&range, late)) {
            self.wait_written(*others);
        }
        self.note(Event::Written(range));
        Ok(())
    }
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.write_at(offset, &vec![0; length as usize]).map(|()| true)
    }
    fn flush(&self) -> io::Result<()> {
        self.note(Event::FlushBegins);
        self.bytes.lock().unwrap()[self.forgets.start as usize..self.forgets.end as usize].fill(0x77);
        self.note(Event::FlushEnds);
        Ok(())
    }
}

/// An image of which the last part does not come before `wait` returns.
struct Waiting<F> {
    image: MemorySource,
    /// Bytes that come first.
    first: usize,
    wait: F,
}

impl<F: Fn(&AtomicBool) + Send> ImageSource for Waiting<F> {
    fn name(&self) -> &str {
        "memory:waiting"
    }
    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError> {
        if self.image.at == self.first {
            (self.wait)(stop);
        }
        let most = if self.image.at < self.first { self.first - self.image.at } else { buffer.len() };
        let length = buffer.len().min(most);
        self.image.read(&mut buffer[..length], stop)
    }
    fn seek(&mut self, range: Range<u64>, stop: &AtomicBool) -> Result<(), WriteError> {
        self.image.seek(range, stop)
    }
    fn total(&self) -> Option<u64> {
        self.image.total()
    }
}

fn waiting<F: Fn(&AtomicBool) + Send>(image: &[u8], wait: F) -> Waiting<F> {
    Waiting { image: MemorySource::new(image), first: 12 * MIB as usize, wait }
}

#[test]
fn ranges_are_read_back_meanwhile_and_after_a_flush() {
    let (image, disk) = (image(false), Disk::new());
    let installed = disk.install(&image, &mut waiting(&image, |_| disk.wait_read_back(&(MIB..2 * MIB)))).unwrap();
    assert_eq!(installed.read_back_bytes, 13 * MIB, "all but the first MiB");
    let events = disk.events.into_inner().unwrap();
    let mut seen = 0;
    for (at, event) in events.iter().enumerate() {
        let Event::ReadBegins(range) = event else { continue };
        let body = |event: &Event| matches!(event, Event::Written(it) if it == range && range.start >= MIB);
        let Some(written) = events[..at].iter().rposition(body) else { continue };
        let between = &events[written..at];
        let flush = between.iter().position(|event| *event == Event::FlushBegins);
        assert!(flush.is_some_and(|flush| between[flush..].contains(&Event::FlushEnds)), "{range:?}");
        seen += 1;
    }
    assert!(seen >= 12, "{seen}");
}

#[test]
fn a_range_that_reads_wrong_ends_a_write_that_waits() {
    let image = image(false);
    let (there, named) = (3 * MIB + 512..3 * MIB + 1024, "read back sector 6145 (byte 3146240) of watched");
    let bad = Disk { bad: there.clone(), ..Disk::new() };
    let lost = Disk { forgets: there.clone(), ..Disk::new() };
    // Ten of the eleven ranges that come are before it, and after the last flush that their size causes.
    let last = Disk { bad: there.clone(), late: Some((there, 10)), ..Disk::new() };
    for (disk, said) in [(bad, named), (lost, "watched"), (last, named)] {
        let begun = Instant::now();
        // The rest never comes.
        let stalls = |stop: &AtomicBool| {
            while !stop.load(Ordering::Acquire) {
                assert!(begun.elapsed() < BOUND, "the write goes on");
                thread::sleep(Duration::from_millis(5));
            }
        };
        let error = disk.install(&image, &mut waiting(&image, stalls)).unwrap_err();
        assert!(error.to_string().contains(said) && !matches!(error, WriteError::Internal(_)), "{error}");
        assert!(!Findings::of(&disk.bytes.into_inner().unwrap(), 512).unwrap().anything_boots());
    }
}

#[test]
fn a_disk_smaller_than_it_says_is_found_out() {
    let image = image(false);
    // The last MiB but one is stored over the second.
    let disk = Disk { real: 12 * MIB, ..Disk::new() };
    let error = disk.install(&image, &mut waiting(&image, |_| disk.wait_read_back(&(MIB..2 * MIB)))).unwrap_err();
    assert!(matches!(error, WriteError::ReadBack { offset: MIB, length: MIB, .. }), "{error:?}");
}

#[test]
fn made_zeroes_that_do_not_last_are_found() {
    let image = image(true);
    let disk = Disk { forgets: 4 * MIB..8 * MIB, ..Disk::new() };
    let error = disk.install(&image, &mut MemorySource::new(&image)).unwrap_err();
    let WriteError::ReadBack { offset, .. } = error else { panic!("{error:?}") };
    assert!((4 * MIB..8 * MIB).contains(&offset), "{offset}");
}
