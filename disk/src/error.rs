//! What can go wrong with a disk, as types; one place says which code each has and whether trying again can help.

mod hint;

use std::{io, path::PathBuf};

use landfall_api::{Digest, ErrorCode, Problem, WipeLevel};

use crate::{Defect, IndexError};

/// Reading about or from a disk failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file of the kernel's, or a device, could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no such whole disk.
    #[error("{} is not a disk of this machine", path.display())]
    NoSuchDisk {
        /// The request.
        path: PathBuf,
    },
}

/// An image was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The server cannot be reached, or it breaks the connection again and again.
    #[error("cannot fetch {url}: {reason}")]
    Unreachable {
        /// The image.
        url: String,
        /// What happened, with its causes.
        reason: String,
    },
    /// The server answered with an error that a retry does not cure.
    #[error("the server answered {status} for {url}")]
    Status {
        /// The image.
        url: String,
        /// The status line.
        status: String,
    },
    /// The content behind the URL changed during the download.
    #[error("the content of {url} changed during the download")]
    SourceChanged {
        /// The image.
        url: String,
    },
    /// The server does not support ranges, and reading everything before the wanted part costs too much.
    #[error("{url} is needed in parts, but its server does not answer Range requests")]
    NoRanges {
        /// The image.
        url: String,
    },
    /// None of several URLs gave the image.
    #[error("every mirror of {url} failed: {}", joined(failures))]
    NoMirror {
        /// The image's first URL.
        url: String,
        /// Why each mirror failed; each entry names its mirror.
        failures: Vec<WriteError>,
    },
    /// A signature is not valid, or it cannot be checked.
    #[error("the signature of {subject} is not valid: {reason}")]
    BadSignature {
        /// What is signed.
        subject: String,
        /// Why.
        reason: String,
    },
    /// The input ended early.
    #[error("{subject} ended early: {reason}")]
    Truncated {
        /// The image.
        subject: String,
        /// What was missing.
        reason: String,
    },
    /// The stored bytes do not have the stated digest.
    #[error("the digest of {url} is {actual}, expected {expected}")]
    DigestMismatch {
        /// The image.
        url: String,
        /// As the template states.
        expected: Digest,
        /// As computed.
        actual: Digest,
    },
    /// A chunk does not have the digest that the index states.
    #[error("the {length} bytes at {offset} of {url} do not match the digest in its index")]
    ChunkMismatch {
        /// The image.
        url: String,
        /// Where: bytes from the start of the stored file; for a bmap, of the raw image.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// The index cannot be used.
    #[error("{url} is not a usable index: {source}")]
    BadIndex {
        /// The index.
        url: String,
        /// Why.
        source: IndexError,
    },
    /// An image that this version cannot write.
    #[error("{subject} is not a usable image: {reason}")]
    BadFormat {
        /// The image.
        subject: String,
        /// Why.
        reason: String,
        /// Which kind of fault it is: what to do depends on it.
        defect: Defect,
    },
    /// The machine has less memory than writing the image takes.
    #[error("writing {subject} takes {} MiB of memory, and this machine has {} MiB available", needed.div_ceil(1 << 20), available >> 20)]
    NotEnoughMemory {
        /// The image.
        subject: String,
        /// What it takes, bytes.
        needed: u64,
        /// What there was when the write began, bytes.
        available: u64,
    },
    /// The image does not fit.
    #[error("the image needs {needed} bytes and {device} has {size}")]
    DiskTooSmall {
        /// The disk.
        device: String,
        /// What the image needs at least, bytes.
        needed: u64,
        /// The disk's capacity, bytes.
        size: u64,
    },
    /// The image was made for another sector size.
    #[error("the image was made for {image}-byte sectors and {device} has {disk}-byte sectors")]
    WrongSectorSize {
        /// The disk.
        device: String,
        /// The image's logical sector size, bytes.
        image: u32,
        /// The disk's logical sector size, bytes.
        disk: u32,
    },
    /// The disk is in use.
    #[error("{device} is in use: {}", reasons.join("; "))]
    InUse {
        /// The disk.
        device: String,
        /// What uses it.
        reasons: Vec<String>,
    },
    /// The hardware or the kernel refuses writes.
    #[error("{device} is read-only")]
    ReadOnly {
        /// The disk.
        device: String,
    },
    /// The device is not the disk that was chosen.
    #[error("{device} is no longer the disk that was chosen: {reason}")]
    DiskChanged {
        /// The disk.
        device: String,
        /// What differs.
        reason: String,
    },
    /// The caller's selector may choose another disk now. Nothing was written.
    #[error("the disks changed after {device} was selected: {reason}; nothing was written")]
    SelectionChanged {
        /// The disk.
        device: String,
        /// What changed.
        reason: String,
    },
    /// The receipt on the disk is not the expected one.
    #[error("the receipt on {device} is not the expected one: found {found}, expected {expected}")]
    ReceiptMismatch {
        /// The disk.
        device: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
    /// The disk has a receipt that a program which keeps none would make untrue.
    #[error("{device} carries the receipt of another install: {found}")]
    Marked {
        /// The disk.
        device: String,
        /// What is there.
        found: String,
    },
    /// A program that could write the disk destroyed its receipt.
    #[error("{device} no longer carries the receipt of this workflow, or does not start any more")]
    MarkLost {
        /// The disk.
        device: String,
    },
    /// The disk is not blank, and no person requested the write.
    #[error("{device} is not blank ({found}), and no person requested this install")]
    NotBlank {
        /// The disk.
        device: String,
        /// What was found.
        found: String,
    },
    /// A partition that the request keeps cannot be kept. It was not changed.
    #[error("cannot keep partitions of {device}: {reason}")]
    KeepRefused {
        /// The disk.
        device: String,
        /// Which, and why not.
        reason: String,
    },
    /// More partitions are to stay than the disk's receipt can list. Nothing was changed.
    #[error(
        "{wanted} partitions of {device} are to stay, and its receipt can list {room} at most; nothing was written"
    )]
    TooManyKept {
        /// The disk.
        device: String,
        /// How many are to stay.
        wanted: usize,
        /// How many a receipt of this workflow can list.
        room: usize,
    },
    /// The device failed.
    #[error("cannot {action} {device}")]
    DeviceIo {
        /// The disk.
        device: String,
        /// What was tried, such as `write 4096 bytes at 0 to`.
        action: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// What is on the disk already cannot be read. Nothing was changed.
    #[error("cannot {action} {device}")]
    Unreadable {
        /// The disk.
        device: String,
        /// What was tried, such as `read the partition table of`.
        action: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The disk supports none of the levels that would do. Nothing was changed.
    #[error("{device} does not support level {level}; it supports {}{}", words(supported), because(limits))]
    LevelUnsupported {
        /// The disk.
        device: String,
        /// The level that was asked for.
        level: WipeLevel,
        /// Those that it supports.
        supported: Vec<WipeLevel>,
        /// Why not more, in words.
        limits: Vec<String>,
    },
    /// The disk did not erase itself.
    #[error("{device} was not erased by {method}: {reason}")]
    EraseFailed {
        /// The disk.
        device: String,
        /// By which command.
        method: &'static str,
        /// What it answered.
        reason: String,
    },
    /// The disk still does an erasure that began earlier, and neither reads nor writes meanwhile.
    #[error("{device} still erases itself since an earlier wipe; {percent} % is done")]
    Erasing {
        /// The disk.
        device: String,
        /// How much is done.
        percent: u64,
    },
    /// The disk is locked with a password.
    #[error("{device} cannot be read: {reason}")]
    Locked {
        /// The disk.
        device: String,
        /// What it answered.
        reason: String,
    },
    /// The disk says that it erased itself, and data is still there.
    #[error("{device} reports that it was erased by {method}, and the data at {offset} is still there")]
    NotErased {
        /// The disk.
        device: String,
        /// By which command.
        method: &'static str,
        /// Where, bytes from its start.
        offset: u64,
    },
    /// The data read back differs from the data written. Nothing was committed.
    #[error("{device} returned other data than was written to it: the {length} bytes at {offset} differ")]
    ReadBack {
        /// The disk.
        device: String,
        /// Where, bytes from its start.
        offset: u64,
        /// How much was compared there, bytes.
        length: u64,
    },
    /// The lease ran out. Nothing was committed.
    #[error("the lease ran out while {device} was being written; nothing was committed")]
    LeaseExpired {
        /// The disk.
        device: String,
    },
    /// The write was cancelled. Nothing was committed.
    #[error("writing {device} was cancelled; nothing was committed")]
    Cancelled {
        /// The disk.
        device: String,
    },
    /// Looking at the machine's disks failed.
    #[error("cannot examine {device}")]
    Examine {
        /// The disk.
        device: String,
        /// Why.
        source: DiskError,
    },
    /// The system could not start a thread or a runtime.
    #[error("cannot start the {what}")]
    Start {
        /// Which.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
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
