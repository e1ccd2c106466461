//! Giving a disk a new table that no image brings: the destructive start of an install, then the table; and its end, when
//! everything stands on the partitions.

use std::{io, thread, time::Duration};

use landfall_api::{DiskReceipt, ReceiptState};

use super::{
    Order,
    commit::put,
    device_io,
    invalidate::{invalidate, mark_error, stamped},
    kept_of, unreadable,
};
use crate::{BlockDevice, NewTable, Observer, WriteError, exact, forgiving::Forgiving, gpt::Old, receipt, signature};

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
    let kept = kept_of(&old, order, sector)?;
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
    // What the receipt speaks of first: the programs that made it leave some of it in the disk's cache.
    device.flush().map_err(device_io(order.device, "flush what stands on the partitions of"))?;
    (order.may_act)()?;
    receipt::write_mark(device, &done, kept).map_err(|error| mark_error(order, error))?;
    device.flush().map_err(device_io(order.device, "flush the receipt to"))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{ReadAt, receipt::tests::mark};

    /// A disk that remembers what was done to it.
    struct Remembers(Mutex<(Vec<u8>, Vec<&'static str>)>);

    impl ReadAt for Remembers {
        fn size(&self) -> u64 {
            self.0.lock().unwrap().0.len() as u64
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.0.lock().unwrap().0.read_at(offset, buffer)
        }
    }

    impl BlockDevice for Remembers {
        fn logical_sector(&self) -> u32 {
            512
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let mut all = self.0.lock().unwrap();
            all.0[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            all.1.push("write");
            Ok(())
        }
        fn zero_range(&self, _: u64, _: u64) -> io::Result<bool> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn flush(&self) -> io::Result<()> {
            self.0.lock().unwrap().1.push("flush");
            Ok(())
        }
    }

    #[test]
    fn everything_is_on_stable_storage_before_the_receipt_says_done() {
        let mut first = vec![0; 2 << 20];
        first[510..512].copy_from_slice(&[0x55, 0xaa]);
        let device = Remembers(Mutex::new((first, Vec::new())));
        let order = Order::plain("disk", mark(ReceiptState::Intent, 0));
        let done = finish_device(&device, &order).unwrap();
        assert_eq!(device.0.lock().unwrap().1, ["flush", "write", "flush"]);
        assert_eq!(receipt::read_mark(&device).unwrap(), Some(done));
    }
}
