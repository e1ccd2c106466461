//! Giving a disk a new table that no image brings: the destructive start of an install, then the table; and its end, when
//! everything stands on the partitions.

use std::{io, thread, time::Duration};

use landfall_api::{DiskReceipt, ReceiptState};

use super::{
    Order,
    commit::put,
    device_io,
    invalidate::{invalidate, mark_error, stamped},
    unreadable,
};
use crate::{
    BlockDevice, NewTable, Observer, WriteError, exact,
    forgiving::Forgiving,
    gpt::{Kept, Old},
    receipt, signature,
};

/// How long a partition may be open that nothing uses: 5 s.
const BUSY_LOOKS: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Destroys what is on `device`, but for what the order keeps, and puts the new table in place. Whether the disk may be written
/// at all is the caller's to decide first.
///
/// The receipt says *intent* from before the first change on, and still does at the end. The order of the steps is that of an
/// install: nothing leads to the new partitions before they are cleared of what stood there before.
///
/// # Errors
/// [`WriteError`] of the device or of the order's checks; the disk is then old, or unbootable and marked.
pub fn divide_device(
    device: &dyn BlockDevice,
    table: &NewTable,
    order: &Order<'_>,
    observer: &dyn Observer,
) -> Result<(), WriteError> {
    let failed = |action: &str| device_io(order.device, action.to_owned());
    let sector = device.logical_sector();
    let looked = Forgiving::new(device, order.forgive);
    let old = Old::read(&looked, sector).map_err(unreadable(order.device, "read the partition table of"))?;
    let refused = |reason| WriteError::KeepRefused { device: order.device.into(), reason };
    let kept = Kept::choose(&old, order.keep, sector).map_err(refused)?;
    let layout = table.layout(sector, device.size(), &kept, order.device)?;
    (order.may_act)()?;
    (order.same_disk)()?;
    invalidate(&looked, &layout, &old, order, None, observer)?;
    // Of systems before the old one: no table led to them any more, and the new one would.
    let mut spared = kept.ranges(sector);
    spared.push(receipt::PLACE);
    for range in table.new_ranges(sector).into_iter().filter(|range| *range != receipt::PLACE) {
        (order.may_act)()?;
        signature::clear(device, &range, &spared).map_err(failed("clear the new partitions of"))?;
    }
    device.flush().map_err(failed("flush the clearing of the new partitions of"))?;
    for (what, pieces) in [("the backup partition table", &layout.backup), ("the partition table", &layout.table)] {
        (order.may_act)()?;
        put(device, order.device, what, pieces)?;
        device.flush().map_err(failed(&format!("flush {what} to")))?;
    }
    (order.may_act)()?;
    exact::write(device, 0, &layout.lba0).map_err(failed("write LBA 0 to"))?;
    device.flush().map_err(failed("flush LBA 0 to"))?;
    let mut read = device.reread_table();
    for _ in 0..BUSY_LOOKS {
        // A program that looks at all devices, such as blkid, may have an old partition open at this moment.
        if !read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
            break;
        }
        thread::sleep(BUSY_PAUSE);
        read = device.reread_table();
    }
    read.map_err(failed("make the kernel read the new partition table of"))
}

/// The receipt *done*, once everything stands; the receipt.
///
/// # Errors
/// [`WriteError`] of the device; the receipt then says *intent* or *done*.
pub(crate) fn finish_device(device: &dyn BlockDevice, order: &Order<'_>) -> Result<DiskReceipt, WriteError> {
    let done = stamped(&order.mark, ReceiptState::Done);
    let kept = receipt::kept_partitions(device).map_err(device_io(order.device, "read the receipt of"))?;
    (order.may_act)()?;
    receipt::write_mark(device, &done, kept).map_err(|error| mark_error(order, error))?;
    device.flush().map_err(device_io(order.device, "flush the receipt to"))?;
    Ok(done)
}
