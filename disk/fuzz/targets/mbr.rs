//! Partition tables of the old kind, with their chains of logical partitions.
//!
//! Input: flags, the disk's sectors (4 bytes), LBA 0 from its byte 440 on (72 bytes), and then records: LBA (4), the same
//! 72 bytes of it.
#![no_main]

use landfall_disk::{ReadAt, fuzzing};
use landfall_disk_fuzz::{Disk, Input};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (flags, sectors) = (input.u8(), input.u32());
    let sector = if flags & 1 == 0 { 512 } else { 4096 };
    let disk = Disk::new(u64::from(sectors).max(8) * u64::from(sector), sector);
    disk.put(440, input.take(72));
    while !input.0.is_empty() {
        let lba = u64::from(input.u32());
        disk.put(lba * u64::from(sector) + 440, input.take(72));
    }
    let old = fuzzing::old_tables(&disk, sector).expect("memory cannot fail");
    assert!(old.partitions.iter().all(|range| range.start < range.end && range.end <= disk.size()));
    assert!(old.records.len() <= 128 && old.partitions.len() <= 4 + 4 * old.records.len());
    for (at, record) in old.records.iter().enumerate() {
        assert!(record.end <= disk.size() && !old.records[..at].contains(record));
    }
    let mut head = vec![0; 4096];
    disk.read_at(0, &mut head).expect("memory cannot fail");
    if let Some(plan) = fuzzing::plan(&head, &disk, sector, flags & 2 != 0, &[]) {
        assert!(plan.least_raw <= disk.size());
        assert!(plan.pieces.iter().all(|(at, bytes)| at + bytes.len() as u64 <= disk.size()));
    }
    if !old.retired_first.is_empty() {
        disk.put(0, &old.retired_first);
        let mut first = vec![0; sector as usize];
        disk.read_at(0, &mut first).expect("memory cannot fail");
        assert_ne!(first[510..512], [0x55, 0xaa], "no firmware starts it");
        let again = fuzzing::old_tables(&disk, sector).expect("memory cannot fail");
        assert_eq!((again.partitions, again.records), (old.partitions, old.records), "a restart finds the same");
    }
});
