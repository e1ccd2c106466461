//! Which links a name goes through. The kernel follows links and does not say which; the archive's own must not lead out of the
//! directory that is unpacked to, and those of the installed system may.

use std::{
    collections::{HashSet, VecDeque},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat},
    io::Errno,
};

/// Device and inode of a link.
pub(crate) type Identity = (u64, u64);

/// As many links as the kernel follows in one name.
const MOST: usize = 40;
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const PLAIN: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_SYMLINKS);

/// Whether the way from the directory at `path` of the system to `name` in it goes through one of these links. What is missing on
/// the way ends it.
///
/// # Errors
/// The kernel's; `ELOOP` for too many links.
pub(crate) fn meets(system: &OwnedFd, path: &[u8], name: &[u8], links: &HashSet<Identity>) -> Result<bool, Errno> {
    let parts = |bytes: &[u8]| bytes.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<VecDeque<_>>();
    let mut reached: Vec<Vec<u8>> = Vec::new();
    let mut ahead = parts(path);
    ahead.extend(parts(name));
    let mut followed = 0;
    while let Some(part) = ahead.pop_front() {
        match part.as_slice() {
            b"" | b"." => continue,
            b".." => {
                reached.pop();
                continue;
            }
            _ => reached.push(part),
        }
        let open = match openat2(system, reached.join(&b'/'), PATH, Mode::empty(), PLAIN) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
            other => other?,
        };
        let stat = statat(&open, "", AtFlags::EMPTY_PATH)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            continue;
        }
        if links.contains(&(stat.st_dev, stat.st_ino)) {
            return Ok(true);
        }
        followed += 1;
        if followed > MOST {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(&open, "", Vec::new())?;
        let target = target.as_bytes();
        if target.starts_with(b"/") {
            reached.clear();
        } else {
            reached.pop();
        }
        let mut rest = parts(target);
        rest.append(&mut ahead);
        ahead = rest;
    }
    Ok(false)
}
