//! The commit: backup table, flush; header and entries, flush; LBA 0 alone, flush. Each step takes by value what the
//! one before it gave, and the first takes a [`Verified`]: so code with a wrong order or an early start does not
//! compile.

use std::time::Duration;

use landfall_api::{DiskReceipt, ReceiptState};

use super::evidence::Evidence;
use super::invalidate::{mark_error, stamped};
use super::{Order, device_io};
use crate::gpt::{Captured, Layout, Piece};
use crate::{BlockDevice, Expectation, LogLevel, Observer, WriteError, exact, receipt};

/// Proof that the whole image was fetched, that its length and digest are the ones stated, that its decoder finished, and
/// that its body is on stable storage. Only a finished pipeline makes one; there is no other way to a commit:
///
/// ```
/// use landfall_disk::{BlockDevice, Verified, WriteError, place_backup, place_lba0, place_table};
///
/// fn commit(device: &dyn BlockDevice, verified: Verified) -> Result<(), WriteError> {
///     let backup = place_backup(device, "disk", verified)?;
///     let table = place_table(device, "disk", backup, || Ok(()))?;
///     place_lba0(device, "disk", table).map(drop)
/// }
/// ```
///
/// None is made by hand:
///
/// ```compile_fail,E0624
/// let _ = landfall_disk::Verified::new;
/// ```
/// ```compile_fail,E0599
/// let _ = landfall_disk::Verified::default();
/// ```
/// ```compile_fail
/// let _ = landfall_disk::Verified {};
/// ```
///
/// Each serves one commit:
///
/// ```compile_fail,E0382
/// # use landfall_disk::{BlockDevice, Verified, place_backup};
/// fn commit_twice(device: &dyn BlockDevice, verified: Verified) {
///     let _ = place_backup(device, "disk", verified);
///     let _ = place_backup(device, "disk", verified);
/// }
/// ```
///
/// And no step is left out:
///
/// ```compile_fail,E0308
/// # use landfall_disk::{BlockDevice, Verified, place_table};
/// fn without_backup(device: &dyn BlockDevice, verified: Verified) {
///     let _ = place_table(device, "disk", verified, || Ok(()));
/// }
/// ```
/// ```compile_fail,E0308
/// # use landfall_disk::{BlockDevice, Verified, place_lba0};
/// fn without_table(device: &dyn BlockDevice, verified: Verified) {
///     let _ = place_lba0(device, "disk", verified);
/// }
/// ```
#[derive(Debug)]
pub struct Verified {
    layout: Layout,
    captured: Captured,
}

/// Proof that the backup table is on stable storage.
#[derive(Debug)]
pub struct BackupPlaced(Verified);

/// Proof that header, entries and receipt are on stable storage.
#[derive(Debug)]
pub struct TablePlaced(Verified);

/// Proof that LBA 0 is on stable storage: the disk boots, and holds the verified image.
#[derive(Debug)]
pub struct Committed {
    layout: Layout,
}

impl Verified {
    pub(super) fn new(
        evidence: Evidence, expectation: Expectation<'_>, layout: Layout, captured: Captured, image: &str,
    ) -> Result<Self, WriteError> {
        evidence.check(expectation, layout.least_raw, image)?;
        Ok(Self { layout, captured })
    }
}

pub(super) fn put<'p>(
    device: &dyn BlockDevice, name: &str, what: &str, pieces: impl IntoIterator<Item = &'p Piece>,
) -> Result<(), WriteError> {
    for piece in pieces {
        exact::write(device, piece.offset, &piece.bytes).map_err(device_io(name, format!("write {what} to")))?;
    }
    Ok(())
}

/// First step: what the image has in its first MiB beside the tables, and of an image without GPT its last sectors; then
/// the backup table at the disk's true end. Each flushed.
///
/// # Errors
/// [`WriteError::DeviceIo`]; the disk stays unbootable.
pub fn place_backup(device: &dyn BlockDevice, name: &str, verified: Verified) -> Result<BackupPlaced, WriteError> {
    if verified.layout.receipt_room.is_err() {
        // Here the intent gives way to what the image has in its place, before any table leads to it.
        let place = receipt::PLACE;
        // All of it, since the image may end within: what is left of a receipt would speak for a system that is gone.
        exact::zero(device, place).map_err(device_io(name, "clear the receipt on"))?;
    }
    put(device, name, "the image's first and last bytes", &verified.captured.0)?;
    device.flush().map_err(device_io(name, "flush the image's first and last bytes to"))?;
    put(device, name, "the backup partition table", &verified.layout.backup)?;
    device.flush().map_err(device_io(name, "flush the backup partition table to"))?;
    Ok(BackupPlaced(verified))
}

/// Second step: header and entries, and with them the receipt in state `Done`, which does not count before LBA 0 is in
/// place; flushed.
///
/// # Errors
/// [`WriteError::DeviceIo`]; the disk stays unbootable for any firmware that wants LBA 0 in place.
pub fn place_table(
    device: &dyn BlockDevice, name: &str, backup: BackupPlaced, write_receipt: impl FnOnce() -> Result<(), WriteError>,
) -> Result<TablePlaced, WriteError> {
    let BackupPlaced(verified) = backup;
    put(device, name, "the partition table", &verified.layout.table)?;
    write_receipt()?;
    device.flush().map_err(device_io(name, "flush the partition table and the receipt to"))?;
    Ok(TablePlaced(verified))
}

/// Last step: LBA 0 alone, flushed. One sector, so it is there or it is not.
///
/// # Errors
/// [`WriteError::DeviceIo`]; the disk is unbootable or verified-new.
pub fn place_lba0(device: &dyn BlockDevice, name: &str, table: TablePlaced) -> Result<Committed, WriteError> {
    let TablePlaced(Verified { layout, .. }) = table;
    exact::write(device, 0, &layout.lba0).map_err(device_io(name, "write LBA 0 to"))?;
    device.flush().map_err(device_io(name, "flush LBA 0 to"))?;
    Ok(Committed { layout })
}

/// Checks what a step wrote, if everything is to be read back: no disk may boot from a table that was not stored.
pub(super) fn there(device: &dyn BlockDevice, order: &Order<'_>, pieces: &[Piece]) -> Result<(), WriteError> {
    for Piece { offset, bytes } in pieces.iter().filter(|_| order.read_back) {
        let (offset, length) = (*offset, bytes.len() as u64);
        let mut found = vec![0; bytes.len()];
        let action = || format!("read back {length} bytes at {offset} of");
        device.read_at(offset, &mut found).map_err(|error| device_io(order.device, action())(error))?;
        if found != *bytes {
            return Err(WriteError::ReadBack { device: order.device.into(), offset, length });
        }
    }
    Ok(())
}

/// Checks LBA 0 and the receipt, if everything is to be read back. If they are not as they were written, the disk is made not to
/// start again: the next attempt would find the system installed.
pub(super) fn last_read_back(
    device: &dyn BlockDevice, order: &Order<'_>, layout: &Layout, done: Option<&DiskReceipt>,
) -> Result<(), WriteError> {
    let same = same_last(device, order, layout, done);
    if same.is_err() {
        // A failing device may also refuse this write.
        let _ = exact::zero(device, 0..u64::from(layout.sector)).and_then(|()| device.flush());
    }
    same
}

fn same_last(
    device: &dyn BlockDevice, order: &Order<'_>, layout: &Layout, done: Option<&DiskReceipt>,
) -> Result<(), WriteError> {
    there(device, order, &[Piece { offset: 0, bytes: layout.lba0.clone() }])?;
    let Some(done) = done.filter(|_| order.read_back) else { return Ok(()) };
    let found = receipt::read_mark(device).map_err(device_io(order.device, "read back the receipt of"))?;
    if found.as_ref() == Some(done) {
        return Ok(());
    }
    let (offset, length) = (receipt::PLACE.start, receipt::PLACE.end - receipt::PLACE.start);
    Err(WriteError::ReadBack { device: order.device.into(), offset, length })
}

/// Between two looks whether the write may still go on.
const KNOWN_LIMIT: Duration = Duration::from_millis(500);

/// The three steps in a row; the receipt now on the disk, or why there is none.
pub(super) fn commit(
    device: &dyn BlockDevice, verified: Verified, order: &Order<'_>, observer: &dyn Observer,
) -> Result<(Option<DiskReceipt>, Option<String>), WriteError> {
    let done = stamped(&order.mark, ReceiptState::Done);
    let room = verified.layout.receipt_room.is_ok();
    let kept = verified.layout.kept.guids();
    if !room {
        observer
            .log(LogLevel::Info, "the disk will carry no receipt: waiting until the beginning of the write is known");
        while !observer.is_known(KNOWN_LIMIT) {
            (order.may_act)()?;
        }
        (order.may_act)()?;
    }
    let backup = place_backup(device, order.device, verified)?;
    there(device, order, &backup.0.layout.backup)?;
    there(device, order, &backup.0.captured.0)?;
    (order.may_act)()?;
    let table = place_table(device, order.device, backup, || {
        if !room {
            return Ok(());
        }
        receipt::write_mark(device, &done, kept).map_err(|error| mark_error(order, error))
    })?;
    there(device, order, &table.0.layout.table)?;
    (order.may_act)()?;
    let Committed { layout } = place_lba0(device, order.device, table)?;
    last_read_back(device, order, &layout, room.then_some(&done))?;
    observer.log(LogLevel::Info, &format!("{} is committed", order.device));
    if let Err(error) = device.reread_table() {
        // The content is right whatever the kernel thinks; loop devices without partitions say EINVAL.
        observer.log(LogLevel::Warn, &format!("the kernel did not read the new table of {}: {error}", order.device));
    }
    match layout.receipt_room {
        Ok(()) => {
            observer.receipt_written(&done);
            Ok((Some(done), None))
        }
        Err(why) => Ok((None, Some(why))),
    }
}
