//! The receipt's own entry in the new table, so that no other partition can use its place.

use landfall_api::{RECEIPT_NAME, RECEIPT_PARTITION};
use uuid::Uuid;

use super::{Entry, Table};
use crate::receipt;

/// Partition type of the receipt's entry, in the disk's byte order.
pub const RECEIPT_TYPE: [u8; 16] = RECEIPT_PARTITION.to_bytes_le();

/// An image made from an installed disk has an entry of ours already; it is made anew.
pub(super) fn drop_receipts(table: &mut Table) {
    let size = table.header.entry_size as usize;
    for entry in table.entries.chunks_exact_mut(size).filter(|e| e[..16] == RECEIPT_TYPE) {
        entry.fill(0);
    }
}

/// Adds the receipt's entry in the highest free slot.
pub(super) fn add_receipt(table: &mut Table, head: &[u8], sector: u32, entries_end: u64) -> Result<(), String> {
    let place = receipt::PLACE;
    let (first, last) = (place.start / u64::from(sector), place.end / u64::from(sector) - 1);
    if first < entries_end {
        return Err("the image's table itself covers the receipt's place".into());
    }
    let overlaps = |e: &Entry| e.first <= last && e.last >= first;
    if let Some(entry) = table.used().find(overlaps) {
        return Err(format!(
            "the image's partition {} covers the receipt's place, the 4 KiB below 1 MiB",
            entry.index + 1
        ));
    }
    let there = head.get(place.start as usize..(place.end as usize).min(head.len())).unwrap_or_default();
    // A receipt in the image is a copy from the installed disk that the image was made from.
    if there.iter().any(|b| *b != 0) && !receipt::is_ours(there) {
        return Err("the image has data outside its partitions in the receipt's place, the 4 KiB below 1 MiB".into());
    }
    let size = table.header.entry_size as usize;
    let slot = table.entries.chunks_exact_mut(size).rev().find(|e| e[..16] == [0; 16]);
    let entry = slot.ok_or("the image's table has no free entry for the receipt")?;
    entry.fill(0);
    entry[..16].copy_from_slice(&RECEIPT_TYPE);
    entry[16..32].copy_from_slice(&Uuid::new_v4().to_bytes_le());
    entry[32..40].copy_from_slice(&first.to_le_bytes());
    entry[40..48].copy_from_slice(&last.to_le_bytes());
    for (at, unit) in entry[56..128].chunks_exact_mut(2).zip(RECEIPT_NAME.encode_utf16()) {
        at.copy_from_slice(&unit.to_le_bytes());
    }
    // Some tools start the usable range at 1 MiB; the entry must lie inside it.
    table.header.first_usable = table.header.first_usable.min(first);
    Ok(())
}
