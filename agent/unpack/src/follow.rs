//! Which links a name goes through. The kernel follows links and does not say which; the archive's own must not lead out of the
//! directory that is unpacked to, and those of the installed system may.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat};
use rustix::io::Errno;

/// Device and inode of a link.
pub(crate) type Identity = (u64, u64);

/// As many links as the kernel follows in one name.
const MOST: usize = 40;
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const PLAIN: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_SYMLINKS);

/// Which links a way goes through.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// One of the archive's own.
    pub(crate) own: bool,
    /// Links of the system, up to the first of the archive's own.
    pub(crate) others: Vec<Identity>,
}

/// What the way from the directory at `path` of the system to `name` in it meets; `own` are the archive's links. What is missing
/// on the way ends it.
///
/// # Errors
/// The kernel's; `ELOOP` for too many links.
pub(crate) fn met(system: &OwnedFd, path: &[u8], name: &[u8], own: &HashSet<Identity>) -> Result<Met, Errno> {
    let parts = |bytes: &[u8]| bytes.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<VecDeque<_>>();
    let mut reached: Vec<Vec<u8>> = Vec::new();
    let mut ahead = parts(path);
    ahead.extend(parts(name));
    let mut met = Met::default();
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
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(met),
            other => other?,
        };
        let stat = statat(&open, "", AtFlags::EMPTY_PATH)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            continue;
        }
        let link = (stat.st_dev, stat.st_ino);
        if own.contains(&link) {
            return Ok(Met { own: true, ..met });
        }
        met.others.push(link);
        if met.others.len() > MOST {
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
    Ok(met)
}
