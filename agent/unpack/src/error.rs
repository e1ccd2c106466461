//! Why an archive was not unpacked: which entry, what of it, and what to do.

use std::io;

use landfall_api::{ErrorCode, Problem};
use rustix::io::Errno;

/// An archive was not unpacked. What had been written before stays.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive's own bytes could not be had; who gives them knows why.
    #[error("cannot read the archive after {after}")]
    Read { after: String, source: io::Error },
    /// The archive ends before its end mark.
    #[error("the archive is truncated: it ends in {within}")]
    Truncated { within: String },
    /// A header cannot be read, so nothing is known of what follows.
    #[error("the archive is damaged at byte {offset}, after {after}: {reason}")]
    Damaged {
        /// Where, bytes from the start of the decompressed archive.
        offset: u64,
        after: String,
        reason: String,
    },
    /// One entry is invalid or unsupported.
    #[error("the entry {entry} is refused: {fault}")]
    Refused { entry: String, fault: Fault },
    /// The file system refused one entry.
    #[error("cannot {action} {entry}")]
    Io { action: String, entry: String, source: io::Error },
    /// The caller asked for an end.
    #[error("unpacking was stopped at {entry}")]
    Stopped { entry: String },
}

/// What is wrong with an entry.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A part of its name is `..`.
    #[error("its name leads out of its directory by \"..\"")]
    Upwards,
    /// A name holds a zero byte.
    #[error("its name holds a zero byte")]
    ZeroByte,
    /// A name is longer than the kernel takes.
    #[error("its name has more than 4095 bytes")]
    LongName,
    /// A part of a name is longer than any file system takes.
    #[error("a part of its name has more than 255 bytes")]
    LongPart,
    /// A name has too many parts.
    #[error("it is more than 256 directories deep")]
    Deep,
    /// A file, link or device in the place of the root.
    #[error("it would take the place of the root directory")]
    Root,
    /// A link without a target, or with one that no file system takes.
    #[error("its link's target is empty, longer than 4095 bytes, or holds a zero byte")]
    Target,
    /// A hard link to what is outside.
    #[error("it is a hard link, and its target leads out of the archive by \"..\"")]
    OutsideLink,
    /// A type that is not unpacked.
    #[error("its type {0:?} is not supported")]
    Type(char),
    /// A link, directory or device with bytes after its header.
    #[error("it has content, which an entry of its type cannot have")]
    Content,
    /// An owner that the kernel has no number for.
    #[error("its owner {0} is not a user or group number of Linux")]
    Owner(u64),
    /// A device number that Linux does not have.
    #[error("its device number {0}:{1} is not one of Linux")]
    Device(u32, u32),
    /// An extended header that is not a list of records.
    #[error("its extended header is damaged")]
    Header,
    /// A record with a value that cannot be read.
    #[error("its extended header's {0} is invalid")]
    Record(&'static str),
    /// A record that is not supported.
    #[error("its extended header's {0} is not supported")]
    Unsupported(&'static str),
    /// An access control list that cannot be read.
    #[error("its access control list is invalid at \"{0}\"")]
    Acl(String),
    /// An access control list that names accounts.
    #[error("its access control list names the account \"{0}\" and not its number")]
    AclName(String),
    /// The map of a sparse file.
    #[error("its map of holes is invalid: {0}")]
    Map(&'static str),
    /// A sparse file of version 1.0 whose size stands in its extended header.
    #[error(
        "it is a file with holes and more than 8 GiB of data, in a form (version 1.0) of which writers do not agree what its size counts"
    )]
    LargeMap,
    /// More extended attributes than any file system keeps.
    #[error("it has more than {0} extended attributes")]
    Attributes(usize),
    /// More bytes than are unpacked.
    #[error("with it the archive has more than {0} bytes")]
    Large(u64),
    /// More entries than are unpacked.
    #[error("with it the archive has more than {0} entries")]
    Many(u64),
    /// Names and attributes that take too much memory, MiB.
    #[error("with it what must be remembered of the archive takes more than {0} MiB of memory")]
    Memory(u64),
    /// A directory with content stands where something else must go.
    #[error("a directory that is not empty stands in its place")]
    Occupied,
    /// A directory's entry in the place of the archive's own link.
    #[error("the archive's own link stands in its place, and leads to no directory")]
    OwnLink,
    /// An entry in the place of a link that led to earlier entries' directories.
    #[error("entries before it went through the installed system's link in its place")]
    Way,
    /// The running system mounts something over its directory.
    #[error("the running system would not see it: {0}")]
    Hidden(String),
    /// A whiteout that names nothing.
    #[error("it is a whiteout that names no file")]
    Whiteout,
    /// Bytes after the archive's end mark.
    #[error("after it and the end mark there is more data; archives that were joined with cat are not supported")]
    Joined,
}

impl UnpackError {
    /// Whether another attempt may succeed without a change by a person: a machine may have memory again, and a full disk, a
    /// refused name or a damaged archive stay what they are.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                let passing = [Errno::NOMEM, Errno::AGAIN, Errno::INTR, Errno::BUSY, Errno::MFILE, Errno::NFILE];
                Errno::from_io_error(source).is_some_and(|errno| passing.contains(&errno))
            }
            Self::Read { .. } => true,
            Self::Truncated { .. } | Self::Damaged { .. } | Self::Refused { .. } | Self::Stopped { .. } => false,
        }
    }

    /// As it is reported. What failed to give the archive's bytes is the caller's to say.
    pub fn problem(&self) -> Problem {
        let (code, hint) = match self {
            Self::Read { .. } => (ErrorCode::SourceUnreachable, "check the server of the archive"),
            Self::Truncated { .. } => {
                (ErrorCode::Truncated, "build the archive again, and publish it with its new digest")
            }
            Self::Damaged { .. } => (
                ErrorCode::BadFormat,
                "tar -tf shows what is wrong; build the archive again, and publish it with its digest",
            ),
            Self::Refused { fault: fault @ Fault::Hidden(_), .. } => (ErrorCode::NoRootFilesystem, fault.hint()),
            Self::Refused { fault, .. } => (ErrorCode::BadFormat, fault.hint()),
            Self::Io { source, .. } => (ErrorCode::DeviceIo, io_hint(source)),
            Self::Stopped { .. } => (ErrorCode::Cancelled, "start the workflow again if it should go on"),
        };
        Problem::new(code, self.to_string()).hint(hint).caused_by(self)
    }
}

fn io_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull => "make the file system larger, or the archive smaller",
        io::ErrorKind::Unsupported => {
            "unpack it to a file system that has extended attributes, such as ext4, xfs or btrfs"
        }
        io::ErrorKind::NotFound => "build the archive again with the file that this entry needs before it",
        _ => "check the disk and the file system that the archive is unpacked to",
    }
}

impl Fault {
    fn hint(&self) -> &'static str {
        match self {
            Self::Upwards | Self::OutsideLink | Self::Root => {
                "build the archive from inside the root directory: tar -C ROOT -c ."
            }
            Self::AclName(_) => "build it with tar --xattrs --xattrs-include='*', which stores numbers",
            Self::LargeMap => "build the archive with tar --format=gnu -S, or --format=pax -S --sparse-version=0.1",
            Self::Attributes(_) => "take attributes away that nothing needs, and build the archive again",
            Self::Joined => "build one archive, or join them with tar --concatenate",
            Self::Occupied => {
                "unpack to an empty directory, or give the entry another name; an archive that has one name first as a file and \
                    later as a directory can be unpacked once only"
            }
            Self::OwnLink => "take one of the two out of the archive, or put what the link leads to before them",
            Self::Way => {
                "take it out of the archive, or give it the target that the system's link has; or unpack to another directory"
            }
            Self::Hidden(_) => {
                "unpack to another directory, leave it out of the archive, or use an image that does not mount something there"
            }
            Self::Large(_) | Self::Many(_) | Self::Memory(_) => "divide the archive into several",
            Self::Type(_) | Self::Unsupported(_) => "build the archive with tar --format=pax, from one volume",
            _ => "build the archive again with GNU tar or bsdtar, and publish it with its new digest",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_by_itself_is_tried_again() {
        let io = |errno: Errno| UnpackError::Io { action: "write".into(), entry: "x".into(), source: errno.into() };
        for errno in [Errno::NOSPC, Errno::ROFS, Errno::DQUOT, Errno::NOTDIR, Errno::LOOP, Errno::IO, Errno::OPNOTSUPP]
        {
            assert!(!io(errno).retryable(), "{errno}");
        }
        assert!(io(Errno::NOMEM).retryable() && io(Errno::BUSY).retryable());
        assert!(!UnpackError::Truncated { within: "x".into() }.retryable());
    }

    #[test]
    fn problems_name_the_entry_and_what_to_do() {
        let refused = UnpackError::Refused { entry: "../x".into(), fault: Fault::Upwards }.problem();
        assert_eq!(refused.code, ErrorCode::BadFormat);
        assert!(refused.message.contains("../x") && refused.hint.contains("tar -C"));
        let source = io::Error::from(io::ErrorKind::StorageFull);
        let full = UnpackError::Io { action: "write".into(), entry: "usr/x".into(), source }.problem();
        assert_eq!((full.code, full.causes.len()), (ErrorCode::DeviceIo, 1));
        assert!(full.hint.contains("larger"));
    }
}
