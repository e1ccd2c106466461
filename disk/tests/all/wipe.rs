//! Wiping a disk, on a regular file in a disk's place: what each level leaves, and what an interrupted wipe leaves.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use crate::common::request::{authority, persons};
use crate::common::watch::Watch;
use crate::common::{MIB, gpt_image, noise};
use landfall_api::{ErrorCode, Progress, ReceiptState, WipeLevel};
use landfall_disk::{Unobserved, WipeRequest, disk_at, may_wipe, read_receipt, wipe_disk};
use uuid::Uuid;

const DISK: u64 = 8 * MIB;

/// A disk with a table, and data wherever the table leaves room.
fn full_disk() -> (tempfile::NamedTempFile, Vec<u8>) {
    let mut bytes = gpt_image(DISK, 512, &[(2048, 6143), (6144, 12287)], 7);
    let data = noise(bytes.len() as u64, 8);
    bytes[2 << 20..7 << 20].copy_from_slice(&data[2 << 20..7 << 20]);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &bytes).unwrap();
    (file, bytes)
}

fn request(path: &Path, level: WipeLevel, fallback: &[WipeLevel]) -> WipeRequest {
    WipeRequest { disk: disk_at(path).unwrap(), level, fallback: fallback.to_vec(), authority: persons(2) }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn level_zero_leaves_zeroes_alone() {
    let (file, _) = full_disk();
    let report = wipe_disk(&request(file.path(), WipeLevel::Zero, &[]), &Unobserved).unwrap();
    assert!(is_zero(&fs::read(file.path()).unwrap()));
    assert_eq!((report.asked, report.level, report.method.as_str()), (WipeLevel::Zero, WipeLevel::Zero, "zeroes"));
    assert!(report.samples > 30 && report.ended_at >= report.started_at, "{report:?}");
}

#[test]
fn level_signatures_leaves_data_and_no_system() {
    let (file, old) = full_disk();
    let report = wipe_disk(&request(file.path(), WipeLevel::Signatures, &[]), &Unobserved).unwrap();
    let now = fs::read(file.path()).unwrap();
    // Both ends of the disk and of each partition are cleared; the middle of the second partition is not.
    assert!(is_zero(&now[..1 << 20]) && now[4 << 20..5 << 20] == old[4 << 20..5 << 20]);
    assert_eq!(report.samples, 0);
}

#[test]
fn level_discard_lets_the_data_go() {
    let (file, _) = full_disk();
    let report = wipe_disk(&request(file.path(), WipeLevel::Discard, &[]), &Unobserved).unwrap();
    // A file system returns zeroes for a hole.
    assert!(is_zero(&fs::read(file.path()).unwrap()));
    assert_eq!((report.level, report.samples), (WipeLevel::Discard, 0));
}

#[test]
fn an_unsupported_level_changes_nothing_without_a_fallback() {
    let (file, old) = full_disk();
    for level in [WipeLevel::Secure, WipeLevel::Cryptographic] {
        let refused = request(file.path(), level, &[]);
        for error in [may_wipe(&refused, &Unobserved).unwrap_err(), wipe_disk(&refused, &Unobserved).unwrap_err()] {
            assert_eq!(error.code(), ErrorCode::LevelUnsupported);
            let said = error.to_string();
            assert!(said.contains(&format!("does not support level {level}; it supports signatures, discard, zero")));
        }
    }
    assert!(fs::read(file.path()).unwrap() == old);
    let fallback = [WipeLevel::Cryptographic, WipeLevel::Zero];
    let report = wipe_disk(&request(file.path(), WipeLevel::Secure, &fallback), &Unobserved).unwrap();
    assert_eq!((report.asked, report.level), (WipeLevel::Secure, WipeLevel::Zero));
    assert!(is_zero(&fs::read(file.path()).unwrap()));
}

#[test]
fn data_without_a_signature_is_erased_as_well() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; DISK as usize];
    bytes[5 << 20..6 << 20].copy_from_slice(&noise(1 << 20, 3));
    fs::write(file.path(), &bytes).unwrap();
    wipe_disk(&request(file.path(), WipeLevel::Zero, &[]), &Unobserved).unwrap();
    assert!(is_zero(&fs::read(file.path()).unwrap()));
}

#[test]
fn only_a_person_may_have_a_disk_erased() {
    let (file, old) = full_disk();
    let rule = WipeRequest { authority: authority(2), ..request(file.path(), WipeLevel::Zero, &[]) };
    assert_eq!(wipe_disk(&rule, &Unobserved).unwrap_err().code(), ErrorCode::DiskNotBlank);
    assert!(fs::read(file.path()).unwrap() == old);
}

#[test]
fn an_interrupted_wipe_is_known_and_continued() {
    let file = tempfile::NamedTempFile::new().unwrap();
    // More than is zeroed at once; sparse.
    let size = 600 * MIB;
    let (old, _) = full_disk();
    fs::copy(old.path(), file.path()).unwrap();
    file.as_file().set_len(size).unwrap();
    let at_the_end = noise(4096, 5);
    file.as_file().write_all_at(&at_the_end, size - 2 * MIB).unwrap();

    let request = request(file.path(), WipeLevel::Zero, &[]);
    let progress = |progress: &Progress| {
        if progress.stage == "zero" {
            request.authority.cancel.cancel();
        }
    };
    let stopped = wipe_disk(&request, &Watch { progress: &progress, ..Watch::default() }).unwrap_err();
    assert_eq!(stopped.code(), ErrorCode::Cancelled);
    let left = read_receipt(file.path()).unwrap().unwrap();
    assert_eq!((left.workflow_uid, left.state), (Uuid::from_u128(2), ReceiptState::Intent));

    wipe_disk(&WipeRequest { authority: persons(2), ..request }, &Unobserved).unwrap();
    let mut end = vec![1; 4096];
    file.as_file().read_exact_at(&mut end, size - 2 * MIB).unwrap();
    assert!(is_zero(&end));
    assert!(read_receipt(file.path()).unwrap().is_none());
}
