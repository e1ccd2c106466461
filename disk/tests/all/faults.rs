//! Servers that go wrong in every way and order, against every format, proof and old disk: the disk is verified-equal or
//! not bootable, never anything else, and success is reported only in the first case.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::common::faults::{Fault, Faulty, fault};
use crate::common::formats::{Kind, Stored};
use crate::common::order::order;
use crate::common::request::{persons, write_request};
use crate::common::{MIB, MemorySource, Recorder, digest, formats, gpt_image, mark, noise};
use landfall_api::ReceiptState;
use landfall_disk::judge::{Findings, State, judge};
use landfall_disk::{
    Authority, CancelFlag, Expectation, Image, LeaseGuard, Order, Proof, RECEIPT_PLACE, Unobserved, WriteError,
    WriteOutcome, WriteRequest, image_at, install, read_mark, write_image,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};

const DISK: u64 = 8 * MIB;
const IMAGE: u64 = 6 * MIB;
/// Random sequences of faults for each format.
const CASES: u32 = 10;
/// Another seed than 1, in decimal: `scripts/test --soak` chooses one, and a test that fails prints it.
const SEED: &str = "LANDFALL_FAULT_SEED";
/// Cases under way at once: most of their time they wait for a retry.
const WORKERS: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OldDisk {
    Blank,
    Noise,
    Gpt,
    /// An install of another image, receipt and all.
    Install,
}

/// The image, and what a disk looks like once it holds it.
struct Truth {
    raw: Vec<u8>,
    new: Vec<u8>,
    parts: Vec<std::ops::Range<usize>>,
}

impl Truth {
    fn new() -> Self {
        let mut raw = gpt_image(IMAGE, 512, &[(2048, 6143), (6144, 8191), (8192, 12200)], 31);
        // A partition that is almost empty.
        raw[6200 * 512..8192 * 512].fill(0);
        let device = Recorder::new(vec![0; DISK as usize], 512);
        let order = Order { read_back: true, ..order(Expectation::Stored(digest(&raw)), mark(&raw, DISK)) };
        install(&device, &mut MemorySource::new(&raw), &order, &Unobserved).unwrap();
        let new = device.bytes.into_inner().unwrap();
        Self { raw, new, parts: vec![2048 * 512..6144 * 512, 6144 * 512..8192 * 512, 8192 * 512..12201 * 512] }
    }

    /// Every partition holds the image's bytes, everything boots, and the receipt is `Done`.
    fn is_on(&self, disk: &[u8]) -> Result<(), String> {
        if let Some(part) = self.parts.iter().find(|part| disk[(*part).clone()] != self.raw[(*part).clone()]) {
            return Err(format!("the partition at {} differs", part.start));
        }
        let found = Findings::of(&disk.to_vec(), 512).unwrap();
        if !(found.bios_boots() && found.uefi_boots() && found.primary.is_some() && found.backup.is_some()) {
            return Err("it does not boot in every way".into());
        }
        match read_mark(&disk.to_vec()).unwrap().map(|mark| mark.receipt.state) {
            Some(ReceiptState::Done) => Ok(()),
            other => Err(format!("its receipt says {other:?}")),
        }
    }
}

/// By a person, whatever is on the disk.
fn request(path: &Path, image: Image, workflow: u128) -> WriteRequest {
    let authority = Authority { force: true, ..persons(workflow) };
    WriteRequest { authority, ..write_request(path, image, workflow) }
}

/// A file that counts as a disk; in memory if possible, because the power is not cut here.
fn disk_file() -> tempfile::NamedTempFile {
    let memory = tempfile::Builder::new().tempfile_in("/dev/shm");
    memory.or_else(|_| tempfile::NamedTempFile::new()).unwrap()
}

fn prepare(old: OldDisk, path: &Path) -> Result<(), io::Error> {
    let content = match old {
        OldDisk::Blank | OldDisk::Install => vec![0; DISK as usize],
        OldDisk::Noise => noise(DISK, 3),
        OldDisk::Gpt => gpt_image(DISK, 512, &[(2048, 8191), (8192, 16000)], 4),
    };
    std::fs::write(path, content)?;
    if old == OldDisk::Install {
        // An earlier version of the same: one partition is the same, one is not.
        let earlier = tempfile::NamedTempFile::new()?;
        std::fs::write(earlier.path(), gpt_image(IMAGE, 512, &[(2048, 6143), (8192, 12200)], 31))?;
        let proof = Proof::Stored(digest(&std::fs::read(earlier.path())?));
        let image = image_at(format!("file://{}", earlier.path().display()), proof);
        write_image(&request(path, image, 1), &Unobserved).map_err(io::Error::other)?;
    }
    Ok(())
}

/// One request, run under a script of faults and then again without.
struct Case<'a> {
    truth: &'a Truth,
    stored: &'a Stored,
    server: &'a Faulty,
    kind: Kind,
    old: OldDisk,
    read_back: bool,
    script: Vec<Fault>,
}

impl Case<'_> {
    fn run(&self) -> Result<Result<WriteOutcome, WriteError>, String> {
        let file = disk_file();
        prepare(self.old, file.path()).map_err(|error| error.to_string())?;
        let before = std::fs::read(file.path()).unwrap();
        let proof = self.stored.proof(self.kind, &self.truth.raw, &self.server.url("/index"));
        let mut request = request(file.path(), image_at(self.server.url("/image"), proof), 2);
        request.read_back = self.read_back;
        request.authority.lease = self.nudge(&request.authority.cancel);
        self.server.script(self.script.clone());
        let first = write_image(&request, &Unobserved);
        self.look(file.path(), &before, &first)?;
        if first.is_err() {
            self.server.script([]);
            request.authority.cancel = CancelFlag::new();
            request.authority.lease = LeaseGuard::unlimited();
            let second = write_image(&request, &Unobserved);
            self.look(file.path(), &before, &second)?;
            if let Err(error) = second {
                let first = first.map(drop);
                return Err(format!("the second run failed with the server mended: {error:?}; the first: {first:?}"));
            }
        }
        Ok(first)
    }

    /// A stall ends once the writer has asked twice whether it may still act; the other kind ends by the writer's being
    /// cancelled then.
    fn nudge(&self, cancel: &CancelFlag) -> LeaseGuard {
        let (server, cancel, asked) = (self.server.clone(), cancel.clone(), AtomicU32::new(0));
        LeaseGuard::new(move || {
            if let Some(fault) = server.stalled()
                && asked.fetch_add(1, Ordering::AcqRel) >= 2
            {
                asked.store(0, Ordering::Release);
                if matches!(fault, Fault::Hang(_)) {
                    cancel.cancel();
                }
                server.go_on();
            }
            true
        })
    }

    fn look(&self, path: &Path, before: &[u8], result: &Result<WriteOutcome, WriteError>) -> Result<(), String> {
        let disk = std::fs::read(path).unwrap();
        let state = judge(&disk, &before.to_vec(), &self.truth.new, 512).unwrap();
        let equal = self.truth.is_on(&disk);
        match (result, state) {
            (Ok(_), State::VerifiedNew) => equal.map_err(|why| format!("success was reported, but {why}")),
            (Ok(_), state) => Err(format!("success was reported, and the disk is {state}")),
            (Err(_), State::Unbootable) => Ok(()),
            // Ended before the first destructive byte: none differs but those of the intent.
            (Err(_), State::Old) if same_but_receipt(&disk, before) => Ok(()),
            // Ended after LBA 0 went and before the old table did: only a firmware that is not known would start the old
            // system, of which all is there.
            (Err(_), State::Old) if !Findings::of(&disk, 512).unwrap().boot_signature => Ok(()),
            (Err(error), state) => Err(format!("{error:?} was reported, and the disk is {state}")),
        }
    }
}

fn same_but_receipt(a: &[u8], b: &[u8]) -> bool {
    let (start, end) = (RECEIPT_PLACE.start as usize, RECEIPT_PLACE.end as usize);
    a[..start] == b[..start] && a[end..] == b[end..]
}

fn seed() -> u64 {
    std::env::var(SEED).map_or(1, |seed| seed.parse().unwrap())
}

/// Runs `work` for each of `0..count`, a few at a time; the first failure is the test's.
fn side_by_side(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::AcqRel)).filter(|at| *at < count) {
                    work(at);
                }
            });
        }
    });
}

fn serve(stored: &Stored) -> Faulty {
    Faulty::start(vec![("/image", stored.image.clone()), ("/index", stored.index.clone().unwrap_or_default())])
}

#[test]
fn server_faults_never_leave_a_bootable_unverified_disk() {
    let truth = Truth::new();
    let all = formats::all(&truth.raw);
    let seed = seed();
    let (good, bad) = (AtomicU32::new(0), AtomicU32::new(0));
    let olds = prop_oneof![Just(OldDisk::Blank), Just(OldDisk::Noise), Just(OldDisk::Gpt), Just(OldDisk::Install)];
    let olds = Arc::new(olds);
    side_by_side(all.len(), |at| {
        let stored = &all[at];
        let server = serve(stored);
        let mut bytes = [at as u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config =
            ProptestConfig { cases: CASES, max_shrink_iters: 40, failure_persistence: None, ..Default::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let cases = (
            prop::sample::select(stored.kinds()),
            Arc::clone(&olds),
            prop::collection::vec(fault(), 0..5),
            any::<bool>(),
        );
        let outcome = runner.run(&cases, |(kind, old, script, read_back)| {
            let case = Case { truth: &truth, stored, server: &server, kind, old, read_back, script };
            let ended = case.run().map_err(TestCaseError::fail)?;
            if ended.is_ok() { &good } else { &bad }.fetch_add(1, Ordering::AcqRel);
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{}, {SEED}={seed}: {error}", stored.name);
        }
    });
    let (good, bad) = (good.into_inner(), bad.into_inner());
    println!("{good} cases succeeded at once and {bad} at the second run; seed {seed}");
    assert!(good > 0 && bad > 0, "the faults are of one kind only; seed {seed}");
}

#[test]
fn a_file_that_always_ends_early_is_never_a_success() {
    let truth = Truth::new();
    let mut all = formats::all(&truth.raw);
    all.retain(|stored| ["raw", "zstd-frames", "packed", "qcow2", "vmdk", "vmdk-vmware"].contains(&stored.name));
    let cuts = |stored: &Stored| -> Vec<u64> {
        let length = stored.image.len() as u64;
        let near = |mib: u64| [(mib * MIB).saturating_sub(1), mib * MIB, mib * MIB + 1];
        let mut cuts: Vec<_> = (0..=length / MIB).flat_map(near).chain([length - 1]).filter(|c| *c < length).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    };
    let work: Vec<_> = all.iter().flat_map(|stored| cuts(stored).into_iter().map(move |cut| (stored, cut))).collect();
    side_by_side(work.len(), |at| {
        let (stored, cut) = work[at];
        let server = serve(stored);
        let kind = stored.kinds()[0];
        // More often than any client retries. The index arrives complete.
        let mut script = vec![Fault::Cut(cut); 40];
        if kind == Kind::Index {
            script[0] = Fault::Good;
        }
        let case = Case { truth: &truth, stored, server: &server, kind, old: OldDisk::Noise, read_back: false, script };
        let first = case.run().unwrap_or_else(|why| panic!("{} cut at {cut}: {why}", stored.name));
        match first {
            Err(WriteError::Truncated { .. }) => {}
            // Of a packed image the runs of zeroes are not even asked for.
            Ok(_) if kind == Kind::Index => {}
            other => panic!("{} cut at {cut}: {other:?}", stored.name),
        }
    });
    println!("{} cuts", work.len());
}

#[test]
fn a_download_that_was_cut_once_resumes_there() {
    let truth = Truth::new();
    let all = formats::all(&truth.raw);
    let work: Vec<_> = all.iter().flat_map(|stored| (0..3_u64).map(move |mib| (stored, mib))).collect();
    side_by_side(work.len(), |at| {
        let (stored, mib) = work[at];
        let server = serve(stored);
        let kind = stored.kinds()[0];
        let script = vec![Fault::Cut(mib * MIB + 1), Fault::Reset(mib * MIB + 77_777)];
        let case = Case { truth: &truth, stored, server: &server, kind, old: OldDisk::Gpt, read_back: false, script };
        let first = case.run().unwrap_or_else(|why| panic!("{} cut at {mib} MiB: {why}", stored.name));
        first.unwrap_or_else(|error| panic!("{} cut at {mib} MiB: {error:?}", stored.name));
    });
}

#[test]
fn a_body_without_an_end_comes_to_one() {
    let truth = Truth::new();
    let all = formats::all(&truth.raw);
    side_by_side(all.len(), |at| {
        let stored = &all[at];
        let server = serve(stored);
        for kind in stored.kinds() {
            let mut script = vec![Fault::Endless; 40];
            if *kind == Kind::Index {
                script[0] = Fault::Good;
            }
            let case = Case {
                truth: &truth,
                stored,
                server: &server,
                kind: *kind,
                old: OldDisk::Noise,
                read_back: false,
                script,
            };
            let first = case.run().unwrap_or_else(|why| panic!("{}: {why}", stored.name));
            // Chunks are proven one by one, so those of a packed image are none the worse.
            assert!(first.is_err() || stored.name == "packed", "{}: {first:?}", stored.name);
        }
    });
}

#[test]
fn reading_altered_content_for_its_digest_is_bounded() {
    let truth = Truth::new();
    let mut all = formats::all(&truth.raw);
    all.retain(|stored| ["gzip", "bzip2"].contains(&stored.name));
    side_by_side(all.len(), |at| {
        let mut image = all[at].image.clone();
        let proof = Proof::Stored(digest(&image));
        let middle = image.len() / 2;
        image[middle..middle + 64].fill(0x5a);
        let server = Faulty::start(vec![("/image", image)]);
        server.script(vec![Fault::Endless; 40]);
        let file = disk_file();
        prepare(OldDisk::Blank, file.path()).unwrap();
        let mut request = request(file.path(), image_at(server.url("/image"), proof), 2);
        let begun = Instant::now();
        request.authority.lease = LeaseGuard::new(move || begun.elapsed() < Duration::from_secs(400));
        let error = write_image(&request, &Unobserved).unwrap_err();
        assert!(matches!(error, WriteError::BadFormat { .. }), "{}: {error:?}", all[at].name);
    });
}

#[test]
fn a_content_type_that_contradicts_the_content_is_refused() {
    let truth = Truth::new();
    let mut all = formats::all(&truth.raw);
    all.retain(|stored| ["gzip", "zstd", "raw", "qcow2", "vmdk"].contains(&stored.name));
    side_by_side(all.len(), |at| {
        let (stored, kind) = (&all[at], Kind::Sha256);
        let server = serve(stored);
        let script = vec![Fault::Label];
        let case = Case { truth: &truth, stored, server: &server, kind, old: OldDisk::Gpt, read_back: false, script };
        let first = case.run().unwrap_or_else(|why| panic!("{}: {why}", stored.name));
        assert!(matches!(first, Err(WriteError::BadFormat { .. })), "{}: {first:?}", stored.name);
    });
}
