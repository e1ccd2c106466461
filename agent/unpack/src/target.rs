//! Where archives go: a directory of an installed system.

use std::{os::fd::OwnedFd, path::Path};

use landfall_api::message::HiddenPoint;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::{Fault, UnpackError, hidden::Hidden, name::shown, resolve::in_root};

/// A directory of an installed system, which no other process may change meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The root of the system.
    pub system: &'a Path,
    /// The directory's path in it. It need not be there; links on the way are the system's.
    pub path: &'a str,
    /// What the running system will mount over, and is not mounted now.
    pub hidden: &'a [HiddenPoint],
}

impl Target<'_> {
    /// Whether archives can go there; nothing is made. Returns the innermost directory of its path that is there.
    ///
    /// # Errors
    /// [`UnpackError::Io`]: no directory stands there, or a link on the way leads nowhere. [`UnpackError::Refused`]: the running
    /// system would not see it.
    pub fn look(&self) -> Result<OwnedFd, UnpackError> {
        let (system, path) = self.open()?;
        let io = |errno: Errno| self.unopened(errno);
        let hidden = Hidden::new(&system, self.hidden).map_err(io)?;
        let seen = |why: Option<&str>| {
            let fault = |why: &str| Fault::Hidden(why.into());
            why.map_or(Ok(()), |why| Err(UnpackError::Refused { entry: self.path.into(), fault: fault(why) }))
        };
        seen(hidden.by_name(&path))?;
        let mut reached = in_root(&system, b"").map_err(io)?;
        for end in (0..path.len()).filter(|at| path[*at] == b'/').chain([path.len()]) {
            let at = |errno: Errno| {
                let action = format!("open the directory /{} of", shown(&path[..end]));
                UnpackError::Io { action, entry: self.path.into(), source: errno.into() }
            };
            reached = match in_root(&system, &path[..end]) {
                Err(Errno::NOENT) => {
                    let part = path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                    return match statat(&reached, part, AtFlags::SYMLINK_NOFOLLOW) {
                        Err(Errno::NOENT) => Ok(reached),
                        // A link to nowhere.
                        _ => Err(at(Errno::NOENT)),
                    };
                }
                other => other.map_err(at)?,
            };
            seen(hidden.by_place(&reached).map_err(io)?)?;
        }
        Ok(reached)
    }

    /// The system's root, and the path's parts between single slashes.
    pub(crate) fn open(&self) -> Result<(OwnedFd, Vec<u8>), UnpackError> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let system = openat(CWD, self.system, flags, Mode::empty()).map_err(|errno| self.unopened(errno))?;
        let parts: Vec<_> = self.path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err(self.unopened(Errno::INVAL));
        }
        Ok((system, parts.join("/").into_bytes()))
    }

    fn unopened(&self, errno: Errno) -> UnpackError {
        UnpackError::Io { action: "open the directory".into(), entry: self.path.into(), source: errno.into() }
    }
}
