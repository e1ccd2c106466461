//! The destructive start: intent, then LBA 0, then everything a firmware or kernel could still take for a system.

use std::io;

use landfall_api::{DiskReceipt, ReceiptState};

use super::{Order, device_io};
use crate::{
    BlockDevice, LogLevel, Observer, Table, TableError, WriteError, blank,
    gpt::{self, Layout},
    receipt::{self, MarkError},
};

/// Cleared at both ends: tables and signatures of every kind live here.
const ZONE: u64 = 1 << 20;

pub(super) fn invalidate(
    device: &dyn BlockDevice,
    layout: &Layout,
    order: &Order<'_>,
    observer: &dyn Observer,
) -> Result<(), WriteError> {
    let io = |action: &str| device_io(order.device, action.to_owned());
    let sector = u64::from(layout.sector);
    let early = place_is_free(device, layout.sector).map_err(io("read the partition table of"))?;
    if early {
        write_intent(device, order, observer)?;
    }
    // Nothing boots from here on: no BIOS without the signature, no UEFI that wants LBA 0 in place.
    (order.may_act)()?;
    device.zero_range(0, sector).map_err(io("clear LBA 0 of"))?;
    device.flush().map_err(io("flush"))?;
    // Nor any that would go by a table alone: both headers, before anything that either of them leads to.
    (order.may_act)()?;
    let last = layout.disk_size / sector * sector - sector;
    for (at, which) in [(sector, "clear the partition table of"), (last, "clear the backup partition table of")] {
        device.zero_range(at, sector).map_err(io(which))?;
    }
    device.flush().map_err(io("flush"))?;
    // The rest of the tables, and signatures that a kernel or an installer could still take for something.
    (order.may_act)()?;
    let place = receipt::PLACE;
    device.zero_range(sector, place.start - sector).map_err(io("clear the first MiB of"))?;
    let end = layout.disk_size.saturating_sub(ZONE).max(ZONE) / sector * sector;
    let tail = layout.disk_size / sector * sector - end;
    device.zero_range(end, tail).map_err(io("clear the last MiB of"))?;
    device.flush().map_err(io("flush"))?;
    if !early {
        // The place was inside an old partition. To write there while a table still led to it could have left a disk that
        // boots and is neither old nor new.
        write_intent(device, order, observer)?;
    }
    Ok(())
}

fn write_intent(device: &dyn BlockDevice, order: &Order<'_>, observer: &dyn Observer) -> Result<(), WriteError> {
    (order.may_act)()?;
    let mark = stamped(&order.mark, ReceiptState::Intent);
    receipt::write_mark(device, &mark).map_err(|error| mark_error(order, error))?;
    device.flush().map_err(device_io(order.device, "flush"))?;
    observer.receipt_written(&mark);
    observer.log(LogLevel::Info, &format!("intent is on {}; the old content goes now", order.device));
    Ok(())
}

/// The mark with this state, as of now.
pub(super) fn stamped(mark: &DiskReceipt, state: ReceiptState) -> DiskReceipt {
    let mut mark = mark.clone();
    mark.receipt.state = state;
    mark.receipt.written_at = jiff::Timestamp::now();
    mark
}

pub(super) fn mark_error(order: &Order<'_>, error: MarkError) -> WriteError {
    match error {
        MarkError::Io(source) => device_io(order.device, "write the receipt to")(source),
        other => WriteError::Internal(other.to_string()),
    }
}

/// Whether the receipt's place belongs to nobody, so that intent can be written while the old system is still whole.
fn place_is_free(device: &dyn BlockDevice, sector: u32) -> io::Result<bool> {
    let place = receipt::PLACE;
    let mut there = vec![0; (place.end - place.start) as usize];
    device.read_at(place.start, &mut there)?;
    if !receipt::is_ours(&there) {
        return Ok(false);
    }
    let mut first = vec![0; sector as usize];
    device.read_at(0, &mut first)?;
    let legacy = if gpt::has_signature(&first) { gpt::legacy_partitions(&first) } else { Vec::new() };
    let sectors = place.start / u64::from(sector)..place.end / u64::from(sector);
    let legacy_overlaps = legacy.iter().any(|p| {
        let (start, end) = (u64::from(p.start), u64::from(p.start) + u64::from(p.count));
        p.kind != 0xee && start < sectors.end && end > sectors.start
    });
    let mut tables = 0;
    for lba in [1, device.size() / u64::from(sector) - 1] {
        match Table::read(device, lba, sector) {
            Ok(table) => {
                tables += 1;
                let mut others = table.used().filter(|e| e.kind != gpt::RECEIPT_TYPE);
                if others.any(|e| e.first < sectors.end && e.last >= sectors.start) {
                    return Ok(false);
                }
            }
            Err(TableError::Io(error)) => return Err(error),
            Err(TableError::Absent | TableError::Damaged(_)) => {}
        }
    }
    // Without any table, whatever is there may be a file system over the whole disk, this place included.
    let tabled = tables > 0 || !legacy.is_empty();
    Ok(!legacy_overlaps && (tabled || blank::what_is_there(device)?.is_none()))
}
