//! Mutants of small images of every format through the whole writer: success only where the disk holds the original's
//! bytes. Without a proof the checks of the format alone decide; where a format has none, other bytes may be installed, and
//! the table says how often. `cargo test -p landfall-disk --test all mutants -- --nocapture` prints it.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::device::Device;
use crate::common::mutate::mutate;
use crate::common::order::order;
use crate::common::replay::Random;
use crate::common::{MIB, MemorySource, digest, formats, gpt_image, mark};
use landfall_api::ErrorCode;
use landfall_disk::judge::{Findings, State, judge};
use landfall_disk::{Expectation, Index, Order, RECEIPT_PLACE, Unobserved, WriteError, install};

const DISK: u64 = 3 * MIB;
/// How many mutants in all, unless `LANDFALL_MUTANTS` says another number: `scripts/test --soak` does.
const MUTANTS: usize = 1000;
/// Another seed than 1: `scripts/test --soak` chooses one.
const SEED: &str = "LANDFALL_FAULT_SEED";
const WORKERS: usize = 2;
/// An install of a mutant never takes longer.
const BOUND: Duration = Duration::from_secs(120);

fn number(name: &str, otherwise: usize) -> usize {
    let parse = |text: String| text.parse().unwrap_or_else(|_| panic!("{name}=\"{text}\" is not a number"));
    std::env::var(name).map_or(otherwise, parse)
}

/// A small image that compresses, with a partition of records and one that is almost empty.
fn image(seed: u64) -> Vec<u8> {
    let mut image = gpt_image(2 * MIB, 512, &[(2048, 3071), (3072, 3999)], seed);
    let mut random = Random(seed * 2 + 1);
    for sector in image[2048 * 512..3000 * 512].chunks_exact_mut(512) {
        let word = random.next().to_le_bytes();
        sector.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&word));
        sector[..8].copy_from_slice(&random.next().to_le_bytes());
    }
    image[3000 * 512..4000 * 512].fill(0);
    image[3100 * 512..3101 * 512].fill(0x42);
    image
}

/// One format, and what decides about its mutants.
struct Format {
    name: &'static str,
    stored: Vec<u8>,
    /// The same of another image, to splice from.
    other: Vec<u8>,
    index: Option<Index>,
    /// It has sums of its content, so that no mutant is taken for an image even without a proof.
    checks: bool,
    /// The digest of the raw bytes can prove it.
    raw: bool,
}

fn zstd_with_sum(raw: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(raw).unwrap();
    encoder.finish().unwrap()
}

fn lz4_with_sum(raw: &[u8]) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new().content_checksum(true);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(raw).unwrap();
    encoder.finish().unwrap()
}

fn all() -> Vec<Format> {
    let (raw, other) = (image(31), image(32));
    let pairs = formats::all(&raw).into_iter().zip(formats::all(&other));
    let mut all: Vec<_> = pairs
        .map(|(stored, other)| Format {
            name: stored.name,
            index: stored.index.map(|index| Index::parse(&index).unwrap()),
            stored: stored.image,
            other: other.image,
            checks: ["gzip", "xz", "bzip2", "packed", "bmap", "vmdk", "vmdk-vmware"].contains(&stored.name),
            raw: stored.name != "qcow2",
        })
        .collect();
    let summed = |name, make: fn(&[u8]) -> Vec<u8>| Format {
        name,
        stored: make(&raw),
        other: make(&other),
        index: None,
        checks: true,
        raw: true,
    };
    all.extend([summed("zstd, sum", zstd_with_sum), summed("lz4, sum", lz4_with_sum)]);
    all
}

fn write(device: &Device, stored: &[u8], expectation: Expectation<'_>) -> Result<(), WriteError> {
    let order = Order { memory: Some(512 * MIB), ..order(expectation, mark(stored, DISK)) };
    install(device, &mut MemorySource::new(stored), &order, &Unobserved).map(|_| ())
}

fn blank() -> Device {
    Device::new(vec![0; DISK as usize])
}

/// The disk that holds the original.
struct Truth {
    raw: Vec<u8>,
    disk: Vec<u8>,
}

impl Truth {
    fn new() -> Self {
        let (raw, device) = (image(31), blank());
        write(&device, &raw, Expectation::Stored(digest(&raw))).unwrap();
        Self { raw, disk: device.content() }
    }

    /// The same system, and the same bytes wherever no table and no receipt is.
    fn is_on(&self, disk: &[u8]) -> bool {
        let plain = [34 * 512..RECEIPT_PLACE.start as usize, MIB as usize..DISK as usize - 33 * 512];
        let nothing = vec![0; DISK as usize];
        judge(&disk, &nothing, &self.disk, 512).unwrap() == State::VerifiedNew
            && plain.into_iter().all(|range| disk[range.clone()] == self.disk[range])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Refused,
    Equal,
    /// It was installed, and holds other bytes.
    Other,
}

fn end(truth: &Truth, stored: &[u8], expectation: Expectation<'_>, case: &str) -> End {
    let (device, begun) = (blank(), Instant::now());
    let result = catch_unwind(AssertUnwindSafe(|| write(&device, stored, expectation)));
    let result = result.unwrap_or_else(|_| panic!("{case}: the writer panicked"));
    assert!(begun.elapsed() < BOUND, "{case}: {:?}", begun.elapsed());
    let disk = device.content();
    match result {
        Ok(()) if truth.is_on(&disk) => End::Equal,
        Ok(()) => End::Other,
        Err(error) => {
            assert_ne!(error.code(), ErrorCode::Internal, "{case}: {error}");
            assert!(!Findings::of(&disk, 512).unwrap().anything_boots(), "{case}: it boots after {error}");
            End::Refused
        }
    }
}

/// Ends of the mutants of one format: refused, equal, other.
#[derive(Default, Clone, Copy)]
struct Counts([usize; 3]);

impl Counts {
    fn add(&mut self, end: End) {
        self.0[end as usize] += 1;
    }
}

/// One mutant: without a proof, and with one: its index, or the digest of the raw or of the stored bytes.
fn try_one(truth: &Truth, format: &Format, number: usize, by_raw: bool, seed: u64) -> (Option<End>, End) {
    let mut random = Random((seed << 32 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The first numbers of a xorshift generator show its seed.
    for _ in 0..8 {
        random.next();
    }
    let (mutant, what) = mutate(&format.stored, &format.other, &mut random);
    let case = format!("{} mutant {number} of {SEED}={seed}: {what}", format.name);
    if let Some(index) = &format.index {
        let proven = end(truth, &mutant, Expectation::Index(index), &case);
        assert_ne!(proven, End::Other, "{case}: installed with its index");
        return (None, proven);
    }
    let alone = end(truth, &mutant, Expectation::Waived, &case);
    assert!(!format.checks || alone != End::Other, "{case}: installed without a proof");
    let by_raw = format.raw && by_raw;
    let expectation =
        if by_raw { Expectation::Raw(digest(&truth.raw)) } else { Expectation::Stored(digest(&format.stored)) };
    let proven = end(truth, &mutant, expectation, &case);
    assert_ne!(proven, End::Other, "{case}: installed with a digest");
    assert!(by_raw || proven == End::Refused || mutant == format.stored, "{case}: the stored digest did not refuse it");
    (Some(alone), proven)
}

#[test]
fn no_mutant_becomes_a_system_that_its_proof_denies() {
    let (begun, mutants, seed) = (Instant::now(), number("LANDFALL_MUTANTS", MUTANTS), number(SEED, 1) as u64);
    let (truth, formats) = (Truth::new(), all());
    for format in &formats {
        let proof = format.index.as_ref().map_or(Expectation::Waived, Expectation::Index);
        assert_eq!(end(&truth, &format.stored, proof, format.name), End::Equal, "{} itself", format.name);
    }
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(vec![[Counts::default(); 2]; formats.len()]));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::AcqRel);
                    if number >= mutants {
                        break;
                    }
                    let which = number % formats.len();
                    let by_raw = (number / formats.len()).is_multiple_of(2);
                    let (alone, proven) = try_one(&truth, &formats[which], number, by_raw, seed);
                    let mut counts = counts.lock().unwrap();
                    alone.into_iter().for_each(|end| counts[which][0].add(end));
                    counts[which][1].add(proven);
                }
            });
        }
    });
    println!("{:12} {:>8}  {:36} with a proof", "format", "bytes", "without a proof");
    for (format, [alone, proven]) in formats.iter().zip(counts.into_inner().unwrap()) {
        let said = |Counts([refused, equal, other]): Counts| format!("refused {refused}, equal {equal}, other {other}");
        println!("{:12} {:>8}  {:36} {}", format.name, format.stored.len(), said(alone), said(proven));
        assert!(proven.0[0] > 0, "{}", format.name);
    }
    println!("{mutants} mutants in {:?}; {SEED}={seed}", begun.elapsed());
}
