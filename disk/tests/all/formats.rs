//! Every format, made by its own reference tool from real content, written by `write_image` and compared with the image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{MIB, digest, formats, gpt_image, request::persons, vmdk};
use landfall_disk::judge::Findings;
use landfall_disk::{Format, Image, Proof, Unobserved, WriteOutcome, WriteRequest, disk_at, image_at, write_image};
use uuid::Uuid;

const DISK: u64 = 24 * MIB;
/// The image's one partition, sectors.
const PART: (u64, u64) = (2048, 36_863);

/// Runs a tool; its standard output, or a panic with what it complained of.
fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// An image with an ext4 file system of real files: this crate's sources and this very test's program.
fn image(dir: &Path) -> PathBuf {
    let (first, last) = PART;
    let mut bytes = gpt_image(19 * MIB, 512, &[PART], 3);
    let (tree, fs_image) = (dir.join("tree"), dir.join("fs"));
    fs::create_dir(&tree).unwrap();
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    fs::write(tree.join("program"), &program[..program.len().min(10 * MIB as usize)]).unwrap();
    run("cp", &["-r", "src", tree.to_str().unwrap()]);
    let size = format!("{}k", (last + 1 - first) / 2);
    run("mke2fs", &["-q", "-t", "ext4", "-d", tree.to_str().unwrap(), fs_image.to_str().unwrap(), &size]);
    bytes[first as usize * 512..(last as usize + 1) * 512].copy_from_slice(&fs::read(fs_image).unwrap());
    let path = dir.join("image");
    fs::write(&path, bytes).unwrap();
    path
}

fn write(
    stored: &Path, proof: Proof, format: Option<Format>, disk: &Path,
) -> Result<WriteOutcome, landfall_disk::WriteError> {
    fs::File::create(disk).unwrap().set_len(DISK).unwrap();
    let request = WriteRequest {
        disk: disk_at(disk).unwrap(),
        image: Image { format, ..image_at(format!("file://{}", stored.display()), proof) },
        keep: Vec::new(),
        read_back: true,
        authority: persons(Uuid::new_v4().as_u128()),
    };
    write_image(&request, &Unobserved)
}

fn assert_written(disk: &Path, image: &[u8], case: &str) {
    let disk = fs::read(disk).unwrap();
    let part = PART.0 as usize * 512..(PART.1 as usize + 1) * 512;
    assert!(disk[part.clone()] == image[part], "{case}: the partition differs");
    let found = Findings::of(&disk, 512).unwrap();
    assert!(found.bios_boots() && found.uefi_boots() && found.backup.is_some(), "{case}");
}

#[test]
fn files_from_reference_tools_are_written_as_those_read_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path());
    let (image, raw) = (fs::read(&path).unwrap(), path.to_str().unwrap());
    let disk = dir.path().join("disk");
    let qcow2 = |options: &[&str]| {
        let out = dir.path().join("qcow2");
        let all = [&["convert", "-f", "raw", "-O", "qcow2"][..], options, &[raw, out.to_str().unwrap()]].concat();
        run("qemu-img", &all);
        fs::read(out).unwrap()
    };
    let cases: Vec<(&str, Format, Vec<u8>)> = vec![
        ("raw", Format::Raw, image.clone()),
        ("gzip -1", Format::Gzip, run("gzip", &["-1", "-c", raw])),
        ("gzip -9", Format::Gzip, run("gzip", &["-9", "-c", raw])),
        ("two gzip members", Format::Gzip, {
            let (first, second) = (dir.path().join("first"), dir.path().join("second"));
            fs::write(&first, &image[..7_000_001]).unwrap();
            fs::write(&second, &image[7_000_001..]).unwrap();
            run("gzip", &["-c", first.to_str().unwrap(), second.to_str().unwrap()])
        }),
        ("xz, one block", Format::Xz, run("xz", &["-0", "-c", raw])),
        ("xz, many blocks", Format::Xz, run("xz", &["-0", "-T2", "--block-size=4MiB", "-c", raw])),
        ("zstd -1", Format::Zstd, run("zstd", &["-1", "-q", "-c", raw])),
        ("zstd --long", Format::Zstd, run("zstd", &["-3", "--long=27", "-q", "-c", raw])),
        ("bzip2", Format::Bzip2, run("bzip2", &["-1", "-c", raw])),
        ("lz4", Format::Lz4, run("lz4", &["-q", "-c", raw])),
        ("qcow2 v2", Format::Qcow2, qcow2(&["-o", "compat=0.10"])),
        ("qcow2 v3", Format::Qcow2, qcow2(&["-o", "compat=1.1,cluster_size=4k"])),
        ("qcow2, zlib", Format::Qcow2, qcow2(&["-c"])),
        ("qcow2, zstd", Format::Qcow2, qcow2(&["-c", "-o", "compression_type=zstd"])),
        ("vmdk of qemu-img", Format::Vmdk, formats::vmdk(&image).unwrap()),
        ("vmdk of VMware", Format::Vmdk, vmdk::of(&image, 128).bytes),
    ];
    for (case, format, stored) in cases {
        // A name that says nothing: formats are known by content.
        let file = dir.path().join("stored.img");
        fs::write(&file, &stored).unwrap();
        for proof in [Proof::Stored(digest(&stored)), Proof::Raw(digest(&image))] {
            let outcome =
                write(&file, proof.clone(), Some(format), &disk).unwrap_or_else(|e| panic!("{case}, {proof:?}: {e}"));
            assert_written(&disk, &image, case);
            assert_eq!(outcome.installed.raw_bytes, image.len() as u64, "{case}");
            assert!(outcome.installed.stored_bytes >= stored.len() as u64, "{case}: all of the file was read");
        }
        let wrong = if format == Format::Raw { Format::Gzip } else { Format::Raw };
        let error = write(&file, Proof::Stored(digest(&stored)), Some(wrong), &disk).unwrap_err();
        assert_eq!(error.code().as_str(), "BadFormat", "{case}: {error}");
        assert!(fs::read(&disk).unwrap().iter().all(|byte| *byte == 0), "{case}: the disk was touched");
    }
}

#[test]
fn the_hint_names_the_option_for_other_sectors() {
    let error = landfall_disk::WriteError::WrongSectorSize { device: "/dev/nvme0n1".into(), image: 512, disk: 4096 };
    assert!(error.problem().hint.contains("landfall-image os-disk --sector-size"), "{}", error.problem());
}
