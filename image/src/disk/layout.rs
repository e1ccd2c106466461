//! Where everything lies on the disk.

use std::{
    collections::BTreeMap,
    io::{Read, Seek, Write},
};

use gpt::{
    GptConfig, GptError,
    disk::LogicalBlockSize,
    partition::Partition,
    partition_types::{self, Type},
};

use super::seed::Seed;

/// Bytes of a sector. 4Kn disks need an image of their own; this one is for the far more common 512.
pub const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;
/// Entries in the table. More than the four in use: Landfall's receipt takes the highest slot.
pub const ENTRIES: u32 = 128;

/// One partition, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// From the disk's beginning.
    pub start: u64,
    /// Length.
    pub bytes: u64,
}

impl Extent {
    /// First sector.
    pub fn first_lba(self) -> u64 {
        self.start / SECTOR
    }

    fn last_lba(self) -> u64 {
        (self.start + self.bytes) / SECTOR - 1
    }
}

/// The whole disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// GRUB's core.img for BIOS.
    pub bios: Extent,
    /// EFI system partition.
    pub esp: Extent,
    /// Root file system; its partition number is [`ROOT_NUMBER`].
    pub root: Extent,
    /// Bytes of the disk.
    pub total: u64,
}

/// Number of the root partition, which GRUB's prefix names.
pub const ROOT_NUMBER: u32 = 3;

impl Layout {
    /// Lays out a disk whose ESP and root have these sizes; everything starts at a full MiB.
    pub fn new(esp_mib: u32, root_mib: u32) -> Self {
        let bios = Extent { start: MIB, bytes: MIB };
        let esp = Extent { start: bios.start + bios.bytes, bytes: u64::from(esp_mib) * MIB };
        let root = Extent { start: esp.start + esp.bytes, bytes: u64::from(root_mib) * MIB };
        // The last MiB is the backup table's.
        Self { bios, esp, root, total: root.start + root.bytes + MIB }
    }

    /// Writes both tables to a disk of the right size. `grub` writes the protective MBR.
    ///
    /// # Errors
    /// The device fails or has the wrong size.
    pub fn write_table<D: Read + Write + Seek + std::fmt::Debug>(
        &self,
        device: D,
        seed: &Seed,
        root_type: Type,
    ) -> Result<D, GptError> {
        let mut table = GptConfig::new()
            .writable(true)
            .logical_block_size(LogicalBlockSize::Lb512)
            .create_from_device(device, Some(seed.uuid("disk")))?;
        let entry = |kind: Type, name: &str, extent: Extent| Partition {
            part_type_guid: kind,
            part_guid: seed.uuid(&format!("partition {name}")),
            first_lba: extent.first_lba(),
            last_lba: extent.last_lba(),
            flags: 0,
            name: name.to_owned(),
        };
        table.update_partitions(BTreeMap::from([
            (1, entry(partition_types::BIOS, "bios", self.bios)),
            (2, entry(partition_types::EFI, "esp", self.esp)),
            (ROOT_NUMBER, entry(root_type, "root", self.root)),
        ]))?;
        table.write()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, process::Command};

    use super::*;

    fn written() -> (tempfile::TempDir, std::path::PathBuf, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        let layout = Layout::new(8, 16);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(layout.total).unwrap();
        let mut file = layout.write_table(file, &Seed::new("test"), partition_types::LINUX_ROOT_X64).unwrap();
        let blocks = u32::try_from(layout.total / SECTOR - 1).unwrap();
        gpt::mbr::ProtectiveMBR::with_lb_size(blocks).overwrite_lba0(&mut file).unwrap();
        (dir, path, layout)
    }

    #[test]
    fn the_table_leaves_room_for_the_receipt() {
        let (_dir, path, layout) = written();
        let table = GptConfig::new().open(&path).unwrap();
        assert_eq!(table.primary_header().unwrap().num_parts, ENTRIES);
        assert_eq!(table.guid(), &Seed::new("test").uuid("disk"));
        let root = &table.partitions()[&ROOT_NUMBER];
        assert_eq!(root.part_type_guid.guid.to_string(), "4f68bce3-e8cd-4db1-96e7-fbcaf984b709");
        assert_eq!((root.first_lba * SECTOR, root.sectors_len().unwrap() * SECTOR), (10 << 20, 16 << 20));
        let last_of_table = 2 + u64::from(ENTRIES) * 128 / SECTOR;
        assert!(layout.bios.first_lba() - last_of_table >= 8, "the receipt has no room");
        assert!(table.primary_header().unwrap().first_usable <= layout.bios.first_lba() - 8);
    }

    #[test]
    fn sgdisk_and_sfdisk_find_nothing_wrong() {
        let (_dir, path, _) = written();
        for (tool, flag, good) in [("sgdisk", "-v", "No problems found"), ("sfdisk", "--verify", "No errors detected")]
        {
            match Command::new(tool).arg(flag).arg(&path).output() {
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
                    assert!(output.status.success() && text.contains(good), "{tool}: {text}");
                }
                Err(error) => eprintln!("{tool} was not run: {error}"),
            }
        }
    }
}
