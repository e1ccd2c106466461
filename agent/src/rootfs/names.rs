//! What a file system states about itself: its kind, and the names by which `fstab` and boot loaders find it. No
//! libblkid: four kinds are enough for the systems that are installed.

use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use uuid::Uuid;

/// A file system on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// As the kernel calls it: `ext4` (2 and 3 as well), `xfs`, `btrfs`, `vfat`.
    pub(crate) kind: &'static str,
    /// As `fstab` writes it; `XXXX-XXXX` on FAT.
    pub(crate) uuid: String,
    /// Empty: none.
    pub(crate) label: String,
}

impl FileSystem {
    /// The file system on a device, by its magic number; `None`: none of these kinds.
    ///
    /// # Errors
    /// The device cannot be opened or read.
    pub(crate) fn look(device: &Path) -> io::Result<Option<Self>> {
        Self::read(&mut File::open(device)?)
    }

    fn read(device: &mut (impl Read + Seek)) -> io::Result<Option<Self>> {
        // ext4: Documentation/filesystems/ext4: superblock at 1024; s_magic, s_uuid, s_volume_name.
        if at(device, 1024 + 0x38)? == [0x53, 0xef] {
            return Ok(Some(Self::named("ext4", at(device, 1024 + 0x68)?, &at::<16>(device, 1024 + 0x78)?)));
        }
        // xfs: struct xfs_dsb: sb_magicnum, sb_uuid, sb_fname.
        if at(device, 0)? == *b"XFSB" {
            return Ok(Some(Self::named("xfs", at(device, 32)?, &at::<12>(device, 108)?)));
        }
        // btrfs: struct btrfs_super_block at 64 KiB: magic, fsid, label.
        if at(device, 0x1_0040)? == *b"_BHRfS_M" {
            return Ok(Some(Self::named("btrfs", at(device, 0x1_0020)?, &at::<256>(device, 0x1_012b)?)));
        }
        // FAT: the boot sector's own signature, and a text that says which FAT; serial number and label before it.
        if at(device, 510)? == [0x55, 0xaa] {
            let fat32 = at(device, 0x52)? == *b"FAT32";
            if fat32 || at(device, 0x36)? == *b"FAT1" {
                let (serial, label) = if fat32 { (0x43, 0x47) } else { (0x27, 0x2b) };
                let serial = u32::from_le_bytes(at(device, serial)?);
                let uuid = format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff);
                return Ok(Some(Self { kind: "vfat", uuid, label: text(&at::<11>(device, label)?) }));
            }
        }
        Ok(None)
    }

    fn named(kind: &'static str, uuid: [u8; 16], label: &[u8]) -> Self {
        Self { kind, uuid: Uuid::from_bytes(uuid).to_string(), label: text(label) }
    }
}

/// Bytes at an offset; zeroes where the device is shorter.
fn at<const N: usize>(device: &mut (impl Read + Seek), offset: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    device.seek(SeekFrom::Start(offset))?;
    match device.read_exact(&mut bytes) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok([0; N]),
        other => other.map(|()| bytes),
    }
}

/// Up to the first NUL, without the blanks that FAT fills up with.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn look(parts: &[(usize, &[u8])]) -> Option<FileSystem> {
        let mut image = vec![0; 128 * 1024];
        for (offset, bytes) in parts {
            image[*offset..*offset + bytes.len()].copy_from_slice(bytes);
        }
        FileSystem::read(&mut Cursor::new(image)).unwrap()
    }

    #[test]
    fn file_systems_are_recognised_by_their_magic_numbers() {
        let id = [0xab; 16];
        let uuid = "abababab-abab-abab-abab-abababababab";
        for (kind, parts) in [
            ("ext4", [(1080, &[0x53, 0xef][..]), (1024 + 0x68, &id), (1024 + 0x78, b"boot")]),
            ("xfs", [(0, &b"XFSB"[..]), (32, &id), (108, b"boot")]),
            ("btrfs", [(0x1_0040, &b"_BHRfS_M"[..]), (0x1_0020, &id), (0x1_012b, b"boot")]),
        ] {
            assert_eq!(look(&parts), Some(FileSystem { kind, uuid: uuid.into(), label: "boot".into() }));
        }
        let serial = [0x78, 0x56, 0x34, 0x12];
        for parts in [
            [(510, &[0x55, 0xaa][..]), (0x52, b"FAT32   "), (0x43, &serial), (0x47, b"UEFI       ")],
            [(510, &[0x55, 0xaa][..]), (0x36, b"FAT16   "), (0x27, &serial), (0x2b, b"UEFI       ")],
        ] {
            assert_eq!(look(&parts), Some(FileSystem { kind: "vfat", uuid: "1234-5678".into(), label: "UEFI".into() }));
        }
    }

    #[test]
    fn unknown_and_short_content_is_not_a_file_system() {
        assert_eq!(look(&[(512, b"nothing")]), None);
        assert_eq!(look(&[(510, &[0x55, 0xaa])]), None, "boot code alone");
        assert_eq!(FileSystem::read(&mut Cursor::new(b"x")).unwrap(), None);
    }
}
