//! The fault matrix: each operation of a device, in each part of an install, with each fault. An install ends in an error
//! that names the device and the step, or in success with the right bytes; what hangs leaves the disk as it is, and no disk
//! is bootable and unverified. `cargo test -p landfall-disk --test all fault_matrix -- --nocapture` prints the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::device::Device;
use crate::common::order::{DEVICE, order};
use crate::common::script::{Operation, Region, Script, Strike, Trouble};
use crate::common::{MIB, MemorySource, digest, gpt_image, mark, noise, packed, words};
use landfall_api::ErrorCode;
use landfall_disk::judge::{Findings, State, judge};
use landfall_disk::{Expectation, Index, Order, Unobserved, WriteError, install};

const DISK: u64 = 4 * MIB;
/// Installs under way at once: those that hang take no processor.
const WORKERS: usize = 8;
/// An install that writes nothing for so long has seen the cancel; a loaded machine may need several of these.
const CANCEL_SEEN: Duration = Duration::from_millis(130);
/// An install that takes so long has not come back.
const BOUND: Duration = Duration::from_secs(120);

/// One way to install, and what it makes of the disk.
struct Way {
    name: &'static str,
    image: Vec<u8>,
    stored: Vec<u8>,
    index: Option<Index>,
    /// Compared before it is written, and read back.
    careful: bool,
    old: Vec<u8>,
    new: Vec<u8>,
    flushes: usize,
    /// How many operations a whole install has.
    counts: BTreeMap<(Operation, Region), usize>,
}

impl Way {
    fn new(name: &'static str, with_index: bool, careful: bool) -> Self {
        let mut image = gpt_image(3 * MIB, 512, &[(2048, 4095), (4096, 6000)], 3);
        image[2200 * 512..3200 * 512].fill(0);
        let (stored, index) = if with_index {
            let (stored, index) = packed(&image, 256 << 10);
            (stored, Some(index))
        } else {
            (zstd::encode_all(&image[..], 1).unwrap(), None)
        };
        let mut old = noise(DISK, 1);
        for zero in old.chunks_exact_mut(8).filter(|bytes| **bytes == [0; 8]) {
            zero.copy_from_slice(b"old data");
        }
        let table = gpt_image(DISK, 512, &[(2048, 8000)], 9);
        old[..MIB as usize].copy_from_slice(&table[..MIB as usize]);
        old[DISK as usize - 33 * 512..].copy_from_slice(&table[DISK as usize - 33 * 512..]);
        // A part of the image, as an interrupted install leaves it.
        old[2 * MIB as usize..5 * MIB as usize / 2].copy_from_slice(&image[2 * MIB as usize..5 * MIB as usize / 2]);
        let mut way = Self {
            name,
            image,
            stored,
            index,
            careful: false,
            old,
            new: Vec::new(),
            flushes: 0,
            counts: BTreeMap::new(),
        };
        let device = Device::new(way.old.clone());
        way.run(&device, &|| Ok(())).unwrap();
        (way.flushes, way.new) = (device.flushes.load(Ordering::Acquire), device.content());
        way.careful = careful;
        let device = way.device(None);
        way.run(&device, &|| Ok(())).unwrap();
        way.counts = device.script.counts();
        way
    }

    fn device(&self, strike: Option<Strike>) -> Device {
        Device { script: Script::new(self.flushes, strike), ..Device::new(self.old.clone()) }
    }

    fn run(&self, device: &Device, may_act: &dyn Fn() -> Result<(), WriteError>) -> Result<(), WriteError> {
        let expectation = match &self.index {
            Some(index) => Expectation::Index(index),
            None => Expectation::Stored(digest(&self.stored)),
        };
        let order = Order {
            compare: self.careful,
            read_back: self.careful,
            may_act,
            ..order(expectation, mark(&self.image, DISK))
        };
        install(device, &mut MemorySource::new(&self.stored), &order, &Unobserved).map(|_| ())
    }

    fn judge(&self, device: &Device) -> State {
        judge(&device.content(), &self.old, &self.new, 512).unwrap()
    }
}

/// How a try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Refused,
    Installed,
    /// The operation was never reached: a device that makes its own order of writes.
    Unmet,
}

/// Words of the steps that a part of an install has.
fn steps(region: Region) -> &'static [&'static str] {
    match region {
        Region::Metadata => {
            &["partition table of", "LBA 0 of", "old partition", "both ends of", "old tables of", "first MiB of"]
        }
        Region::Body => &["bytes at ", "read back sector ", "flush the image to"],
        Region::Commit => &["partition table to", "LBA 0 to", "first and last bytes to", "read back "],
        Region::Receipt => &["receipt ", "first MiB of"],
    }
}

/// The end is one of those allowed, and the disk is what the end says.
fn assert_ended(way: &Way, device: &Device, strike: Strike, result: Result<(), WriteError>, case: &str) -> End {
    let state = way.judge(device);
    assert_ne!(state, State::Broken, "{case}: {result:?}");
    let Err(error) = result else {
        let (disk, partitions) = (device.content(), MIB as usize..6001 * 512);
        assert_eq!(state, State::VerifiedNew, "{case}");
        assert!(disk[partitions.clone()] == way.image[partitions], "{case}: the partitions differ");
        let found = Findings::of(&disk, 512).unwrap();
        assert!(found.uefi_boots() && found.primary.is_some() && found.backup.is_some(), "{case}");
        return End::Installed;
    };
    assert_eq!(error.code(), ErrorCode::DeviceIo, "{case}: {error:?}");
    let text = words(&error);
    assert!(text.contains(DEVICE), "{case}: {text}");
    // A fault that lasts may be met a second time, later.
    let later = Region::ALL.into_iter().filter(|region| *region == strike.region || strike.trouble != Trouble::EioOnce);
    let named = later.flat_map(steps).any(|step| error.to_string().contains(step));
    assert!(named, "{case}: no step in \"{text}\"");
    if matches!(strike.region, Region::Metadata | Region::Body) {
        // Where only reads fail, the first that counts may be the one after the commit.
        let late = strike.trouble == Trouble::EioAlways && strike.operation == Operation::Read;
        assert!(late || [State::Old, State::Unbootable].contains(&state), "{case}: {state}, {text}");
    }
    End::Refused
}

fn fails(way: &Way, strike: Strike, case: &str) -> End {
    let device = way.device(Some(strike));
    let begun = Instant::now();
    let result = way.run(&device, &|| Ok(()));
    assert!(begun.elapsed() < BOUND, "{case}: {:?}", begun.elapsed());
    if !device.script.struck() {
        return End::Unmet;
    }
    assert_ended(way, &device, strike, result, case)
}

/// The device does not answer; the write is cancelled meanwhile; then the device answers.
fn hangs(way: &Way, strike: Strike, case: &str) -> End {
    let device = way.device(Some(strike));
    let (cancelled, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let may_act = || {
        let cancelled = cancelled.load(Ordering::Acquire);
        if cancelled { Err(WriteError::Cancelled { device: DEVICE.into() }) } else { Ok(()) }
    };
    thread::scope(|scope| {
        let write = scope.spawn(|| {
            let result = way.run(&device, &|| may_act());
            over.store(true, Ordering::Release);
            result
        });
        if !device.script.wait_hanging(|| over.load(Ordering::Acquire)) {
            write.join().unwrap().unwrap();
            return End::Unmet;
        }
        // Threads that do not hang finish the block that they have.
        cancelled.store(true, Ordering::Release);
        let asked = Instant::now();
        let mut before = device.content();
        loop {
            thread::sleep(CANCEL_SEEN);
            let now = device.content();
            if now == before {
                break;
            }
            assert!(asked.elapsed() < BOUND, "{case}: it goes on writing after the cancel");
            before = now;
        }
        assert!(!write.is_finished(), "{case}: it came back although the device had not");
        assert_ne!(way.judge(&device), State::Broken, "{case}, while it hangs");
        device.script.release();
        let begun = Instant::now();
        let result = write.join().unwrap();
        assert!(begun.elapsed() < BOUND, "{case}: {:?} after the device answered", begun.elapsed());
        match result {
            Err(WriteError::Cancelled { .. }) => {
                let signed = Findings::of(&device.content(), 512).unwrap().boot_signature;
                let state = way.judge(&device);
                assert!([State::Old, State::Unbootable].contains(&state) || !signed, "{case}: {state} after a cancel");
                End::Refused
            }
            result => assert_ended(way, &device, strike, result, case),
        }
    })
}

type Cells = BTreeMap<(Operation, Region, Trouble), BTreeMap<End, usize>>;

fn table(cells: &Cells) -> String {
    let mut text = format!("{:14} {:9}", "operation", "part");
    for trouble in Trouble::ALL {
        write!(text, " {trouble:22}").unwrap();
    }
    for operation in Operation::ALL {
        for region in Region::ALL {
            let row: Vec<_> = Trouble::ALL.iter().map(|trouble| cells.get(&(operation, region, *trouble))).collect();
            if row.iter().all(Option::is_none) {
                continue;
            }
            write!(text, "\n{operation:14} {region:9}").unwrap();
            for (cell, trouble) in row.into_iter().zip(Trouble::ALL) {
                let refused = if trouble == Trouble::Hang { "cancelled" } else { "error" };
                let ends = [(End::Refused, refused), (End::Installed, "installed")];
                let said: Vec<_> = ends
                    .iter()
                    .filter_map(|(end, word)| cell?.get(end).map(|count| format!("{word} {count}")))
                    .collect();
                let said = if said.is_empty() { "-".to_owned() } else { said.join(", ") };
                write!(text, " {said:22}").unwrap();
            }
        }
    }
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn every_fault_ends_in_an_error_or_the_right_bytes() {
    let begun = Instant::now();
    let ways = [
        Way::new("streamed", false, false),
        Way::new("streamed, compared and read back", false, true),
        Way::new("packed, compared and read back", true, true),
    ];
    let mut tries = Vec::new();
    for way in &ways {
        for ((operation, region), count) in &way.counts {
            // The first, the last, and two between.
            let places = BTreeSet::from([0, count / 3, 2 * count / 3, count - 1]);
            for trouble in Trouble::ALL.into_iter().filter(|trouble| trouble.can_strike(*operation)) {
                let strike = |nth| Strike { operation: *operation, region: *region, nth, trouble };
                tries.extend(places.iter().map(|nth| (way, strike(*nth))));
            }
        }
    }
    let (next, cells) = (AtomicUsize::new(0), Mutex::new(Cells::new()));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((way, strike)) = tries.get(next.fetch_add(1, Ordering::AcqRel)) {
                    let Strike { operation, region, nth, trouble } = *strike;
                    let case = format!("{}: {trouble} at {operation} {nth} of {region}", way.name);
                    let end =
                        if trouble == Trouble::Hang { hangs(way, *strike, &case) } else { fails(way, *strike, &case) };
                    let mut cells = cells.lock().unwrap();
                    *cells.entry((operation, region, trouble)).or_default().entry(end).or_default() += 1;
                }
            });
        }
    });
    let cells = cells.into_inner().unwrap();
    println!("{}{} installs in {:?}", table(&cells), tries.len(), begun.elapsed());
    for (cell, ends) in &cells {
        assert!(ends.keys().any(|end| *end != End::Unmet), "{cell:?} was never met");
    }
    // An install reads, writes and flushes in all four parts; only the body's zeroes are left to the device.
    let rows: BTreeSet<_> = cells.keys().map(|(operation, region, _)| (*operation, *region)).collect();
    let everywhere = [Operation::Read, Operation::Write, Operation::Flush];
    let mut wanted: BTreeSet<_> = everywhere.iter().flat_map(|op| Region::ALL.map(|region| (*op, region))).collect();
    wanted.extend([(Operation::Zero, Region::Body), (Operation::Reread, Region::Commit)]);
    assert_eq!(rows, wanted);
}
