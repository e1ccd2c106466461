//! What the entries of L1 and L2 tables mean. Reserved bits are passed over, as QEMU does.

use super::header::Header;

/// Bits 9 to 55 of an entry: a host offset.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// The cluster reads as zeroes, whatever its offset.
const ZERO: u64 = 1;
const COMPRESSED: u64 = 1 << 62;
/// Unit of a compressed cluster's length, bytes.
pub(super) const SECTOR: u64 = 512;

/// Where a guest cluster's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mapping {
    /// Not allocated.
    Zero,
    /// As it is, at this host offset.
    Data(u64),
    /// Compressed: from this host offset to the end of so many sectors; the first sector is the one that contains the
    /// offset.
    Compressed { host: u64, sectors: u32 },
}

/// Host offset of an L2 table; `None` where nothing is allocated.
pub(super) fn l2_table(entry: u64, header: &Header) -> Result<Option<u64>, String> {
    match entry & OFFSET {
        0 => Ok(None),
        offset if offset.is_multiple_of(header.cluster()) => Ok(Some(offset)),
        offset => Err(format!("its L1 table points at {offset}, which is not the start of a cluster")),
    }
}

/// Meaning of an entry of an L2 table.
pub(super) fn mapping(entry: u64, header: &Header) -> Result<Mapping, String> {
    if entry & COMPRESSED != 0 {
        let length_bits = header.cluster_bits - 8;
        let offset_bits = 62 - length_bits;
        let host = entry & ((1 << offset_bits) - 1);
        let sectors = ((entry >> offset_bits) & ((1 << length_bits) - 1)) as u32 + 1;
        if host >> 56 != 0 {
            return Err(format!("an L2 table points at {host}, beyond what qcow2 can address"));
        }
        return Ok(Mapping::Compressed { host, sectors });
    }
    if entry & ZERO != 0 {
        return if header.version == 2 {
            Err("an L2 table has a zero cluster, which version 2 does not support".into())
        } else {
            Ok(Mapping::Zero)
        };
    }
    match entry & OFFSET {
        0 => Ok(Mapping::Zero),
        host if host.is_multiple_of(header.cluster()) => Ok(Mapping::Data(host)),
        host => Err(format!("an L2 table points at {host}, which is not the start of a cluster")),
    }
}
