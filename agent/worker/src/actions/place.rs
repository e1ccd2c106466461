//! A directory of the new system by its path there: every link on the way is one of that system, absolute ones too.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// An open directory of the new system.
#[derive(Debug)]
pub(crate) struct Place(OwnedFd);

impl Place {
    /// The directory at `path` of the system whose root is `root`; made where it is missing (root's, 0755), with those on the way.
    ///
    /// # Errors
    /// The kernel's, such as a file in a directory's place.
    pub(crate) fn open(root: &Path, path: &str) -> io::Result<Self> {
        let root = openat(CWD, root, DIRECTORY, Mode::empty())?;
        let mut at = String::from(".");
        let mut open = openat2(&root, at.as_str(), DIRECTORY, Mode::empty(), IN_ROOT)?;
        for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
            match mkdirat(&open, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            at = format!("{at}/{part}");
            // From the root again: a link may lead up.
            open = openat2(&root, at.as_str(), DIRECTORY, Mode::empty(), IN_ROOT)?;
        }
        Ok(Self(open))
    }

    /// A path that leads to it for as long as it is open, whatever stands where it was found.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_of_the_new_system_lead_within_it() {
        let root = tempfile::tempdir().unwrap();
        let inside = |path: &str| root.path().join(path);
        fs::create_dir_all(inside("data")).unwrap();
        symlink("/data", inside("opt")).unwrap();
        symlink("../../..", inside("data/up")).unwrap();
        for (path, real) in
            [("/", ""), ("/opt/app", "data/app"), ("/opt/up/srv/www", "srv/www"), ("//srv/./x/", "srv/x")]
        {
            let place = Place::open(root.path(), path).unwrap();
            fs::write(place.path().join("here"), path).unwrap();
            assert_eq!(fs::read_to_string(inside(real).join("here")).unwrap(), path, "{path}");
        }
        fs::write(inside("file"), "").unwrap();
        symlink("/nowhere", inside("dangling")).unwrap();
        for path in ["/file", "/file/x", "/dangling/x"] {
            Place::open(root.path(), path).unwrap_err();
        }
    }
}
