//! The directory that is unpacked to, and those below it.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    rc::Rc,
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2},
    io::Errno,
};

use crate::name::MAX_NAME;

/// How every path is resolved: absolute links and `..` in links end at the root.
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);
/// How many directories are kept open. Archives go through a tree in order, so few are needed at a time; a process may have
/// 1024 descriptors.
const KEPT: usize = 256;

/// A directory taken as `/`.
pub(crate) struct Root {
    fd: Rc<OwnedFd>,
    /// Directories by the name under which they were found.
    kept: HashMap<Vec<u8>, Rc<OwnedFd>>,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let fd = openat(rustix::fs::CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Self { fd: Rc::new(fd), kept: HashMap::new() })
    }

    /// The root itself.
    pub(crate) fn top(&self) -> impl AsFd + '_ {
        self.fd.as_fd()
    }

    /// The directory of this name, made where it is missing (root's, 0755), with those on the way.
    pub(crate) fn directory(&mut self, name: &[u8]) -> Result<Rc<OwnedFd>, Errno> {
        if name.is_empty() {
            return Ok(Rc::clone(&self.fd));
        }
        if let Some(kept) = self.kept.get(name) {
            return Ok(Rc::clone(kept));
        }
        let fd = match self.existing(name) {
            Err(Errno::NOENT) => self.made(name)?,
            other => other?,
        };
        if self.kept.len() >= KEPT {
            self.kept.clear();
        }
        let fd = Rc::new(fd);
        self.kept.insert(name.to_vec(), Rc::clone(&fd));
        Ok(fd)
    }

    /// The directory of this name as it stands; links to it are followed.
    pub(crate) fn existing(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        debug_assert!(name.len() <= MAX_NAME, "names are checked when they are read");
        openat2(&self.fd, if name.is_empty() { b"." } else { name }, DIRECTORY, Mode::empty(), IN_ROOT)
    }

    /// The same, if it is a directory and no link to one.
    pub(crate) fn itself(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = DIRECTORY.union(OFlags::NOFOLLOW);
        openat2(&self.fd, if name.is_empty() { b"." } else { name }, flags, Mode::empty(), IN_ROOT)
    }

    /// A directory or a link was removed or replaced: names may lead elsewhere now.
    pub(crate) fn changed(&mut self) {
        self.kept.clear();
    }

    fn made(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let mut open = openat2(&self.fd, ".", DIRECTORY, Mode::empty(), IN_ROOT)?;
        let mut end = 0;
        for part in name.split(|byte| *byte == b'/') {
            end += part.len();
            let reached = &name[..end];
            open = match self.existing(reached) {
                Err(Errno::NOENT) => {
                    // A link to nowhere stands there where this says that it exists; then the second look says so.
                    match mkdirat(&open, part, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => self.existing(reached)?,
                        Err(e) => return Err(e),
                    }
                }
                other => other?,
            };
            end += 1;
        }
        Ok(open)
    }
}
