//! Partitions that are kept: what is refused before the first write, and what the finished disk looks like.

use std::ops::Range;

use crate::common::replay::run;
use crate::common::tools::{assert_table_is_whole, wipefs};
use crate::common::{MIB, Recorder, gpt_disk, gpt_image, mbr_image, old};
use landfall_disk::{KeptPartition, WriteError, judge, kept_partitions};

/// Partitions of at most 1440 KiB would be floppies to libblkid, which looks for no RAID there.
const DISK: u64 = 14 * MIB;
const DATA: Range<u64> = 6 * MIB..7 * MIB + MIB / 2;

fn labels(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Partitions before, behind and between those that are kept, the last one as near to the end as can be.
fn old_disk(sector: u32) -> (Vec<u8>, Vec<Range<u64>>) {
    let last = DISK - u64::from(sector) - 128 * 128;
    let parts = [
        (MIB..3 * MIB, "root"),
        (3 * MIB..6 * MIB, "var"),
        (DATA, "data"),
        (DATA.end..10 * MIB, "twin"),
        (10 * MIB..12 * MIB, "twin"),
        (12 * MIB..last, "grüße"),
    ];
    old::with_gpt(DISK, sector, &parts, 5)
}

fn image(sector: u32) -> Vec<u8> {
    let s = u64::from(sector);
    gpt_image(5 * MIB, sector, &[(MIB / s, 2 * MIB / s - 1), (2 * MIB / s, 4 * MIB / s - 1)], 1)
}

/// The image with a table of four entries: one sector.
fn with_four_entries(mut image: Vec<u8>, sector: u32) -> Vec<u8> {
    let (header, entries) = (sector as usize, 2 * sector as usize);
    let checksum = crc32fast::hash(&image[entries..entries + 4 * 128]);
    image[header + 80..header + 84].copy_from_slice(&4_u32.to_le_bytes());
    image[header + 88..header + 92].copy_from_slice(&checksum.to_le_bytes());
    image[header + 16..header + 20].fill(0);
    let checksum = crc32fast::hash(&image[header..header + 92]);
    image[header + 16..header + 20].copy_from_slice(&checksum.to_le_bytes());
    image
}

/// The reason, and that nothing was written.
fn refused(disk: Vec<u8>, sector: u32, image: &[u8], keep: &[&str]) -> String {
    let device = Recorder::new(disk, sector);
    let error = run(&device, image, image, &labels(keep)).unwrap_err();
    assert!(device.ops.lock().unwrap().is_empty(), "{error}");
    assert!(!error.retryable());
    match error {
        WriteError::KeepRefused { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn what_cannot_be_kept_is_refused_before_the_first_write() {
    for sector in [512, 4096] {
        let s = u64::from(sector);
        let (old, _) = old_disk(sector);
        let image = image(sector);
        let says = |disk: &[u8], image: &[u8], keep: &[&str], words: &[&str]| {
            let reason = refused(disk.to_vec(), sector, image, keep);
            for word in words {
                assert!(reason.contains(word), "{sector}: {reason}");
            }
        };
        says(&old, &image, &["nothing"], &["no partition is named \"nothing\"", "\"root\"", "\"grüße\""]);
        says(&old, &image, &["data", "Data"], &["no partition is named \"Data\""]);
        says(&old, &image, &["twin"], &["more than one partition is named \"twin\""]);
        says(&old, &image, &["var"], &["\"var\"", "starts before the end"]);
        says(&vec![0; DISK as usize], &image, &["data"], &["no valid partition table"]);
        if sector == 512 {
            says(&old, &mbr_image(2 * MIB, 9), &["data"], &["the image has no GPT"]);
        }

        // The tables of both ends are gone.
        let mut damaged = old.clone();
        damaged[sector as usize + 60] ^= 1;
        let end = damaged.len() - sector as usize;
        damaged[end + 60] ^= 1;
        says(&damaged, &image, &["data"], &["no valid partition table"]);

        // The partition touches the image's, or what comes behind them.
        let touching = gpt_image(7 * MIB, sector, &[(MIB / s, DATA.start / s)], 1);
        says(&old, &touching, &["data"], &["\"data\"", "starts before the end"]);
        let beyond = gpt_image(9 * MIB, sector, &[(8 * MIB / s, 8 * MIB / s + 10)], 1);
        says(&old, &beyond, &["data"], &["\"data\"", "starts before the end"]);
        let low = gpt_disk(DISK, sector, &[(40, 100, "low"), (200, 201, "next")], 3);
        says(&low, &image, &["low"], &["\"low\"", "starts before the end"]);
        // Boot code behind a table smaller than the old one, which must stay until the commit.
        let mut reaching = with_four_entries(image.clone(), sector);
        reaching[4 * sector as usize + 5] = 1;
        says(&old, &reaching, &["data"], &["the image has data at byte", "the old table"]);

        // One GUID or name for two.
        let same_guid = gpt_disk(DISK, sector, &[(8 * MIB / s, 9 * MIB / s, "data")], 1);
        says(&same_guid, &image, &["data"], &["the GUID of \"data\""]);
        let same_name = gpt_disk(5 * MIB, sector, &[(MIB / s, 2 * MIB / s, "data")], 1);
        says(&old, &same_name, &["data"], &["a partition named \"data\" too"]);

        // Every slot is taken: the last 128th is the receipt's.
        let many: Vec<_> = (0..127).map(|i| (MIB / s + i * 2, MIB / s + i * 2 + 1)).collect();
        says(&old, &gpt_image(5 * MIB, sector, &many, 1), &["data"], &["no free entry for \"data\""]);
    }
    // A GPT of yesteryear, whole or its backup alone, under a table of the old kind.
    for stale_bytes in [512, 1024] {
        let mut stale = old_disk(512).0;
        stale[..stale_bytes].copy_from_slice(&mbr_image(DISK, 8)[..stale_bytes]);
        assert!(refused(stale, 512, &image(512), &["data"]).contains("its first sector lists other partitions"));
    }
}

#[test]
fn more_than_a_receipt_lists_is_refused_before_any_write() {
    let (old, names) = old::crowded(DISK, DATA.start);
    let image = image(512);
    let device = Recorder::new(old, 512);
    let Err(WriteError::TooManyKept { wanted: 60, room, .. }) = run(&device, &image, &image, &names) else {
        panic!("60 partitions were kept")
    };
    assert!(device.ops.lock().unwrap().is_empty());
    run(&device, &image, &image, &names[..room]).unwrap();
    assert_eq!(kept_partitions(&*device.bytes.lock().unwrap()).unwrap().len(), room);
}

#[test]
fn an_image_that_overlaps_a_kept_partition_leaves_it_intact() {
    for sector in [512, 4096] {
        let (old, _) = old_disk(sector);
        let s = u64::from(sector);
        // As large as the disk, with data behind its last partition.
        let mut image = gpt_image(DISK, sector, &[(MIB / s, 2 * MIB / s)], 1);
        image[DATA.start as usize + 70_000] = 1;
        let keep = labels(&["data"]);
        let device = Recorder::new(old.clone(), sector);
        let error = run(&device, &image, &image, &keep).unwrap_err();
        assert!(matches!(&error, WriteError::KeepRefused { reason, .. } if reason.contains("belongs to \"data\"")));
        let disk = device.bytes.lock().unwrap().clone();
        let data = DATA.start as usize..DATA.end as usize;
        assert!(disk[data.clone()] == old[data]);
        assert!(!judge::Findings::of(&disk, sector).unwrap().anything_boots());
        assert_eq!(old::kept(&disk, sector, &keep), old::kept(&old, sector, &keep));
    }
}

#[test]
fn the_finished_disk_has_only_new_and_kept_partitions() {
    for sector in [512, 4096] {
        let (old, parts) = old_disk(sector);
        let s = u64::from(sector);
        // The second one's own backup table falls into the kept partition.
        let inside = gpt_image(DATA.start + MIB, sector, &[(MIB / s, 2 * MIB / s - 1)], 1);
        for (what, image) in [("smaller", image(sector)), ("its backup inside", inside)] {
            let case = format!("{sector}: {what}");
            for part in &parts {
                assert!(!wipefs(&old, part).is_empty(), "{case}: {part:?}: the tool sees what was planted");
            }
            let keep = labels(&["grüße", "data", "data"]);
            let before = old::kept(&old, sector, &keep);
            assert_eq!(before.iter().map(|part| part.label.as_str()).collect::<Vec<_>>(), ["data", "grüße"]);
            let device = Recorder::new(old.clone(), sector);
            let installed = run(&device, &image, &image, &keep).unwrap();
            assert!(installed.receipt.is_some(), "{case}");
            let disk = device.bytes.lock().unwrap().clone();
            assert_eq!(old::kept(&disk, sector, &keep), before, "{case}: bit for bit");
            let uuids: Vec<_> = before.iter().map(KeptPartition::part_uuid).collect();
            assert_eq!(
                kept_partitions(&disk).unwrap(),
                uuids,
                "{case}: later it must be known what is not the image's"
            );
            let kept: Vec<_> = before.iter().map(|part: &KeptPartition| part.bytes(sector)).collect();
            for range in &kept {
                let range = range.start as usize..range.end as usize;
                assert!(disk[range.clone()] == old[range], "{case}");
            }
            for part in parts.iter().filter(|part| !kept.contains(part)) {
                assert_eq!(wipefs(&disk, part), [""; 0], "{case}: {part:?}");
                assert_eq!(judge::signatures(&disk, part).unwrap(), [], "{case}: {part:?}");
            }
            assert_table_is_whole(&disk, sector, &case);
            // And once more over itself, as a second install would.
            let again = Recorder::new(disk, sector);
            run(&again, &image, &image, &keep).unwrap();
            let disk = again.bytes.lock().unwrap().clone();
            assert_eq!(old::kept(&disk, sector, &keep), before, "{case}");
            assert_table_is_whole(&disk, sector, &case);
        }
    }
}

#[test]
fn far_superblocks_of_old_partitions_and_disks_are_cleared() {
    let size = 80 * MIB;
    let part = 3 * MIB..72 * MIB;
    let (mut old, _) = old::with_gpt(size, 512, &[(part.clone(), "root")], 4);
    for start in [0, part.start] {
        let at = (start + 64 * MIB) as usize + 64;
        old[at..at + 8].copy_from_slice(b"_BHRfS_M");
    }
    for offset in [MIB, 2 * MIB, 4 * MIB] {
        let at = (part.start + offset) as usize;
        old[at..at + 6].copy_from_slice(b"SKUL\xba\xbe");
    }
    let device = Recorder::new(old, 512);
    let image = gpt_image(2 * MIB, 512, &[(2048, 3000)], 1);
    run(&device, &image, &image, &[]).unwrap();
    let disk = device.bytes.lock().unwrap().clone();
    assert_eq!(judge::signatures(&disk, &part).unwrap(), []);
    let whole = judge::signatures(&disk, &(0..size)).unwrap();
    assert_eq!(whole.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a GPT", "a GPT"]);
}
