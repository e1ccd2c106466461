//! What can go wrong with a disk, as types; one place says which code each has and whether trying again can help.

use std::{io, path::PathBuf};

use landfall_api::{Digest, ErrorCode, Problem, SelectorError};

use crate::IndexError;

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
        /// What was asked for.
        path: PathBuf,
    },
}

/// One disk and why it did or did not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Name, size, model, serial.
    pub disk: String,
    /// One sentence a field that disagrees; empty: it matched.
    pub mismatches: Vec<String>,
}

/// Not exactly one disk was chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The selector does not parse.
    #[error("the disk selector is not valid")]
    Selector(#[from] SelectorError),
    /// None matches.
    #[error("no disk matches the selector; {}", describe(.0))]
    NoneMatches(Vec<Candidate>),
    /// Several match.
    #[error("more than one disk matches the selector; {}", describe(.0))]
    Ambiguous(Vec<Candidate>),
    /// The disk chosen is one of several paths to the same unit.
    #[error("{disk} and {other} are paths to one unit (wwn {wwn}); writing to a lone path of it is refused")]
    LonePath {
        /// The disk chosen.
        disk: String,
        /// The other path.
        other: String,
        /// What both say.
        wwn: String,
    },
}

fn describe(candidates: &[Candidate]) -> String {
    if candidates.is_empty() {
        return "this machine has no disks".into();
    }
    let one = |c: &Candidate| match c.mismatches.as_slice() {
        [] => format!("{} matches", c.disk),
        why => format!("{} does not: {}", c.disk, why.join(", ")),
    };
    candidates.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl SelectError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Selector(_) => ErrorCode::InvalidDocument,
            Self::NoneMatches(_) => ErrorCode::NoDiskMatches,
            Self::Ambiguous(_) | Self::LonePath { .. } => ErrorCode::AmbiguousDisk,
        }
    }
    /// The failure as a person reads it.
    pub fn problem(&self) -> Problem {
        let hint = match self {
            Self::Selector(_) => "mend the selector in the template",
            Self::NoneMatches(_) => "change the selector, or look whether the disk's driver is in the boot image",
            Self::Ambiguous(_) => "name one disk by its serial or wwn",
            Self::LonePath { .. } => "present the unit over one path while installing",
        };
        Problem::new(self.code(), self.to_string()).hint(hint).at("disk").caused_by(self)
    }
}

/// An image was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The server cannot be reached, or goes on breaking the connection.
    #[error("cannot fetch {url}: {reason}")]
    Unreachable {
        /// The image.
        url: String,
        /// What happened, with its causes.
        reason: String,
    },
    /// The server answered with an error that asking again does not mend.
    #[error("{url} was answered with {status}")]
    Status {
        /// The image.
        url: String,
        /// The status line.
        status: String,
    },
    /// The content behind the URL became another while it was fetched.
    #[error("the content of {url} changed while it was fetched")]
    SourceChanged {
        /// The image.
        url: String,
    },
    /// The server cannot give a part of a file, and reading over what comes before costs too much.
    #[error("{url} is needed in parts, and its server gives it only from the start")]
    NoRanges {
        /// The image.
        url: String,
    },
    /// None of several URLs gave the image.
    #[error("no mirror gave {url}: {}", joined(failures))]
    NoMirror {
        /// The image's first URL.
        url: String,
        /// Why each was left; each names its mirror.
        failures: Vec<WriteError>,
    },
    /// A signature does not hold, or cannot be looked at.
    #[error("the signature of {subject} does not hold: {reason}")]
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
        /// Against what.
        reason: String,
    },
    /// The stored bytes are not those the digest was made of.
    #[error("the digest of {url} is {actual}, not {expected}")]
    DigestMismatch {
        /// The image.
        url: String,
        /// As the template states.
        expected: Digest,
        /// As computed.
        actual: Digest,
    },
    /// A chunk is not the one the index names.
    #[error("the {length} bytes at {offset} of {url} are not those its index names")]
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
    /// Not an image this version can write.
    #[error("{subject} is not a usable image: {reason}")]
    BadFormat {
        /// The image.
        subject: String,
        /// Why.
        reason: String,
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
    /// Made for other sectors.
    #[error("the image was made for {image}-byte sectors and {device} has {disk}-byte sectors")]
    WrongSectorSize {
        /// The disk.
        device: String,
        /// The image's logical sector size, bytes.
        image: u32,
        /// The disk's logical sector size, bytes.
        disk: u32,
    },
    /// Somebody uses the disk.
    #[error("{device} is in use: {}", reasons.join("; "))]
    InUse {
        /// The disk.
        device: String,
        /// By whom.
        reasons: Vec<String>,
    },
    /// The hardware or the kernel refuses writes.
    #[error("{device} is read-only")]
    ReadOnly {
        /// The disk.
        device: String,
    },
    /// It is not the disk that was chosen.
    #[error("{device} is no longer the disk that was chosen: {reason}")]
    DiskChanged {
        /// The disk.
        device: String,
        /// What differs.
        reason: String,
    },
    /// The mark on the disk is not the one expected.
    #[error("the receipt on {device} is not the one expected: found {found}, expected {expected}")]
    ReceiptMismatch {
        /// The disk.
        device: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
    /// There is something on the disk and no person asked for it to be written.
    #[error("{device} is not blank ({found}) and no person asked for it to be written")]
    NotBlank {
        /// The disk.
        device: String,
        /// What was found.
        found: String,
    },
    /// A partition that is to be kept cannot be. Nothing of it was changed.
    #[error("cannot keep partitions of {device}: {reason}")]
    KeepRefused {
        /// The disk.
        device: String,
        /// Which, and why not.
        reason: String,
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
    /// The device does not give back what was written to it. Nothing was committed.
    #[error("{device} does not hold what was written to it: the {length} bytes at {offset} read back differ")]
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
    /// Somebody cancelled. Nothing was committed.
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
    /// The machine refused a thread or a runtime.
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
            Self::DiskTooSmall { .. } => ErrorCode::DiskTooSmall,
            Self::WrongSectorSize { .. } => ErrorCode::WrongSectorSize,
            Self::InUse { .. } => ErrorCode::DiskInUse,
            Self::DiskChanged { .. } => ErrorCode::DiskChanged,
            Self::ReceiptMismatch { .. } => ErrorCode::ReceiptMismatch,
            Self::NotBlank { .. } => ErrorCode::DiskNotBlank,
            Self::KeepRefused { .. } => ErrorCode::InvalidDocument,
            Self::ReadOnly { .. } | Self::DeviceIo { .. } | Self::ReadBack { .. } | Self::Examine { .. } => {
                ErrorCode::DeviceIo
            }
            Self::LeaseExpired { .. } => ErrorCode::LeaseExpired,
            Self::Cancelled { .. } => ErrorCode::Cancelled,
            Self::Start { .. } | Self::Internal(_) => ErrorCode::Internal,
        }
    }

    /// Whether another attempt of the same action may succeed by itself: the network may heal and a server's file may
    /// be mended, but a disk does not grow. Safe in every case, because nothing that failed was committed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::SourceChanged { .. }
            | Self::Truncated { .. }
            | Self::DigestMismatch { .. }
            | Self::ChunkMismatch { .. }
            | Self::Start { .. } => true,
            Self::NoMirror { failures, .. } => failures.iter().any(Self::retryable),
            Self::Status { .. }
            | Self::NoRanges { .. }
            | Self::BadSignature { .. }
            | Self::BadFormat { .. }
            | Self::BadIndex { .. }
            | Self::DiskTooSmall { .. }
            | Self::WrongSectorSize { .. }
            | Self::InUse { .. }
            | Self::ReadOnly { .. }
            | Self::DiskChanged { .. }
            | Self::ReceiptMismatch { .. }
            | Self::NotBlank { .. }
            | Self::KeepRefused { .. }
            | Self::DeviceIo { .. }
            | Self::ReadBack { .. }
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
            Self::Truncated { subject, .. } | Self::BadFormat { subject, .. } | Self::BadSignature { subject, .. } => {
                subject
            }
            Self::DiskTooSmall { device, .. }
            | Self::WrongSectorSize { device, .. }
            | Self::InUse { device, .. }
            | Self::ReadOnly { device }
            | Self::DiskChanged { device, .. }
            | Self::ReceiptMismatch { device, .. }
            | Self::NotBlank { device, .. }
            | Self::KeepRefused { device, .. }
            | Self::DeviceIo { device, .. }
            | Self::ReadBack { device, .. }
            | Self::LeaseExpired { device }
            | Self::Cancelled { device }
            | Self::Examine { device, .. } => device,
            Self::Start { .. } | Self::Internal(_) => "",
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "look whether the server is up and the machine's network reaches it",
            Self::Status { .. } => "mend the URL in the template, or put the file where it points",
            Self::NoRanges { .. } => {
                "put it on a server that answers Range requests, such as nginx, or use another format"
            }
            Self::NoMirror { .. } => "look at each mirror's reason; at least one must give the image",
            Self::BadSignature { .. } => {
                "fetch signature and key again from who signs, and state the key that signs now"
            }
            Self::SourceChanged { .. } => "publish a new image under a new name",
            Self::Truncated { .. } => "upload the image again; the file on the server is cut short",
            Self::DigestMismatch { .. } => "state the digest that sha256sum prints for the file, or upload it again",
            Self::ChunkMismatch { .. } => "upload image and index again, both from one run of landfall-image pack",
            Self::BadIndex { .. } => "give the index that landfall-image pack or bmaptool create made of this image",
            Self::BadFormat { .. } => "give a raw or zstd disk image whose partition table is whole",
            Self::DiskTooSmall { .. } => "choose a larger disk, or make the image smaller",
            Self::WrongSectorSize { .. } => "build the image for the disk's sector size",
            Self::InUse { .. } => "unmount it and stop what holds it, or choose another disk",
            Self::ReadOnly { .. } => "choose another disk, or lift its write protection",
            Self::DiskChanged { .. } => "look whether disks were swapped, and start the run again",
            Self::ReceiptMismatch { .. } => "a person decides: provision with --force to overwrite what is there",
            Self::NotBlank { .. } => "a person starts the install with landfall provision",
            Self::ReadBack { .. } => {
                "replace the disk, or look at its firmware and controller; its data cannot be trusted"
            }
            Self::KeepRefused { .. } => "name labels that the disk has, or give an image that leaves room for them",
            Self::DeviceIo { .. } | Self::Examine { .. } => "look at the disk's health and the kernel's log",
            Self::LeaseExpired { .. } => "look whether the machine still reaches the coordinator",
            Self::Cancelled { .. } | Self::Start { .. } => "",
            Self::Internal(_) => "report it with the log",
        }
    }
}
