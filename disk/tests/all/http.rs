//! `write_image` against servers that are good, broken and hostile; each test asserts on the device's bytes.
//!
//! The servers drop what their writes answer (`let _ =`): the client may have hung up, and what it reports is what counts.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::request::write_request;
use crate::common::server::{range_start, say, say_part, serve, serve_raw};
use crate::common::watch::Watch;
use crate::common::{MIB, digest, gpt_image};
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use landfall_api::{DiskReceipt, ErrorCode, Progress, ReceiptState};
use landfall_disk::judge::Findings;
use landfall_disk::{
    LeaseGuard, LogLevel, Observer, Proof, WriteError, WriteOutcome, WriteRequest, disk_at, image_at, read_mark,
    read_receipt, write_image,
};
use uuid::Uuid;

const DISK: u64 = 8 * MIB;

#[derive(Default)]
struct Watcher {
    receipts: Mutex<Vec<DiskReceipt>>,
    progress: Mutex<Vec<Progress>>,
    lines: Mutex<Vec<String>>,
}

impl Observer for Watcher {
    fn progress(&self, progress: &Progress) {
        self.progress.lock().unwrap().push(progress.clone());
    }
    fn receipt_written(&self, receipt: &DiskReceipt) {
        self.receipts.lock().unwrap().push(receipt.clone());
    }
    fn log(&self, _: LogLevel, message: &str) {
        self.lines.lock().unwrap().push(message.to_owned());
    }
}

struct Bench {
    file: tempfile::NamedTempFile,
    watcher: Watcher,
    request: WriteRequest,
}

impl Bench {
    fn new(url: &str, proof: Proof) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(DISK).unwrap();
        let request = write_request(file.path(), image_at(url, proof), 2);
        Self { file, watcher: Watcher::default(), request }
    }
    fn write(&self) -> Result<WriteOutcome, WriteError> {
        write_image(&self.request, &self.watcher)
    }
    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.file.path()).unwrap()
    }
    /// Not a byte was written.
    fn assert_untouched(&self) {
        assert!(self.bytes().iter().all(|b| *b == 0), "the disk was touched");
        assert!(self.watcher.receipts.lock().unwrap().is_empty());
    }
    /// Begun, not bootable by anything, receipt says so.
    fn assert_unbootable(&self) {
        let bytes = self.bytes();
        assert!(!Findings::of(&bytes, 512).unwrap().anything_boots(), "the disk boots");
        assert_eq!(read_mark(&bytes).unwrap().unwrap().receipt.state, ReceiptState::Intent);
        let states: Vec<_> = self.watcher.receipts.lock().unwrap().iter().map(|r| r.receipt.state).collect();
        assert_eq!(states, [ReceiptState::Intent]);
    }
    /// Committed, and every partition holds the image's bytes.
    fn assert_installed(&self, image: &[u8]) {
        let bytes = self.bytes();
        let found = Findings::of(&bytes, 512).unwrap();
        assert!(found.bios_boots() && found.uefi_boots() && found.primary.is_some() && found.backup.is_some());
        assert!(bytes[2048 * 512..4 << 20] == image[2048 * 512..4 << 20], "the body differs");
        assert_eq!(read_mark(&bytes).unwrap().unwrap().receipt.state, ReceiptState::Done);
        let states: Vec<_> = self.watcher.receipts.lock().unwrap().iter().map(|r| r.receipt.state).collect();
        assert_eq!(states, [ReceiptState::Intent, ReceiptState::Done]);
    }
}

fn image() -> Vec<u8> {
    gpt_image(5 * MIB, 512, &[(2048, 4095), (4096, 8191)], 1)
}

fn packed() -> Vec<u8> {
    zstd::encode_all(&image()[..], 1).unwrap()
}

fn proved(stored: &[u8]) -> Proof {
    Proof::Stored(digest(stored))
}

#[test]
fn a_good_image_is_installed_raw_and_zstd() {
    for stored in [image(), packed()] {
        let body = stored.clone();
        let bench = Bench::new(&serve(move |_| body.clone().into_response()), proved(&stored));
        let outcome = bench.write().unwrap();
        assert!(outcome.written && outcome.installed.no_receipt.is_none());
        assert_eq!((outcome.installed.stored_bytes, outcome.installed.raw_bytes), (stored.len() as u64, 5 * MIB));
        assert!(outcome.installed.written_bytes < outcome.installed.raw_bytes, "runs of zeroes are not written");
        bench.assert_installed(&image());
        let progress = bench.watcher.progress.lock().unwrap();
        let last = progress.last().unwrap();
        assert_eq!((last.stored_bytes, last.raw_bytes, last.raw_total), (stored.len() as u64, 5 * MIB, 5 * MIB));
        drop(progress);
        // The same action again, as after a power cut before its ack: nothing is written.
        let again = Bench { watcher: Watcher::default(), ..bench };
        assert!(!again.write().unwrap().written);
        assert!(again.watcher.receipts.lock().unwrap().is_empty());
    }
}

#[test]
fn an_image_cut_in_half_is_never_a_success() {
    for stored in [image(), packed()] {
        let half = stored[..stored.len() / 2].to_vec();
        // The file on the server is cut: its length is honest, its content is not all there.
        let bench = Bench::new(&serve(move |_| half.clone().into_response()), proved(&stored));
        assert_eq!(bench.write().unwrap_err().code(), ErrorCode::Truncated);
        bench.assert_unbootable();
    }
}

#[test]
fn a_cut_zstd_image_fails_even_with_its_digest_waived() {
    let stored = packed();
    let half = stored[..stored.len() - 5].to_vec();
    let bench = Bench::new(&serve(move |_| half.clone().into_response()), Proof::Waived);
    assert_eq!(bench.write().unwrap_err().code(), ErrorCode::Truncated);
    bench.assert_unbootable();
}

#[test]
fn a_flipped_bit_is_a_digest_mismatch() {
    for stored in [image(), packed()] {
        let mut flipped = stored.clone();
        let at = flipped.len() * 3 / 4;
        flipped[at] ^= 4;
        let bench = Bench::new(&serve(move |_| flipped.clone().into_response()), proved(&stored));
        assert_eq!(bench.write().unwrap_err().code(), ErrorCode::DigestMismatch);
        bench.assert_unbootable();
    }
}

#[test]
fn a_content_length_longer_than_the_body_is_truncation() {
    let stored = packed();
    let body = stored.clone();
    let url = serve_raw(move |stream, head, _| {
        say_part(stream, head, "", body.len() + 1000, &body);
    });
    let bench = Bench::new(&url, proved(&stored));
    assert_eq!(bench.write().unwrap_err().code(), ErrorCode::Truncated);
    bench.assert_unbootable();
}

#[test]
fn a_connection_dropped_midway_is_resumed_by_range() {
    let stored = packed();
    let (body, requests) = (stored.clone(), Arc::new(AtomicU32::new(0)));
    let seen = Arc::clone(&requests);
    let url = serve_raw(move |stream, head, count| {
        seen.store(count + 1, Ordering::SeqCst);
        let from = range_start(head).unwrap_or(0);
        assert!(count == 0 || (from > 0 && !head.contains("if-range")), "{head}");
        let to = (from + body.len() / 5 + 1).min(body.len());
        say_part(stream, head, "\r\netag: \"v1\"", body.len(), &body[..to]);
    });
    let bench = Bench::new(&url, proved(&stored));
    bench.write().unwrap();
    assert!(requests.load(Ordering::SeqCst) >= 5);
    bench.assert_installed(&image());
}

#[test]
fn a_server_without_ranges_is_read_again_from_its_start() {
    let stored = packed();
    let body = stored.clone();
    let url = serve_raw(move |stream, _, count| {
        let to = if count == 0 { body.len() / 2 } else { body.len() };
        say(stream, "200 OK", body.len() as u64, &body[..to]);
    });
    let bench = Bench::new(&url, proved(&stored));
    bench.write().unwrap();
    bench.assert_installed(&image());
}

#[test]
fn content_that_changes_between_two_answers_is_not_joined() {
    let stored = packed();
    let body = stored.clone();
    let url = serve_raw(move |stream, _, count| {
        let status = format!("200 OK\r\netag: \"v{count}\"");
        say(stream, &status, body.len() as u64, &body[..body.len() / 2]);
    });
    let bench = Bench::new(&url, Proof::Waived);
    assert!(matches!(bench.write(), Err(WriteError::SourceChanged { .. })));
    assert!(!Findings::of(&bench.bytes(), 512).unwrap().anything_boots());
}

/// A server behind a load balancer: each answer breaks off after a part and has an ETag of its own, and the `other` bytes
/// are in all but the first.
fn serve_parts(stored: Vec<u8>, other: Vec<u8>) -> String {
    serve_raw(move |stream, head, count| {
        let body = if count == 0 { &stored } else { &other };
        let from = range_start(head).unwrap_or(0);
        let to = (from + body.len() / 3 + 1).min(body.len());
        assert!(!head.contains("if-range"), "the digest decides: {head}");
        say_part(stream, head, &format!("\r\netag: \"v{count}\""), body.len(), &body[..to]);
    })
}

#[test]
fn another_etag_fails_no_download_whose_digest_is_pinned() {
    let stored = packed();
    let bench = Bench::new(&serve_parts(stored.clone(), stored.clone()), proved(&stored));
    bench.write().unwrap();
    bench.assert_installed(&image());
    assert!(bench.watcher.lines.lock().unwrap().iter().any(|line| line.contains("another ETag")));
}

#[test]
fn parts_of_two_versions_never_pass_the_digest() {
    let (stored, mut other) = (packed(), packed());
    let end = other.len() - 9;
    other[end] ^= 1;
    let bench = Bench::new(&serve_parts(stored.clone(), other), proved(&stored));
    let error = bench.write().unwrap_err();
    assert!(matches!(error, WriteError::DigestMismatch { .. }) && error.retryable(), "{error}");
    bench.assert_unbootable();
}

#[test]
fn each_cause_has_its_own_hint_and_one_url() {
    let mut crc = Vec::new();
    let mut gzip = flate2::write::GzEncoder::new(&mut crc, flate2::Compression::fast());
    gzip.write_all(&image()).unwrap();
    gzip.finish().unwrap();
    let sum = crc.len() - 8;
    crc[sum] ^= 1;
    let mut table = image();
    table[512 + 60] ^= 1;
    let page = b"<html>log in</html>".to_vec();
    let cases = [
        ("", crc, "checksum", "compare the file's digest"),
        ("", page, "web page", "in a browser"),
        ("\r\ncontent-encoding: gzip", packed(), "compresses it in transfer", "switch compression in transfer off"),
        ("", table, "the table is damaged", "its partition table is not whole"),
        ("\r\ncontent-type: application/gzip", packed(), "its server states", "the server's configuration"),
    ];
    for (headers, body, reason, hint) in cases {
        let url = serve_raw(move |stream, _, _| say(stream, &format!("200 OK{headers}"), body.len() as u64, &body));
        let bench = Bench::new(&url, Proof::Waived);
        let line = bench.write().unwrap_err().problem().to_string();
        assert!(line.contains(reason) && line.contains(hint), "{line}");
        assert_eq!(line.matches(&url).count(), 1, "{line}");
    }
}

#[test]
fn a_regular_file_is_written_without_a_warning() {
    let stored = packed();
    let body = stored.clone();
    let url = serve_raw(move |stream, _, _| say(stream, "200 OK", body.len() as u64, &body));
    let bench = Bench::new(&url, proved(&stored));
    bench.write().unwrap();
    let lines = bench.watcher.lines.lock().unwrap();
    assert!(!lines.iter().any(|line| line.contains("table")), "{lines:?}");
}

#[test]
fn a_disk_that_was_resized_keeps_its_receipt() {
    let stored = packed();
    let body = stored.clone();
    let url = serve_raw(move |stream, _, _| say(stream, "200 OK", body.len() as u64, &body));
    let mut bench = Bench::new(&url, proved(&stored));
    bench.write().unwrap();
    bench.file.as_file().set_len(2 * DISK).unwrap();
    // As the next hello reports it, under the identity that the disk has now.
    bench.request.disk = disk_at(bench.file.path()).unwrap();
    let receipt = read_receipt(bench.file.path()).unwrap().unwrap();
    bench.request.authority.expected = vec![DiskReceipt { disk: bench.request.disk.id.clone(), receipt }];
    bench.request.authority.person_authorised = true;
    bench.request.authority.receipt.workflow_uid = Uuid::from_u128(3);
    assert!(bench.write().unwrap().written);
    // A clone of another disk, whose receipt the hello did not report here, stays foreign.
    bench.file.as_file().set_len(3 * DISK).unwrap();
    bench.request.disk = disk_at(bench.file.path()).unwrap();
    bench.request.authority.receipt.workflow_uid = Uuid::from_u128(4);
    bench.request.authority.expected =
        vec![DiskReceipt { disk: bench.request.disk.id.clone(), ..bench.request.authority.expected.remove(0) }];
    assert_eq!(bench.write().unwrap_err().code(), ErrorCode::ReceiptMismatch);
}

#[test]
fn not_found_is_said_at_once_and_nothing_is_touched() {
    let bench = Bench::new(&serve(|_| StatusCode::NOT_FOUND.into_response()), proved(b""));
    let error = bench.write().unwrap_err();
    assert_eq!(error.code(), ErrorCode::SourceUnreachable);
    assert!(!error.retryable() && error.problem().to_string().contains("404"));
    bench.assert_untouched();
}

#[test]
fn an_endless_body_ends_at_the_disks_end() {
    let start = image();
    let url = serve_raw(move |stream, _, _| {
        let mut open = write!(stream, "HTTP/1.1 200 OK\r\n\r\n").and_then(|()| stream.write_all(&start)).is_ok();
        while open {
            open = stream.write_all(&[7; 65536]).is_ok();
        }
    });
    let bench = Bench::new(&url, Proof::Waived);
    assert_eq!(bench.write().unwrap_err().code(), ErrorCode::DiskTooSmall);
    bench.assert_unbootable();
}

#[test]
fn garbage_after_zstd_fails_even_with_a_correct_digest() {
    let mut stored = packed();
    stored.extend_from_slice(b"garbage");
    let body = stored.clone();
    let bench = Bench::new(&serve(move |_| body.clone().into_response()), proved(&stored));
    assert_eq!(bench.write().unwrap_err().code(), ErrorCode::BadFormat);
    bench.assert_unbootable();
}

#[test]
fn a_set_cancel_flag_ends_a_stalled_download() {
    let stored = packed();
    let url = serve_raw(move |stream, _, _| {
        say(stream, "200 OK", stored.len() as u64, &stored[..stored.len() / 2]);
        // Stays open until the client goes.
        let _ = stream.read(&mut [0]);
    });
    let bench = Bench::new(&url, Proof::Waived);
    // Cancelled by what happens, not by the clock: the first receipt.
    let receipt = |_: &DiskReceipt| bench.request.authority.cancel.cancel();
    let error = write_image(&bench.request, &Watch { receipt: &receipt, ..Watch::default() }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert!(!Findings::of(&bench.bytes(), 512).unwrap().boot_signature);
}

#[test]
fn a_missing_or_expired_lease_prevents_the_commit() {
    let stored = packed();
    let url = serve({
        let stored = stored.clone();
        move |_| stored.clone().into_response()
    });
    let mut bench = Bench::new(&url, proved(&stored));
    bench.request.authority.lease = LeaseGuard::new(|| false);
    assert_eq!(bench.write().unwrap_err().code(), ErrorCode::LeaseExpired);
    bench.assert_untouched();

    // It holds until the intent is written, and no longer.
    let left = Arc::new(AtomicBool::new(true));
    bench.request.authority.lease = LeaseGuard::new({
        let left = left.clone();
        move || left.load(Ordering::SeqCst)
    });
    let receipt = |_: &DiskReceipt| left.store(false, Ordering::SeqCst);
    let error = write_image(&bench.request, &Watch { receipt: &receipt, ..Watch::default() }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseExpired);
    assert!(!Findings::of(&bench.bytes(), 512).unwrap().anything_boots(), "the disk boots");
}

#[test]
fn a_used_disk_needs_a_person_and_unknown_receipts_force() {
    let stored = packed();
    let body = stored.clone();
    let url = serve(move |_| ([(header::ETAG, "\"x\"")], Body::from(body.clone())).into_response());
    let mut bench = Bench::new(&url, proved(&stored));
    std::fs::write(bench.file.path(), gpt_image(DISK, 512, &[(2048, 4096)], 9)).unwrap();
    let before = bench.bytes();
    assert_eq!(bench.write().unwrap_err().code(), ErrorCode::DiskNotBlank);
    assert!(bench.bytes() == before);
    bench.request.authority.person_authorised = true;
    bench.write().unwrap();
    bench.request.authority.receipt.workflow_uid = Uuid::from_u128(3);
    let installed = bench.bytes();
    assert_eq!(bench.write().unwrap_err().code(), ErrorCode::ReceiptMismatch);
    assert!(bench.bytes() == installed);
    bench.request.authority.expected = vec![read_mark(&installed).unwrap().unwrap()];
    assert!(bench.write().unwrap().written);
}
