//! Where everything lies on the disk.

use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};

use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition::Partition;
use gpt::partition_types::Type;
use gpt::{GptConfig, GptError, partition_types};

use super::seed::Seed;

/// The logical sectors of the disks that an image is for. A partition table counts in them, so an image fits one size only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sector {
    /// 512 bytes: nearly every disk.
    Bytes512,
    /// 4096 bytes: 4Kn disks, which no BIOS starts.
    Bytes4096,
}

impl Sector {
    /// Their size.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }

    fn block(self) -> LogicalBlockSize {
        match self {
            Self::Bytes512 => LogicalBlockSize::Lb512,
            Self::Bytes4096 => LogicalBlockSize::Lb4096,
        }
    }
}

const MIB: u64 = 1 << 20;
/// Entries in the table. More than those in use: Landfall's receipt takes the highest slot.
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
    pub fn first_lba(self, sector: Sector) -> u64 {
        self.start / sector.bytes()
    }

    fn last_lba(self, sector: Sector) -> u64 {
        (self.start + self.bytes) / sector.bytes() - 1
    }
}

/// The whole disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What the table counts in.
    pub sector: Sector,
    /// GRUB's core.img for BIOS. Empty on a disk that no BIOS starts; the others keep their numbers.
    pub bios: Extent,
    /// EFI system partition.
    pub esp: Extent,
    /// Root file system; its partition number is [`ROOT_NUMBER`].
    pub root: Extent,
    /// `/var`, if it has a file system of its own.
    pub var: Option<Extent>,
    /// Bytes of the disk.
    pub total: u64,
}

/// Number of the root partition, which GRUB's prefix names.
pub const ROOT_NUMBER: u32 = 3;

impl Layout {
    /// Lays out a disk whose ESP, root and `/var` (0: none) have these sizes; everything starts at a full MiB.
    pub fn new(sector: Sector, esp_mib: u32, root_mib: u32, var_mib: u32) -> Self {
        let bios = Extent { start: MIB, bytes: MIB };
        let esp = Extent { start: bios.start + bios.bytes, bytes: u64::from(esp_mib) * MIB };
        let root = Extent { start: esp.start + esp.bytes, bytes: u64::from(root_mib) * MIB };
        let var = Extent { start: root.start + root.bytes, bytes: u64::from(var_mib) * MIB };
        let total = var.start + var.bytes + MIB;
        // The last MiB is the backup table's.
        Self { sector, bios, esp, root, var: Some(var).filter(|_| var_mib > 0), total }
    }

    /// Where GRUB for a BIOS goes, if a BIOS can start the disk.
    pub fn for_bios(&self) -> Option<Extent> {
        Some(self.bios).filter(|_| self.sector == Sector::Bytes512)
    }

    /// The protective master boot record of a disk of this size, with this code.
    pub fn protective_mbr(&self, boot_code: [u8; 440]) -> ProtectiveMBR {
        let sectors = self.total / self.sector.bytes() - 1;
        let mut mbr = ProtectiveMBR::with_lb_size(u32::try_from(sectors).unwrap_or(u32::MAX));
        mbr.set_bootcode(boot_code);
        mbr
    }

    /// Writes both tables to a disk of the right size, without [`Self::protective_mbr`].
    ///
    /// # Errors
    /// The device fails or has the wrong size.
    pub fn write_table<D: Read + Write + Seek + std::fmt::Debug>(
        &self, device: D, seed: &Seed, root_type: Type,
    ) -> Result<D, GptError> {
        let mut table = GptConfig::new()
            .writable(true)
            .logical_block_size(self.sector.block())
            .create_from_device(device, Some(seed.uuid("disk")))?;
        let entry = |kind: Type, name: &str, extent: Extent| Partition {
            part_type_guid: kind,
            part_guid: seed.uuid(&format!("partition {name}")),
            first_lba: extent.first_lba(self.sector),
            last_lba: extent.last_lba(self.sector),
            flags: 0,
            name: name.to_owned(),
        };
        let mut partitions = BTreeMap::from([
            (1, entry(partition_types::BIOS, "bios", self.bios)),
            (2, entry(partition_types::EFI, "esp", self.esp)),
            (ROOT_NUMBER, entry(root_type, "root", self.root)),
        ]);
        // Without the type that systemd takes for the /var of one machine id.
        partitions.extend(self.var.map(|var| (ROOT_NUMBER + 1, entry(partition_types::LINUX_FS, "var", var))));
        table.update_partitions(partitions)?;
        table.write()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, process::Command};

    use super::*;

    fn written(sector: Sector) -> (tempfile::TempDir, std::path::PathBuf, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        let layout = Layout::new(sector, 8, 16, 0);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(layout.total).unwrap();
        let mut file = layout.write_table(file, &Seed::new("test"), partition_types::LINUX_ROOT_X64).unwrap();
        layout.protective_mbr([0; 440]).overwrite_lba0(&mut file).unwrap();
        (dir, path, layout)
    }

    #[test]
    fn the_table_leaves_room_for_the_receipt() {
        for sector in [Sector::Bytes512, Sector::Bytes4096] {
            let (_dir, path, layout) = written(sector);
            let bytes = sector.bytes();
            let table = GptConfig::new().logical_block_size(sector.block()).open(&path).unwrap();
            let header = table.primary_header().unwrap();
            assert_eq!(header.num_parts, ENTRIES);
            assert_eq!(table.guid(), &Seed::new("test").uuid("disk"));
            let root = &table.partitions()[&ROOT_NUMBER];
            assert_eq!(root.part_type_guid.guid.to_string(), "4f68bce3-e8cd-4db1-96e7-fbcaf984b709");
            assert_eq!((root.first_lba * bytes, root.sectors_len().unwrap() * bytes), (10 << 20, 16 << 20));
            // The last 4096 bytes of the first MiB.
            let (place, after_table) = ((1 << 20) - 4096, 2 * bytes + u64::from(ENTRIES) * 128);
            assert!(after_table <= place && header.first_usable * bytes <= place, "the receipt has no room");
            assert!(table.partitions().values().all(|part| part.first_lba * bytes >= 1 << 20));
            assert_eq!(layout.total, 27 << 20);
        }
    }

    #[test]
    fn sgdisk_and_sfdisk_find_nothing_wrong() {
        let (_dir, path, _) = written(Sector::Bytes512);
        for (tool, flag, good) in [("sgdisk", "-v", "No problems found"), ("sfdisk", "--verify", "No errors detected")]
        {
            judged_by(tool, flag, good, &path);
        }
    }

    #[test]
    fn on_a_4kn_disk_sgdisk_finds_nothing_wrong() {
        let (_dir, path, _) = written(Sector::Bytes4096);
        let made = Command::new("losetup").args(["--find", "--show", "--sector-size", "4096"]).arg(&path).output();
        let device = match made {
            Ok(made) if made.status.success() => String::from_utf8(made.stdout).unwrap().trim().to_owned(),
            other => {
                eprintln!("SKIPPED: no loop device with 4096-byte sectors: {other:?}");
                return;
            }
        };
        let judged = std::panic::catch_unwind(|| judged_by("sgdisk", "-v", "No problems found", device.as_ref()));
        assert!(Command::new("losetup").args(["--detach", &device]).status().unwrap().success());
        judged.unwrap();
    }

    fn judged_by(tool: &str, flag: &str, good: &str, disk: &std::path::Path) {
        match Command::new(tool).arg(flag).arg(disk).output() {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && text.contains(good), "{tool}: {text}");
            }
            Err(error) => eprintln!("SKIPPED: {tool} was not run: {error}"),
        }
    }
}
