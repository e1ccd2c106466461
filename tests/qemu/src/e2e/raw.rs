//! Images and disks as raw files on the host.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context as _;
use landfall_disk::ReadAt;

/// A disk in a file.
pub(super) struct Disk<'a> {
    file: &'a File,
    size: u64,
}

impl<'a> Disk<'a> {
    pub(super) fn new(file: &'a File) -> io::Result<Self> {
        Ok(Self { file, size: file.metadata()?.len() })
    }
}

impl ReadAt for Disk<'_> {
    fn size(&self) -> u64 {
        self.size
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Writes what an image decodes to: zstd, or raw already.
pub(super) fn decode(stored: &Path, raw: &Path) -> anyhow::Result<()> {
    let mut out = File::create(raw)?;
    let mut input = File::open(stored)?;
    let mut magic = [0; 4];
    input.read_exact(&mut magic)?;
    let input = File::open(stored)?;
    if magic == [0x28, 0xb5, 0x2f, 0xfd] {
        io::copy(&mut zstd::Decoder::new(input)?, &mut out)?;
    } else {
        io::copy(&mut { input }, &mut out)?;
    }
    Ok(())
}

/// Where two files first differ within a range.
pub(super) fn first_difference(a: &File, b: &File, range: Range<u64>) -> anyhow::Result<Option<u64>> {
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = range.start;
    while at < range.end {
        let n = usize::try_from((range.end - at).min(1 << 20))?;
        a.read_exact_at(&mut left[..n], at)?;
        b.read_exact_at(&mut right[..n], at)?;
        if left[..n] != right[..n] {
            let off = left[..n].iter().zip(&right[..n]).position(|(a, b)| a != b);
            return Ok(off.map(|off| at + off as u64));
        }
        at += n as u64;
    }
    Ok(None)
}

/// A sector halfway through what the image holds, without a zero in it: one that is really written.
pub(super) fn sector_of_data(image: &Path) -> anyhow::Result<u64> {
    let file = File::open(image)?;
    let mut block = vec![0; 1 << 20];
    let size = file.metadata()?.len();
    let mut full = Vec::new();
    for start in (0..size).step_by(block.len()) {
        let n = usize::try_from((size - start).min(block.len() as u64))?;
        file.read_exact_at(&mut block[..n], start)?;
        let sectors = (start..).step_by(512).zip(block[..n].chunks_exact(512));
        full.extend(sectors.filter(|(_, sector)| sector.iter().all(|byte| *byte != 0)).map(|(at, _)| at));
    }
    full.get(full.len() / 2).copied().context("the image holds nothing but zeroes")
}

/// Copies a disk and leaves its holes holes.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    copy_file(&File::open(from).with_context(|| from.display().to_string())?, to)
}

/// Copies an open disk and leaves its holes holes.
pub(super) fn copy_file(from: &File, to: &Path) -> anyhow::Result<()> {
    let out = File::create(to)?;
    let length = from.metadata()?.len();
    out.set_len(length)?;
    let mut at = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Some(data) = next_data(from, at)? {
        at = data & !0xfff;
        let n = usize::try_from((length - at).min(buffer.len() as u64))?;
        from.read_exact_at(&mut buffer[..n], at)?;
        out.write_all_at(&buffer[..n], at)?;
        at += n as u64;
        if at >= length {
            break;
        }
    }
    Ok(())
}

/// Where the next bytes that are not a hole begin.
fn next_data(file: &File, from: u64) -> anyhow::Result<Option<u64>> {
    match nix::unistd::lseek(file, i64::try_from(from)?, nix::unistd::Whence::SeekData) {
        Ok(at) => Ok(Some(u64::try_from(at)?)),
        Err(nix::errno::Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_only_inside_the_range() {
        let (a, b) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        a.set_len(3 << 20).unwrap();
        b.set_len(3 << 20).unwrap();
        b.write_all_at(&[1], (2 << 20) + 7).unwrap();
        assert_eq!(first_difference(&a, &b, 0..3 << 20).unwrap(), Some((2 << 20) + 7));
        assert_eq!(first_difference(&a, &b, 0..(2 << 20) + 7).unwrap(), None);
    }

    #[test]
    fn the_chosen_data_sector_has_no_zero_byte() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(3 << 20).unwrap();
        assert!(sector_of_data(file.path()).is_err());
        for at in [4096, 700 << 10, 2 << 20] {
            file.as_file().write_all_at(&[1; 700], at).unwrap();
        }
        assert_eq!(sector_of_data(file.path()).unwrap(), 700 << 10);
    }
}
