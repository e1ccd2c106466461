//! The destructive start: intent, then LBA 0, then everything a firmware or kernel could still take for a system.

use std::{io, ops::Range};

use landfall_api::{DiskReceipt, ReceiptState};

use super::{Order, device_io, unreadable};
use crate::forgiving::Forgiving;
use crate::gpt::{Layout, Old, Retirement};
use crate::receipt::MarkError;
use crate::{BlockDevice, LogLevel, Observer, WriteError, blank, exact, receipt, signature};

/// What must stay while the rest is cleared, and for how long.
struct Spared {
    /// To the end: what is kept, and the receipt's place.
    always: Vec<Range<u64>>,
    /// Until the commit: the retired header and the entries it leads to, as long as something is kept; empty otherwise.
    until_commit: Vec<Range<u64>>,
    /// Until the old partitions are cleared: by these a restart finds them.
    until_cleared: Vec<Range<u64>>,
}

/// Destroys what is there, top-down, so that at every instant the disk is old or unbootable, and that an install started
/// again after a power cut still finds the old partitions:
///
/// 1. LBA 0, which every BIOS needs and every known UEFI wants. (A table of the old kind keeps its entries until step 4.)
/// 2. Both GPT headers: the primary retired, flushed, then the backup zeroed.
/// 3. Signatures inside every old partition.
/// 4. Signatures of the disk itself and all that is left of the tables; with `keep`, not the retired one.
///
/// Each is flushed before the next begins. `raw`: how long the image is, if known.
pub(super) fn invalidate(
    device: &Forgiving<'_>, layout: &Layout, old: &Old, order: &Order<'_>, raw: Option<u64>, observer: &dyn Observer,
) -> Result<(), WriteError> {
    let io = |action: &str| device_io(order.device, action.to_owned());
    let flush = |what: &str| device.flush().map_err(io(&format!("flush {what}")));
    let sector = u64::from(layout.sector);
    if !order.keep.is_empty() {
        observer.log(LogLevel::Info, &format!("{} keeps {}", order.device, order.keep.join(", ")));
    }
    let early = place_is_free(device, old).map_err(unreadable(order.device, "look at the first MiB of"))?;
    if early {
        write_intent(device, layout, order, observer)?;
    }
    // What cannot be read boots nothing; and a sector is taken only with all others of its physical one.
    let lost = device.lost();
    if !lost.is_empty() {
        let bytes: u64 = lost.iter().map(|range| range.end - range.start).sum();
        let line = format!("{bytes} bytes of {} cannot be read and are written over", order.device);
        observer.log(LogLevel::Warn, &line);
        (order.may_act)()?;
        // The intent may be there by now.
        let spared = [layout.kept.ranges(layout.sector), vec![receipt::PLACE]].concat();
        device.mend(order.device, &spared)?;
        flush("the repair of unreadable sectors of")?;
    }
    // From here on the disk does not boot: no BIOS without the signature, no UEFI that wants LBA 0 in place.
    (order.may_act)()?;
    if old.legacy.retired.is_empty() {
        exact::zero(device, 0..sector)
    } else {
        exact::write(device, 0, &old.legacy.retired)
    }
    .map_err(io("clear LBA 0 of"))?;
    flush("the clearing of LBA 0 of")?;
    // Nor any that would go by a table alone: both headers, before anything that either of them leads to.
    (order.may_act)()?;
    let retired = retire(device, old, layout.disk_size, order)?;
    if !early {
        // The place was inside an old partition. To write there while a table still led to it could have left a disk that
        // boots and is neither old nor new.
        write_intent(device, layout, order, observer)?;
    }
    let spared = spared(layout, old, retired.as_ref());
    (order.may_act)()?;
    let mut now: Vec<_> = [&spared.always[..], &spared.until_commit, &spared.until_cleared].concat();
    if order.compare {
        // Most of it may be the image already, and there is no commit before every byte of this range is the image's.
        now.push(0..raw.unwrap_or(layout.least_raw).min(layout.disk_size) / sector * sector);
    }
    for partition in old.partitions() {
        (order.may_act)()?;
        let action = format!("clear the old partition at {} of", partition.start);
        signature::clear(device, &partition, &now).map_err(io(&action))?;
    }
    flush("the clearing of the old partitions of")?;
    // From here on the old tables are needed only for kept partitions.
    (order.may_act)()?;
    let now = [&spared.always[..], &spared.until_commit].concat();
    let whole = 0..layout.disk_size / sector * sector;
    signature::clear(device, &whole, &now).map_err(io("clear both ends of"))?;
    for rest in spared.until_cleared {
        signature::zero_except(device, rest, &now).map_err(io("clear the old tables of"))?;
    }
    if let Some(stray) = old.stray_backup().filter(|stray| holds_table(device, stray)) {
        signature::zero_except(device, stray, &now).map_err(io("clear the old backup table of"))?;
    }
    // A signature may stand in what could not be read, and be there again tomorrow.
    device.mend(order.device, &now)?;
    for lost in device.lost() {
        signature::zero_except(device, lost, &now).map_err(io("write over the unreadable sectors of"))?;
    }
    flush("the clearing of both ends of")
}

/// Both headers. The retired one and its entries are on stable storage before the backup goes, so that one of the two is
/// always there. `size`: the disk's when its tables were read, bytes; one that shrinks meanwhile fails.
pub(super) fn retire(
    device: &dyn BlockDevice, old: &Old, size: u64, order: &Order<'_>,
) -> Result<Option<Retirement>, WriteError> {
    let io = |action: &str| device_io(order.device, action.to_owned());
    let flush = |what: &str| device.flush().map_err(io(&format!("flush {what}")));
    let sector = u64::from(device.logical_sector());
    let retirement = old.retirement();
    if let Some(Retirement { array, entries, header }) = &retirement {
        if let Some(entries) = entries {
            // Nothing leads to these sectors yet. If the header is stored and they are not, the backup still counts.
            exact::write(device, array.start, entries).map_err(io("move the old partition table of"))?;
        }
        exact::write(device, sector, header).map_err(io("clear the partition table of"))?;
        flush("the clearing of the partition table of")?;
    } else {
        exact::zero(device, sector..2 * sector).map_err(io("clear the partition table of"))?;
    }
    let last = size / sector * sector - sector;
    exact::zero(device, last..last + sector).map_err(io("clear the backup partition table of"))?;
    flush("the clearing of the backup partition table of")?;
    Ok(retirement)
}

fn spared(layout: &Layout, old: &Old, retired: Option<&Retirement>) -> Spared {
    let sector = u64::from(layout.sector);
    let mut always = layout.kept.ranges(layout.sector);
    always.push(receipt::PLACE);
    let found_by: Vec<_> = retired.into_iter().flat_map(|r| [sector..2 * sector, r.array.clone()]).collect();
    let mut until_cleared = old.legacy.records.clone();
    until_cleared.push(0..2 * sector);
    let until_commit = if layout.kept.partitions.is_empty() {
        until_cleared.extend(found_by);
        Vec::new()
    } else {
        found_by
    };
    Spared { always, until_commit, until_cleared }
}

/// Whether there is a header of a table. One that cannot be read is none.
fn holds_table(device: &dyn BlockDevice, sector: &Range<u64>) -> bool {
    let mut magic = [0; 8];
    device.read_at(sector.start, &mut magic).is_ok() && magic == *b"EFI PART"
}

fn write_intent(
    device: &dyn BlockDevice, layout: &Layout, order: &Order<'_>, observer: &dyn Observer,
) -> Result<(), WriteError> {
    (order.may_act)()?;
    let mark = stamped(&order.mark, ReceiptState::Intent);
    receipt::write_mark(device, &mark, layout.kept.guids()).map_err(|error| mark_error(order, error))?;
    let flushed = device.flush();
    // Reported even if the flush failed: the receipt is probably on the disk, and the next attempt must expect it.
    observer.receipt_written(&mark);
    flushed.map_err(device_io(order.device, "flush the receipt to"))?;
    observer.log(
        LogLevel::Info,
        &format!("the receipt with state intent is on {}; now the old content is destroyed", order.device),
    );
    Ok(())
}

/// The receipt with this state, as of now.
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

/// Whether no partition covers the receipt's place, so that intent can be written while the old system is still intact.
fn place_is_free(device: &dyn BlockDevice, old: &Old) -> io::Result<bool> {
    let place = receipt::PLACE;
    let mut there = vec![0; (place.end - place.start) as usize];
    device.read_at(place.start, &mut there)?;
    let partitions = old.partitions();
    let overlaps = |r: &Range<u64>| r.start < place.end && r.end > place.start;
    if !receipt::is_ours(&there) || partitions.iter().chain(&old.array()).any(overlaps) {
        return Ok(false);
    }
    // Without any table, whatever is there may be a file system over the whole disk, this place included; unless an
    // unfinished install left its receipt there.
    let tabled = old.table.is_some() || !partitions.is_empty() || receipt::read_mark(device)?.is_some();
    Ok(tabled || blank::what_is_there(device)?.is_none())
}
