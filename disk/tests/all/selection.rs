//! What stops a write before its first byte: a disk that appears meanwhile, and a check that writes nothing.

use crate::common::request::{persons, write_request};
use crate::common::{MIB, digest, gpt_image};
use landfall_api::{ErrorCode, WipeLevel};
use landfall_disk::{
    Authority, Format, Proof, SelectionGuard, Unobserved, WipeRequest, WriteRequest, disk_at, image_at, may_write,
    wipe_disk, write_image,
};

fn another_disk() -> SelectionGuard {
    SelectionGuard::new(|| Err("disk vdb appeared".into()))
}

#[test]
fn a_write_whose_selection_changed_leaves_the_disk_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, image) = (dir.path().join("disk"), dir.path().join("image"));
    let raw = gpt_image(8 * MIB, 512, &[(2048, 8191)], 5);
    std::fs::write(&image, &raw).unwrap();
    std::fs::File::create(&disk).unwrap().set_len(16 * MIB).unwrap();
    let image = image_at(format!("file://{}", image.display()), Proof::Stored(digest(&raw)));
    let mut request = write_request(&disk, image, 2);
    request.authority.selection = another_disk();
    let error = write_image(&request, &Unobserved).unwrap_err();
    assert_eq!((error.code(), error.retryable()), (ErrorCode::DiskChanged, true));
    let problem = error.problem().to_string();
    assert!(problem.contains("disk vdb appeared") && problem.contains("nothing was written"), "{problem}");
    assert!(std::fs::read(&disk).unwrap().iter().all(|byte| *byte == 0));
    request.authority.selection = SelectionGuard::named();
    assert!(write_image(&request, &Unobserved).unwrap().written);
}

#[test]
fn a_clearing_whose_selection_changed_leaves_the_disk_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let before = gpt_image(16 * MIB, 512, &[(2048, 8191)], 5);
    std::fs::write(&disk, &before).unwrap();
    let mut request = WipeRequest {
        disk: disk_at(&disk).unwrap(),
        level: WipeLevel::Signatures,
        fallback: Vec::new(),
        authority: Authority { selection: another_disk(), ..persons(2) },
    };
    assert_eq!(wipe_disk(&request, &Unobserved).unwrap_err().code(), ErrorCode::DiskChanged);
    assert_eq!(std::fs::read(&disk).unwrap(), before);
    request.authority.selection = SelectionGuard::named();
    wipe_disk(&request, &Unobserved).unwrap();
    assert!(std::fs::read(&disk).unwrap()[..512].iter().all(|byte| *byte == 0));
}

#[test]
fn a_checked_write_leaves_the_disk_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, file) = (dir.path().join("disk"), dir.path().join("image"));
    let raw = gpt_image(8 * MIB, 512, &[(2048, 8191)], 5);
    std::fs::write(&file, &raw).unwrap();
    let before = gpt_image(16 * MIB, 512, &[(4096, 8191)], 6);
    std::fs::write(&disk, &before).unwrap();
    let url = format!("file://{}", file.display());
    let mut request = write_request(&disk, image_at(url.clone(), Proof::Stored(digest(&raw))), 2);
    request.authority.person_authorised = true;
    may_write(&request, &Unobserved).unwrap();
    let refused = |change: &dyn Fn(&mut WriteRequest), expected: ErrorCode| {
        let mut request = write_request(&disk, image_at(url.clone(), Proof::Stored(digest(&raw))), 2);
        request.authority.person_authorised = true;
        change(&mut request);
        let error = may_write(&request, &Unobserved).unwrap_err();
        assert_eq!(error.code(), expected, "{error}");
        assert_eq!(write_image(&request, &Unobserved).unwrap_err().to_string(), error.to_string());
    };
    refused(&|request| request.authority.person_authorised = false, ErrorCode::DiskNotBlank);
    refused(&|request| request.authority.selection = another_disk(), ErrorCode::DiskChanged);
    refused(&|request| request.authority.cancel.cancel(), ErrorCode::Cancelled);
    refused(&|request| request.keep = vec!["data".into()], ErrorCode::InvalidDocument);
    refused(&|request| request.image.urls = vec!["file:///none".into()], ErrorCode::SourceUnreachable);
    refused(&|request| request.image.format = Some(Format::Xz), ErrorCode::BadFormat);
    assert_eq!(std::fs::read(&disk).unwrap(), before);
    // What only the whole image shows is not checked.
    let other = digest(b"another image");
    let mut altered = write_request(&disk, image_at(url, Proof::Stored(other)), 2);
    altered.authority.person_authorised = true;
    may_write(&altered, &Unobserved).unwrap();
    assert_eq!(write_image(&altered, &Unobserved).unwrap_err().code(), ErrorCode::DigestMismatch);
}
