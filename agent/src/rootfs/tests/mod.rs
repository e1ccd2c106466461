//! The installed system as a whole, on real file systems of loop devices.
#![allow(clippy::unwrap_used)] // Tests.

mod disk;

use std::{collections::BTreeSet, fs, path::Path, sync::Barrier, thread};

use self::disk::{Disk, Missing, Part, install, run, small_directory, where_possible};
use super::*;

const SEED: &str = "/var/lib/cloud/seed/nocloud/user-data";

fn part(label: &'static str, mib: u64) -> Part {
    Part { label, is_root_type: false, mib }
}

fn of(disk: &Disk) -> SystemDisk {
    SystemDisk { name: disk.name.clone(), ..SystemDisk::default() }
}

fn open(disk: SystemDisk, access: Access) -> (tempfile::TempDir, Result<System, NotFound>) {
    let at = tempfile::tempdir().unwrap();
    let system = System::open(disk, at.path(), access, &|| false);
    (at, system)
}

/// Writes the seed as `cloudInit` does.
fn seed(disk: SystemDisk) -> Result<(), String> {
    let (_at, system) = open(disk, Access::Write);
    let mut system = system.map_err(|e| e.to_string())?;
    let tree = system.tree().map_err(|e| e.to_string())?;
    system.reach(&tree, SEED, &|| false).map_err(|e| e.to_string())?;
    tree.write(SEED, 0o600, &b"secret"[..]).map_err(|e| e.to_string())?;
    drop(tree);
    system.close().map_err(|e| e.to_string())
}

fn has_seed(root: &Path, path: &str) -> bool {
    root.join(path).join("lib/cloud/seed/nocloud/user-data").exists()
}

#[test]
fn a_kept_system_is_neither_taken_nor_touched() {
    where_possible(|| {
        let old = Part { label: "old", is_root_type: true, mib: 32 };
        let disk = Disk::new(512, &[old, part("root", 32)])?;
        for number in [1, 2] {
            disk.format(number, "ext4")?;
            disk.with(number, "ext4", "", |root| install(root, ""))?;
        }
        let before = disk.digest(1);
        let labels =
            |names: &[&str]| Kept { labels: names.iter().map(|n| (*n).to_owned()).collect(), ..Kept::default() };
        seed(SystemDisk { kept: labels(&["old"]), ..of(&disk) }).unwrap();
        assert_eq!(disk.digest(1), before);
        assert!(disk.with(2, "ext4", "", |root| has_seed(root, "var"))?);
        let why = seed(SystemDisk { kept: labels(&["old", "root"]), ..of(&disk) }).unwrap_err();
        assert!(why.contains("kept"), "{why}");
        let guids: BTreeSet<_> = partitions::look(&of(&disk)).iter().map(|p| p.guid.parse().unwrap()).collect();
        seed(SystemDisk { kept: Kept { guids, ..Kept::default() }, ..of(&disk) }).unwrap_err();
        assert_eq!(disk.digest(1), before);
        Ok(())
    });
}

#[test]
fn looking_for_a_root_writes_nothing() {
    where_possible(|| {
        for (kind, mib) in [("ext4", 32), ("xfs", 304), ("btrfs", 128)] {
            let disk = Disk::new(512, &[part("data", mib)])?;
            disk.format(1, kind)?;
            // A journal that a mount would replay: the disk as a power cut leaves it.
            let cut = disk.with(1, kind, "", |data| {
                for name in 0..20 {
                    let file = fs::File::create(data.join(format!("{name}"))).unwrap();
                    file.sync_all().unwrap();
                }
                disk.copy()
            })??;
            drop(disk);
            let before = cut.digest(1);
            let (_at, found) = open(of(&cut), Access::Write);
            let why = found.unwrap_err().to_string();
            assert!(why.contains("without /etc/os-release"), "{kind}: {why}");
            assert_eq!(cut.digest(1), before, "{kind}");
        }
        Ok(())
    });
}

#[test]
fn the_seed_lands_where_the_running_system_has_var() {
    where_possible(|| {
        for sector in [512, 4096] {
            for (kind, mib) in [("ext4", 32), ("xfs", 304)] {
                let disk = Disk::new(sector, &[part("root", mib), part("var", mib)])?;
                disk.format(1, kind)?;
                disk.format(2, kind)?;
                disk.with(1, kind, "", |root| install(root, &format!("PARTLABEL=var /var {kind} defaults 0 2\n")))?;
                seed(of(&disk)).unwrap();
                assert!(disk.with(2, kind, "", |var| has_seed(var, ""))?, "{kind}, {sector}");
                assert!(!disk.with(1, kind, "", |root| has_seed(root, "var"))?, "{kind}, {sector}: hidden");
            }
        }
        Ok(())
    });
}

#[test]
fn what_can_be_mounted_is_and_the_rest_is_named() {
    where_possible(|| {
        let disk = Disk::new(512, &[part("root", 32), part("var", 32)])?;
        disk.format(1, "ext4")?;
        disk.format(2, "ext4")?;
        let fstab = "tmpfs /tmp tmpfs\nPARTLABEL=var /var ext4\n/dev/vg/srv /srv ext4 nofail\nnas:/x /mnt nfs noauto\n";
        disk.with(1, "ext4", "", |root| install(root, fstab))?;
        let (_at, system) = open(of(&disk), Access::Write);
        let mut system = system.unwrap();
        let tree = system.tree().unwrap();
        let hidden = system.reach_most(&tree, &|| false).unwrap();
        let points: Vec<_> = hidden.iter().map(|one| one.point.as_str()).collect();
        assert_eq!(points, ["/tmp", "/srv"]);
        assert!(hidden[0].why.contains("in memory") && hidden[1].why.contains("LVM"), "{hidden:?}");
        assert!(system.mounted_at("/var").is_some());
        drop(tree);
        system.close().unwrap();
        Ok(())
    });
}

#[test]
fn a_var_that_cannot_be_mounted_is_refused_by_name() {
    where_possible(|| {
        let disk = Disk::new(512, &[part("root", 32), part("pv", 8)])?;
        disk.format(1, "ext4")?;
        let mut pv = vec![0; 4096];
        pv[512..520].copy_from_slice(b"LABELONE");
        fs::write(disk.part(2), pv).unwrap();
        for (source, said) in [
            ("/dev/mapper/vg-var", "LVM"),
            ("UUID=8a3c0d4e-0000-4000-8000-000000000001", "p2 holds an LVM physical volume"),
            ("nas:/var", "another machine"),
        ] {
            disk.with(1, "ext4", "", |root| install(root, &format!("{source} /var auto\n")))?;
            let why = seed(of(&disk)).unwrap_err();
            assert!(why.contains(said) && why.contains(source), "{why}");
            assert!(!disk.with(1, "ext4", "", |root| has_seed(root, "var"))?, "{source}");
        }
        disk.with(1, "ext4", "", |root| fs::remove_file(root.join("etc/os-release")).unwrap())?;
        let (_at, found) = open(of(&disk), Access::Read);
        let not_found = found.unwrap_err();
        let lvm = format!("{} holds an LVM physical volume, which Landfall cannot mount", disk.part(2).display());
        assert!(not_found.to_string().contains(&lvm), "{not_found}");
        assert!(not_found.hint().contains("LVM"));
        Ok(())
    });
}

/// A btrfs with Debian's subvolumes: the top level holds no system.
fn with_subvolumes(disk: &Disk, root: &str) -> Result<(), Missing> {
    disk.format(1, "btrfs")?;
    disk.with(1, "btrfs", "", |top| {
        for name in [root, "@var", "copy"] {
            run("btrfs", &["subvolume", "create", &top.join(name).display().to_string()])?;
        }
        let fstab = format!("PARTLABEL=root / btrfs subvol={root} 0 0\nPARTLABEL=root /var btrfs subvol=/@var 0 0\n");
        // A copy of the system stands beside it and is listed before it.
        install(&top.join("copy"), &fstab);
        install(&top.join(root), &fstab);
        Ok(())
    })?
}

#[test]
fn the_subvolume_that_the_system_names_is_its_root() {
    where_possible(|| {
        for root in ["@rootfs", "zroot"] {
            let disk = Disk::new(512, &[part("root", 128)])?;
            with_subvolumes(&disk, root)?;
            let (_at, system) = open(of(&disk), Access::Read);
            let system = system.unwrap();
            assert_eq!(system.root().option.as_deref(), Some(format!("subvol={root}").as_str()));
            system.close().unwrap();
            seed(of(&disk)).unwrap();
            disk.with(1, "btrfs", "subvolid=5", |top| {
                assert!(has_seed(top, "@var") && !has_seed(top, &format!("{root}/var")) && !has_seed(top, "copy/var"));
            })?;
        }
        Ok(())
    });
}

#[test]
fn two_disks_with_one_image_are_seeded_at_once() {
    where_possible(|| {
        for (kind, mib) in [("xfs", 304), ("btrfs", 128), ("ext4", 32)] {
            let disk = Disk::new(512, &[part("root", mib)])?;
            if kind == "btrfs" {
                with_subvolumes(&disk, "@rootfs")?;
            } else {
                disk.format(1, kind)?;
                disk.with(1, kind, "", |root| install(root, ""))?;
            }
            let twin = disk.copy()?;
            let start = Barrier::new(2);
            let both = [&disk, &twin].map(of);
            let start = &start;
            thread::scope(|scope| {
                let seeding = both.map(|disk| {
                    scope.spawn(move || {
                        start.wait();
                        (0..5).try_for_each(|_| seed(disk.clone()))
                    })
                });
                for thread in seeding {
                    assert_eq!(thread.join().unwrap(), Ok(()), "{kind}");
                }
            });
            for one in [&disk, &twin] {
                let (option, place) = if kind == "btrfs" { ("subvolid=5", "@var") } else { ("", "var") };
                assert!(one.with(1, kind, option, |root| has_seed(root, place))?, "{kind}: {}", one.name);
            }
        }
        Ok(())
    });
}

#[test]
fn a_kept_var_is_mounted_where_the_image_says_so() {
    where_possible(|| {
        let disk = Disk::new(512, &[part("root", 32), part("var", 32)])?;
        disk.format(1, "ext4")?;
        disk.format(2, "ext4")?;
        let kept = Kept { labels: ["var".to_owned()].into(), ..Kept::default() };
        for (fstab, there) in [("", false), ("PARTLABEL=var /var ext4\n", true)] {
            disk.with(1, "ext4", "", |root| install(root, fstab))?;
            seed(SystemDisk { kept: kept.clone(), ..of(&disk) }).unwrap();
            assert_eq!(disk.with(2, "ext4", "", |var| has_seed(var, ""))?, there, "{fstab}");
        }
        Ok(())
    });
}

#[test]
fn a_write_that_the_disk_refused_fails_the_close() {
    where_possible(|| {
        // The disk's file cannot hold what the disk says it can.
        let full = small_directory(24)?;
        let file = tempfile::NamedTempFile::new_in(full.0.path()).unwrap();
        let disk = Disk::backed(file, 512, &[part("root", 64)])?;
        disk.format(1, "ext4")?;
        disk.with(1, "ext4", "", |root| install(root, ""))?;
        for (bytes, kept) in [(1 << 20, true), (48 << 20, false)] {
            let (at, system) = open(of(&disk), Access::Run);
            let system = system.unwrap();
            // As a program writes: without a flush of its own.
            fs::write(at.path().join("file"), vec![7; bytes]).unwrap();
            assert_eq!(system.close().is_ok(), kept, "{bytes}");
        }
        Ok(())
    });
}

#[test]
fn a_labelled_partition_is_found_written_and_unmounted() {
    where_possible(|| {
        for (kind, mib, label) in [("ext4", 32, "boot"), ("btrfs", 128, "OEM")] {
            let disk = Disk::new(512, &[part("root", 32), part("old", mib), part("new", mib)])?;
            disk.format(1, "ext4")?;
            for number in [2, 3] {
                disk.format(number, kind)?;
                let device = disk.part(number).display().to_string();
                match kind {
                    "ext4" => run("e2label", &[&device, label])?,
                    _ => run("btrfs", &["filesystem", "label", &device, label])?,
                };
            }
            let kept = Kept { labels: ["old".to_owned()].into(), ..Kept::default() };
            let system = SystemDisk { kept, ..of(&disk) };
            let (before, at) = (disk.digest(2), tempfile::tempdir().unwrap());
            let found = Labelled::open(&system, &["ignition", label], at.path(), &|| false).unwrap();
            assert_eq!((found.label, found.device()), (1, disk.part(3).display().to_string()));
            let tree = found.tree().unwrap();
            tree.write("/ignition/config.ign", 0o600, &b"{}"[..]).unwrap();
            drop(tree);
            found.close().unwrap();
            assert_eq!(disk.digest(2), before, "{kind}: kept");
            let written = disk.with(3, kind, "", |root| fs::read_to_string(root.join("ignition/config.ign")))?;
            assert_eq!(written.unwrap(), "{}", "{kind}");
            let missing = Labelled::open(&system, &["ignition"], at.path(), &|| false).unwrap_err().to_string();
            assert!(missing.contains(&format!("p3 has {label}")) && missing.contains("p2 was kept"), "{missing}");
            let twins = Labelled::open(&of(&disk), &[label], at.path(), &|| false).unwrap_err().to_string();
            assert!(twins.contains("p2 and of") && twins.contains(label), "{twins}");
        }
        Ok(())
    });
}
