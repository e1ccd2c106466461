//! What people publish by mistake, through the whole writer onto a file: refused by name, whatever the digest says, and
//! nothing is written. Files are made by the tools whose formats they have, where those are installed; the others are
//! what the format's specification says of a file's first bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::request::{persons, write_request};
use crate::common::{MIB, digest, gpt_image, mbr_image, noise};
use landfall_api::ErrorCode;
use landfall_disk::{Image, Proof, Unobserved, WriteError, WriteOutcome, WriteRequest, image_at, write_image};
use uuid::Uuid;

const DISK: u64 = 24 * MIB;

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The result, and whether the disk is as blank as it was.
    fn write(&self, stored: &[u8], no_table: bool) -> (Result<WriteOutcome, WriteError>, bool) {
        let (file, disk) = (self.path("file"), self.path("disk"));
        fs::write(&file, stored).unwrap();
        fs::File::create(&disk).unwrap().set_len(DISK).unwrap();
        let url = format!("file://{}", file.display());
        let image = Image { no_table, ..image_at(url, Proof::Stored(digest(stored))) };
        // Each call is another workflow's.
        let workflow = Uuid::new_v4().as_u128();
        let request = WriteRequest { authority: persons(workflow), ..write_request(&disk, image, workflow) };
        let result = write_image(&request, &Unobserved);
        let blank = fs::read(&disk).unwrap().iter().all(|byte| *byte == 0);
        (result, blank)
    }

    fn refused(&self, what: &str, stored: &[u8], name: &str, hint: &str, no_table: bool) {
        let (result, blank) = self.write(stored, no_table);
        let error = result.map(|_| ()).expect_err(what);
        let problem = error.problem();
        assert!(blank, "{what}: the disk was written");
        assert_eq!(error.code(), ErrorCode::BadFormat, "{what}: {error}");
        assert!(error.to_string().contains(name), "{what}: {error}");
        assert!(problem.hint.contains(hint), "{what}: {problem}");
    }
}

/// Bytes at an offset, in noise that no table and no text has.
fn with(at: usize, magic: &[u8]) -> Vec<u8> {
    let mut bytes = noise(2 * MIB, 7);
    bytes[..512].fill(0x91);
    bytes[at..at + magic.len()].copy_from_slice(magic);
    bytes
}

/// A PE program with sections of these names.
fn pe(sections: &[&[u8]]) -> Vec<u8> {
    let mut bytes = with(0, b"MZ");
    bytes[0x3c..0x40].copy_from_slice(&0x80_u32.to_le_bytes());
    bytes[0x80..0x98].fill(0);
    bytes[0x80..0x84].copy_from_slice(b"PE\0\0");
    bytes[0x86] = sections.len() as u8;
    for (i, name) in sections.iter().enumerate() {
        bytes[0x98 + 40 * i..][..8].fill(0);
        bytes[0x98 + 40 * i..][..name.len()].copy_from_slice(name);
    }
    bytes
}

const CONVERT: &str = "qemu-img convert";
const STREAM: &str = "-o subformat=streamOptimized";
const OVA: &str = "publish the .vmdk";
const UNPACK: &str = "unpack it";
const PROGRAM: &str = "does not start from a disk";
const BROWSER: &str = "in a browser";
const COMPRESS: &str = "compress the disk image once";
const BESIDE: &str = "only describes it";
const OTHER: &str = "state the URL of a disk image";

/// By specification: bytes, the name in the error, the hint.
fn specified() -> Vec<(Vec<u8>, &'static str, &'static str)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let long = |line: &str| line.repeat(40_000).into_bytes();
    vec![
        (with(64, &[0x7f, 0x10, 0xda, 0xbe]), "VDI", CONVERT),
        (with(0, b"QED\0"), "QED", CONVERT),
        (with(0, b"COWD"), "VMDK of ESX", STREAM),
        (text("# Disk DescriptorFile\nversion=1\n"), "descriptor of a VMDK", STREAM),
        (with(0, b"vhdxfile"), "VHDX", CONVERT),
        (with(0, b"conectix"), "VHD", CONVERT),
        (with(0, b"WithoutFreeSpace"), "Parallels", CONVERT),
        (with(0, b"x\x01s\rbb`"), "DMG", CONVERT),
        (with(0, b"EVF\x09\x0d\x0a\xff\0"), "EnCase", CONVERT),
        (with(0, &[0x3a, 0xff, 0x26, 0xed]), "Android sparse", CONVERT),
        (with(0, &[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, 0, 4]), "7z", UNPACK),
        (with(0, b"PK\x03\x04\x14\0"), "ZIP", UNPACK),
        (with(0, b"Rar!\x1a\x07\x01\0"), "RAR", UNPACK),
        (with(257, b"ustar\0"), "tar", UNPACK),
        (with(0, b"070701"), "cpio", UNPACK),
        (with(0, b"MSWIM\0\0\0"), "WIM", UNPACK),
        (with(0, b"MSCF\0\0\0\0"), "cabinet", UNPACK),
        (with(0, &[0xed, 0xab, 0xee, 0xdb, 3, 0]), "RPM", UNPACK),
        (with(0, b"!<arch>\ndebian-binary"), "Debian package", UNPACK),
        (with(0, b"xar!"), "xar", UNPACK),
        (with(0, b"LZIP\x01"), "lzip", COMPRESS),
        (with(0, &[0x89, b'L', b'Z', b'O', 0, 0x0d, 0x0a, 0x1a, 0x0a]), "lzop", COMPRESS),
        (with(0, &[0x02, 0x21, 0x4c, 0x18]), "legacy format", COMPRESS),
        (with(0, &[0x1f, 0x9d, 0x90]), "compress (.Z)", COMPRESS),
        (with(0, &[0x5d, 0, 0, 0x80, 0, 255, 255, 255, 255, 255, 255, 255, 255]), "LZMA", COMPRESS),
        (with(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]), "ELF", PROGRAM),
        (pe(&[b".text"]), "UEFI or Windows", PROGRAM),
        (pe(&[b".text", b".linux"]), "UKI", PROGRAM),
        (with(0, &[0xcf, 0xfa, 0xed, 0xfe]), "Mach-O", PROGRAM),
        (with(0, &[0xd0, 0x0d, 0xfe, 0xed]), "device tree", PROGRAM),
        (with(0, &[0x27, 0x05, 0x19, 0x56]), "U-Boot", PROGRAM),
        (text("#!/bin/sh\nexec true\n"), "script", PROGRAM),
        (text("<!doctype html><title>404</title>"), "web page", BROWSER),
        (text("\u{feff}\r\n <HTML><body>login</body></HTML>"), "web page", BROWSER),
        (long("<html><p>a long page</p></html>\n"), "web page", BROWSER),
        (text("<?xml version=\"1.0\"?><Error/>"), "XML", BROWSER),
        (text("{\"message\": \"unauthorised\"}"), "JSON", BROWSER),
        (long("[{\"a\": 1}]\n"), "JSON", BROWSER),
        (text("404 page not found\n"), "text", BROWSER),
        (long("a line of a log\n"), "text", BROWSER),
        (text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), "Git LFS", BESIDE),
        (text("d8:announce20:http://t.example/ann4:infod6:lengthi5eee"), "torrent", BESIDE),
        (text("zsync: 0.6.2\nFilename: a.img\n"), "zsync", BESIDE),
        (text("untrusted comment: signature\nRUQ\n"), "minisign", BESIDE),
        (text("-----BEGIN PGP SIGNATURE-----\n\n"), "PEM", BESIDE),
        (with(0, b"%PDF-1.7"), "PDF", OTHER),
        (with(0, &[0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a]), "PNG", OTHER),
        (with(0, &[0xff, 0xd8, 0xff, 0xe0]), "JPEG", OTHER),
        (with(0, b"SQLite format 3\0"), "SQLite", OTHER),
    ]
}

/// File systems and other volumes by specification.
fn volumes() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (with(0, b"hsqs"), "squashfs"),
        (with(1024, &[0xe2, 0xe1, 0xf5, 0xe0]), "EROFS"),
        (with(0, &[0x45, 0x3d, 0xcd, 0x28]), "cramfs"),
        (with(0x8001, b"CD001"), "ISO 9660"),
        (with(0x438, &[0x53, 0xef]), "ext file system"),
        (with(0, b"XFSB"), "XFS"),
        (with((64 << 10) + 64, b"_BHRfS_M"), "btrfs"),
        (with(4086, b"SWAPSPACE2"), "swap"),
        (with(0, b"LUKS\xba\xbe\0\x02"), "LUKS"),
        (with(512, b"LABELONE"), "LVM"),
        (with(3, b"NTFS    "), "NTFS"),
        (with(0x52, b"FAT32   "), "FAT"),
        (with(1024, &[0x10, 0x20, 0xf5, 0xf2]), "F2FS"),
        (with(4096, &[0xfc, 0x4e, 0x2b, 0xa9]), "md RAID"),
    ]
}

#[test]
fn forty_formats_are_refused_by_name_whatever_the_digest() {
    let bench = Bench::new();
    let all = specified();
    assert!(all.len() + volumes().len() >= 60);
    for (bytes, name, hint) in all {
        for no_table in [false, true] {
            bench.refused(name, &bytes, name, hint, no_table);
        }
        // What it decodes to counts, not how it is wrapped.
        let wrapped = zstd::encode_all(&bytes[..], 1).unwrap();
        bench.refused(name, &wrapped, name, hint, false);
    }
}

#[test]
fn a_volume_without_a_table_needs_the_word() {
    let bench = Bench::new();
    for (bytes, name) in volumes() {
        bench.refused(name, &bytes, name, "table: none", false);
        let (written, _) = bench.write(&bytes, true);
        assert_eq!(written.unwrap().installed.raw_bytes, bytes.len() as u64, "{name}");
        assert!(fs::read(bench.path("disk")).unwrap().starts_with(&bytes), "{name}");
    }
    for (what, bytes) in [("zeroes", vec![0; MIB as usize]), ("noise", with(0, &[0x91]))] {
        bench.refused(what, &bytes, "no partition table", "table: none", false);
        assert!(bench.write(&bytes, true).0.is_ok(), "{what}");
    }
    bench.refused(
        "an image with a table",
        &mbr_image(4 * MIB, 3),
        "but it has a partition table",
        "correct what",
        true,
    );
}

#[test]
fn an_image_that_is_compressed_twice_is_refused() {
    let bench = Bench::new();
    let image = mbr_image(4 * MIB, 3);
    let twice =
        crate::common::formats::all(&image).into_iter().filter(|once| once.index.is_none() && once.name != "raw");
    for once in twice {
        let hint = match once.name {
            "qcow2" => CONVERT,
            "vmdk" | "vmdk-vmware" => STREAM,
            _ => COMPRESS,
        };
        let outer = zstd::encode_all(&once.image[..], 1).unwrap();
        bench.refused(once.name, &outer, "not a disk image", hint, false);
    }
}

#[test]
fn a_gpt_left_over_behind_an_mbr_is_refused() {
    let bench = Bench::new();
    let gpt = gpt_image(4 * MIB, 512, &[(2048, 4096)], 5);
    for sector in [512, 4096] {
        let mut image = gpt_image(4 * MIB, sector, &[(256, 300)], 5);
        let table = mbr_image(4 * MIB, 3);
        image[..512].copy_from_slice(&table[..512]);
        bench.refused("a left-over GPT", &image, "left over", "wipefs", false);
        // Damaged, it is no less left over.
        image[sector as usize + 60] ^= 1;
        bench.refused("a damaged left-over GPT", &image, "left over", "wipefs", false);
    }
    assert!(bench.write(&gpt, false).0.is_ok(), "an announced one is none");
}

/// The file that a tool makes of a small disk; `None` and a line on stderr if it is not installed.
fn made(dir: &Path, program: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let out = dir.join("made");
    // Some of them add to a file that is there, others want one.
    drop(fs::remove_file(&out));
    if program.starts_with("mk") && program != "mkfs.cramfs" {
        fs::File::create(&out).unwrap().set_len(8 * MIB).unwrap();
    }
    let ran = Command::new(program).current_dir(dir).args(arguments).stdin(Stdio::null()).output();
    let Ok(ran) = ran else {
        eprintln!("SKIPPED: {program} is not installed");
        return None;
    };
    assert!(ran.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    // One of them names its file anew, so it writes to its standard output.
    Some(fs::read(out).unwrap_or(ran.stdout))
}

#[test]
fn files_of_real_tools_are_refused_by_name() {
    let bench = Bench::new();
    let dir = bench.dir.path();
    fs::write(dir.join("raw"), mbr_image(4 * MIB, 3)).unwrap();
    fs::create_dir_all(dir.join("tree/DEBIAN")).unwrap();
    fs::write(dir.join("tree/file"), noise(5000, 2)).unwrap();
    fs::write(dir.join("disk.ovf"), "<Envelope/>").unwrap();
    let control = "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x.example>\nDescription: x\n";
    fs::write(dir.join("tree/DEBIAN/control"), control).unwrap();
    let convert = |format: &'static str, options: &'static str| {
        let mut all = vec!["convert", "-f", "raw", "-O", format];
        all.extend(["-o", options].into_iter().filter(|_| !options.is_empty()));
        all.extend(["raw", "made"]);
        ("qemu-img", all)
    };
    let cases = [
        (convert("vdi", ""), "VDI", CONVERT),
        (convert("qed", ""), "QED", CONVERT),
        (convert("vmdk", ""), "kind monolithicSparse", STREAM),
        (convert("vmdk", "subformat=monolithicFlat"), "descriptor of a VMDK", STREAM),
        (convert("vmdk", "subformat=twoGbMaxExtentSparse"), "descriptor of a VMDK", STREAM),
        (convert("vmdk", "subformat=twoGbMaxExtentFlat"), "descriptor of a VMDK", STREAM),
        (("cat", vec!["made-s001"]), "kind monolithicSparse", STREAM),
        (("tar", vec!["-cf", "made", "disk.ovf", "raw"]), "OVA", OVA),
        (("tar", vec!["--format=v7", "-cf", "made", "disk.ovf", "raw"]), "OVA", OVA),
        (("tar", vec!["-cf", "made", "raw", "disk.ovf"]), "tar archive", UNPACK),
        (convert("vhdx", ""), "VHDX", CONVERT),
        (convert("vpc", "subformat=dynamic"), "VHD", CONVERT),
        (convert("parallels", ""), "Parallels", CONVERT),
        (("tar", vec!["-cf", "made", "raw"]), "tar archive", UNPACK),
        (("tar", vec!["--format=v7", "-cf", "made", "raw"]), "tar archive", UNPACK),
        (("zip", vec!["-q", "-", "raw"]), "ZIP", UNPACK),
        (("dpkg-deb", vec!["-b", "tree", "made"]), "Debian package", UNPACK),
        (("sqlite3", vec!["made", "create table t (a)"]), "SQLite", OTHER),
        (("mkfs.cramfs", vec!["tree", "made"]), "cramfs", "table: none"),
        (("mke2fs", vec!["-q", "-F", "-t", "ext4", "made"]), "ext file system", "table: none"),
        (("mkfs.fat", vec!["made"]), "FAT", "table: none"),
        (("mkfs.fat", vec!["-F", "32", "made"]), "FAT", "table: none"),
        (("mkswap", vec!["-q", "made"]), "swap", "table: none"),
    ];
    for ((program, arguments), name, hint) in cases {
        let Some(bytes) = made(dir, program, &arguments) else { continue };
        bench.refused(&format!("{program} {arguments:?}"), &bytes, name, hint, false);
    }
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    bench.refused("this program", &program[..4 << 20], "ELF", PROGRAM, false);
}
