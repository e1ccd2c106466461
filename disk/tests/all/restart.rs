//! Going on after a power cut: old disks with partitions, of which some are kept. Every state that a cut could leave is
//! judged, and from some of them the install starts again and finishes.

use std::ops::Range;

use crate::common::replay::{Random, replay, run};
use crate::common::{MIB, Recorder, gpt_image, old, tools};
use landfall_api::ReceiptState;
use landfall_disk::judge::{Findings, State, judge, signatures};
use landfall_disk::{ReadAt, read_mark};

/// For old partitions that reach beyond the image and are not at the disk's own ends.
const BIG: u64 = 9 * MIB;
/// How many of the states are gone on from.
const RESTART_ONE_IN: u64 = 60;

/// What to call it, its bytes, those of its partitions.
type OldDisk = (&'static str, Vec<u8>, Vec<Range<u64>>);

/// Partitions that stay, on disks whose table is whole or only its backup, with a receipt's place that is free or not.
fn disks_with_kept(sector: u32) -> Vec<OldDisk> {
    let s = u64::from(sector);
    let low = if sector == 512 { 34 } else { 6 };
    let last = BIG - s - 128 * 128;
    let parts = [
        (MIB..4 * MIB + MIB / 2, "root"),
        (4 * MIB + MIB / 2..6 * MIB, "data"),
        (6 * MIB..7 * MIB + MIB / 2, "var"),
        (7 * MIB + MIB / 2..last, "home"),
    ];
    let (whole, ranges) = old::with_gpt(BIG, sector, &parts, 5);
    let mut lone_backup = whole.clone();
    lone_backup[sector as usize + 40] ^= 1;
    let mut torn_entries = whole.clone();
    torn_entries[2 * sector as usize + 57] ^= 1;
    let mut over_place = parts.clone();
    over_place[0].0.start = low * s;
    let (over_place, over_ranges) = old::with_gpt(BIG, sector, &over_place, 6);
    vec![
        ("whole", whole, ranges.clone()),
        ("backup only", lone_backup, ranges.clone()),
        ("primary with torn entries", torn_entries, ranges),
        ("over the place", over_place, over_ranges),
    ]
}

/// A disk as it is after a cut, whole in memory.
fn frozen(disk: &dyn ReadAt) -> Vec<u8> {
    let mut bytes = vec![0; disk.size() as usize];
    disk.read_at(0, &mut bytes).unwrap();
    bytes
}

/// After a finished install: the image's partitions and the kept ones byte for byte, and no signature left elsewhere.
fn assert_finished(
    disk: &[u8], sector: u32, image: &[u8], old: &[u8], parts: &[Range<u64>], keep: &[String], case: &str,
) {
    let found = Findings::of(&disk, sector).unwrap();
    assert!(found.uefi_boots() && found.primary.is_some() && found.backup.is_some(), "{case}");
    assert_eq!(read_mark(disk).unwrap().map(|mark| mark.receipt.state), Some(ReceiptState::Done), "{case}");
    let kept = old::kept(&disk, sector, keep);
    assert_eq!(kept, old::kept(&old, sector, keep), "{case}");
    let same = |a: &[u8], b: &[u8], range: Range<u64>| {
        let range = range.start as usize..range.end as usize;
        a[range.clone()] == b[range]
    };
    let kept: Vec<_> = kept.iter().map(|part| part.bytes(sector)).collect();
    assert!(kept.iter().all(|range| same(disk, old, range.clone())), "{case}");
    for part in Findings::of(&image, sector).unwrap().primary.unwrap().used() {
        assert!(same(disk, image, part.bytes(sector)), "{case}");
    }
    for part in parts.iter().filter(|part| !kept.contains(part)) {
        assert_eq!(signatures(&disk, part).unwrap(), [], "{case}: {part:?}");
    }
    let whole = signatures(&disk, &(0..disk.len() as u64)).unwrap();
    let in_kept = |at: u64| kept.iter().any(|range| range.contains(&at));
    assert!(whole.iter().all(|(name, at)| *name == "a GPT" || in_kept(*at)), "{case}: {whole:?}");
}

/// Installs, judges every state a cut could leave, and goes on from some of them. Gives the number of states.
fn cut_and_restart(old: &[u8], sector: u32, image: &[u8], parts: &[Range<u64>], keep: &[String], case: &str) -> usize {
    let before = old::kept(&old, sector, keep);
    let device = Recorder::new(old.to_vec(), sector);
    run(&device, image, image, keep).unwrap();
    let new = device.bytes.lock().unwrap().clone();
    let ops = device.ops.lock().unwrap().clone();
    assert_finished(&new, sector, image, old, parts, keep, case);
    tools::assert_table_is_whole(&new, sector, case);
    let whole = |disk: &dyn ReadAt, case: &str| {
        // By the very code that a restart runs.
        assert_eq!(old::kept(disk, sector, keep), before, "{case}: not findable");
        for part in &before {
            let range = part.bytes(sector);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            disk.read_at(range.start, &mut bytes).unwrap();
            assert!(bytes == old[range.start as usize..range.end as usize], "{case}: \"{}\" changed", part.label);
        }
    };
    let mut chosen = Random(0x5851_f42d_4c95_7f2d);
    let mut restarts = Vec::new();
    let mut states = 0;
    replay(old, &ops, sector, |disk, index| {
        states += 1;
        let case = format!("{case}, operation {index} of {}", ops.len());
        assert_ne!(judge(disk, &old, &new, sector).unwrap(), State::Broken, "{case}");
        whole(disk, &case);
        // The first half is the destructive start: what a restart can miss is decided there.
        let one_in = if 2 * index < ops.len() { RESTART_ONE_IN / 6 } else { RESTART_ONE_IN };
        if chosen.next().is_multiple_of(one_in) {
            restarts.push((index, frozen(disk)));
        }
    });
    for (nth, (index, cut)) in restarts.into_iter().enumerate() {
        let case = format!("{case}, restarted after operation {index}");
        let device = Recorder::new(cut.clone(), sector);
        run(&device, image, image, keep).unwrap();
        let end = device.bytes.lock().unwrap().clone();
        assert_finished(&end, sector, image, old, parts, keep, &case);
        for part in parts.iter().filter(|part| !before.iter().any(|kept| kept.bytes(sector) == **part)) {
            if nth == 0 {
                assert_eq!(tools::wipefs(&end, part), [""; 0], "{case}: {part:?}");
            }
        }
        if nth < 2 {
            // And the power goes a second time.
            let ops = device.ops.lock().unwrap().clone();
            replay(&cut, &ops, sector, |disk, index| {
                states += 1;
                let case = format!("{case}, cut again at {index}");
                assert_ne!(judge(disk, &cut, &end, sector).unwrap(), State::Broken, "{case}");
                whole(disk, &case);
            });
        }
    }
    states
}

#[test]
fn kept_partitions_survive_every_power_cut_and_a_restart_finishes() {
    let keep = ["data".to_owned(), "home".to_owned()];
    let mut states = 0;
    for sector in [512, 4096] {
        let s = u64::from(sector);
        let image = gpt_image(4 * MIB, sector, &[(MIB / s, 2 * MIB / s), (2 * MIB / s + 8, 3 * MIB / s)], 1);
        for (name, old, parts) in disks_with_kept(sector) {
            states += cut_and_restart(&old, sector, &image, &parts, &keep, &format!("{sector}: {name}"));
        }
    }
    println!("{states} states after a power cut");
    assert!(states > 2000, "{states}");
}

#[test]
fn a_restarted_install_clears_all_old_signatures() {
    let mut states = 0;
    for sector in [512, 4096] {
        let s = u64::from(sector);
        let image = gpt_image(3 * MIB, sector, &[(MIB / s, 2 * MIB / s), (2 * MIB / s + 8, 5 * MIB / 2 / s)], 1);
        let mut disks = disks_with_kept(sector);
        disks.retain(|(name, ..)| *name != "primary with torn entries");
        if sector == 512 {
            let (disk, parts) = old::with_logicals(BIG, 7);
            disks.push(("logical partitions", disk, parts));
        }
        for (name, old, parts) in disks {
            states += cut_and_restart(&old, sector, &image, &parts, &[], &format!("{sector}: {name}"));
        }
    }
    println!("{states} states after a power cut");
    assert!(states > 2000, "{states}");
}
