//! Directories opened with another directory as `/`.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// How paths are resolved: absolute links and `..` in links end at the root.
pub(crate) const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
/// How directories are opened.
pub(crate) const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// The directory of this name with `root` as `/`; empty for the root itself.
pub(crate) fn in_root(root: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(root, if name.is_empty() { b"." } else { name }, DIRECTORY, Mode::empty(), IN_ROOT)
}
