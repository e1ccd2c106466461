//! Power cuts chosen by coverage: for each format, over each kind of old disk, with and without kept partitions, every
//! distinct pair of the last step before a cut and the step that would have come next; and more cuts by a seed.
//! `cargo test -p landfall-disk --test all power_cuts -- --nocapture` prints how many.

use std::{collections::BTreeMap, ops::Range};

use crate::common::coverage::{choose, in_order};
use crate::common::old::Member;
use crate::common::order::order;
use crate::common::replay::{AfterCut, Random, Replayed};
use crate::common::tools::wipefs;
use crate::common::{MIB, MemorySource, Recorder, digest, formats, gpt_image, mark, mbr_image, noise, old};
use landfall_api::ReceiptState;
use landfall_disk::judge::{Findings, State, judge, signatures};
use landfall_disk::{Expectation, Index, Order, ReadAt, Unobserved, WriteError, install, read_mark};

const DISK: u64 = 6 * MIB;
const SECTOR: u32 = 512;
/// Of one format, at the least.
const CUTS_OF_A_FORMAT: usize = 500;
/// How many of the cuts are gone on from.
const RESTART_ONE_IN: usize = 40;
/// Another seed than 1: `scripts/test --soak` chooses one.
const SEED: &str = "LANDFALL_POWER_SEED";

fn seed() -> u64 {
    std::env::var(SEED).map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("{SEED}=\"{text}\" is not a number")))
}

struct OldDisk {
    name: String,
    bytes: Vec<u8>,
    keep: Vec<String>,
}

fn old_disks() -> Vec<OldDisk> {
    let plain = |name: &str, bytes| OldDisk { name: name.into(), bytes, keep: Vec::new() };
    let mut disks = vec![
        plain("bare", vec![0; DISK as usize]),
        plain("MBR", mbr_image(DISK, 8)),
        plain("GPT", gpt_image(DISK, SECTOR, &[(256, 4096), (6144, 10240)], 5)),
    ];
    let parts = [(MIB..3 * MIB, "root"), (3 * MIB..4 * MIB, "data"), (4 * MIB..DISK - 64 * 512, "home")];
    disks.push(OldDisk {
        name: "GPT, keep".into(),
        bytes: old::with_gpt(DISK, SECTOR, &parts, 6).0,
        keep: vec!["data".into()],
    });
    for member in [Member::Md, Member::Lvm, Member::Zfs] {
        let mut whole = noise(DISK, 4);
        member.mark(&mut whole, &(0..DISK));
        disks.push(plain(member.name(), whole));
        let (mut bytes, parts) = old::with_gpt(DISK, SECTOR, &parts, 7);
        for part in [&parts[0], &parts[2]] {
            bytes[part.start as usize..part.end as usize].fill(0x5a);
            member.mark(&mut bytes, part);
        }
        disks.push(OldDisk { name: format!("{} in a GPT, keep", member.name()), bytes, keep: vec!["data".into()] });
    }
    disks
}

/// The image as a format stores it.
struct Stored {
    bytes: Vec<u8>,
    index: Option<Index>,
}

fn write(device: &Recorder, stored: &Stored, keep: &[String], compare: bool) -> Result<(), WriteError> {
    let expectation = match &stored.index {
        Some(index) => Expectation::Index(index),
        None => Expectation::Stored(digest(&stored.bytes)),
    };
    let order = Order { keep, compare, ..order(expectation, mark(&stored.bytes, DISK)) };
    install(device, &mut MemorySource::new(&stored.bytes), &order, &Unobserved).map(|_| ())
}

fn bytes_of(disk: &dyn ReadAt, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    disk.read_at(range.start, &mut bytes).unwrap();
    bytes
}

/// Whether what is kept is there as it was, by the very code that a restart runs.
fn assert_kept(disk: &dyn ReadAt, old: &OldDisk, case: &str) {
    let kept = old::kept(disk, SECTOR, &old.keep);
    assert_eq!(kept, old::kept(&old.bytes, SECTOR, &old.keep), "{case}");
    for part in kept {
        let range = part.bytes(SECTOR);
        assert!(bytes_of(disk, range.clone()) == bytes_of(&old.bytes, range), "{case}: \"{}\" changed", part.label);
    }
}

/// The disk of a finished install: no trace of what was there but what is kept.
fn assert_finished(disk: &[u8], old: &OldDisk, new: &[u8], case: &str) {
    assert_eq!(judge(&disk, &old.bytes, &new, SECTOR).unwrap(), State::VerifiedNew, "{case}");
    assert_kept(&disk, old, case);
    let kept = old::kept(&disk, SECTOR, &old.keep);
    let kept: Vec<_> = kept.iter().map(|part| part.bytes(SECTOR)).collect();
    let found = signatures(&disk, &(0..DISK)).unwrap();
    let left = found.iter().find(|(name, at)| *name != "a GPT" && !kept.iter().any(|part| part.contains(at)));
    assert_eq!(left, None, "{case}");
    for old in Findings::of(&old.bytes, SECTOR).unwrap().primary.iter().flat_map(|table| table.used()) {
        let part = old.bytes(SECTOR);
        assert!(kept.contains(&part) || signatures(&disk, &part).unwrap().is_empty(), "{case}: {part:?}");
    }
}

/// What the cuts of one format were.
#[derive(Default)]
struct Counts {
    cuts: usize,
    pairs: usize,
    restarts: usize,
    states: BTreeMap<String, usize>,
}

fn cut(format: &str, stored: &Stored, old: &OldDisk, random: &mut Random, counts: &mut Counts) {
    let device = Recorder::new(old.bytes.clone(), SECTOR);
    write(&device, stored, &old.keep, false).unwrap();
    let (new, ops) = (device.bytes.into_inner().unwrap(), in_order(device.ops.into_inner().unwrap(), SECTOR));
    let (cuts, pairs) = choose(&ops, DISK, random);
    counts.pairs += pairs;
    assert_finished(&new, old, &new, &format!("{format}: {}", old.name));
    let mut replayed = Replayed::new(&old.bytes, SECTOR);
    let mut restarts = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        replayed.apply(op);
        for survive in cuts.get(&at).into_iter().flatten() {
            let case = format!("{format}: {}, {survive:?} survives operation {at} of {}", old.name, ops.len());
            let state = replayed.cut(*survive, random, |disk| {
                if counts.cuts.is_multiple_of(RESTART_ONE_IN) {
                    restarts.push((case.clone(), bytes_of(disk, 0..DISK)));
                }
                assert_state(disk, old, &new, &case)
            });
            counts.cuts += 1;
            *counts.states.entry(state.to_string()).or_default() += 1;
        }
    }
    for (case, disk) in restarts {
        let device = Recorder::new(disk, SECTOR);
        write(&device, stored, &old.keep, true).unwrap_or_else(|error| panic!("{case}: restarted: {error:?}"));
        assert_finished(&device.bytes.into_inner().unwrap(), old, &new, &format!("{case}: restarted"));
        counts.restarts += 1;
    }
}

fn assert_state(disk: &AfterCut<'_>, old: &OldDisk, new: &[u8], case: &str) -> State {
    let state = judge(disk, &old.bytes, &new, SECTOR).unwrap();
    assert_ne!(state, State::Broken, "{case}");
    assert_kept(disk, old, case);
    let done = read_mark(disk).unwrap().is_some_and(|mark| mark.receipt.state == ReceiptState::Done);
    let signed = Findings::of(disk, SECTOR).unwrap().boot_signature;
    assert_eq!(done, state == State::VerifiedNew && signed, "{case}: {state}, and the receipt");
    state
}

fn cut_format(format: &str) {
    let image = gpt_image(3 * MIB, SECTOR, &[(2048, 4095), (4104, 6000)], 1);
    let all = formats::all(&image);
    let Some(found) = all.into_iter().find(|stored| stored.name == format) else {
        eprintln!("SKIPPED: {format}");
        return;
    };
    let index = found.index.map(|index| Index::parse(&index).unwrap());
    let stored = Stored { bytes: found.image, index };
    let seed = seed();
    // Once its body is in order, every format has the same recording: so each gets cuts of its own.
    let own = format.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = Random(own.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut counts = Counts::default();
    for old in old_disks() {
        cut(format, &stored, &old, &mut random, &mut counts);
    }
    let Counts { cuts, pairs, restarts, states } = counts;
    println!("{format}: {cuts} cuts at {pairs} pairs of steps, {restarts} gone on from; {states:?}; {SEED}={seed}");
    assert!(cuts >= CUTS_OF_A_FORMAT, "{cuts}");
    for state in ["old", "unbootable", "verified-new"] {
        assert!(states.contains_key(state), "{format}: never {state}");
    }
}

#[test]
fn raw_survives_cuts_at_every_pair_of_steps() {
    cut_format("raw");
}

#[test]
fn zstd_survives_cuts_at_every_pair_of_steps() {
    cut_format("zstd");
}

#[test]
fn packed_survives_cuts_at_every_pair_of_steps() {
    cut_format("packed");
}

#[test]
fn qcow2_survives_cuts_at_every_pair_of_steps() {
    cut_format("qcow2");
}

#[test]
fn vmdk_survives_cuts_at_every_pair_of_steps() {
    cut_format("vmdk");
}

#[test]
fn the_old_disks_are_what_they_are_called() {
    for member in [Member::Md, Member::Lvm, Member::Zfs] {
        // libblkid looks for no RAID on what could be a floppy.
        let mut disk = vec![0; DISK as usize];
        member.mark(&mut disk, &(0..DISK));
        let (ours, theirs) = (signatures(&disk, &(0..DISK)).unwrap(), wipefs(&disk, &(0..DISK)));
        assert!(!ours.is_empty(), "{member:?}");
        // A newer libblkid wants a ZFS label's list of names too.
        let known = theirs.iter().any(|name| name == member.name()) || member == Member::Zfs;
        assert!(known && theirs.iter().all(|name| name == member.name()), "{member:?}: {theirs:?}");
    }
}

#[test]
fn a_disk_without_names_to_keep_is_refused_unwritten() {
    let image = gpt_image(3 * MIB, SECTOR, &[(2048, 4095), (4104, 6000)], 1);
    let stored = Stored { bytes: image, index: None };
    for old in old_disks().into_iter().filter(|old| old.keep.is_empty()) {
        let device = Recorder::new(old.bytes, SECTOR);
        let error = write(&device, &stored, &["data".to_owned()], false).unwrap_err();
        assert!(matches!(error, WriteError::KeepRefused { .. }), "{}: {error}", old.name);
        assert!(device.ops.lock().unwrap().is_empty(), "{}", old.name);
    }
}
