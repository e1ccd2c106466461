//! Finds out whether a disk has content, before a disk without a receipt is written.

use std::io;

use crate::{ReadAt, Table, TableError, gpt, receipt, signature};

/// How much of the start must be zeroes for a disk to be blank.
const LOOK: usize = 1 << 20;

/// What is on the disk, in a few words; `None`: it is blank. Any byte other than zero in the first MiB counts as
/// content, and so does a backup partition table or a signature elsewhere.
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
    if let Some(known) = signature::find(disk, &(0..size))?.first() {
        return Ok(Some(known.name.to_owned()));
    }
    if gpt::has_signature(&head) {
        return Ok(Some("a boot sector".into()));
    }
    let place = receipt::PLACE.start as usize..receipt::PLACE.end as usize;
    if head.get(place).is_some_and(|there| !receipt::is_ours(there)) || head.iter().take(LOOK - 4096).any(|b| *b != 0) {
        return Ok(Some("unknown data in the first MiB".into()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::tests::all_places;

    #[test]
    fn zeroes_are_blank_and_every_signature_is_not() {
        let mut disk = vec![0; 4 << 20];
        assert_eq!(what_is_there(&disk).unwrap(), None);
        for (what, at, bytes) in all_places(4 << 20).into_iter().filter(|(what, ..)| !what.contains("GPT")) {
            let at = at as usize;
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
