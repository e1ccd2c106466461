//! A boot medium as [`crate::iso`] makes it: an ISO 9660 volume (ECMA-119) with a kernel, a boot image and GRUB's menu.

use std::io::{self, Read, Seek, SeekFrom};

/// Bytes of a sector of a volume; another size is not in use.
const SECTOR: u64 = 2048;
/// The volume's descriptor is in its 17th sector (8.4).
const DESCRIPTOR: u64 = 16 * SECTOR;
/// A larger directory, or a larger menu, is none of ours.
const MAX_READ: u32 = 1 << 20;

/// Where a file or a directory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    sector: u32,
    bytes: u32,
}

/// The parts of a medium that tell what it starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Medium {
    /// The kernel's command line.
    pub(super) command_line: String,
    /// Where the boot image begins, and its length; bytes.
    pub(super) initramfs: (u64, u64),
}

/// Looks for the parts of a medium. `None`: it is no volume, or not one of ours.
///
/// # Errors
/// The file cannot be read.
pub(super) fn find(volume: &mut (impl Read + Seek)) -> io::Result<Option<Medium>> {
    let descriptor = match read(volume, DESCRIPTOR, SECTOR as usize) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    // 1: the primary volume (8.4.1); the record of its root directory is at 156 (8.4.18).
    if descriptor[..6] != *b"\x01CD001" {
        return Ok(None);
    }
    let Some((_, root)) = record(&descriptor[156..190]) else { return Ok(None) };
    let initramfs = file(volume, root, &["LANDFALL", "INITRAMFS"])?;
    let menu = file(volume, root, &["BOOT", "GRUB", "GRUB.CFG"])?;
    let (Some(initramfs), Some(menu)) = (initramfs, menu) else { return Ok(None) };
    let Some(menu) = content(volume, menu)? else { return Ok(None) };
    let menu = String::from_utf8_lossy(&menu);
    let line = menu.lines().find_map(|line| line.trim().strip_prefix("linux ")?.split_once(' '));
    let command_line = line.map(|(_, words)| words.to_owned()).unwrap_or_default();
    let initramfs = (u64::from(initramfs.sector) * SECTOR, initramfs.bytes.into());
    Ok(Some(Medium { command_line, initramfs }))
}

/// A file by the names on the way to it.
fn file(volume: &mut (impl Read + Seek), root: Extent, path: &[&str]) -> io::Result<Option<Extent>> {
    let mut at = root;
    for name in path {
        let Some(directory) = content(volume, at)? else { return Ok(None) };
        // A volume for DOS has eight characters of a name.
        let is_meant = |found: &str| found == *name || found.len() == 8 && name.starts_with(found);
        match entries(&directory).find(|(found, _)| is_meant(found)) {
            Some((_, extent)) => at = extent,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The records of a directory. None crosses the end of a sector: what is left there is zero (6.8.1.1).
fn entries(directory: &[u8]) -> impl Iterator<Item = (String, Extent)> {
    directory.chunks(SECTOR as usize).flat_map(|sector| {
        let mut rest = sector;
        std::iter::from_fn(move || {
            let length = usize::from(*rest.first()?);
            let (one, after) = rest.split_at_checked(length)?;
            rest = after;
            record(one)
        })
    })
}

/// A directory's record (9.1): the name, without the version and the dot of a name that has no extension.
fn record(bytes: &[u8]) -> Option<(String, Extent)> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let extent = Extent { sector: number(2)?, bytes: number(10)? };
    let length = usize::from(*bytes.get(32)?);
    let name = String::from_utf8_lossy(bytes.get(33..33 + length)?).into_owned();
    let name = name.split(';').next().unwrap_or_default().trim_end_matches('.').to_owned();
    Some((name, extent))
}

/// `None`: it is not there, or too large. A disk may have had a volume once, of which the beginning is left.
fn content(volume: &mut (impl Read + Seek), extent: Extent) -> io::Result<Option<Vec<u8>>> {
    if extent.bytes > MAX_READ {
        return Ok(None);
    }
    match read(volume, u64::from(extent.sector) * SECTOR, extent.bytes as usize) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        other => other.map(Some),
    }
}

fn read(volume: &mut (impl Read + Seek), at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    volume.seek(SeekFrom::Start(at))?;
    volume.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn a_record(name: &str, sector: u32, bytes: u32) -> Vec<u8> {
        let mut record = vec![0; 33 + name.len() + (name.len() + 1) % 2];
        (record[0], record[32]) = (record.len() as u8, name.len() as u8);
        record[2..6].copy_from_slice(&sector.to_le_bytes());
        record[10..14].copy_from_slice(&bytes.to_le_bytes());
        record[33..33 + name.len()].copy_from_slice(name.as_bytes());
        record
    }

    /// A volume with these directories and files, each in a sector of its own from the 18th on.
    fn volume(sectors: &[Vec<u8>]) -> Cursor<Vec<u8>> {
        let mut bytes = vec![0; (18 + sectors.len()) * SECTOR as usize];
        let at = DESCRIPTOR as usize;
        bytes[at..at + 6].copy_from_slice(b"\x01CD001");
        bytes[at + 156..at + 190].copy_from_slice(&a_record("\0", 18, SECTOR as u32));
        for (nth, sector) in sectors.iter().enumerate() {
            let at = (18 + nth) * SECTOR as usize;
            bytes[at..at + sector.len()].copy_from_slice(sector);
        }
        Cursor::new(bytes)
    }

    #[test]
    fn a_medium_tells_its_command_line_and_boot_image() {
        let menu = b"echo x\n  linux /landfall/vmlinuz quiet landfall.x=1\ninitrd /landfall/initramfs\n".to_vec();
        let size = SECTOR as u32;
        let mut sectors = vec![
            [a_record("\0", 18, size), a_record("BOOT", 19, size), a_record("LANDFALL", 21, size)].concat(),
            a_record("GRUB", 20, size),
            a_record("GRUB.CFG;1", 22, menu.len() as u32),
            [a_record("VMLINUZ.;1", 40, 5), a_record("INITRAMF.;1", 41, 7)].concat(),
            menu,
        ];
        let found = find(&mut volume(&sectors)).unwrap().unwrap();
        assert_eq!(found, Medium { command_line: "quiet landfall.x=1".into(), initramfs: (41 * SECTOR, 7) });
        sectors[3] = a_record("VMLINUZ.;1", 40, 5);
        assert_eq!(find(&mut volume(&sectors)).unwrap(), None, "without a boot image");
        sectors[0] = a_record("LANDFALL", 21, MAX_READ + 1);
        assert_eq!(find(&mut volume(&sectors)).unwrap(), None, "a directory that is too large");
        sectors[0] = a_record("LANDFALL", 9999, size);
        assert_eq!(find(&mut volume(&sectors)).unwrap(), None, "a directory behind the end");
    }

    #[test]
    fn what_is_no_volume_is_none() {
        for bytes in [Vec::new(), vec![0; 40_000], b"MZ".repeat(30_000)] {
            assert_eq!(find(&mut Cursor::new(bytes)).unwrap(), None);
        }
    }

    #[test]
    fn damaged_directories_end_a_search() {
        for damage in [vec![255; 2048], vec![40, 0, 1], [vec![34], vec![0; 31], vec![200, 0]].concat()] {
            assert_eq!(find(&mut volume(&[damage])).unwrap(), None);
        }
    }
}
