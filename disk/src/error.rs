//! What can go wrong with a disk, as types; one place says which code each has and whether trying again can help.

mod hint;

use std::{io, path::PathBuf};

use landfall_api::{Digest, ErrorCode, Problem, WipeLevel};

use crate::{Defect, IndexError};

/// Reading about or from a disk failed.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file of the kernel's, or a device, could not be read.
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// There is no such whole disk.
    #[error("{} is not a disk of this machine", path.display())]
    NoSuchDisk { path: PathBuf },
}

/// An image was not written.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The server cannot be reached, or it breaks the connection again and again.
    #[error("cannot fetch {url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// The server answered with an error that a retry does not cure.
    #[error("the server answered {status} for {url}")]
    Status { url: String, status: String },
    /// The content behind the URL changed during the download.
    #[error("the content of {url} changed during the download")]
    SourceChanged { url: String },
    /// The server does not support ranges, and reading everything before the wanted part costs too much.
    #[error("{url} is needed in parts, but its server does not answer Range requests")]
    NoRanges { url: String },
    /// None of several URLs gave the image.
    #[error("every mirror of {url} failed: {}", joined(failures))]
    NoMirror { url: String, failures: Vec<WriteError> },
    /// A signature is not valid, or it cannot be checked.
    #[error("the signature of {subject} is not valid: {reason}")]
    BadSignature { subject: String, reason: String },
    /// The input ended early.
    #[error("{subject} ended early: {reason}")]
    Truncated { subject: String, reason: String },
    /// The stored bytes do not have the stated digest.
    #[error("the digest of {url} is {actual}, expected {expected}")]
    DigestMismatch { url: String, expected: Digest, actual: Digest },
    /// A chunk does not have the digest that the index states.
    #[error("the {length} bytes at {offset} of {url} do not match the digest in its index")]
    ChunkMismatch {
        url: String,
        /// Where: bytes from the start of the stored file; for a bmap, of the raw image.
        offset: u64,
        length: u64,
    },
    /// The index cannot be used.
    #[error("{url} is not a usable index: {source}")]
    BadIndex { url: String, source: IndexError },
    /// An image that this version cannot write.
    #[error("{subject} is not a usable image: {reason}")]
    BadFormat { subject: String, reason: String, defect: Defect },
    /// The machine has less memory than writing the image takes.
    #[error("writing {subject} takes {} MiB of memory, and this machine has {} MiB available", needed.div_ceil(1 << 20), available >> 20)]
    NotEnoughMemory {
        subject: String,
        /// What it takes, bytes.
        needed: u64,
        /// What there was when the write began, bytes.
        available: u64,
    },
    /// The image does not fit.
    #[error("the image needs {needed} bytes and {device} has {size}")]
    DiskTooSmall {
        device: String,
        /// What the image needs at least, bytes.
        needed: u64,
        /// The disk's capacity, bytes.
        size: u64,
    },
    /// The image was made for another sector size.
    #[error("the image was made for {image}-byte sectors and {device} has {disk}-byte sectors")]
    WrongSectorSize {
        device: String,
        /// The image's logical sector size, bytes.
        image: u32,
        /// The disk's logical sector size, bytes.
        disk: u32,
    },
    /// The disk is in use.
    #[error("{device} is in use: {}", reasons.join("; "))]
    InUse { device: String, reasons: Vec<String> },
    /// The hardware or the kernel refuses writes.
    #[error("{device} is read-only")]
    ReadOnly { device: String },
    /// The device is not the disk that was chosen.
    #[error("{device} is no longer the disk that was chosen: {reason}")]
    DiskChanged { device: String, reason: String },
    /// The caller's selector may choose another disk now. Nothing was written.
    #[error("the disks changed after {device} was selected: {reason}; nothing was written")]
    SelectionChanged { device: String, reason: String },
    /// The receipt on the disk is not the expected one.
    #[error("the receipt on {device} is not the expected one: found {found}, expected {expected}")]
    ReceiptMismatch { device: String, found: String, expected: String },
    /// The disk has a receipt that a program which keeps none would make untrue.
    #[error("{device} carries the receipt of another install: {found}")]
    Marked { device: String, found: String },
    /// A program that could write the disk destroyed its receipt.
    #[error("{device} no longer carries the receipt of this workflow, or does not start any more")]
    MarkLost { device: String },
    /// The disk is not blank, and no person requested the write.
    #[error("{device} is not blank ({found}), and no person requested this install")]
    NotBlank { device: String, found: String },
    /// A partition that the request keeps cannot be kept. It was not changed.
    #[error("cannot keep partitions of {device}: {reason}")]
    KeepRefused { device: String, reason: String },
    /// More partitions are to stay than the disk's receipt can list. Nothing was changed.
    #[error(
        "{wanted} partitions of {device} are to stay, and its receipt can list {room} at most; nothing was written"
    )]
    TooManyKept { device: String, wanted: usize, room: usize },
    /// The device failed.
    #[error("cannot {action} {device}")]
    DeviceIo {
        device: String,
        /// What was tried, such as `write 4096 bytes at 0 to`.
        action: String,
        source: io::Error,
    },
    /// What is on the disk already cannot be read. Nothing was changed.
    #[error("cannot {action} {device}")]
    Unreadable {
        device: String,
        /// What was tried, such as `read the partition table of`.
        action: &'static str,
        source: io::Error,
    },
    /// The disk supports none of the levels that would do. Nothing was changed.
    #[error("{device} does not support level {level}; it supports {}{}", words(supported), because(limits))]
    LevelUnsupported { device: String, level: WipeLevel, supported: Vec<WipeLevel>, limits: Vec<String> },
    /// The disk did not erase itself.
    #[error("{device} was not erased by {method}: {reason}")]
    EraseFailed { device: String, method: &'static str, reason: String },
    /// The disk still does an erasure that began earlier, and neither reads nor writes meanwhile.
    #[error("{device} still erases itself since an earlier wipe; {percent} % is done")]
    Erasing { device: String, percent: u64 },
    /// The disk is locked with a password.
    #[error("{device} cannot be read: {reason}")]
    Locked { device: String, reason: String },
    /// The disk says that it erased itself, and data is still there.
    #[error("{device} reports that it was erased by {method}, and the data at {offset} is still there")]
    NotErased {
        device: String,
        method: &'static str,
        /// Where, bytes from its start.
        offset: u64,
    },
    /// The data read back differs from the data written. Nothing was committed.
    #[error("{device} returned other data than was written to it: the {length} bytes at {offset} differ")]
    ReadBack {
        device: String,
        /// Where, bytes from its start.
        offset: u64,
        /// How much was compared there, bytes.
        length: u64,
    },
    /// The lease ran out. Nothing was committed.
    #[error("the lease ran out while {device} was being written; nothing was committed")]
    LeaseExpired { device: String },
    /// The write was cancelled. Nothing was committed.
    #[error("writing {device} was cancelled; nothing was committed")]
    Cancelled { device: String },
    /// Looking at the machine's disks failed.
    #[error("cannot examine {device}")]
    Examine { device: String, source: DiskError },
    /// The system could not start a thread or a runtime.
    #[error("cannot start the {what}")]
    Start { what: &'static str, source: io::Error },
    /// A fault in Landfall itself.
    #[error("a fault in Landfall: {0}")]
    Internal(String),
}

fn joined(failures: &[WriteError]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn words(levels: &[WipeLevel]) -> String {
    levels.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn because(limits: &[String]) -> String {
    limits.iter().map(|limit| format!(" ({limit})")).collect()
}

impl WriteError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unreachable { .. } | Self::Status { .. } | Self::SourceChanged { .. } | Self::NoRanges { .. } => {
                ErrorCode::SourceUnreachable
            }
            Self::NoMirror { failures, .. } => match failures.as_slice() {
                [first, rest @ ..] if rest.iter().all(|other| other.code() == first.code()) => first.code(),
                _ => ErrorCode::SourceUnreachable,
            },
            Self::BadSignature { .. } => ErrorCode::DigestMismatch,
            Self::Truncated { .. } => ErrorCode::Truncated,
            Self::DigestMismatch { .. } | Self::ChunkMismatch { .. } => ErrorCode::DigestMismatch,
            Self::BadFormat { .. } | Self::BadIndex { .. } => ErrorCode::BadFormat,
            Self::NotEnoughMemory { .. } => ErrorCode::NotEnoughMemory,
            Self::DiskTooSmall { .. } => ErrorCode::DiskTooSmall,
            Self::WrongSectorSize { .. } => ErrorCode::WrongSectorSize,
            Self::InUse { .. } => ErrorCode::DiskInUse,
            Self::DiskChanged { .. } | Self::SelectionChanged { .. } => ErrorCode::DiskChanged,
            Self::ReceiptMismatch { .. } | Self::Marked { .. } | Self::MarkLost { .. } => ErrorCode::ReceiptMismatch,
            Self::NotBlank { .. } => ErrorCode::DiskNotBlank,
            Self::KeepRefused { .. } | Self::TooManyKept { .. } => ErrorCode::InvalidDocument,
            Self::LevelUnsupported { .. } => ErrorCode::LevelUnsupported,
            Self::ReadOnly { .. }
            | Self::DeviceIo { .. }
            | Self::Unreadable { .. }
            | Self::ReadBack { .. }
            | Self::EraseFailed { .. }
            | Self::Erasing { .. }
            | Self::Locked { .. }
            | Self::NotErased { .. }
            | Self::Examine { .. } => ErrorCode::DeviceIo,
            Self::LeaseExpired { .. } => ErrorCode::LeaseExpired,
            Self::Cancelled { .. } => ErrorCode::Cancelled,
            Self::Start { .. } | Self::Internal(_) => ErrorCode::Internal,
        }
    }

    /// Whether another attempt of the same action can succeed without a change by a person: a network can recover and a
    /// file on a server can be replaced, but a disk does not grow. Safe in every case, because nothing that failed was
    /// committed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::SelectionChanged { .. }
            | Self::SourceChanged { .. }
            | Self::Truncated { .. }
            | Self::DigestMismatch { .. }
            | Self::ChunkMismatch { .. }
            | Self::Erasing { .. }
            | Self::Start { .. } => true,
            Self::NoMirror { failures, .. } => failures.iter().any(Self::retryable),
            Self::Status { .. }
            | Self::NoRanges { .. }
            | Self::BadSignature { .. }
            | Self::BadFormat { .. }
            | Self::BadIndex { .. }
            | Self::NotEnoughMemory { .. }
            | Self::DiskTooSmall { .. }
            | Self::WrongSectorSize { .. }
            | Self::InUse { .. }
            | Self::ReadOnly { .. }
            | Self::DiskChanged { .. }
            | Self::ReceiptMismatch { .. }
            | Self::Marked { .. }
            | Self::MarkLost { .. }
            | Self::NotBlank { .. }
            | Self::KeepRefused { .. }
            | Self::TooManyKept { .. }
            | Self::DeviceIo { .. }
            | Self::Unreadable { .. }
            | Self::ReadBack { .. }
            | Self::LevelUnsupported { .. }
            | Self::EraseFailed { .. }
            | Self::Locked { .. }
            | Self::NotErased { .. }
            | Self::LeaseExpired { .. }
            | Self::Cancelled { .. }
            | Self::Examine { .. }
            | Self::Internal(_) => false,
        }
    }

    /// The failure as a person reads it.
    pub fn problem(&self) -> Problem {
        Problem::new(self.code(), self.to_string()).hint(self.hint()).at(self.subject()).caused_by(self)
    }

    fn subject(&self) -> &str {
        match self {
            Self::Unreachable { url, .. }
            | Self::Status { url, .. }
            | Self::SourceChanged { url }
            | Self::NoRanges { url }
            | Self::NoMirror { url, .. }
            | Self::DigestMismatch { url, .. }
            | Self::ChunkMismatch { url, .. }
            | Self::BadIndex { url, .. } => url,
            Self::Truncated { subject, .. }
            | Self::BadFormat { subject, .. }
            | Self::NotEnoughMemory { subject, .. }
            | Self::BadSignature { subject, .. } => subject,
            Self::DiskTooSmall { device, .. }
            | Self::WrongSectorSize { device, .. }
            | Self::InUse { device, .. }
            | Self::ReadOnly { device }
            | Self::DiskChanged { device, .. }
            | Self::SelectionChanged { device, .. }
            | Self::ReceiptMismatch { device, .. }
            | Self::Marked { device, .. }
            | Self::MarkLost { device }
            | Self::NotBlank { device, .. }
            | Self::KeepRefused { device, .. }
            | Self::TooManyKept { device, .. }
            | Self::DeviceIo { device, .. }
            | Self::Unreadable { device, .. }
            | Self::ReadBack { device, .. }
            | Self::LevelUnsupported { device, .. }
            | Self::EraseFailed { device, .. }
            | Self::Erasing { device, .. }
            | Self::Locked { device, .. }
            | Self::NotErased { device, .. }
            | Self::LeaseExpired { device }
            | Self::Cancelled { device }
            | Self::Examine { device, .. } => device,
            Self::Start { .. } | Self::Internal(_) => "",
        }
    }
}
