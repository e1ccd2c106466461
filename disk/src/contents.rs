//! What is on a disk, for people: its table, its partitions, and the volumes by their signatures and labels.

use std::{io, ops::Range, path::Path};

use jiff::Timestamp;
use landfall_api::{DiskContents, MAX_PARTITIONS, MAX_VOLUMES, PartitionFacts, VolumeFacts};

use crate::gpt::{Legacy, RECEIPT_TYPE};
use crate::judge::Findings;
use crate::{DiskError, ReadAt, RealDevice, blank, signature};

/// Where a kind of volume has its label, bytes from the volume's start, and how long it is at most. Names are those of the
/// table of signatures. Sources: Linux ext4.h (`s_volume_name`), xfs_format.h (`sb_fname`), btrfs_tree.h (`label`), swap.h
/// (`sws_volume`); Microsoft's FAT specification, section 3 (`BS_VolLab`); ECMA-119, section 8.4; cryptsetup's LUKS2
/// on-disk format; md_p.h (`set_name`).
const LABELS: &[(&str, u64, usize, Option<Magic>)] = &[
    ("an ext file system", 1024 + 120, 16, None),
    ("an XFS file system", 108, 12, None),
    ("a btrfs file system", (64 << 10) + 0x12b, 256, None),
    ("swap space", 1024 + 28, 16, None),
    ("a FAT file system", 0x47, 11, Some((0x52, b"FAT32"))),
    ("a FAT file system", 0x2b, 11, Some((0x36, b"FAT"))),
    ("an ISO 9660 file system", 0x8028, 32, None),
    ("a LUKS volume", 24, 48, Some((0, b"LUKS\xba\xbe\0\x02"))),
    ("an md RAID member", 4096 + 32, 32, Some((4096, &[0xfc, 0x4e, 0x2b, 0xa9]))),
];

/// Bytes that must be there, from the volume's start, so that the label's place counts.
type Magic = (u64, &'static [u8]);

/// Looks at a device. Reads some MiB at most for each partition that it names.
///
/// # Errors
/// [`DiskError::Read`].
pub fn read_contents(device: &Path) -> Result<DiskContents, DiskError> {
    let read = |source| DiskError::Read { path: device.into(), source };
    let open = RealDevice::open_read_only(device).map_err(read)?;
    let sector = crate::BlockDevice::logical_sector(&open);
    look(&open, sector, Timestamp::now()).map_err(read)
}

fn look(disk: &dyn ReadAt, sector: u32, seen_at: Timestamp) -> io::Result<DiskContents> {
    let found = Findings::of(disk, sector)?;
    let mut table = String::new();
    let mut places: Vec<(u32, String, Range<u64>)> = Vec::new();
    if let Some(gpt) = found.table() {
        "gpt".clone_into(&mut table);
        // The receipt's own entry is no data of anyone.
        let used = gpt.used().filter(|entry| entry.kind != RECEIPT_TYPE);
        places.extend(used.map(|entry| (entry.index + 1, entry.label.clone(), entry.bytes(sector))));
    } else {
        let legacy = Legacy::read(disk, sector)?.partitions;
        if !legacy.is_empty() {
            "mbr".clone_into(&mut table);
        }
        places.extend(legacy.into_iter().map(|(number, range)| (number, String::new(), range)));
    }
    let size = disk.size();
    let more = u32::try_from(places.len().saturating_sub(MAX_PARTITIONS)).unwrap_or(u32::MAX);
    let inside = |offset: u64| places.iter().any(|(.., range)| range.contains(&offset));
    let outside = signature::find(disk, &(0..size))?;
    let volumes = volumes(disk, 0, outside.iter().filter(|found| !inside(found.offset)).map(|found| found.name))?;
    let mut partitions = Vec::new();
    for (number, name, range) in places.into_iter().take(MAX_PARTITIONS) {
        let range = range.start.min(size)..range.end.min(size);
        let found = signature::find(disk, &range)?;
        let volumes = self::volumes(disk, range.start, found.iter().map(|found| found.name))?;
        partitions.push(PartitionFacts { number, name, size_bytes: range.end - range.start, volumes });
    }
    let unknown_data = table.is_empty() && volumes.is_empty() && blank::what_is_there(disk)?.is_some();
    Ok(DiskContents { seen_at, table, volumes, partitions, more_partitions: more, unknown_data })
}

/// Each kind once, with the label of the volume that begins at `start`.
fn volumes(disk: &dyn ReadAt, start: u64, names: impl Iterator<Item = &'static str>) -> io::Result<Vec<VolumeFacts>> {
    let mut kinds: Vec<&str> = Vec::new();
    for name in names.filter(|name| !signature::is_table(name)) {
        if !kinds.contains(&name) && kinds.len() < MAX_VOLUMES {
            kinds.push(name);
        }
    }
    let volume = |name: &str| {
        let kind = name.split_once(' ').filter(|(article, _)| matches!(*article, "a" | "an")).map_or(name, |(_, k)| k);
        Ok(VolumeFacts { kind: kind.to_owned(), label: label(disk, start, name)? })
    };
    kinds.into_iter().map(volume).collect()
}

fn label(disk: &dyn ReadAt, start: u64, kind: &str) -> io::Result<String> {
    for (_, offset, length, magic) in LABELS.iter().filter(|(name, ..)| *name == kind) {
        let bytes = |at: u64, length: usize| -> io::Result<Vec<u8>> {
            let mut bytes = vec![0; length];
            if start + at + length as u64 <= disk.size() {
                disk.read_at(start + at, &mut bytes)?;
            }
            Ok(bytes)
        };
        if let Some((at, magic)) = magic
            && bytes(*at, magic.len())? != *magic
        {
            continue;
        }
        let text = bytes(*offset, *length)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        return Ok(match String::from_utf8_lossy(&text[..end]).trim() {
            // What mkfs.fat writes where there is none.
            "NO NAME" => String::new(),
            text => text.to_owned(),
        });
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::signature::tests::all_places;

    const MIB: usize = 1 << 20;

    fn contents(disk: &dyn ReadAt) -> DiskContents {
        look(disk, 512, Timestamp::UNIX_EPOCH).unwrap()
    }

    /// A volume made by the program of its kind; `None` without that program.
    fn made(program: &str, args: &[&str], size: usize) -> Option<Vec<u8>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size as u64).unwrap();
        let run = Command::new(program).args(args).arg(file.path()).output();
        if !run.as_ref().is_ok_and(|run| run.status.success()) {
            eprintln!("SKIPPED: {program}: {run:?}");
            return None;
        }
        Some(std::fs::read(file.path()).unwrap())
    }

    #[test]
    fn labels_are_read_as_the_tools_write_them() {
        for (program, args, kind) in [
            ("mkfs.ext4", &["-q", "-F", "-L", "Ablage"][..], "ext file system"),
            ("mkfs.vfat", &["-F", "32", "-n", "Ablage"], "FAT file system"),
            ("mkfs.vfat", &["-F", "16", "-n", "Ablage"], "FAT file system"),
            ("mkfs.xfs", &["-q", "-f", "-L", "Ablage"], "XFS file system"),
            ("mkfs.btrfs", &["-q", "-L", "Ablage"], "btrfs file system"),
            ("mkswap", &["-L", "Ablage"], "swap space"),
        ] {
            let Some(disk) = made(program, args, 320 * MIB) else { continue };
            let found = contents(&disk);
            let [volume] = found.volumes.as_slice() else { panic!("{program} {args:?}: {found:?}") };
            assert_eq!((volume.kind.as_str(), volume.label.to_lowercase().as_str()), (kind, "ablage"), "{args:?}");
            assert!(found.table.is_empty() && !found.is_blank());
        }
    }

    #[test]
    fn partitions_have_names_sizes_and_volumes() {
        let label = "label: gpt\nstart=2048,size=8192,name=\"first one\"\nstart=16384,size=32768\n";
        let mbr = "label: dos\nstart=2048,size=8192\nstart=16384,size=32768,type=5\nstart=20480,size=2048\n";
        for (script, names, numbers) in
            [(label, ["first one", ""].as_slice(), [1, 2].as_slice()), (mbr, &["", "", ""], &[1, 2, 5])]
        {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(32 << 20).unwrap();
            let input = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(input.path(), script).unwrap();
            let input = std::fs::File::open(input.path()).unwrap();
            let run = Command::new("sfdisk").arg("-q").arg(file.path()).stdin(input).status();
            if !run.is_ok_and(|status| status.success()) {
                eprintln!("SKIPPED: no sfdisk");
                continue;
            }
            let mut disk = std::fs::read(file.path()).unwrap();
            let start = if names.len() == 2 { 16384 } else { 20480 } * 512;
            disk[start..start + 4].copy_from_slice(b"XFSB");
            disk[start + 108..start + 114].copy_from_slice(b"Ablage");
            let found = contents(&disk);
            let have: Vec<&str> = found.partitions.iter().map(|p| p.name.as_str()).collect();
            assert_eq!((have.as_slice(), found.partitions[0].size_bytes), (names, 4 << 20));
            assert_eq!(found.partitions.iter().map(|p| p.number).collect::<Vec<_>>(), numbers);
            let last = found.partitions.last().unwrap();
            let volume = VolumeFacts { kind: "XFS file system".into(), label: "Ablage".into() };
            assert_eq!((last.volumes.as_slice(), found.volumes.as_slice()), (&[volume][..], &[][..]), "{found:?}");
            assert_eq!(found.table, if names.len() == 2 { "gpt" } else { "mbr" });
        }
    }

    #[test]
    fn every_signature_is_named_and_zeroes_are_blank() {
        let mut disk = vec![0; 4 * MIB];
        assert!(contents(&disk).is_blank());
        for (name, at, magic) in all_places(4 << 20).into_iter().filter(|(name, ..)| !name.contains("GPT")) {
            let at = at as usize;
            disk[at..at + magic.len()].copy_from_slice(magic);
            let found = contents(&disk);
            assert!(found.volumes.iter().any(|v| name.ends_with(&v.kind)), "{name}: {found:?}");
            disk[at..at + magic.len()].fill(0);
        }
        disk[77_777] = 1;
        let found = contents(&disk);
        assert!(found.unknown_data && !found.is_blank());
    }
}
