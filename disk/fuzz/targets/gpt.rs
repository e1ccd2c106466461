//! GUID partition tables at both sector sizes: reading each copy, retiring the old one, planning the new one.
//!
//! Input: flags, the disk's sectors (4 bytes), the length of the head (2), the head from LBA 0 on, the disk's end.
#![no_main]

use landfall_disk::{ReadAt, Table, TableError, fuzzing};
use landfall_disk_fuzz::{Disk, Input};
use libfuzzer_sys::fuzz_target;

/// The fuzzer cannot guess checksums.
fn mend(disk: &Disk, lba: u64, sector: u32) {
    let mut header = vec![0; sector as usize];
    if lba == 0 || disk.read_at(lba * u64::from(sector), &mut header).is_err() {
        return;
    }
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    let length = u64::from(number(80)) * u64::from(number(84));
    let start = u64::from_le_bytes(header[72..80].try_into().unwrap()).saturating_mul(sector.into());
    let size = (number(12) as usize).clamp(92, header.len());
    if length <= 1 << 16 {
        let mut entries = vec![0; length as usize];
        if disk.read_at(start, &mut entries).is_ok() {
            header[88..92].copy_from_slice(&crc32fast::hash(&entries).to_le_bytes());
        }
    }
    header[16..20].fill(0);
    let crc = crc32fast::hash(&header[..size]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    disk.put(lba * u64::from(sector), &header);
}

fn check_table(disk: &Disk, lba: u64, sector: u32) {
    let Ok(table) = Table::read(disk, lba, sector) else { return };
    let header = &table.header;
    assert_eq!(header.my_lba, lba);
    assert_eq!(table.entries.len() as u64, u64::from(header.entry_count) * u64::from(header.entry_size));
    let usable = header.first_usable..=header.last_usable;
    for entry in table.used() {
        assert!(entry.first <= entry.last && usable.contains(&entry.first) && usable.contains(&entry.last));
        // What no offset reaches saturates.
        assert!(entry.last >= disk.size() || !entry.bytes(sector).is_empty());
    }
    // What we would write is read back as the same, unless the entries lie over their own header.
    let again = Disk::new(disk.size(), sector);
    again.put(header.entries_lba * u64::from(sector), &table.entries_padded(sector));
    let entries = header.entries_lba..header.entries_lba + table.entries_sectors(sector);
    if !entries.contains(&lba) {
        again.put(lba * u64::from(sector), &table.header_sector(sector));
        assert_eq!(Table::read(&again, lba, sector).expect("what is written is a table"), table);
    }
}

fn check_retirement(disk: &Disk, sector: u32) {
    let old = fuzzing::old_tables(disk, sector).expect("memory cannot fail");
    assert!(old.partitions.iter().all(|range| range.start < range.end && range.end <= disk.size()));
    assert!(old.stray.is_none_or(|range| range.end < disk.size()));
    let Some((header, before)) = old.retired_header else { return };
    for (offset, bytes) in before {
        disk.put(offset, &bytes);
    }
    disk.put(sector.into(), &header);
    assert!(matches!(Table::read(disk, 1, sector), Err(TableError::Absent)), "firmware finds no table");
    let again = fuzzing::old_tables(disk, sector).expect("memory cannot fail");
    assert!(old.partitions.iter().all(|range| again.partitions.contains(range)), "nothing is forgotten");
    assert_eq!(again.retired_header.map(|(header, _)| header), Some(header), "a restart finds the same");
}

fn check_plan(head: &[u8], disk: &Disk, sector: u32, keep: &[String]) {
    let Some(plan) = fuzzing::plan(head, disk, sector, false, keep) else { return };
    let end = plan.parts.iter().fold(0, |end, part| {
        assert!(part.start == end && part.end > end, "the disk is cut without gaps");
        part.end
    });
    assert_eq!(end, disk.size());
    assert!(plan.least_raw <= disk.size());
    let new = Disk::new(disk.size(), sector);
    for (offset, bytes) in &plan.pieces {
        assert!(offset % u64::from(sector) == 0 && bytes.len().is_multiple_of(sector as usize) && !bytes.is_empty());
        assert!(offset + bytes.len() as u64 <= disk.size(), "pieces lie on the disk");
        new.put(*offset, bytes);
    }
    if !plan.gpt {
        return;
    }
    let last = disk.size() / u64::from(sector) - 1;
    let primary = Table::read(&new, 1, sector).expect("the new table is valid");
    let backup = Table::read(&new, last, sector).expect("the new backup is valid");
    assert_eq!((primary.header.alternate_lba, backup.header.alternate_lba), (last, 1));
    assert_eq!(primary.entries, backup.entries);
    let image = Table::read(head, 1, sector).expect("it was planned from a table");
    let now: Vec<_> = primary.used().collect();
    let ours = |kind: &[u8; 16]| *kind == landfall_disk::RECEIPT_TYPE;
    assert!(image.used().all(|entry| ours(&entry.kind) || now.contains(&entry)), "the image's partitions are there");
    assert!(now.iter().filter(|entry| ours(&entry.kind)).count() <= 1);
    if let Ok(kept) = landfall_disk::find_kept(disk, sector, keep, "disk") {
        assert!(kept.iter().all(|kept| now.iter().any(|e| (e.first, e.last) == (kept.first, kept.last))));
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (flags, sectors, head) = (input.u8(), input.u32(), input.u16());
    let sector = if flags & 1 == 0 { 512 } else { 4096 };
    let disk = Disk::new(u64::from(sectors).max(2) * u64::from(sector), sector);
    disk.put(0, input.take(head.into()));
    disk.put(disk.size().saturating_sub(input.0.len() as u64), input.0);
    let last = disk.size() / u64::from(sector) - 1;
    if flags & 2 != 0 {
        mend(&disk, 1, sector);
        mend(&disk, last, sector);
    }
    for lba in [1, last] {
        check_table(&disk, lba, sector);
    }
    // The image is the start of this very disk, or of one that has moved.
    let mut head = vec![0; if flags & 4 == 0 { 64 << 10 } else { 1 << 20 }.min(disk.size() as usize)];
    disk.read_at(0, &mut head).expect("memory cannot fail");
    let keep: Vec<_> = (flags & 8 != 0).then(|| "data".to_owned()).into_iter().collect();
    check_plan(&head, &disk, sector, &keep);
    if flags & 16 != 0 {
        check_plan(&head, &Disk::new(disk.size() * 2 + 4096, sector), sector, &[]);
    }
    check_retirement(&disk, sector);
});
