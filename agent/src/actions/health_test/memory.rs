//! Memory: as much as is free is written with patterns, read back and compared.
//!
//! What the kernel and the agent use themselves is not tested. On a machine with ECC memory single bits are corrected before a
//! program sees them, so the kernel's counters (EDAC) are read too.

use std::fs::File;
use std::hint::black_box;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_api::{ErrorCode, HealthReport, HealthTestKind, Problem, Progress};
use landfall_disk::available_memory;

use super::super::{final_failure, installed_root::may_act};
use super::single;
use crate::runner::{Failure, Job};

/// Words of eight bytes that are taken, written and compared at once: 4 MiB.
const BLOCK: usize = 512 << 10;
/// What is left free at least, bytes: the agent goes on meanwhile, and PID 1 without memory is a machine that stops.
const SPARE: u64 = 64 << 20;
/// Between reports of progress.
const TICK: Duration = Duration::from_millis(500);
/// Places that are named; the others are counted.
const NAMED: usize = 4;
/// The kernel's counters of corrected and uncorrected errors, one folder a memory controller (Linux, Documentation/driver-api/edac.rst).
const EDAC: &str = "/sys/devices/system/edac/mc";

type Block = Vec<u64>;

/// Tests it. Blocking.
pub(super) fn test(job: &Job, percent: u8, passes: u32) -> Result<Vec<HealthReport>, Failure> {
    let began = (Timestamp::now(), Instant::now());
    let free = available_memory().unwrap_or(0);
    let bytes = tested(free, percent);
    let before = [count(Path::new(EDAC), "ce_count"), count(Path::new(EDAC), "ue_count")];
    let mut blocks = taken(job, bytes)?;
    if blocks.is_empty() {
        let text = format!("{free} bytes of memory are free, which leaves none to test");
        return Err(final_failure(Problem::new(ErrorCode::NotEnoughMemory, text).hint("give the machine more memory")));
    }
    let total = blocks.len() as u64 * BLOCK as u64 * 8 * 2 * u64::from(passes);
    // Each is written and read.
    let meter = Meter { total: total * 2, done: AtomicU64::new(0), said: Mutex::new(began.1) };
    let mut found = Found::default();
    for step in 0..passes.saturating_mul(2) {
        // The second of two steps has each bit the other way round.
        let (seed, flip) = (u64::from(step / 2), if step % 2 == 0 { 0 } else { u64::MAX });
        let content = |block: usize, word: usize| mixed(seed, block, word) ^ flip;
        each(job, &mut blocks, &meter, |n, block| {
            for (word, place) in block.iter_mut().enumerate() {
                *place = content(n, word);
            }
            Found::default()
        })?;
        found.add(each(job, &mut blocks, &meter, |n, block| compared(n, black_box(block), content))?);
    }
    let [corrected, uncorrected] = [
        count(Path::new(EDAC), "ce_count").saturating_sub(before[0]),
        count(Path::new(EDAC), "ue_count").saturating_sub(before[1]),
    ];
    let Found { errors, first } = found;
    let mut words: Vec<String> = first.iter().map(Fault::words).collect();
    if errors > words.len() as u64 {
        words.push(format!("{} other places", errors - words.len() as u64));
    }
    words.extend(
        (uncorrected > 0).then(|| format!("the kernel counted {uncorrected} errors that ECC could not correct")),
    );
    words.extend((corrected > 0).then(|| format!("the kernel counted {corrected} errors that ECC corrected")));
    let bytes_per_second = (total as f64 / began.1.elapsed().as_secs_f64().max(0.001)) as u64;
    Ok(single(
        job,
        HealthReport {
            bytes: total,
            bytes_per_second,
            errors: errors + uncorrected,
            corrected,
            faults: words,
            ..HealthReport::begun(HealthTestKind::Memory, "memory", began.0)
        },
    ))
}

/// How much is tested of so much free memory, bytes.
fn tested(free: u64, percent: u8) -> u64 {
    free.saturating_sub(SPARE.max(free / 16)) / 100 * u64::from(percent)
}

/// Takes it block by block; less, if something else needs memory meanwhile.
fn taken(job: &Job, bytes: u64) -> Result<Vec<Block>, Failure> {
    let count = bytes / (BLOCK as u64 * 8);
    let mut blocks = Vec::new();
    for _ in 0..count {
        may_act(job)?;
        let mut block = Block::new();
        if available_memory().is_none_or(|free| free < SPARE / 2) || block.try_reserve_exact(BLOCK).is_err() {
            tracing::info!("memory became short: {} of {count} blocks are tested", blocks.len());
            break;
        }
        // Written, so that the kernel really gives it.
        block.resize(BLOCK, u64::MAX);
        blocks.push(block);
    }
    Ok(blocks)
}

/// How far the test is.
struct Meter {
    /// Bytes to write and to read.
    total: u64,
    done: AtomicU64,
    /// When it was reported last.
    said: Mutex<Instant>,
}

impl Meter {
    /// A block is done.
    fn one_more(&self, job: &Job) {
        let bytes = BLOCK as u64 * 8;
        let raw_bytes = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Who finds it taken leaves the report to the other.
        let Ok(mut said) = self.said.try_lock() else { return };
        if said.elapsed() >= TICK {
            *said = Instant::now();
            let progress = Progress { stage: "test".into(), raw_bytes, raw_total: self.total, ..Progress::default() };
            job.report.progress(job.action, progress);
        }
    }
}

/// Does that to every block, on all CPUs; `act` is given its number.
fn each(
    job: &Job, blocks: &mut [Block], meter: &Meter, act: impl Fn(usize, &mut Block) -> Found + Sync,
) -> Result<Found, Failure> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let share = blocks.len().div_ceil(workers).max(1);
    let act = &act;
    let ends: Vec<Result<Found, Failure>> = thread::scope(|scope| {
        let begin = |(n, part): (usize, _)| {
            scope.spawn(move || {
                let mut found = Found::default();
                for (n, block) in (n * share..).zip::<&mut [Block]>(part) {
                    may_act(job)?;
                    found.add(act(n, block));
                    meter.one_more(job);
                }
                Ok(found)
            })
        };
        let running: Vec<_> = blocks.chunks_mut(share).enumerate().map(begin).collect();
        let panicked = || Problem::new(ErrorCode::Internal, "a fault of the agent ended the test of memory");
        running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(final_failure(panicked())))).collect()
    });
    let mut all = Found::default();
    for end in ends {
        all.add(end?);
    }
    Ok(all)
}

/// A word that is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault {
    /// Where the agent sees it.
    address: u64,
    expected: u64,
    found: u64,
}

/// The wrong words of some blocks. Of memory that is all wrong there is one for each word, so most are only counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    errors: u64,
    /// At most [`NAMED`].
    first: Vec<Fault>,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.errors += other.errors;
        self.first.extend(other.first.into_iter().take(NAMED.saturating_sub(self.first.len())));
    }
}

fn compared(n: usize, block: &Block, content: impl Fn(usize, usize) -> u64) -> Found {
    let mut all = Found::default();
    for (word, found) in block.iter().enumerate() {
        let expected = content(n, word);
        if *found != expected {
            let address = block.as_ptr() as usize as u64 + word as u64 * 8;
            all.add(Found { errors: 1, first: vec![Fault { address, expected, found: *found }] });
        }
    }
    all
}

impl Fault {
    fn words(&self) -> String {
        let bits = self.expected ^ self.found;
        match physical(self.address) {
            Some(address) => format!("bits {bits:#x} of the 8 bytes at physical address {address:#x} changed"),
            None => format!("bits {bits:#x} of 8 bytes changed"),
        }
    }
}

/// Where it is in memory (Linux, Documentation/admin-guide/mm/pagemap.rst): a person finds the module by it.
fn physical(address: u64) -> Option<u64> {
    /// The smallest page of every processor that the agent is built for.
    const PAGE: u64 = 4096;
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap").ok()?.read_exact_at(&mut entry, address / PAGE * 8).ok()?;
    let entry = u64::from_le_bytes(entry);
    // Bit 63: it is in memory. Bits 0 to 54: its page; 0 for who may not know.
    let page = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && page > 0).then(|| page * PAGE + address % PAGE)
}

/// The sum of a counter over all memory controllers.
fn count(edac: &Path, counter: &str) -> u64 {
    let controllers = std::fs::read_dir(edac).into_iter().flatten().flatten();
    let counts = controllers.filter_map(|one| std::fs::read_to_string(one.path().join(counter)).ok());
    counts.filter_map(|text| text.trim().parse::<u64>().ok()).sum()
}

/// What a word holds: another for each place and pass, so that two places that are one are found out. SplitMix64's output function.
const fn mixed(seed: u64, block: usize, word: usize) -> u64 {
    let value = (seed << 48) ^ ((block as u64 * BLOCK as u64) + word as u64);
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use landfall_api::HealthTest;
    use landfall_api::message::ActionKind;

    use super::*;
    use crate::actions::testing;

    #[test]
    fn a_stuck_bit_is_found_with_its_place() {
        let content = |n, word| mixed(0, n, word);
        let mut block: Block = (0..BLOCK).map(|word| content(3, word)).collect();
        assert_eq!(compared(3, &block, content), Found::default());
        block[77] ^= 1 << 9;
        let [fault] = compared(3, &block, content).first[..] else { panic!("one is wrong") };
        assert_eq!((fault.expected ^ fault.found, fault.address), (1 << 9, block.as_ptr() as usize as u64 + 77 * 8));
        assert!(fault.words().starts_with("bits 0x200 of "), "{}", fault.words());
        // The block of another place holds other words.
        let other = compared(4, &block, content);
        assert!(other.errors as usize > BLOCK / 2 && other.first.len() == NAMED, "{}", other.errors);
    }

    #[test]
    fn corrected_errors_are_summed_over_controllers() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("mc0", "3\n"), ("mc1", "4\n"), ("power", "")] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("ce_count"), text).unwrap();
        }
        assert_eq!((count(dir.path(), "ce_count"), count(dir.path(), "ue_count")), (7, 0));
    }

    #[test]
    fn something_is_always_left_for_the_agent() {
        assert_eq!(tested(SPARE, 100), 0);
        assert_eq!(tested(16 << 30, 100), (15 << 30) / 100 * 100);
        assert!(tested(256 << 20, 50) <= 96 << 20);
    }

    #[test]
    fn good_memory_passes() {
        let kind = ActionKind::HealthTest(HealthTest::Memory { percent: 1, passes: 1 });
        let [report] = &test(&testing::job(kind), 1, 1).unwrap()[..] else { panic!("one report") };
        assert_eq!((report.passed(), report.errors), (true, 0), "{report:?}");
        assert!(report.bytes >= 2 * BLOCK as u64 * 8 && report.bytes_per_second > 0);
    }

    #[test]
    fn a_test_of_memory_ends_with_the_lease() {
        let kind = ActionKind::HealthTest(HealthTest::Memory { percent: 1, passes: 1000 });
        let job = testing::without_lease(testing::job(kind));
        assert_eq!(test(&job, 1, 1000).unwrap_err().problem.code, ErrorCode::LeaseExpired);
    }
}
