//! A new table for a disk: every state that a power cut could leave is judged, and from some of them it is made again.

use std::{fs, ops::Range};

use crate::common::order::order;
use crate::common::replay::{Random, replay};
use crate::common::request::persons;
use crate::common::{MIB, Recorder, mark, old, tools};
use landfall_api::{RECEIPT_NAME, RECEIPT_PARTITION, RECEIPT_PLACE, ReceiptState};
use landfall_disk::judge::{Findings, State, judge, signatures};
use landfall_disk::{
    DivideRequest, Expectation, KeptPartition, NewPartition, NewTable, Order, ReadAt, Standing, TableKind, Unobserved,
    WriteError, disk_at, divide_device, find_kept, finish_device, may_divide, read_mark,
};
use uuid::Uuid;

const SIZE: u64 = 9 * MIB;
/// How many of the states are gone on from.
const RESTART_ONE_IN: u64 = 100;

/// Two new partitions around those that stay.
fn table(kind: TableKind, sector: u32, kept: &[KeptPartition]) -> NewTable {
    let new = |number: u32, label: &str, kind: Uuid, range: Range<u64>| NewPartition {
        number,
        label: label.into(),
        kind,
        mbr_kind: 0x83,
        guid: Uuid::from_u128(100 + u128::from(number)),
        first: range.start / u64::from(sector),
        last: range.end / u64::from(sector) - 1,
        active: false,
        kept: false,
    };
    let data = Uuid::from_u128(0x0fc63daf_8483_4772_8e79_3d69d8477de4);
    let mut partitions = vec![new(1, "neu", data, MIB..4 * MIB), new(3, "zwei", data, 6 * MIB..7 * MIB)];
    if kind == TableKind::Gpt {
        partitions.push(new(128, RECEIPT_NAME, RECEIPT_PARTITION, RECEIPT_PLACE));
    }
    partitions.extend(kept.iter().map(|part| NewPartition {
        number: part.number,
        label: part.label.clone(),
        kind: part.kind(),
        mbr_kind: 0,
        guid: part.part_uuid(),
        first: part.first,
        last: part.last,
        active: false,
        kept: true,
    }));
    NewTable { kind, guid: Uuid::from_u128(99), partitions }
}

fn divide(device: &Recorder, table: &NewTable, keep: &[String]) -> Result<(), WriteError> {
    let order = Order { keep, ..order(Expectation::Waived, mark(b"", device.size())) };
    divide_device(device, table, &order, &Unobserved)
}

/// What comes once everything stands on the partitions.
fn finish(device: &Recorder, table: &NewTable, keep: &[String]) {
    let order = Order { keep, read_back: true, ..order(Expectation::Waived, mark(b"", device.size())) };
    finish_device(device, table, &order).unwrap();
}

/// Between the two no firmware starts anything, not even one that goes by a table alone.
fn assert_starts_nothing(device: &Recorder, sector: u32, before: &[KeptPartition], keep: &[String], case: &str) {
    let disk = device.bytes.lock().unwrap().clone();
    assert!(!Findings::of(&disk, sector).unwrap().anything_boots(), "{case}");
    assert_eq!(read_mark(&disk).unwrap().map(|mark| mark.receipt.state), Some(ReceiptState::Intent), "{case}");
    assert_eq!(find_kept(&disk, sector, keep, "disk").unwrap(), before, "{case}");
}

fn assert_divided(disk: &[u8], sector: u32, old: &[u8], table: &NewTable, keep: &[String], case: &str) {
    assert_eq!(read_mark(disk).unwrap().map(|mark| mark.receipt.state), Some(ReceiptState::Done), "{case}");
    let kept = find_kept(disk, sector, keep, "disk").unwrap();
    assert_eq!(kept, find_kept(old, sector, keep, "disk").unwrap(), "{case}");
    for part in &kept {
        let range = part.bytes(sector).start as usize..part.bytes(sector).end as usize;
        assert!(disk[range.clone()] == old[range], "{case}: {} changed", part.label);
    }
    for part in table.partitions.iter().filter(|part| !part.kept && part.label != RECEIPT_NAME) {
        let range = part.first * u64::from(sector)..(part.last + 1) * u64::from(sector);
        assert_eq!(signatures(&disk, &range).unwrap(), [], "{case}: {}", part.label);
    }
    if table.kind == TableKind::Gpt {
        let found = Findings::of(&disk, sector).unwrap();
        let names = |table: landfall_disk::Table| table.used().map(|entry| entry.label).collect::<Vec<_>>();
        let mut wanted: Vec<_> = table.partitions.iter().map(|part| (part.number, part.label.clone())).collect();
        wanted.sort();
        let wanted: Vec<String> = wanted.into_iter().map(|(_, label)| label).collect();
        assert_eq!((names(found.primary.unwrap()), names(found.backup.unwrap())), (wanted.clone(), wanted), "{case}");
        tools::assert_table_is_whole(disk, sector, case);
    }
}

/// Divides and finishes, judges every state a cut could leave, and does both again from some of them. Gives the number of states.
fn cut_and_repeat(old: &[u8], sector: u32, kind: TableKind, keep: &[String], case: &str) -> usize {
    let before = find_kept(old, sector, keep, "disk").unwrap();
    let table = table(kind, sector, &before);
    let device = Recorder::new(old.to_vec(), sector);
    divide(&device, &table, keep).unwrap();
    assert_starts_nothing(&device, sector, &before, keep, case);
    finish(&device, &table, keep);
    let new = device.bytes.lock().unwrap().clone();
    let ops = device.ops.lock().unwrap().clone();
    assert_divided(&new, sector, old, &table, keep, case);
    let (mut chosen, mut again, mut states) = (Random(0x5851_f42d_4c95_7f2d), Vec::new(), 0);
    replay(old, &ops, sector, |disk, index| {
        states += 1;
        let case = format!("{case}, operation {index} of {}", ops.len());
        assert_ne!(judge(disk, &old, &new, sector).unwrap(), State::Broken, "{case}");
        assert_eq!(find_kept(disk, sector, keep, "disk").unwrap(), before, "{case}: not findable");
        if chosen.next().is_multiple_of(RESTART_ONE_IN) {
            let mut bytes = vec![0; disk.size() as usize];
            disk.read_at(0, &mut bytes).unwrap();
            again.push((index, bytes));
        }
    });
    for (index, cut) in again {
        let device = Recorder::new(cut, sector);
        divide(&device, &table, keep).unwrap();
        finish(&device, &table, keep);
        let end = device.bytes.lock().unwrap().clone();
        assert_divided(&end, sector, old, &table, keep, &format!("{case}, again after operation {index}"));
    }
    states
}

fn old_disk(sector: u32, seed: u64) -> Vec<u8> {
    let last = SIZE - u64::from(sector) - 128 * 128;
    let parts = [
        (MIB..4 * MIB + MIB / 2, "root"),
        (4 * MIB + MIB / 2..6 * MIB, "data"),
        (6 * MIB..7 * MIB + MIB / 2, "var"),
        (7 * MIB + MIB / 2..last, "home"),
    ];
    old::with_gpt(SIZE, sector, &parts, seed).0
}

#[test]
fn every_cut_leaves_a_disk_that_can_be_divided_again() {
    let keep = ["data".to_owned(), "home".to_owned()];
    let mut states = 0;
    for sector in [512, 4096] {
        let whole = old_disk(sector, 5);
        let mut lone_backup = whole.clone();
        lone_backup[sector as usize + 40] ^= 1;
        for (name, old) in [("whole", whole), ("backup only", lone_backup), ("blank", vec![0; SIZE as usize])] {
            for (kind, keep) in [(TableKind::Gpt, &keep[..]), (TableKind::Gpt, &[]), (TableKind::Mbr, &[])] {
                if keep.is_empty() || name != "blank" {
                    states += cut_and_repeat(&old, sector, kind, keep, &format!("{sector}: {name}, {kind:?}"));
                }
            }
        }
    }
    println!("{states} states after a power cut");
    assert!(states > 2000, "{states}");
}

#[test]
fn signatures_of_systems_before_the_old_one_are_cleared() {
    let mut disk = vec![0; SIZE as usize];
    // No table leads to it any more.
    old::plant(&mut disk, &(6 * MIB..7 * MIB), 0);
    let device = Recorder::new(disk, 512);
    let table = table(TableKind::Gpt, 512, &[]);
    divide(&device, &table, &[]).unwrap();
    finish(&device, &table, &[]);
    assert_divided(&device.bytes.lock().unwrap(), 512, &[0; 2 << 20], &table, &[], "stray");
}

#[test]
fn more_than_a_receipt_lists_is_refused_before_any_write() {
    let (old, names) = old::crowded(SIZE, 7 * MIB);
    let table = |keep: &[String]| table(TableKind::Gpt, 512, &find_kept(&old, 512, keep, "disk").unwrap());
    let device = Recorder::new(old.clone(), 512);
    let Err(WriteError::TooManyKept { wanted: 60, room, .. }) = divide(&device, &table(&names), &names) else {
        panic!("60 partitions were kept")
    };
    assert!(*device.bytes.lock().unwrap() == old);
    divide(&device, &table(&names[..room]), &names[..room]).unwrap();
}

/// Of several disks all are asked before the first is changed.
#[test]
fn a_disk_that_keeps_too_much_may_not_be_divided() {
    let (old, names) = old::crowded(SIZE, 7 * MIB);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &old).unwrap();
    let disk = disk_at(file.path()).unwrap();
    let ask = |keep: &[String]| {
        let request = DivideRequest {
            disk: disk.clone(),
            table: table(TableKind::Gpt, 512, &find_kept(&old, 512, keep, "disk").unwrap()),
            keep: keep.to_vec(),
            authority: persons(1),
            earlier_runs: Vec::new(),
        };
        may_divide(&request, &Unobserved).map_err(|error| error.to_string())
    };
    assert!(ask(&names).unwrap_err().contains("60 partitions of"));
    assert_eq!(ask(&names[..5]), Ok(Standing::Open));
}

#[test]
fn a_table_planned_for_other_partitions_is_refused_untouched() {
    let keep = ["data".to_owned()];
    let old = old_disk(512, 5);
    let mut found = find_kept(&old, 512, &keep, "disk").unwrap();
    found[0].first += 1;
    let device = Recorder::new(old.clone(), 512);
    let refused = divide(&device, &table(TableKind::Gpt, 512, &found), &keep).unwrap_err();
    assert!(matches!(refused, WriteError::KeepRefused { .. }), "{refused}");
    assert!(*device.bytes.lock().unwrap() == old);
}
