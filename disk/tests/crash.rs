//! Crash order: an install is recorded, every state that a power cut could leave is built and judged. At each operation
//! everything flushed is there, and of the rest any subset of sectors, each in any version it had since.
#![allow(clippy::unwrap_used)] // Tests.

mod common;

use std::collections::BTreeMap;

use common::{AfterCut, MIB, MemorySource, Op, Recorder, digest, gpt_image, mark, mbr_image};
use landfall_api::ReceiptState;
use landfall_disk::{
    Expectation, Order, ReadAt, Unobserved, WriteError, install,
    judge::{Findings, State, judge},
    read_mark,
};

const DISK: u64 = 6 * MIB;
/// Random subsets at each operation, besides "none", "all" and "only the newest".
const SUBSETS: u64 = 12;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn run(device: &Recorder, image: &[u8], digest_of: &[u8]) -> Result<landfall_disk::Installed, WriteError> {
    let mut source = MemorySource::new(image.to_vec());
    let order = Order {
        device: "recorder",
        expectation: Expectation::Stored(digest(digest_of)),
        format: None,
        mark: mark(digest_of, DISK),
        may_act: &|| Ok(()),
        same_disk: &|| Ok(()),
    };
    install(device, &mut source, &order, &Unobserved)
}

/// Replays the recording of an install and hands every state after a power cut to `check`.
fn replay(old: &[u8], ops: &[Op], sector: u32, mut check: impl FnMut(&AfterCut<'_>, usize)) {
    let size = u64::from(sector);
    let mut durable = old.to_vec();
    // Unflushed versions of each sector, oldest first.
    let mut pending: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    let mut random = Random(0x1234_5678_9abc_def1);
    for (index, op) in ops.iter().enumerate() {
        let newest = match op {
            Op::Write(offset, data) => {
                for (at, bytes) in (*offset..).step_by(sector as usize).zip(data.chunks(sector as usize)) {
                    pending.entry(at).or_default().push(bytes);
                }
                *offset..*offset + data.len() as u64
            }
            Op::Flush => {
                for (at, versions) in std::mem::take(&mut pending) {
                    let at = at as usize;
                    durable[at..at + sector as usize].copy_from_slice(versions.last().unwrap());
                }
                0..0
            }
        };
        let mut subset = |choose: &mut dyn FnMut(u64, usize) -> usize| {
            // 0: none of the versions; n: the n-th.
            let kept = pending
                .iter()
                .filter_map(|(at, versions)| match choose(*at, versions.len()) {
                    0 => None,
                    n => Some((*at, versions[n - 1].to_vec())),
                })
                .collect();
            check(&AfterCut { durable: &durable, sector: size, kept: &kept }, index);
        };
        subset(&mut |_, _| 0);
        subset(&mut |_, versions| versions);
        subset(&mut |at, versions| if newest.contains(&at) { versions } else { 0 });
        subset(&mut |at, versions| if newest.contains(&at) { 0 } else { versions });
        for round in 0..SUBSETS {
            // Sparse, even and dense subsets: a lone sector lost, or a lone one kept, breaks most.
            let odds = [1, 8, 32, 63][round as usize % 4];
            subset(&mut |_, versions| {
                if random.next() % 64 < odds { 1 + random.next() as usize % versions } else { 0 }
            });
        }
    }
}

fn old_disks(sector: u32) -> Vec<(&'static str, Vec<u8>)> {
    let s = u64::from(sector);
    let blank = vec![0; DISK as usize];
    let old_os = gpt_image(DISK, sector, &[(256, 2 * MIB / s), (3 * MIB / s, 5 * MIB / s)], 5);
    // A BIOS boot partition or the like right behind the entries, over the receipt's place.
    let low = if sector == 512 { 34 } else { 6 };
    let over_place = gpt_image(DISK, sector, &[(low, 2 * MIB / s)], 6);
    let mut disks = vec![("blank", blank), ("old OS", old_os), ("old OS over the place", over_place)];
    if sector == 512 {
        disks.push(("old OS with MBR", mbr_image(DISK, 8)));
    }
    disks
}

fn images(sector: u32) -> Vec<(&'static str, Vec<u8>, bool)> {
    let s = u64::from(sector);
    let part = |size: u64| vec![(MIB / s, 2 * MIB / s), (2 * MIB / s + 1, (size - MIB) / s)];
    let low = if sector == 512 { 34 } else { 6 };
    let mut images = vec![
        ("smaller than the disk", gpt_image(4 * MIB, sector, &part(4 * MIB), 1), true),
        ("as large as the disk", gpt_image(DISK, sector, &part(DISK), 2), true),
        ("no room for a receipt", gpt_image(4 * MIB, sector, &[(low, 3 * MIB / s)], 3), false),
    ];
    if sector == 512 {
        images.push(("MBR only", mbr_image(4 * MIB, 4), false));
        images.push(("MBR only, as large as the disk", mbr_image(DISK, 9), false));
    }
    images
}

#[test]
fn at_whatever_instant_the_power_goes_the_disk_is_old_unbootable_or_verified_new() {
    for sector in [512, 4096] {
        for (old_name, old) in old_disks(sector) {
            for (image_name, image, room) in images(sector) {
                let device = Recorder::new(old.clone(), sector);
                let installed = run(&device, &image, &image).unwrap();
                let case = format!("{sector}: {old_name} <- {image_name}");
                assert_eq!(installed.receipt.is_some(), room, "{case}: {:?}", installed.no_receipt);
                let new = device.bytes.lock().unwrap().clone();
                let ops = device.ops.lock().unwrap().clone();
                let mut seen = BTreeMap::new();
                replay(&old, &ops, sector, |disk, index| {
                    let state = judge(disk, &old, &new, sector).unwrap();
                    *seen.entry(state.to_string()).or_insert(0) += 1;
                    assert_ne!(state, State::Broken, "{case}, operation {index} of {}", ops.len());
                    check_receipt(disk, state, room, sector, &format!("{case}, operation {index}"));
                });
                assert!(seen.contains_key("unbootable") && seen.contains_key("verified-new"), "{case}: {seen:?}");
                assert_eq!(seen.contains_key("old"), old_name != "blank", "{case}: {seen:?}");
            }
        }
    }
}

/// `Done` only with all of the new system; with the boot signature gone, never `Done`.
fn check_receipt(disk: &dyn ReadAt, state: State, room: bool, sector: u32, case: &str) {
    let found = Findings::of(disk, sector).unwrap();
    let receipt = read_mark(disk).unwrap().map(|mark| mark.receipt.state);
    match receipt {
        Some(ReceiptState::Done) => assert!(state == State::VerifiedNew && found.boot_signature, "{case}"),
        Some(ReceiptState::Intent) => assert!(!room || state != State::VerifiedNew || !found.boot_signature, "{case}"),
        None => assert!(!room || state != State::VerifiedNew, "{case}: verified-new without a receipt"),
    }
}

#[test]
fn an_install_that_fails_verification_never_becomes_bootable() {
    for sector in [512, 4096] {
        for (old_name, old) in old_disks(sector) {
            let image = images(sector).remove(0).1;
            let mut altered = image.clone();
            altered[3 * MIB as usize / 2] ^= 1;
            for (what, stored) in [("altered", altered), ("cut", image[..image.len() * 2 / 3].to_vec())] {
                let device = Recorder::new(old.clone(), sector);
                let error = run(&device, &stored, &image).unwrap_err();
                assert!(matches!(error, WriteError::DigestMismatch { .. } | WriteError::Truncated { .. }), "{error}");
                let ops = device.ops.lock().unwrap().clone();
                let nothing = vec![0; DISK as usize];
                replay(&old, &ops, sector, |disk, index| {
                    let state = judge(disk, &old, &nothing, sector).unwrap();
                    assert!(matches!(state, State::Old | State::Unbootable), "{sector} {old_name} {what} {index}");
                });
                let end = device.bytes.lock().unwrap().clone();
                assert!(!Findings::of(&end, sector).unwrap().anything_boots(), "{sector} {old_name} {what}");
                assert_eq!(read_mark(&end).unwrap().unwrap().receipt.state, ReceiptState::Intent);
            }
        }
    }
}

#[test]
fn the_finished_disk_satisfies_an_independent_reader_and_holds_every_byte() {
    for sector in [512_u32, 4096] {
        for (name, image, room) in images(sector).into_iter().filter(|(name, ..)| !name.starts_with("MBR")) {
            let device = Recorder::new(common::noise(DISK, 3), sector);
            run(&device, &image, &image).unwrap();
            let disk = device.bytes.lock().unwrap().clone();
            let block =
                if sector == 512 { gpt::disk::LogicalBlockSize::Lb512 } else { gpt::disk::LogicalBlockSize::Lb4096 };
            let table = gpt::GptConfig::new()
                .only_valid_headers(true)
                .logical_block_size(block)
                .open_from_device(std::io::Cursor::new(disk.clone()))
                .unwrap();
            let (primary, backup) = (table.primary_header().unwrap(), table.backup_header().unwrap());
            assert_eq!(primary.backup_lba, DISK / u64::from(sector) - 1, "{name}: the disk's true end");
            assert_eq!(backup.current_lba, primary.backup_lba);
            assert_eq!(backup.last_usable, primary.last_usable);
            let receipts: Vec<_> = table.partitions().iter().filter(|(_, p)| p.name == "landfall-receipt").collect();
            assert_eq!(receipts.iter().map(|(id, _)| **id).collect::<Vec<_>>(), if room { vec![128] } else { vec![] });
            for (_, part) in table.partitions().iter().filter(|(_, p)| p.name.starts_with('p')) {
                let range =
                    (part.first_lba * u64::from(sector)) as usize..((part.last_lba + 1) * u64::from(sector)) as usize;
                assert!(disk[range.clone()] == image[range], "{sector} {name} {}", part.name);
            }
            let size = u32::from_le_bytes(disk[458..462].try_into().unwrap());
            assert_eq!(u64::from(size), DISK / u64::from(sector) - 1, "{name}: the protective entry");
        }
    }
}

#[test]
fn a_head_that_is_refused_leaves_the_disk_untouched() {
    let old = gpt_image(DISK, 512, &[(2048, 4096)], 5);
    let mut damaged = gpt_image(4 * MIB, 512, &[(2048, 4096)], 1);
    damaged[512 + 40] ^= 1;
    let other_sectors = gpt_image(4 * MIB, 4096, &[(256, 300)], 1);
    let too_large = gpt_image(DISK + MIB, 512, &[(2048, 4096)], 1);
    let gzip = vec![0x1f, 0x8b, 8, 0, 0, 0];
    for (what, image, code) in [
        ("damaged", damaged, "BadFormat"),
        ("4Kn image", other_sectors, "WrongSectorSize"),
        ("too large", too_large, "DiskTooSmall"),
        ("gzip", gzip, "BadFormat"),
        ("empty", Vec::new(), "Truncated"),
    ] {
        for stored in [image.clone(), zstd::encode_all(&image[..], 1).unwrap()] {
            let device = Recorder::new(old.clone(), 512);
            let error = run(&device, &stored, &stored).unwrap_err();
            if stored == image || what != "gzip" {
                assert_eq!(error.code().as_str(), code, "{what}: {error}");
            }
            assert!(device.ops.lock().unwrap().is_empty(), "{what}");
        }
    }
}

#[test]
fn a_lease_or_cancel_lost_at_any_step_stops_before_the_commit() {
    let image = images(512).remove(0).1;
    let stored = zstd::encode_all(&image[..], 1).unwrap();
    // Each time one check later, until the install gets through.
    for lost_after in 0.. {
        let device = Recorder::new(vec![0; DISK as usize], 512);
        let asked = std::cell::Cell::new(0);
        let may_act = || {
            asked.set(asked.get() + 1);
            if asked.get() > lost_after { Err(WriteError::LeaseExpired { device: "recorder".into() }) } else { Ok(()) }
        };
        let order = Order {
            device: "recorder",
            expectation: Expectation::Stored(digest(&stored)),
            format: None,
            mark: mark(&stored, DISK),
            may_act: &may_act,
            same_disk: &|| Ok(()),
        };
        let mut source = MemorySource::new(stored.clone());
        let result = install(&device, &mut source, &order, &Unobserved);
        let disk = device.bytes.lock().unwrap().clone();
        if result.is_ok() {
            assert!(lost_after >= 8, "asked before every step");
            assert!(Findings::of(&disk, 512).unwrap().uefi_boots());
            return;
        }
        assert!(matches!(result, Err(WriteError::LeaseExpired { .. })));
        assert!(!Findings::of(&disk, 512).unwrap().boot_signature, "check {lost_after}");
        if lost_after == 0 {
            assert!(device.ops.lock().unwrap().is_empty());
        }
    }
}

#[test]
fn another_disk_under_the_same_name_is_not_touched() {
    let image = images(512).remove(0).1;
    let device = Recorder::new(vec![0; DISK as usize], 512);
    let order = Order {
        device: "recorder",
        expectation: Expectation::Stored(digest(&image)),
        format: None,
        mark: mark(&image, DISK),
        may_act: &|| Ok(()),
        same_disk: &|| Err(WriteError::DiskChanged { device: "recorder".into(), reason: "swapped".into() }),
    };
    let error = install(&device, &mut MemorySource::new(image.clone()), &order, &Unobserved).unwrap_err();
    assert!(matches!(error, WriteError::DiskChanged { .. }));
    assert!(device.ops.lock().unwrap().is_empty());
}
