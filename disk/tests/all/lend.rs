//! Disks that a program of a container may write, on a regular file in a disk's place.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use crate::common::request::{authority, persons, write_request};
use crate::common::{MIB, digest, gpt_image};
use landfall_api::ErrorCode;
use landfall_disk::{Authority, LendRequest, Proof, Unobserved, disk_at, image_at, lend, take_back, write_image};
use uuid::Uuid;

const DISK: u64 = 8 * MIB;

/// A disk that workflow 2 installed.
fn installed() -> tempfile::NamedTempFile {
    let (disk, image) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    disk.as_file().set_len(DISK).unwrap();
    let bytes = gpt_image(DISK / 2, 512, &[(2048, 6143)], 7);
    fs::write(image.path(), &bytes).unwrap();
    let image = image_at(format!("file://{}", image.path().display()), Proof::Stored(digest(&bytes)));
    write_image(&write_request(disk.path(), image, 2), &Unobserved).unwrap();
    disk
}

fn request(path: &Path, authority: Authority) -> LendRequest {
    LendRequest { disk: disk_at(path).unwrap(), authority, earlier_runs: Vec::new() }
}

#[test]
fn a_program_must_leave_the_receipt_of_its_workflow() {
    let disk = installed();
    let lent = lend(&request(disk.path(), authority(2)), &Unobserved).unwrap();
    assert_eq!(lent.mark.as_ref().unwrap().receipt.workflow_uid, Uuid::from_u128(2));
    disk.as_file().write_all_at(&[7; 4096], 2 * MIB).unwrap();
    take_back(&lent.disk, lent.mark.as_ref(), &Unobserved).unwrap();
    // It would no longer start.
    disk.as_file().write_all_at(&[0; 512], 0).unwrap();
    let error = take_back(&lent.disk, lent.mark.as_ref(), &Unobserved).unwrap_err();
    assert_eq!((error.code(), error.retryable()), (ErrorCode::ReceiptMismatch, false), "{error}");
}

#[test]
fn a_lent_disk_is_no_other_actions_meanwhile() {
    let disk = installed();
    let lent = lend(&request(disk.path(), authority(2)), &Unobserved).unwrap();
    let again = || lend(&request(disk.path(), authority(2)), &Unobserved).map(drop);
    let image = image_at("file:///nowhere", Proof::Stored(digest(b"")));
    let written = write_image(&write_request(disk.path(), image, 2), &Unobserved).unwrap_err();
    for error in [again().unwrap_err(), written] {
        assert_eq!(error.code(), ErrorCode::DiskInUse, "{error}");
    }
    drop(lent);
    again().unwrap();
}

#[test]
fn a_disk_of_another_workflow_is_wiped_first() {
    let disk = installed();
    for authority in [authority(3), Authority { force: true, ..persons(3) }] {
        let error = lend(&request(disk.path(), authority), &Unobserved).unwrap_err();
        assert_eq!((error.code(), error.retryable()), (ErrorCode::ReceiptMismatch, false), "{error}");
        assert!(error.problem().hint.contains("wipe"), "{error}");
    }
}

#[test]
fn a_blank_disk_is_lent_without_a_persons_request() {
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(DISK).unwrap();
    let lent = lend(&request(disk.path(), authority(2)), &Unobserved).unwrap();
    assert_eq!(lent.mark, None);
    disk.as_file().write_all_at(&[7; 4096], 0).unwrap();
    take_back(&lent.disk, lent.mark.as_ref(), &Unobserved).unwrap();
    drop(lent);
    let error = lend(&request(disk.path(), authority(2)), &Unobserved).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DiskNotBlank, "what a program wrote is content: {error}");
    lend(&request(disk.path(), persons(2)), &Unobserved).unwrap();
}
