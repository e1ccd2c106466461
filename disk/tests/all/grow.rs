//! A partition that becomes longer: in every state that a power cut could leave, the disk has a valid table with the old or the
//! new end, and from some of them it is done again.

use std::sync::atomic::AtomicU64;

use crate::common::device::Device;
use crate::common::replay::{Random, replay};
use crate::common::{MIB, Recorder, gpt_disk, mbr_image};
use landfall_disk::{BlockDevice, GrowError, Grown, ReadAt, Table, grow_on};

const SIZE: u64 = 16 * MIB;
/// How many of the states are gone on from.
const RESTART_ONE_IN: u64 = 20;

/// A disk whose second partition has free space behind it; a third follows that space unless it is the `last`.
fn disk(sector: u32, last: bool) -> Vec<u8> {
    let s = u64::from(sector);
    let mut parts = vec![(MIB / s, 3 * MIB / s - 1, "esp"), (3 * MIB / s, 5 * MIB / s - 1, "root")];
    if !last {
        parts.push((12 * MIB / s, 13 * MIB / s - 1, "data"));
    }
    gpt_disk(SIZE, sector, &parts, 5)
}

fn grow(bytes: Vec<u8>, sector: u32, size: Option<u64>) -> (Result<Grown, GrowError>, Recorder) {
    let device = Recorder::new(bytes, sector);
    (grow_on(&device, 3 * MIB, size), device)
}

fn bytes(device: &Recorder) -> Vec<u8> {
    device.bytes.lock().unwrap().clone()
}

/// The end of the second partition by a table that is valid, and otherwise as it was.
fn end_of(found: &Table, before: &Table, sector: u32) -> u64 {
    let parts = |table: &Table| table.used().map(|e| (e.index, e.kind, e.guid, e.label, e.first)).collect::<Vec<_>>();
    assert_eq!(parts(found), parts(before));
    let ends = |table: &Table| table.used().map(|entry| entry.bytes(sector).end).collect::<Vec<_>>();
    let (mut found, mut before) = (ends(found), ends(before));
    let end = found.remove(1);
    before.remove(1);
    assert_eq!(found, before, "no other partition changes");
    end
}

fn last(sector: u32) -> u64 {
    SIZE / u64::from(sector) - 1
}

#[test]
fn every_power_cut_leaves_a_valid_primary_table() {
    for sector in [512, 4096] {
        for (is_last, size, new) in
            [(true, None, 15 * MIB), (false, None, 12 * MIB), (true, Some(7 * MIB + 512), 10 * MIB + u64::from(sector))]
        {
            let old = disk(sector, is_last);
            let before = Table::read(&old, 1, sector).unwrap();
            let (grown, device) = grow(old.clone(), sector, size);
            assert_eq!(grown.unwrap(), Grown { before: 3 * MIB..5 * MIB, after: 3 * MIB..new, capped: false });
            let (mut seen, mut random) = ((0, 0), Random(7));
            replay(&old, &device.ops.lock().unwrap(), sector, |cut, _| {
                let found = Table::read(cut, 1, sector).unwrap();
                match end_of(&found, &before, sector) {
                    end if end == new => seen.1 += 1,
                    end => {
                        assert_eq!(end, 5 * MIB);
                        seen.0 += 1;
                    }
                }
                if random.next() % RESTART_ONE_IN == 0 {
                    let mut left = vec![0; SIZE as usize];
                    cut.read_at(0, &mut left).unwrap();
                    // With another size in the second attempt, too.
                    for size in [size, Some(2 * MIB), Some(8 * MIB)] {
                        let (again, device) = grow(left.clone(), sector, size);
                        assert!(again.unwrap().after.end >= 5 * MIB);
                        assert_finished(&bytes(&device), &old, sector);
                    }
                }
            });
            assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
            assert_finished(&bytes(&device), &old, sector);
            // Once more: nothing is written.
            let (_, device) = grow(bytes(&device), sector, size);
            assert!(device.ops.lock().unwrap().is_empty());
        }
    }
}

/// Both copies agree, each has its array beside it, and beside the tables no byte of the disk changed: no receipt, no content.
fn assert_finished(disk: &[u8], old: &[u8], sector: u32) {
    let s = u64::from(sector);
    let primary = Table::read(disk, 1, sector).unwrap();
    let backup = Table::read(disk, last(sector), sector).unwrap();
    let length = primary.entries_sectors(sector);
    assert_eq!((primary.header.entries_lba, backup.header.entries_lba), (2, last(sector) - length));
    assert_eq!((primary.header.alternate_lba, backup.header.alternate_lba), (last(sector), 1));
    assert_eq!(primary.entries, backup.entries);
    let between = ((2 + length) * s) as usize..((last(sector) - length) * s) as usize;
    assert!(disk[between.clone()] == old[between] && disk[..s as usize] == old[..s as usize]);
    let config = gpt::GptConfig::new().writable(false).logical_block_size(match sector {
        512 => gpt::disk::LogicalBlockSize::Lb512,
        _ => gpt::disk::LogicalBlockSize::Lb4096,
    });
    config.open_from_device(std::io::Cursor::new(disk.to_vec())).unwrap();
}

#[test]
fn the_backup_moves_to_the_end_of_a_larger_disk() {
    let mut larger = disk(512, true);
    larger.resize((2 * SIZE) as usize, 0);
    let (grown, device) = grow(larger, 512, None);
    assert_eq!(grown.unwrap().after, 3 * MIB..2 * SIZE - MIB);
    let backup = Table::read(&device, 2 * last(512) + 1, 512).unwrap();
    assert_eq!(Table::read(&device, 1, 512).unwrap().entries, backup.entries);
}

#[test]
fn what_cannot_grow_is_refused_unwritten() {
    let refused = |bytes: Vec<u8>, start, size| {
        let device = Recorder::new(bytes, 512);
        let error = grow_on(&device, start, size).unwrap_err();
        assert!(device.ops.lock().unwrap().is_empty(), "{error}");
        error
    };
    let error = refused(disk(512, false), 3 * MIB, Some(10 * MIB));
    assert!(matches!(error, GrowError::NoRoom { possible, .. } if possible == 9 * MIB), "{error}");
    assert!(matches!(refused(disk(512, true), 2 * MIB, None), GrowError::NoEntry(_)));
    assert!(matches!(refused(vec![0; SIZE as usize], 3 * MIB, None), GrowError::Table(_)));
    let mut damaged = disk(512, true);
    damaged[1024] ^= 1;
    assert!(matches!(refused(damaged, 3 * MIB, None), GrowError::Table(_)));
    let mut boot_code = mbr_image(SIZE, 3);
    boot_code[446 + 48] = 0x33;
    assert!(matches!(refused(boot_code, MIB, None), GrowError::Table(_)), "no table, whatever its last bytes are");
}

#[test]
fn what_is_large_enough_stays_as_it_is() {
    for size in [Some(MIB), Some(2 * MIB)] {
        let (grown, device) = grow(disk(512, false), 512, size);
        assert_eq!(grown.unwrap().after, 3 * MIB..5 * MIB);
        assert!(device.ops.lock().unwrap().is_empty());
    }
    let device = Recorder::new(disk(512, false), 512);
    // A partition follows at once.
    assert_eq!(grow_on(&device, MIB, None).unwrap().after, MIB..3 * MIB);
    assert!(device.ops.lock().unwrap().is_empty());
}

#[test]
fn an_old_table_grows_by_one_sector() {
    let mut old = mbr_image(SIZE, 3);
    old[458..462].copy_from_slice(&4096_u32.to_le_bytes());
    let device = Recorder::new(old.clone(), 512);
    assert_eq!(grow_on(&device, MIB, None).unwrap(), Grown { before: MIB..3 * MIB, after: MIB..SIZE, capped: false });
    assert_eq!(device.ops.lock().unwrap().len(), 2, "one sector, and a flush");
    let mut now = bytes(&device);
    assert_eq!(now[458..462], u32::try_from((SIZE - MIB) / 512).unwrap().to_le_bytes());
    now[458..462].copy_from_slice(&old[458..462]);
    assert!(now == old);
    device.flush().unwrap();
}

#[test]
fn an_old_table_says_what_it_cannot_state() {
    let mut old = mbr_image(SIZE, 3);
    old[458..462].copy_from_slice(&4096_u32.to_le_bytes());
    for (size, wanted, capped) in [(3 << 40, None, true), (3 << 40, Some(8 * MIB), false), (1 << 40, None, false)] {
        // It is larger than what is read or written of it.
        let device = Device { size: AtomicU64::new(size), ..Device::new(old.clone()) };
        let grown = grow_on(&device, MIB, wanted).unwrap();
        assert_eq!(grown.capped, capped, "{grown:?}");
        assert!(grown.after.end <= 2 << 40, "{grown:?}");
    }
}
