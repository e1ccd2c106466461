//! Crash order: an install is recorded, every state that a power cut could leave is built and judged. At each operation
//! everything flushed is there, and of the rest any subset of sectors, each in any version it had since.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::order::order;
use crate::common::replay::{replay, run};
use crate::common::watch::Watch;
use crate::common::{MIB, MemorySource, Op, Recorder, digest, gpt_image, mark, mbr_image, old};
use landfall_api::ReceiptState;
use landfall_disk::judge::{Findings, State, judge};
use landfall_disk::{
    Expectation, Order, RECEIPT_PLACE, ReadAt, Unobserved, WriteError, clear_device, install, read_mark, what_is_there,
};

const DISK: u64 = 6 * MIB;
/// How many of the states are gone on from.
const RESTART_ONE_IN: u64 = 60;

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
        disks.push(("old OS with logical partitions", old::with_logicals(DISK, 11).0));
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
fn a_commit_without_receipt_waits_until_the_write_is_known() {
    for (name, image, room) in images(512) {
        let device = Recorder::new(vec![0; DISK as usize], 512);
        let asked = AtomicU32::new(0);
        // Known when it is asked for the third time.
        let is_known = || {
            let disk = device.bytes.lock().unwrap();
            assert!(!Findings::of(&*disk, 512).unwrap().anything_boots());
            assert_eq!(read_mark(&*disk).unwrap().unwrap().receipt.state, ReceiptState::Intent);
            asked.fetch_add(1, Ordering::Relaxed) == 2
        };
        let knows = Watch { is_known: &is_known, ..Watch::default() };
        let order = order(Expectation::Stored(digest(&image)), mark(&image, device.size()));
        let installed = install(&device, &mut MemorySource::new(&image), &order, &knows).unwrap();
        assert_eq!(installed.receipt.is_some(), room, "{name}");
        assert_eq!(asked.load(Ordering::Relaxed), if room { 0 } else { 3 }, "{name}");
    }
}

#[test]
fn a_power_cut_leaves_an_old_unbootable_or_verified_disk() {
    for sector in [512, 4096] {
        for (old_name, old) in old_disks(sector) {
            for (image_name, image, room) in images(sector) {
                let device = Recorder::new(old.clone(), sector);
                let installed = run(&device, &image, &image, &[]).unwrap();
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
                let error = run(&device, &stored, &image, &[]).unwrap_err();
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
fn an_independent_reader_accepts_the_finished_disk() {
    for sector in [512_u32, 4096] {
        for (name, image, room) in images(sector).into_iter().filter(|(name, ..)| !name.starts_with("MBR")) {
            let device = Recorder::new(crate::common::noise(DISK, 3), sector);
            run(&device, &image, &image, &[]).unwrap();
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
            // The image's own backup table would stand in the middle of the disk, and a repair tool might believe it.
            let stray = image.len() - sector as usize;
            if image.len() < disk.len() {
                assert!(
                    disk[stray..stray + sector as usize].iter().all(|byte| *byte == 0),
                    "{sector} {name}: a stray table"
                );
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
    let zip = b"PK\x03\x04\x14\0".to_vec();
    for (what, image, code) in [
        ("damaged", damaged, "BadFormat"),
        ("4Kn image", other_sectors, "WrongSectorSize"),
        ("too large", too_large, "DiskTooSmall"),
        ("zip", zip, "BadFormat"),
        ("empty", Vec::new(), "Truncated"),
    ] {
        for stored in [image.clone(), zstd::encode_all(&image[..], 1).unwrap()] {
            let device = Recorder::new(old.clone(), 512);
            let error = run(&device, &stored, &stored, &[]).unwrap_err();
            assert_eq!(error.code().as_str(), code, "{what}: {error}");
            assert!(device.ops.lock().unwrap().is_empty(), "{what}");
        }
    }
}

#[test]
fn a_lost_lease_or_a_cancel_stops_before_the_commit() {
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
        let order = Order { may_act: &may_act, ..order(Expectation::Stored(digest(&stored)), mark(&stored, DISK)) };
        let mut source = MemorySource::new(&stored);
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

/// What has reached the recorder, as far as the steps of an install go.
fn reached(ops: &[Op], offset: u64, start: &[u8]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Write(at, data) if *at == offset && data.starts_with(start)))
}

#[test]
fn a_lease_lost_during_the_commit_stops_the_next_step() {
    let image = images(512).remove(0).1;
    let (backup, primary, body) = (DISK - 512, 512, MIB);
    let body_start = image[body as usize..body as usize + 16].to_vec();
    // After this is written, that is not any more.
    let table = b"EFI PART".to_vec();
    let steps = [
        ("the body", (body, body_start), (backup, table.clone())),
        ("the backup table", (backup, table.clone()), (primary, table.clone())),
        ("the table", (primary, table), (0, image[..64].to_vec())),
    ];
    for (what, after, never) in steps {
        let device = Recorder::new(vec![0; DISK as usize], 512);
        let may_act = || {
            let lost = reached(&device.ops.lock().unwrap(), after.0, &after.1);
            if lost { Err(WriteError::Cancelled { device: "recorder".into() }) } else { Ok(()) }
        };
        let order = Order { may_act: &may_act, ..order(Expectation::Stored(digest(&image)), mark(&image, DISK)) };
        let error = install(&device, &mut MemorySource::new(&image), &order, &Unobserved).unwrap_err();
        assert!(matches!(error, WriteError::Cancelled { .. }), "after {what}: {error}");
        let ops = device.ops.lock().unwrap();
        assert!(reached(&ops, after.0, &after.1), "{what} was written");
        assert!(!reached(&ops, never.0, &never.1), "after {what} one step more was taken");
    }
}

#[test]
fn the_body_is_flushed_before_any_table_leads_to_it() {
    let image = images(512).remove(0).1;
    let device = Recorder::new(vec![0; DISK as usize], 512);
    run(&device, &image, &image, &[]).unwrap();
    let ops = device.ops.lock().unwrap();
    let last_body = ops.iter().rposition(|op| matches!(op, Op::Write(at, _) if (MIB..4 * MIB).contains(at))).unwrap();
    let is_backup = |op: &Op| matches!(op, Op::Write(at, data) if *at == DISK - 512 && data.starts_with(b"EFI PART"));
    let backup = ops.iter().position(is_backup).unwrap();
    assert!(ops[last_body..backup].iter().any(|op| matches!(op, Op::Flush)), "no flush between body and backup table");
}

#[test]
fn an_image_without_receipt_room_removes_the_old_receipt() {
    let device = Recorder::new(vec![0; DISK as usize], 512);
    let first = images(512).remove(0).1;
    run(&device, &first, &first, &[]).unwrap();
    assert!(read_mark(&*device.bytes.lock().unwrap()).unwrap().is_some());
    // It has no GPT, and it ends between the two slots.
    let mut second = crate::common::noise(MIB - 2048, 8);
    second[446..512].fill(0);
    (second[450], second[454], second[458]) = (0x83, 64, 64);
    second[510..512].copy_from_slice(&[0x55, 0xaa]);
    let installed = run(&device, &second, &second, &[]).unwrap();
    assert!(installed.receipt.is_none());
    assert_eq!(read_mark(&*device.bytes.lock().unwrap()).unwrap(), None);
}

#[test]
fn nothing_unverified_is_written_to_the_first_mib() {
    let place = RECEIPT_PLACE.start as usize..RECEIPT_PLACE.end as usize;
    for sector in [512, 4096] {
        let s = u64::from(sector);
        let mut gpt = gpt_image(4 * MIB, sector, &[(128 * 1024 / s, 200 * 1024 / s), (MIB / s, 2 * MIB / s)], 3);
        // Boot code in the gap, as boards have it whose ROM reads from a fixed sector.
        gpt[64 << 10..96 << 10].copy_from_slice(&[0xb0; 32 << 10]);
        let mut images = vec![gpt];
        images.extend((sector == 512).then(|| mbr_image(4 * MIB, 4)));
        for image in images {
            let device = Recorder::new(vec![0; DISK as usize], sector);
            run(&device, &image, b"another digest", &[]).unwrap_err();
            for op in device.ops.lock().unwrap().iter() {
                let Op::Write(at, data) = op else { continue };
                let in_head = |i: &usize| (*at as usize + i) < MIB as usize && !place.contains(&(*at as usize + i));
                let unverified = (0..data.len()).filter(in_head).any(|i| data[i] != 0);
                assert!(!unverified, "{sector}: {} bytes at {at} before the verdict", data.len());
            }
            let device = Recorder::new(vec![0; DISK as usize], sector);
            run(&device, &image, &image, &[]).unwrap();
            let gap = 40 * s as usize..place.start;
            assert!(device.bytes.lock().unwrap()[gap.clone()] == image[gap], "{sector}: and after it, all of it");
        }
    }
}

#[test]
fn another_disk_under_the_same_name_is_not_touched() {
    let image = images(512).remove(0).1;
    let device = Recorder::new(vec![0; DISK as usize], 512);
    let order = Order {
        same_disk: &|| Err(WriteError::DiskChanged { device: "recorder".into(), reason: "swapped".into() }),
        ..order(Expectation::Stored(digest(&image)), mark(&image, DISK))
    };
    let error = install(&device, &mut MemorySource::new(&image), &order, &Unobserved).unwrap_err();
    assert!(matches!(error, WriteError::DiskChanged { .. }));
    assert!(device.ops.lock().unwrap().is_empty());
}

fn cleared(device: &Recorder) {
    let mut mark = mark(b"", device.bytes.lock().unwrap().len() as u64);
    mark.receipt.image_digest = None;
    let order = order(Expectation::Waived, mark);
    clear_device(device, &order, &Unobserved, || Ok(())).unwrap();
}

#[test]
fn a_power_cut_during_clearing_leaves_a_recognisable_disk() {
    for sector in [512, 4096] {
        for (old_name, mut old) in old_disks(sector).into_iter().skip(1) {
            let installed = old_name == "old OS";
            if installed {
                // A disk that we installed: its receipt goes last of all.
                let device = Recorder::new(old, sector);
                let image = images(sector).remove(0).1;
                run(&device, &image, &image, &[]).unwrap();
                old = device.bytes.lock().unwrap().clone();
            }
            let device = Recorder::new(old.clone(), sector);
            cleared(&device);
            let new = device.bytes.lock().unwrap().clone();
            let ops = device.ops.lock().unwrap().clone();
            let case = format!("{sector}: {old_name}");
            assert_eq!(what_is_there(&new).unwrap(), None, "{case}");
            assert_eq!(read_mark(&new).unwrap(), None, "{case}");
            assert!(!Findings::of(&new, sector).unwrap().anything_boots(), "{case}");
            let nothing = vec![0; old.len()];
            let (mut number, mut again) = (0_u64, 0);
            replay(&old, &ops, sector, |disk, index| {
                let case = format!("{case}, operation {index} of {}", ops.len());
                let state = judge(disk, &old, &nothing, sector).unwrap();
                assert_ne!(state, State::Broken, "{case}");
                assert_ne!(state, State::VerifiedNew, "{case}");
                if installed && state == State::Unbootable && read_mark(disk).unwrap().is_none() {
                    let mut bytes = vec![0; old.len()];
                    disk.read_at(0, &mut bytes).unwrap();
                    bytes[RECEIPT_PLACE.start as usize..RECEIPT_PLACE.end as usize].fill(0);
                    assert_eq!(what_is_there(&bytes).unwrap(), None, "{case}: half cleared, and nothing says by whom");
                }
                number += 1;
                if number % RESTART_ONE_IN == 0 {
                    again += 1;
                    let mut bytes = vec![0; old.len()];
                    disk.read_at(0, &mut bytes).unwrap();
                    let device = Recorder::new(bytes, sector);
                    cleared(&device);
                    let end = device.bytes.lock().unwrap().clone();
                    assert_eq!(what_is_there(&end).unwrap(), None, "{case}: cleared again");
                    assert!(!Findings::of(&end, sector).unwrap().anything_boots(), "{case}: cleared again");
                }
            });
            assert!(again > 0, "{case}");
        }
    }
}
