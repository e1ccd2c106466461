//! What a disk's partition table says of its partitions, by number. Read with the disk's own sector size.

use std::{collections::BTreeMap, io, path::Path};

use landfall_disk::{BlockDevice, Entry, ReadAt, RealDevice, judge::Findings};

/// The entries of the table firmware goes by, by partition number (from 1); empty without a GPT or where it cannot be read.
pub(super) fn entries(disk: &Path) -> BTreeMap<u32, Entry> {
    read(disk).unwrap_or_else(|e| {
        tracing::warn!("the partition table of {} cannot be read: {e}", disk.display());
        BTreeMap::new()
    })
}

/// The identity in a master boot record, of which the names of its partitions are made; `None` where there is none.
pub(super) fn mbr_identity(disk: &Path) -> Option<u32> {
    let device = RealDevice::open_read_only(disk).ok()?;
    let mut first = [0; 512];
    device.read_at(0, &mut first).ok()?;
    identity(&first)
}

fn identity(first: &[u8; 512]) -> Option<u32> {
    let number = u32::from_le_bytes(first[440..444].try_into().ok()?);
    (first[510..] == [0x55, 0xaa] && number != 0).then_some(number)
}

fn read(disk: &Path) -> io::Result<BTreeMap<u32, Entry>> {
    let device = RealDevice::open_read_only(disk)?;
    by_number(&device, device.logical_sector())
}

fn by_number(disk: &dyn ReadAt, sector: u32) -> io::Result<BTreeMap<u32, Entry>> {
    let found = Findings::of(disk, sector)?;
    Ok(found.table().into_iter().flat_map(|table| table.used()).map(|entry| (entry.index + 1, entry)).collect())
}

/// A GUID as text, lower-case; `bytes` are in the mixed order of the disk.
pub(super) fn guid(bytes: [u8; 16]) -> String {
    uuid::Uuid::from_bytes_le(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use std::{io::Cursor, process::Command};

    use gpt::{GptConfig, disk::LogicalBlockSize, mbr::ProtectiveMBR, partition_types};

    use super::*;

    /// 16 MiB with one partition that is typed and named, made by another program's writer.
    fn image(sector: LogicalBlockSize) -> (Vec<u8>, String) {
        let mut bytes = vec![0; 16 << 20];
        let sectors = u32::try_from(bytes.len() as u64 / u64::from(sector)).unwrap() - 1;
        ProtectiveMBR::with_lb_size(sectors).overwrite_lba0(&mut Cursor::new(&mut bytes[..])).unwrap();
        let device = Cursor::new(&mut bytes[..]);
        let config = GptConfig::new().writable(true).logical_block_size(sector);
        let mut disk = config.create_from_device(device, None).unwrap();
        disk.add_partition("Root ß", 4 << 20, partition_types::LINUX_ROOT_X64, 0, None).unwrap();
        let part_guid = disk.partitions()[&1].part_guid.to_string();
        disk.write().unwrap();
        (bytes, part_guid)
    }

    fn claims(found: &BTreeMap<u32, Entry>, part_guid: &str, case: &str) {
        assert_eq!(found.keys().collect::<Vec<_>>(), [&1], "{case}");
        let entry = &found[&1];
        assert_eq!(guid(entry.kind), "4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "{case}");
        assert_eq!((guid(entry.guid).as_str(), entry.label.as_str()), (part_guid, "Root ß"), "{case}");
    }

    #[test]
    fn types_and_names_are_read_at_both_sector_sizes() {
        for (sector, bytes) in [(LogicalBlockSize::Lb512, 512), (LogicalBlockSize::Lb4096, 4096)] {
            let (mut image, part_guid) = image(sector);
            claims(&by_number(&image, bytes).unwrap(), &part_guid, &format!("{bytes}"));
            image[bytes as usize..2 * bytes as usize].fill(0);
            claims(&by_number(&image, bytes).unwrap(), &part_guid, &format!("{bytes}, by the backup"));
        }
    }

    #[test]
    fn a_master_boot_record_has_an_identity() {
        let mut first = [0; 512];
        first[440..444].copy_from_slice(&[0x78, 0x56, 0x34, 0x12]);
        assert_eq!(identity(&first), None);
        first[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(identity(&first), Some(0x1234_5678));
        first[440..444].fill(0);
        assert_eq!(identity(&first), None);
    }

    #[test]
    fn a_device_is_read_with_its_own_sector_size() {
        for (sector, bytes) in [(LogicalBlockSize::Lb512, "512"), (LogicalBlockSize::Lb4096, "4096")] {
            let (image, part_guid) = image(sector);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), image).unwrap();
            let made =
                Command::new("losetup").args(["--find", "--show", "--sector-size", bytes]).arg(file.path()).output();
            let device = match made {
                Ok(made) if made.status.success() => String::from_utf8(made.stdout).unwrap(),
                other => {
                    eprintln!("SKIPPED: no loop device with {bytes}-byte sectors: {other:?}");
                    continue;
                }
            };
            let found = read(Path::new(device.trim()));
            assert!(Command::new("losetup").arg("--detach").arg(device.trim()).status().unwrap().success());
            claims(&found.unwrap(), &part_guid, bytes);
        }
    }
}
