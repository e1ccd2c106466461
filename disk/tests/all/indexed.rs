//! Installs from an index: every chunk proven before it is written, and only what the disk lacks fetched.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{MIB, MemorySource, Op, Recorder, gpt_image, mark, order::order, packed};
use landfall_disk::judge::Findings;
use landfall_disk::{
    BlockDevice, Chunk, Expectation, ImageSource, Index, Installed, Order, Unobserved, WriteError, install,
};

const DISK: u64 = 16 * MIB;

/// 12 MiB, two partitions full of noise (a third of which is runs of zeroes) and one that is empty.
fn image(seed: u64) -> Vec<u8> {
    let mut image = gpt_image(12 * MIB, 512, &[(2048, 8191), (8192, 14335), (14336, 20479)], seed);
    image[14336 * 512..20480 * 512].fill(0);
    image
}

fn run(
    device: &dyn BlockDevice, source: &mut dyn ImageSource, index: &Index, compare: bool,
) -> Result<Installed, WriteError> {
    let order = Order { compare, read_back: true, ..order(Expectation::Index(index), mark(b"index", DISK)) };
    install(device, source, &order, &Unobserved)
}

fn holds(disk: &[u8], image: &[u8]) {
    let range = 2048 * 512..20480 * 512;
    assert!(disk[range.clone()] == image[range], "the partitions differ");
    let found = Findings::of(&disk.to_vec(), 512).unwrap();
    assert!(found.bios_boots() && found.uefi_boots() && found.backup.is_some());
}

#[test]
fn packed_images_of_any_chunk_size_install_without_fetching_zeroes() {
    let image = image(1);
    for chunk in [4096, 256 << 10, 1 << 20, 4 << 20, 8 << 20] {
        let (stored, index) = packed(&image, chunk);
        let index = Index::parse(index.to_json().unwrap().as_bytes()).unwrap();
        let device = Recorder::new(crate::common::noise(DISK, 9), 512);
        let mut source = MemorySource::new(&stored);
        let installed = run(&device, &mut source, &index, false).unwrap();
        holds(&device.bytes.lock().unwrap(), &image);
        assert_eq!(installed.raw_bytes, 12 * MIB, "chunks of {chunk}");
        let head = index.chunks.iter().take_while(|c| c.raw.start < MIB).map(Chunk::stored_bytes).sum::<u64>();
        assert!(source.read <= index.fetched_bytes() + head + index.chunks.len() as u64 * 64, "chunks of {chunk}");
    }
}

#[test]
fn an_altered_chunk_is_never_written_and_nothing_is_committed() {
    let image = image(2);
    let (stored, index) = packed(&image, 1 << 20);
    let victim = index.chunks.iter().filter(|c| c.is_data() && c.raw.start > MIB).nth(2).unwrap().clone();
    let mut altered = stored.clone();
    altered[victim.stored.start as usize + 20] ^= 0x10;
    let device = Recorder::new(crate::common::noise(DISK, 9), 512);
    let error = run(&device, &mut MemorySource::new(&altered), &index, false).unwrap_err();
    assert!(matches!(error, WriteError::ChunkMismatch { offset, .. } if offset == victim.stored.start), "{error}");
    assert!(!Findings::of(&*device.bytes.lock().unwrap(), 512).unwrap().anything_boots());
    let ops = device.ops.lock().unwrap();
    let touched = |op: &Op| matches!(op, Op::Write(at, data) if overlap(&victim.raw, &(*at..at + data.len() as u64)));
    assert!(!ops.iter().any(touched), "the altered chunk reached the disk");
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Alters a byte in transfer, a given number of times.
struct Noisy {
    inner: MemorySource,
    at: usize,
    times: u32,
}

impl ImageSource for Noisy {
    fn name(&self) -> &str {
        "memory:noisy"
    }
    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError> {
        assert!(!stop.load(Ordering::Acquire));
        let start = self.inner.at;
        let n = self.inner.read(buffer, stop)?;
        if (start..start + n).contains(&self.at) && self.times > 0 {
            self.times -= 1;
            buffer[self.at - start] ^= 1;
        }
        Ok(n)
    }
    fn seek(&mut self, range: Range<u64>, stop: &AtomicBool) -> Result<(), WriteError> {
        self.inner.seek(range, stop)
    }
    fn total(&self) -> Option<u64> {
        self.inner.total()
    }
}

#[test]
fn a_chunk_altered_on_its_way_is_asked_for_again() {
    let image = image(3);
    let (stored, index) = packed(&image, 1 << 20);
    let victim = index.chunks.iter().rfind(|c| c.is_data()).unwrap();
    for (times, good) in [(1, true), (2, true), (3, false)] {
        let device = Recorder::new(vec![0; DISK as usize], 512);
        let at = victim.stored.start as usize + 9;
        let mut source = Noisy { inner: MemorySource::new(&stored), at, times };
        let result = run(&device, &mut source, &index, false);
        assert_eq!(result.is_ok(), good, "altered {times} times");
        if good {
            holds(&device.bytes.lock().unwrap(), &image);
        }
    }
}

#[test]
fn what_the_disk_holds_already_is_neither_fetched_nor_written() {
    let (old, mut new) = (image(4), image(4));
    let (stored, index) = packed(&old, 1 << 20);
    let device = Recorder::new(vec![0; DISK as usize], 512);
    run(&device, &mut MemorySource::new(&stored), &index, false).unwrap();
    // A new version: one chunk differs.
    new[5 * MIB as usize + 77] ^= 0xff;
    let (stored, index) = packed(&new, 1 << 20);
    let mut source = MemorySource::new(&stored);
    device.ops.lock().unwrap().clear();
    let installed = run(&device, &mut source, &index, true).unwrap();
    holds(&device.bytes.lock().unwrap(), &new);
    let changed = index.chunks.iter().find(|c| c.raw.contains(&(5 * MIB))).unwrap();
    // The head is needed twice: to plan by, and in its place. The last chunk holds the image's own backup table, whose
    // place on the disk is zero.
    let ends = 2 * index.chunks[0].stored_bytes() + index.chunks.last().unwrap().stored_bytes();
    assert!(source.read <= changed.stored_bytes() + ends, "{} bytes were fetched", source.read);
    assert!(installed.unchanged_bytes >= 4 * MIB && installed.written_bytes <= 3 * MIB, "{installed:?}");
}

#[test]
fn an_interrupted_install_reuses_what_the_disk_holds() {
    let image = image(5);
    let (stored, index) = packed(&image, 256 << 10);
    let whole = Recorder::new(crate::common::noise(DISK, 9), 512);
    let first = run(&whole, &mut MemorySource::new(&stored), &index, false).unwrap();
    let ops = whole.ops.lock().unwrap().clone();
    // A process that is killed leaves everything it wrote, in order; a power cut is the crash tests' business.
    for cut in (0..ops.len()).step_by(ops.len() / 13 + 1) {
        let device = Recorder::new(crate::common::noise(DISK, 9), 512);
        for op in &ops[..cut] {
            match op {
                Op::Write(at, data) => device.write_at(*at, data).unwrap(),
                Op::Flush => device.flush().unwrap(),
            }
        }
        let there = device.bytes.lock().unwrap().clone();
        let missing = |c: &&Chunk| {
            c.is_data()
                && there[c.raw.start as usize..c.raw.end as usize] != image[c.raw.start as usize..c.raw.end as usize]
        };
        let remaining: u64 = index.chunks.iter().filter(missing).map(Chunk::stored_bytes).sum();
        let mut source = MemorySource::new(&stored);
        let again = run(&device, &mut source, &index, true).unwrap();
        holds(&device.bytes.lock().unwrap(), &image);
        assert_eq!(again.raw_bytes, first.raw_bytes);
        // The head is needed twice: to plan by, and in its place.
        let head: u64 = index.chunks.iter().take_while(|c| c.raw.start < MIB).map(Chunk::stored_bytes).sum();
        assert!(source.read <= remaining + 2 * head + remaining / 20, "cut {cut}: {} of {remaining}", source.read);
    }
}

#[test]
fn an_index_of_another_file_is_refused_unwritten() {
    let (stored, _) = packed(&image(6), 1 << 20);
    let (_, other) = packed(&image(7), 1 << 20);
    let device = Recorder::new(crate::common::noise(DISK, 9), 512);
    let error = run(&device, &mut MemorySource::new(&stored), &other, false).unwrap_err();
    assert!(matches!(error, WriteError::ChunkMismatch { .. } | WriteError::Truncated { .. }), "{error}");
    assert!(device.ops.lock().unwrap().is_empty());
}
