//! Giving a disk a new table that no image brings: the destructive start of an install; and its end, once everything stands on
//! the partitions, in the order of an install's commit. In between no firmware finds a table, and only the kernel knows of the
//! partitions.

use std::{io, thread, time::Duration};

use landfall_api::{DiskReceipt, ReceiptState};

use super::commit::{last_read_back, put, there};
use super::invalidate::{invalidate, mark_error, retire, stamped};
use super::{Order, device_io, kept_of, unreadable};
use crate::forgiving::Forgiving;
use crate::gpt::{Old, Piece, held_back, put_boot_code};
use crate::{BlockDevice, NewTable, Observer, WriteError, exact, receipt, signature};

/// How long a partition may be open that nothing uses: 5 s.
const BUSY_LOOKS: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Destroys what is on `device`, but for what the order keeps, and clears what the new partitions cover. Whether the disk may be
/// written at all is the caller's to decide first.
///
/// The receipt says *intent* from before the first change on, and still does at the end. The new table is not there yet, and
/// neither is LBA 0: of the old table stays what leads to the partitions that are kept, in a form that starts nothing.
///
/// # Errors
/// [`WriteError`] of the device or of the order's checks; the disk is then old, or unbootable and marked.
pub fn divide_device(
    device: &dyn BlockDevice, table: &NewTable, order: &Order<'_>, observer: &dyn Observer,
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
    let mut read = device.reread_table();
    for _ in 0..BUSY_LOOKS {
        // A program that looks at all devices, such as blkid, may have an old partition open at this moment.
        if !read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
            break;
        }
        thread::sleep(BUSY_PAUSE);
        read = device.reread_table();
    }
    read.map_err(failed("make the kernel forget the old partition table of"))
}

/// Puts in place what firmware starts, once everything stands: the backup table; the table, with the receipt *done*; LBA 0 alone.
/// Each is flushed and read back before the next. The receipt.
///
/// # Errors
/// [`WriteError`] of the device; the disk then starts nothing, or everything stands on it and it is done.
pub fn finish_device(device: &dyn BlockDevice, table: &NewTable, order: &Order<'_>) -> Result<DiskReceipt, WriteError> {
    let failed = |action: &str| device_io(order.device, action.to_owned());
    let sector = device.logical_sector();
    let old = Old::read(device, sector).map_err(unreadable(order.device, "read the partition table of"))?;
    let kept = kept_of(&old, order, sector)?;
    let mut layout = table.layout(sector, device.size(), &kept, order.device)?;
    put_boot_code(&first_sector(device, order)?, &mut layout.lba0);
    let done = stamped(&order.mark, ReceiptState::Done);
    // What the table leads to first: the programs that made it leave some of it in the disk's cache.
    device.flush().map_err(failed("flush what stands on the partitions of"))?;
    (order.may_act)()?;
    put(device, order.device, "the backup partition table", &layout.backup)?;
    device.flush().map_err(failed("flush the backup partition table to"))?;
    there(device, order, &layout.backup)?;
    (order.may_act)()?;
    put(device, order.device, "the partition table", &layout.table)?;
    receipt::write_mark(device, &done, layout.kept.guids()).map_err(|error| mark_error(order, error))?;
    device.flush().map_err(failed("flush the partition table and the receipt to"))?;
    there(device, order, &layout.table)?;
    (order.may_act)()?;
    exact::write(device, 0, &layout.lba0).map_err(failed("write LBA 0 to"))?;
    device.flush().map_err(failed("flush LBA 0 to"))?;
    last_read_back(device, order, &layout, Some(&done))?;
    Ok(done)
}

fn first_sector(device: &dyn BlockDevice, order: &Order<'_>) -> Result<Vec<u8>, WriteError> {
    let mut sector = vec![0; device.logical_sector() as usize];
    device.read_at(0, &mut sector).map_err(unreadable(order.device, "read LBA 0 of"))?;
    Ok(sector)
}

/// Makes a disk that was finished start nothing until it is finished again: LBA 0 goes but for its boot code, and then what leads
/// firmware to its partitions without it. Its receipt then says *intent*: *done* counts only while LBA 0 is in place.
///
/// # Errors
/// [`WriteError`] of the device; the disk is then as it was, or starts nothing.
pub(crate) fn hold_back_device(device: &dyn BlockDevice, order: &Order<'_>) -> Result<(), WriteError> {
    let (sector, size) = (device.logical_sector(), device.size());
    let old = Old::read(device, sector).map_err(unreadable(order.device, "read the partition table of"))?;
    (order.may_act)()?;
    let held = Piece { offset: 0, bytes: held_back(&first_sector(device, order)?) };
    exact::write(device, 0, &held.bytes).map_err(device_io(order.device, "clear LBA 0 of"))?;
    device.flush().map_err(device_io(order.device, "flush the clearing of LBA 0 of"))?;
    there(device, order, &[held])?;
    (order.may_act)()?;
    // A table of the old kind is in LBA 0 alone.
    if old.table.is_some() { retire(device, &old, size, order).map(drop) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use uuid::Uuid;

    use super::*;
    use crate::{ReadAt, TableKind, judge::Findings, receipt::tests::mark};

    #[derive(Debug, PartialEq)]
    enum Did {
        Write(u64),
        Flush,
    }

    /// A disk that remembers what was done to it.
    struct Remembers(Mutex<(Vec<u8>, Vec<Did>)>);

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
            all.1.push(Did::Write(offset));
            Ok(())
        }
        fn zero_range(&self, _: u64, _: u64) -> io::Result<bool> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn flush(&self) -> io::Result<()> {
            self.0.lock().unwrap().1.push(Did::Flush);
            Ok(())
        }
    }

    fn table(kind: TableKind) -> NewTable {
        NewTable { kind, guid: Uuid::from_u128(9), partitions: Vec::new() }
    }

    #[test]
    fn lba_0_comes_last_and_alone() {
        const SIZE: u64 = 8 << 20;
        let end = SIZE - 512;
        for (kind, backup, front) in [
            (
                TableKind::Gpt,
                vec![Did::Write(end - 32 * 512), Did::Write(end)],
                vec![Did::Write(1024), Did::Write(512)],
            ),
            (TableKind::Mbr, vec![], vec![]),
        ] {
            let device = Remembers(Mutex::new((vec![0; SIZE as usize], Vec::new())));
            let order = Order { read_back: true, ..Order::plain("disk", mark(ReceiptState::Intent, 0)) };
            let done = finish_device(&device, &table(kind), &order).unwrap();
            let mut expected = vec![Did::Flush];
            expected.extend(backup);
            expected.push(Did::Flush);
            expected.extend(front);
            expected.extend([Did::Write(receipt::PLACE.start), Did::Flush, Did::Write(0), Did::Flush]);
            assert_eq!(device.0.lock().unwrap().1, expected);
            assert_eq!(receipt::read_mark(&device).unwrap(), Some(done));
        }
    }

    #[test]
    fn what_was_finished_can_be_held_back_and_finished_again() {
        let device = Remembers(Mutex::new((vec![0; 8 << 20], Vec::new())));
        let order = Order::plain("disk", mark(ReceiptState::Intent, 0));
        let state = || receipt::read_mark(&device).unwrap().map(|mark| mark.receipt.state);
        for _ in 0..2 {
            finish_device(&device, &table(TableKind::Gpt), &order).unwrap();
            assert_eq!(state(), Some(ReceiptState::Done));
            // A boot loader was installed.
            device.write_at(0, &[0xeb; 440]).unwrap();
            for _ in 0..2 {
                hold_back_device(&device, &order).unwrap();
                assert_eq!(state(), Some(ReceiptState::Intent));
                assert!(!Findings::of(&device.0.lock().unwrap().0, 512).unwrap().anything_boots());
                assert_eq!(device.0.lock().unwrap().0[..2], [0xcd, 0x18], "a BIOS goes on to the next device");
            }
            finish_device(&device, &table(TableKind::Gpt), &order).unwrap();
            assert!(device.0.lock().unwrap().0[..440] == [0xeb; 440], "the boot loader is written once");
        }
    }
}
