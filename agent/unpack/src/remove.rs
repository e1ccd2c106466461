//! Removes what stands in the place of an entry. Links are removed and never followed.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::name::MAX_DEPTH;

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// Nothing stood there.
    Nothing,
    /// A file or a device: no other name leads through it.
    File,
    /// A directory or a link, through which other names may lead.
    Way,
}

/// Removes a file, a link or an empty directory.
///
/// # Errors
/// `ENOTEMPTY` for a directory that is not empty.
pub(crate) fn one(directory: &OwnedFd, name: &[u8]) -> Result<Removed, Errno> {
    let kind = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(Errno::NOENT) => return Ok(Removed::Nothing),
        Err(e) => return Err(e),
    };
    let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(directory, name, flags)?;
    Ok(if matches!(kind, FileType::Directory | FileType::Symlink) { Removed::Way } else { Removed::File })
}

/// The same, and a directory with everything in it, except what `stays` by its place below it.
///
/// # Errors
/// The kernel's; `ENOTEMPTY` where something stays, `ELOOP` for directories deeper than any that is unpacked.
pub(crate) fn whole(directory: &OwnedFd, name: &[u8], stays: &dyn Fn(&[u8]) -> bool) -> Result<Removed, Errno> {
    match one(directory, name) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        other => return other,
    }
    content(directory, name, stays, MAX_DEPTH)?;
    one(directory, name)
}

/// Removes what is in a directory, except what `stays` by its place below it, and except file systems that are mounted in it.
///
/// # Errors
/// As [`whole`].
pub(crate) fn content(
    directory: &OwnedFd, name: &[u8], stays: &dyn Fn(&[u8]) -> bool, depth: usize,
) -> Result<(), Errno> {
    below(directory, name, b"", stays, depth)
}

fn below(
    directory: &OwnedFd, name: &[u8], place: &[u8], stays: &dyn Fn(&[u8]) -> bool, depth: usize,
) -> Result<(), Errno> {
    let Some(depth) = depth.checked_sub(1) else { return Err(Errno::LOOP) };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = openat(directory, name, flags, Mode::empty())?;
    let device = fstat(&open)?.st_dev;
    for child in names(&open)? {
        let place = if place.is_empty() { child.clone() } else { [place, b"/", &child].concat() };
        let stat = statat(&open, &child, AtFlags::SYMLINK_NOFOLLOW)?;
        if stat.st_dev != device {
            continue;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            below(&open, &child, &place, stays, depth)?;
            if stays(&place) {
                continue;
            }
            match unlinkat(&open, &child, AtFlags::REMOVEDIR) {
                // It is left with what stays in it.
                Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        } else if !stays(&place) {
            unlinkat(&open, &child, AtFlags::empty())?;
        }
    }
    Ok(())
}

fn names(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let entries = Dir::read_from(directory)?.map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_vec()));
    let all = entries.collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().filter(|name| name != b"." && name != b"..").collect())
}
