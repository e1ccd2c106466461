//! What a disk takes beside reads and writes: the seam below which tests put a scripted disk.

pub(crate) mod ata;
pub(crate) mod kernel;
#[cfg(test)]
pub(crate) mod scripted;
pub(crate) mod sense;

use std::{fmt, io, ops::Range, time::Duration};

/// An admin command of NVMe; fields as the specification numbers them. Unnamed double words are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NvmeAdmin {
    /// The operation.
    pub(crate) opcode: u8,
    /// The namespace; `u32::MAX`: all of them.
    pub(crate) namespace: u32,
    /// Command double words 10 and 11.
    pub(crate) dwords: [u32; 2],
}

/// Which way a SCSI command's data goes.
#[derive(Debug)]
pub(crate) enum Transfer<'a> {
    /// There is none.
    None,
    /// From the disk.
    In(&'a mut [u8]),
    /// To the disk.
    Out(&'a [u8]),
}

/// How a SCSI command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ScsiEnd {
    /// The status byte; 0 is GOOD, 2 is CHECK CONDITION.
    pub(crate) status: u8,
    /// Sense data, as far as there is any.
    pub(crate) sense: Vec<u8>,
}

/// The commands of one disk. They block until the disk has answered, or until the kernel gives it up after the limit.
pub(crate) trait Commands {
    /// Sends an admin command; the status code if the controller refuses it (0: done).
    ///
    /// # Errors
    /// The kernel's: the disk is no NVMe disk, or does not answer.
    fn nvme(&self, command: NvmeAdmin, data: &mut [u8], limit: Duration) -> io::Result<u16>;
    /// Sends a SCSI command.
    ///
    /// # Errors
    /// The kernel's, or the adapter's: the command did not reach the disk.
    fn scsi(&self, command: &[u8], data: Transfer<'_>, limit: Duration) -> io::Result<ScsiEnd>;
    /// Tells the disk that a range is not needed any more.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` if the disk has no such command.
    fn discard(&self, range: Range<u64>) -> io::Result<()>;
    /// Which number its namespace has, on NVMe.
    ///
    /// # Errors
    /// The kernel's.
    fn namespace(&self) -> io::Result<u32>;
}

/// Why a disk did not carry out a command.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It answered with a failure; in words.
    Answer(String),
    /// The command did not reach it.
    Io(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(words) => f.write_str(words),
            Self::Io(error) => write!(f, "the command did not reach the disk: {error}"),
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
