//! What plans look like, and what holds of every one.

mod together;

use landfall_api::{DiskFacts, DiskId, ErrorCode, PartitionSpec, SizeSpec, TableSpec};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{KeptPartition, Origin, PlannedPartition};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SEED: Uuid = Uuid::from_u128(7);

fn disk(name: &str, size_bytes: u64, sector: u32) -> PlanDisk {
    let id = DiskId { name: name.into(), serial: format!("S-{name}"), size_bytes, ..DiskId::default() };
    let disk = DiskFacts { id, logical_sector_bytes: sector, ..DiskFacts::default() };
    PlanDisk { disk, kept: Vec::new() }
}

fn layout(tree: serde_json::Value) -> StorageSpec {
    serde_json::from_value(tree).unwrap()
}

fn planned(tree: serde_json::Value, disks: &[PlanDisk]) -> Result<Plan, PlanError> {
    plan(&layout(tree), disks, SEED, Architecture::X86_64)
}

fn layered() -> serde_json::Value {
    json!({
        "keys": {"disk": ""},
        "disks": [{"select": [{"serial": "A"}, {"serial": "B"}], "partitions": [{"role": "esp"}, {"name": "pv"}]}],
        "raids": [{"name": "esp-mirror", "level": 1, "from": ["esp"]}, {"name": "system", "level": 1, "from": ["pv"]}],
        "volumeGroups": [{"name": "vg0", "from": ["system"], "volumes": [
            {"name": "data", "format": "btrfs", "encrypt": {"key": "disk"},
                "subvolumes": [{"name": "@srv", "mount": "/srv"}, {"name": "@opt", "mount": "/opt", "options": "noatime"}]},
            {"name": "root", "size": "3GiB", "mount": "/"}, {"name": "swap", "size": "10%", "format": "swap"}]}],
    })
}

#[test]
fn a_simple_layout_reads_as_its_plan() {
    let tree =
        json!({"disks": [{"partitions": [{"role": "esp"}, {"role": "swap", "size": "1GiB"}, {"role": "root"}]}]});
    let plan = planned(tree, &[disk("nvme0n1", 8 * GIB, 512)]).unwrap();
    assert_eq!(
        plan.to_string(),
        "disk nvme0n1 (serial S-nvme0n1, 8 GiB): new GPT\n  \
         nvme0n1p1    esp                     512 MiB at 1 MiB      EFI system partition\n  \
         nvme0n1p2    swap                      1 GiB at 513 MiB    swap\n  \
         nvme0n1p3    root                    6.4 GiB at 1.5 GiB    root\n\
         vfat on nvme0n1p1\nswap on nvme0n1p2\next4 on nvme0n1p3\n\
         nvme0n1p3 is mounted at /\nnvme0n1p1 is mounted at /boot/efi (umask=0077)\n"
    );
    assert_eq!((plan.texts.crypttab.clone(), plan.texts.mdadm_conf.clone()), (None, None));
    let lines: Vec<String> = plan.texts.fstab.lines().skip(1).map(str::to_owned).collect();
    let id = |step: usize| match &plan.steps[step] {
        Step::Format { id, .. } => id.to_string(),
        other => panic!("{other:?}"),
    };
    let expected = [
        format!("UUID={} / ext4 defaults 0 1", id(2)),
        format!("UUID={} /boot/efi vfat umask=0077 0 2", id(0)),
        format!("UUID={} none swap sw 0 0", id(1)),
    ];
    assert_eq!(lines, expected);
    assert_eq!(id(0).len(), "ABCD-1234".len());
}

#[test]
fn raid_lvm_and_encryption_are_built_from_the_bottom_up() {
    let plan = planned(layered(), &[disk("sda", 8 * GIB, 512), disk("sdb", 9 * GIB, 512)]).unwrap();
    let shown = plan.to_string();
    let steps: Vec<&str> = shown.lines().filter(|line| !line.starts_with(' ')).skip(2).collect();
    assert_eq!(
        steps,
        [
            "RAID 1 md/esp-mirror of sda1, sdb1", "RAID 1 md/system of sda2, sdb2", "volume group vg0 of md/system",
            "volume vg0/root: 3 GiB", "volume vg0/swap: 764 MiB", "volume vg0/data: what is left",
            "LUKS2 on vg0/data as crypt-vg0-data, with the key disk", "vfat on md/esp-mirror", "ext4 on vg0/root",
            "swap on vg0/swap", "btrfs on crypt-vg0-data", "subvolumes @opt, @srv on crypt-vg0-data",
            "vg0/root is mounted at /", "md/esp-mirror is mounted at /boot/efi (umask=0077)",
            "crypt-vg0-data is mounted at /opt (noatime,subvol=/@opt)",
            "crypt-vg0-data is mounted at /srv (subvol=/@srv)",
        ]
    );
    let metadata =
        |n: usize| matches!(&plan.steps[n], Step::Raid { metadata, .. } if metadata.version() == ["1.0", "1.2"][n]);
    assert!(metadata(0) && metadata(1), "firmware reads a member of the first as if it stood alone");
    let names = |n: usize| plan.disks[n].partitions.iter().map(|part| part.name.as_str()).collect::<Vec<_>>();
    assert_eq!(
        (names(0), names(1)),
        (vec!["esp-1", "pv-1", "landfall-receipt"], vec!["esp-2", "pv-2", "landfall-receipt"])
    );
    assert!(plan.texts.crypttab.unwrap().contains("crypt-vg0-data UUID="));
    let conf = plan.texts.mdadm_conf.unwrap();
    assert!(
        conf.contains("ARRAY /dev/md/esp-mirror metadata=1.0 UUID=") && !conf.contains("name="),
        "the name is another one on the disk if it is long: {conf}"
    );
}

#[test]
fn what_stays_keeps_its_place_number_and_identity() {
    let mut disk = disk("sda", 20 * GIB, 512);
    let kept = KeptPartition {
        name: "My Data".into(),
        number: 2,
        kind: Uuid::from_u128(5),
        guid: Uuid::from_u128(6),
        first: 4 * GIB / 512 + 3,
        last: 12 * GIB / 512,
    };
    disk.kept = vec![kept.clone()];
    let tree = json!({"disks": [{"partitions": [{"role": "esp"}, {"name": "My Data", "preserve": true, "mount": "/srv",
        "format": "xfs"}, {"role": "swap", "size": "3500MiB"}, {"role": "root"}]}]});
    let plan = planned(tree.clone(), &[disk.clone()]).unwrap();
    let find = |name: &str| plan.disks[0].partitions.iter().find(|part| part.name == name).unwrap();
    let stays = find("My Data");
    assert_eq!((stays.number, stays.first, stays.last, stays.guid), (2, kept.first, kept.last, kept.guid));
    assert_eq!((find("esp").number, find("swap").number, find("root").number), (1, 3, 4));
    assert_eq!(find("root").first * 512, 12 * GIB + MIB, "the largest gap, behind what stays");
    assert!(plan.texts.fstab.contains(&format!("PARTUUID={} /srv xfs defaults 0 0", kept.guid)));
    assert!(
        !plan
            .steps
            .iter()
            .any(|step| matches!(step, Step::Format { device: crate::Device::Partition { number: 2, .. }, .. }))
    );
    let refused = |change: fn(&mut KeptPartition)| {
        let mut disk = disk.clone();
        change(&mut disk.kept[0]);
        planned(tree.clone(), &[disk]).unwrap_err().code()
    };
    assert_eq!(refused(|kept| kept.name = "other".into()), ErrorCode::DiskChanged);
    assert_eq!(refused(|kept| kept.first = 2047), ErrorCode::DiskChanged);
    assert_eq!(refused(|kept| kept.last = 20 * GIB / 512 - 33), ErrorCode::DiskChanged);
    assert_eq!(refused(|kept| kept.last = u64::MAX), ErrorCode::DiskChanged);
    assert_eq!(refused(|kept| kept.number = 129), ErrorCode::DiskChanged);
}

/// Of tables, partitions, arrays, physical volumes, LUKS and file systems.
fn identities(plan: &Plan) -> Vec<String> {
    let tables = plan.disks.iter().map(|disk| disk.guid.to_string());
    let partitions = plan.disks.iter().flat_map(|disk| &disk.partitions).map(|part| part.guid.to_string());
    let steps = plan.steps.iter().flat_map(|step| match step {
        Step::Raid { uuid, .. } | Step::Encrypt { uuid, .. } => vec![uuid.to_string()],
        Step::Group { members, .. } => members.iter().map(|member| member.uuid.to_string()).collect(),
        Step::Format { id, .. } => vec![id.to_string()],
        Step::Volume { .. } | Step::Subvolumes { .. } => Vec::new(),
    });
    tables.chain(partitions).chain(steps).collect()
}

#[test]
fn each_identity_is_of_one_thing_and_one_workflow() {
    let disks = [disk("sda", 8 * GIB, 512), disk("sdb", 9 * GIB, 512)];
    let mut all = Vec::new();
    for (workflow, index) in [(7, 0), (7, 1), (8, 0)] {
        let seed = crate::seed(Uuid::from_u128(workflow), index);
        all.extend(identities(&plan(&layout(layered()), &disks, seed, Architecture::X86_64).unwrap()));
    }
    // Two tables, six entries, two arrays, a physical volume, LUKS, four file systems.
    assert_eq!(all.len(), 3 * 16);
    let twins = json!({"disks": [{"select": [{"serial": "A"}, {"serial": "B"}], "partitions": [{"role": "swap"}]}]});
    // Two tables, four entries, two swap spaces.
    all.extend(identities(&planned(twins, &disks).unwrap()));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3 * 16 + 8);
}

#[test]
fn what_does_not_fit_says_what_is_missing() {
    let one = |tree: serde_json::Value, size: u64| {
        planned(json!({"disks": [{"partitions": tree}]}), &[disk("sda", size, 512)])
    };
    for (tree, size, words) in [
        (
            json!([{"role": "root", "size": "9GiB"}]),
            8 * GIB,
            "disk sda has no room for partition root: it needs 9 GiB, and 7.9 GiB are free",
        ),
        (
            json!([{"role": "esp"}, {"role": "root"}]),
            513 * MIB,
            "disk sda has no room for partition esp: it needs 512 MiB, and 511 MiB are free",
        ),
        (
            json!([{"role": "root", "format": "xfs"}]),
            200 * MIB,
            "partition root of disk sda has 198 MiB, and xfs needs 300 MiB at least",
        ),
    ] {
        let refused = one(tree, size).unwrap_err();
        assert_eq!((refused.to_string().as_str(), refused.code()), (words, ErrorCode::DiskTooSmall));
    }
    let mut large = layered();
    large["volumeGroups"][0]["volumes"][1]["size"] = "7500MiB".into();
    let refused = planned(large, &[disk("sda", 8 * GIB, 512), disk("sdb", 8 * GIB, 512)]).unwrap_err();
    let words = refused.to_string();
    assert!(words.starts_with("volume group vg0 has no room for volume swap: it needs 764 MiB"), "{words}");
}

#[test]
fn one_disk_for_two_selectors_is_refused() {
    let twice = [disk("sda", 8 * GIB, 512), disk("sda", 8 * GIB, 512)];
    assert_eq!(planned(layered(), &twice).unwrap_err().code(), ErrorCode::AmbiguousDisk);
    assert_eq!(planned(layered(), &twice[..1]).unwrap_err(), PlanError::DiskCount { wanted: 2, given: 1 });
    let odd = planned(json!({"disks": [{"partitions": [{"role": "root"}]}]}), &[disk("sda", 8 * GIB, 520)]);
    assert_eq!(odd.unwrap_err().code(), ErrorCode::WrongSectorSize);
}

#[test]
fn an_mbr_marks_what_starts_and_has_no_receipt_entry() {
    let tree = json!({"disks": [{"table": "mbr", "partitions": [{"role": "swap", "size": "1GiB"}, {"role": "root"}]}]});
    let plan = planned(tree, &[disk("sda", 4 << 40, 512)]).unwrap();
    let parts = &plan.disks[0].partitions;
    let shown: Vec<_> = parts.iter().map(|part| (part.number, part.active, part.kind.mbr, part.origin)).collect();
    assert_eq!(shown, [(1, false, 0x82, Origin::New), (2, true, 0x83, Origin::New)]);
    assert!(parts[1].last <= u64::from(u32::MAX), "{}", parts[1].last);
}

fn size() -> impl Strategy<Value = SizeSpec> {
    prop_oneof![
        4 => (1_u64..3 * GIB).prop_map(SizeSpec::Bytes),
        2 => (1_u8..60).prop_map(SizeSpec::Percent),
        1 => Just(SizeSpec::Rest),
        1 => any::<u64>().prop_map(|bytes| SizeSpec::Bytes(bytes.max(1))),
    ]
}

/// Partitions that stay, as (start, length) in sectors of 512 bytes; and the sizes of new ones.
fn case() -> impl Strategy<Value = (StorageSpec, PlanDisk)> {
    let kept = prop::collection::vec((0_u64..16 * GIB / 512, 1_u64..2 * GIB / 512, 0_u32..6), 0..4);
    let new = prop::collection::vec(size(), 0..7);
    (kept, new, prop_oneof![0_u64..4 * MIB, 0_u64..20 * GIB], any::<bool>(), any::<bool>()).prop_map(
        |(kept, new, size, large, mbr)| {
            let sector = if large { 4096 } else { 512 };
            let mut disk = disk("sda", size / u64::from(sector) * u64::from(sector), sector);
            let mut partitions = Vec::new();
            for (n, (first, length, number)) in kept.into_iter().enumerate() {
                let name = format!("kept {n}");
                let guid = Uuid::from_u128(n as u128 + 1);
                let last = first + length;
                disk.kept.push(KeptPartition { name: name.clone(), number, kind: guid, guid, first, last });
                partitions.push(PartitionSpec { name: Some(name), preserve: true, ..PartitionSpec::default() });
            }
            for (n, size) in new.into_iter().enumerate() {
                let name = Some(format!("new{n}"));
                partitions.push(PartitionSpec { name, size: Some(size), ..PartitionSpec::default() });
            }
            let mut spec = layout(json!({"disks": [{"partitions": []}]}));
            spec.disks[0].partitions = partitions;
            if mbr {
                spec.disks[0].table = TableSpec::Mbr;
            }
            (spec, disk)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_partition_overlaps_another_or_the_tables((spec, disk) in case()) {
        let made = plan(&spec, std::slice::from_ref(&disk), SEED, Architecture::X86_64);
        prop_assert_eq!(&made, &plan(&spec, std::slice::from_ref(&disk), SEED, Architecture::X86_64));
        let Ok(made) = made else { return Ok(()) };
        let (table, size) = (&made.disks[0], disk.disk.id.size_bytes);
        let sector = u64::from(table.sector);
        let gpt = table.table == TableSpec::Gpt;
        let entries = if gpt { 128 * 128_u64.div_ceil(1) } else { 0 };
        let head = if gpt { 2 * sector + entries } else { sector };
        let tail = if gpt { size / sector * sector - sector - entries.next_multiple_of(sector) } else { size };
        let mut parts: Vec<&PlannedPartition> = table.partitions.iter().collect();
        parts.sort_by_key(|part| part.first);
        for pair in parts.windows(2) {
            prop_assert!(pair[0].last < pair[1].first, "{:?}", pair);
            prop_assert!(pair[0].number != pair[1].number);
        }
        let receipts = parts.iter().filter(|part| part.origin == Origin::Receipt);
        prop_assert_eq!(receipts.map(|part| part.bytes(table.sector)).collect::<Vec<_>>(), vec![MIB - 4096..MIB; usize::from(gpt)]);
        for part in &parts {
            let range = part.bytes(table.sector);
            prop_assert!(part.first <= part.last && range.start >= head && range.end <= tail, "{:?}", part);
            match part.origin {
                Origin::New => prop_assert!(range.start % MIB == 0 && range.end % MIB == 0 && range.start >= MIB, "{:?}", part),
                Origin::Kept => {
                    let was = disk.kept.iter().find(|kept| kept.name == part.name).unwrap();
                    prop_assert_eq!((was.number, was.first, was.last, was.guid), (part.number, part.first, part.last, part.guid));
                }
                Origin::Receipt => {}
            }
        }
        for wanted in &spec.disks[0].partitions {
            let made: Vec<_> = parts.iter().filter(|part| part.name == wanted.name()).collect();
            prop_assert_eq!(made.len(), 1);
            if let Some(SizeSpec::Bytes(bytes)) = wanted.size {
                let range = made[0].bytes(table.sector);
                prop_assert!(range.end - range.start >= bytes && range.end - range.start < bytes + MIB);
            }
        }
    }

    #[test]
    fn sizes_that_fit_one_piece_are_never_refused(sizes in prop::collection::vec(1_u64..2 * GIB, 1..8), spare in 0_u64..GIB) {
        let mut spec = layout(json!({"disks": [{"partitions": []}]}));
        let named = |(n, size): (usize, &u64)| PartitionSpec {
            name: Some(format!("new{n}")), size: Some(SizeSpec::Bytes(*size)), ..PartitionSpec::default()
        };
        spec.disks[0].partitions = sizes.iter().enumerate().map(named).collect();
        let needs: u64 = sizes.iter().map(|size| size.next_multiple_of(MIB)).sum();
        // The first MiB, and what the backup table leaves of the last.
        let fits = disk("sda", needs + 2 * MIB + spare / 512 * 512, 512);
        prop_assert!(plan(&spec, &[fits], SEED, Architecture::X86_64).is_ok());
        let short = plan(&spec, &[disk("sda", needs + MIB, 512)], SEED, Architecture::X86_64);
        prop_assert!(matches!(short, Err(PlanError::NoRoom { .. })), "{:?}", short);
    }

    #[test]
    fn volumes_never_exceed_their_group(sizes in prop::collection::vec(size(), 1..6), gib in 1_u64..12, level in 0_usize..3) {
        let mut spec = layout(layered());
        spec.raids[1].level = [0, 1, 10][level];
        let volume = |(n, size): (usize, SizeSpec)| landfall_api::VolumeSpec {
            name: format!("v{n}"), size: Some(size), ..landfall_api::VolumeSpec::default()
        };
        spec.volume_groups[0].volumes = sizes.into_iter().enumerate().map(volume).collect();
        let disks = [disk("sda", gib * GIB, 512), disk("sdb", gib * GIB, 512)];
        let Ok(made) = plan(&spec, &disks, SEED, Architecture::X86_64) else { return Ok(()) };
        let extents: u64 = made.steps.iter().map(|step| match step {
            Step::Volume { size: crate::VolumeSize::Extents(extents), .. } => *extents,
            Step::Volume { .. } => 1,
            _ => 0,
        }).sum();
        let data = if level == 0 { 2 } else { 1 };
        prop_assert!(extents * (4 << 20) < data * gib * GIB);
    }
}
