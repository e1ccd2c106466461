//! Is there anything on a disk? Asked before a disk without a receipt is written.

use std::io;

use crate::{ReadAt, Table, TableError, gpt, receipt};

/// How much of the start is looked at: every signature worth the name is in it.
const LOOK: usize = 1 << 20;

/// Signatures by their place at the disk's start, bytes. From the formats' own definitions, as libblkid has them.
const SIGNATURES: [(&str, usize, &[u8]); 17] = [
    ("an ext file system", 0x438, &[0x53, 0xef]),
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("an LVM volume", 0, b"LABELONE"),
    ("an LVM volume", 512, b"LABELONE"),
    ("an LVM volume", 1024, b"LABELONE"),
    ("an LVM volume", 1536, b"LABELONE"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("swap space", 4086, b"SWAP-SPACE"),
    ("an md RAID member", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("an md RAID member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a bcache device", 0x1018, &[0xc6, 0x85, 0x73, 0xf6]),
    ("a BlueStore device", 0, b"bluestore block device"),
];

/// What is on the disk, in a few words; `None`: it is blank. Anything but zeroes in the first MiB counts, known or not, and
/// so does a backup partition table or an md superblock at the end.
///
/// # Errors
/// The device's.
pub fn what_is_there(disk: &(impl ReadAt + ?Sized)) -> io::Result<Option<String>> {
    let size = disk.size();
    let mut head = vec![0; usize::try_from(size).map_or(LOOK, |size| size.min(LOOK))];
    disk.read_at(0, &mut head)?;
    for sector in [512, 4096] {
        let last = (size / u64::from(sector)).saturating_sub(1);
        for (lba, which) in [(1, "a GPT"), (last, "a backup GPT")] {
            match Table::read(disk, lba, sector) {
                Ok(table) => return Ok(Some(format!("{which} with {} partitions", table.used().count()))),
                Err(TableError::Damaged(_)) => return Ok(Some(format!("{which}, damaged"))),
                Err(TableError::Absent) => {}
                Err(TableError::Io(error)) => return Err(error),
            }
        }
    }
    let known = SIGNATURES.iter().find(|(_, at, bytes)| head.get(*at..).is_some_and(|rest| rest.starts_with(bytes)));
    if let Some((what, _, _)) = known {
        return Ok(Some((*what).to_owned()));
    }
    if gpt::has_signature(&head) {
        return Ok(Some("a boot sector".into()));
    }
    // md 0.90 keeps its superblock in the last whole 64 KiB but one boundary, 1.0 in the last 8 KiB.
    for at in [(size & !0xffff).checked_sub(0x1_0000), (size & !0xfff).checked_sub(0x2000)].into_iter().flatten() {
        let mut magic = [0; 4];
        disk.read_at(at, &mut magic)?;
        if magic == [0xfc, 0x4e, 0x2b, 0xa9] {
            return Ok(Some("an md RAID member".into()));
        }
    }
    let place = receipt::PLACE.start as usize..receipt::PLACE.end as usize;
    if head.get(place).is_some_and(|there| !receipt::is_ours(there)) || head.iter().take(LOOK - 4096).any(|b| *b != 0) {
        return Ok(Some("data of an unknown kind in the first MiB".into()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_blank_and_every_signature_is_not() {
        let mut disk = vec![0; 4 << 20];
        assert_eq!(what_is_there(&disk).unwrap(), None);
        for (what, at, bytes) in SIGNATURES {
            disk[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(what_is_there(&disk).unwrap().as_deref(), Some(what));
            disk[at..at + bytes.len()].fill(0);
        }
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(what_is_there(&disk).unwrap().as_deref(), Some("a boot sector"));
        disk[510..512].fill(0);
        disk[77_777] = 1;
        assert!(what_is_there(&disk).unwrap().unwrap().contains("unknown"));
        disk[77_777] = 0;
        let end = disk.len() - 512;
        disk[end..end + 8].copy_from_slice(b"EFI PART");
        assert_eq!(what_is_there(&disk).unwrap().as_deref(), Some("a backup GPT, damaged"));
    }
}
