//! Whole disks, assembled with the tools.

use std::fs;
use std::time::{Duration, SystemTime};

use super::*;
use crate::inspect::{Report, inspect};

fn tools_are_there() -> bool {
    let there = Path::new("/usr/lib/grub/i386-pc/boot.img").exists()
        && Path::new("/usr/lib/grub/x86_64-efi").exists()
        && ["mke2fs", "mformat", "grub-mkimage"]
            .iter()
            .all(|tool| tools::run(tool, ["--version"]).is_ok() || tools::run(tool, ["-V"]).is_ok());
    if !there {
        eprintln!("GRUB, mtools or e2fsprogs is missing; not assembled");
    }
    there
}

/// A recipe of an ext4 root, which a test changes.
fn recipe(root: &Path) -> Recipe<'_> {
    Recipe {
        root,
        label: "mini",
        seed: Seed::new("test"),
        sector: Sector::Bytes512,
        root_fs: RootFs::Ext4,
        root_mib: 16,
        var: None,
        esp_mib: 8,
        grub: Path::new("/usr/lib/grub"),
        level: 3,
        keep_raw: true,
    }
}

fn root(dir: &Path) -> PathBuf {
    let root = dir.join("root");
    fs::create_dir_all(root.join("boot/grub")).unwrap();
    fs::write(root.join("boot/grub/grub.cfg"), "echo hello\n").unwrap();
    // mke2fs copies access times, and reading for the first disk would change them for the second. The kernel does
    // not change one in the future (mount option relatime).
    let future = fs::FileTimes::new().set_accessed(SystemTime::now() + Duration::from_secs(3600));
    for path in ["", "boot", "boot/grub", "boot/grub/grub.cfg"] {
        fs::File::open(root.join(path)).unwrap().set_times(future).unwrap();
    }
    root
}

#[test]
fn the_same_recipe_gives_the_same_disk() {
    if !tools_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = root(dir.path());
    let make = |name: &str| {
        let out = dir.path().join(name);
        fs::create_dir(&out).unwrap();
        (assemble(&recipe(&root), &out).unwrap(), out)
    };
    let ((one, out), (two, _)) = (make("one"), make("two"));
    assert_eq!(one, two);
    let mut names: Vec<_> =
        fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [RAW, STORED, CHECKSUM, MANIFEST]);

    let disk = fs::read(out.join(RAW)).unwrap();
    assert_eq!(disk.len() as u64, one.raw_bytes);
    assert_eq!(disk[510..512], [0x55, 0xaa]);
    assert_eq!(disk[446 + 4], 0xee);
    assert_eq!(disk[0x5c..0x64], 2048u64.to_le_bytes());
    assert!(disk[(1 << 20) - 4096..1 << 20].iter().all(|byte| *byte == 0), "the receipt's place is taken");
    assert_eq!(disk[(1 << 20) + 500..(1 << 20) + 508], 2049u64.to_le_bytes());
    let root_at = (2 + 8) << 20;
    assert_eq!(disk[root_at + 0x438..root_at + 0x43a], [0x53, 0xef], "no ext4 where the root must be");
    let Report::Disk { sizes, partitions, .. } = inspect(&out.join(STORED)).unwrap() else { panic!("no disk") };
    assert_eq!((sizes.digest, sizes.raw_digest), (one.digest, one.raw_digest));
    assert_eq!(partitions.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["bios", "esp", "root"]);
}

#[test]
fn a_disk_for_large_sectors_has_them_everywhere() {
    if !tools_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = root(dir.path());
    assemble(&Recipe { sector: Sector::Bytes4096, ..recipe(&root) }, dir.path()).unwrap();
    let disk = fs::read(dir.path().join(RAW)).unwrap();
    assert_eq!(&disk[4096..4104], b"EFI PART");
    assert!(disk[..440].iter().all(|byte| *byte == 0), "boot code that no BIOS can run");
    assert!(disk[1 << 20..2 << 20].iter().all(|byte| *byte == 0), "and what it would load");
    let esp = 2 << 20;
    assert_eq!((&disk[esp + 11..esp + 13], &disk[esp + 510..esp + 512]), (&[0, 16][..], &[0x55, 0xaa][..]));
    let report = inspect(&dir.path().join(STORED)).unwrap();
    let Report::Disk { sector_bytes, partitions, .. } = report else { panic!("no disk") };
    assert_eq!(sector_bytes, 4096);
    let places: Vec<_> = partitions.iter().map(|p| (p.number, p.name.as_str(), p.start)).collect();
    assert_eq!(places, [(1, "bios", 1 << 20), (2, "esp", 2 << 20), (3, "root", 10 << 20)]);
}

#[test]
fn a_root_without_a_boot_menu_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = Recipe { grub: dir.path(), ..recipe(dir.path()) };
    assert!(matches!(assemble(&recipe, dir.path()), Err(AssembleError::NoMenu(_))));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// What is at a path of a disk's partition, read by mounting it; `None` where this machine cannot.
fn mounted(disk: &Path, offset: u64, options: &str, path: &str) -> Option<String> {
    let point = tempfile::tempdir().unwrap();
    let options = format!("ro,loop,offset={offset}{options}");
    let (disk, at) = (disk.display().to_string(), point.path().display().to_string());
    if let Err(error) = tools::run("mount", ["-o", &options, &disk, &at]) {
        eprintln!("SKIPPED: {error}");
        return None;
    }
    let text = fs::read_to_string(point.path().join(path));
    tools::run("umount", [&at]).unwrap();
    Some(text.unwrap())
}

#[test]
fn other_roots_and_a_separate_var_hold_their_files() {
    if !tools_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (root, var) = (root(dir.path()), dir.path().join("var"));
    fs::create_dir_all(var.join("lib")).unwrap();
    fs::write(var.join("lib/file"), "of var").unwrap();
    for (root_fs, options, prefix) in [
        (RootFs::Ext4, "", "(,gpt3)/boot/grub"),
        (RootFs::Xfs, ",norecovery", "(,gpt3)/boot/grub"),
        (RootFs::Btrfs, ",subvol=@rootfs", "(,gpt3)/@rootfs/boot/grub"),
    ] {
        let out = dir.path().join(format!("{root_fs:?}"));
        fs::create_dir(&out).unwrap();
        let recipe = Recipe { root_fs, root_mib: 320, var: Some((&var, 16)), level: 1, ..recipe(&root) };
        match assemble(&recipe, &out) {
            Err(AssembleError::Mount(error)) => {
                eprintln!("SKIPPED: {root_fs:?}: {error}");
                continue;
            }
            made => drop(made.unwrap()),
        }
        let Report::Disk { partitions, .. } = inspect(&out.join(STORED)).unwrap() else { panic!("no disk") };
        assert_eq!(partitions.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["bios", "esp", "root", "var"]);
        let raw = fs::read(out.join(RAW)).unwrap();
        assert!(raw.windows(prefix.len()).any(|window| window == prefix.as_bytes()), "{root_fs:?}");
        let disk = out.join(RAW);
        if let Some(menu) = mounted(&disk, 10 << 20, options, "boot/grub/grub.cfg") {
            assert_eq!(menu, "echo hello\n");
            assert_eq!(mounted(&disk, 330 << 20, ",noload", "lib/file").as_deref(), Some("of var"));
        }
    }
}
