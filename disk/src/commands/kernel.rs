//! A disk's own commands through the kernel.

use std::{fs, io, ops::Range, path::Path, time::Duration};

use landfall_api::DiskFacts;
use nix::fcntl::{FallocateFlags, fallocate};

use super::{Commands, NvmeAdmin, ScsiEnd, Transfer};
use crate::{RealDevice, sys};

impl Commands for RealDevice {
    fn nvme(&self, command: NvmeAdmin, data: &mut [u8], limit: Duration) -> io::Result<u16> {
        let NvmeAdmin { opcode, namespace, dwords } = command;
        sys::nvme_admin(self.file(), opcode, namespace, dwords, data, limit)
    }

    fn scsi(&self, command: &[u8], data: Transfer<'_>, limit: Duration) -> io::Result<ScsiEnd> {
        let (status, sense) = match data {
            Transfer::None => sys::scsi(self.file(), command, sys::ScsiData::None, limit),
            Transfer::In(into) => sys::scsi(self.file(), command, sys::ScsiData::In(into), limit),
            Transfer::Out(from) => sys::scsi(self.file(), command, sys::ScsiData::Out(from), limit),
        }?;
        Ok(ScsiEnd { status, sense })
    }

    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        let length = range.end - range.start;
        if self.is_block()? {
            return sys::discard(self.file(), range.start, length);
        }
        let signed = |n: u64| i64::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        Ok(fallocate(self.file(), hole, signed(range.start)?, signed(length)?)?)
    }

    fn namespace(&self) -> io::Result<u32> {
        sys::nvme_namespace(self.file())
    }
}

/// Whether the kernel passes discards on to the disk. (A regular file takes them.)
pub(crate) fn takes_discards(disk: &DiskFacts) -> bool {
    if disk.id.name.starts_with('/') {
        return true;
    }
    let attribute = Path::new("/sys/block").join(&disk.id.name).join("queue/discard_max_bytes");
    fs::read_to_string(attribute).is_ok_and(|text| text.trim() != "0")
}
