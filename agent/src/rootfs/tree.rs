//! Writing into a foreign directory tree without ever leaving it.
//!
//! The installed image is not trusted: a symbolic link in it may point to `/dev` or to `../..`. Every path is resolved
//! by the kernel with the tree as its root (`openat2`, `RESOLVE_IN_ROOT`), and files are put in place by renaming,
//! which replaces a link and never follows it. A power cut leaves the old file or the new one.

use std::fs::File;
use std::io;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fsync, symlinkat, unlinkat};

use super::label;

/// Where new content waits before it is renamed; a left-over of an interrupted workflow is overwritten.
const TEMPORARY: &str = ".landfall-new";

/// How every path is resolved: absolute links and `..` end at the tree's root.
pub(super) const IN_TREE: ResolveFlag = ResolveFlag::RESOLVE_IN_ROOT.union(ResolveFlag::RESOLVE_NO_MAGICLINKS);

/// Something in the tree could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", path.display())]
pub(crate) struct TreeError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Who owns a file; `None`: who wrote it, which is root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The user's number.
    pub(crate) user: Option<u32>,
    /// The group's number.
    pub(crate) group: Option<u32>,
}

/// A directory taken as `/`.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
}

impl Tree {
    /// Takes the directory at `root`.
    ///
    /// # Errors
    /// [`TreeError`] if it is none.
    pub(crate) fn open(root: &Path) -> Result<Self, TreeError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(root, flags, Mode::empty()).map_err(failed("open", root))?;
        Ok(Self { root })
    }

    /// Puts a file of root's at an absolute path, with directories on the way (0755) where they are missing.
    ///
    /// # Errors
    /// [`TreeError`]; what stood there before still does.
    pub(crate) fn write(&self, path: &str, mode: u32, content: impl Read) -> Result<(), TreeError> {
        self.write_owned(path, mode, Owner::default(), content)
    }

    /// As [`Self::write`], for another owner. The file is put in place only after `content` was read to its end.
    ///
    /// # Errors
    /// [`TreeError`]; what stood there before still does.
    pub(crate) fn write_owned(
        &self, path: &str, mode: u32, owner: Owner, mut content: impl Read,
    ) -> Result<(), TreeError> {
        let path = Path::new(path);
        let (directory, name) = self.parent(path)?;
        remove(&directory, Path::new(TEMPORARY)).map_err(failed("replace", path))?;
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&directory, TEMPORARY, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(failed("create", path))?;
        label::copy(&directory, Path::new(TEMPORARY), Some(Path::new(&name))).map_err(unlabelled(path))?;
        let mut file = File::from(fd);
        io::copy(&mut content, &mut file).and_then(|_| file.flush()).map_err(|source| TreeError {
            what: "write",
            path: path.to_owned(),
            source,
        })?;
        // Before the mode, of which a change of owner takes set-user-ID away.
        fchown(&file, owner.user.map(Uid::from_raw), owner.group.map(Gid::from_raw))
            .map_err(failed("set the owner of", path))?;
        // After the content, so that a secret is never readable to others; not subject to the umask.
        fchmod(&file, Mode::from_bits_truncate(mode)).map_err(failed("set the mode of", path))?;
        fsync(&file).map_err(failed("flush", path))?;
        renameat(&directory, TEMPORARY, &directory, name.as_str()).map_err(failed("put in place", path))?;
        fsync(&directory).map_err(failed("flush the directory of", path))
    }

    /// Puts a symbolic link to `target` at an absolute path.
    ///
    /// # Errors
    /// [`TreeError`]
    pub(crate) fn link(&self, path: &str, target: &str) -> Result<(), TreeError> {
        let path = Path::new(path);
        let (directory, name) = self.parent(path)?;
        remove(&directory, Path::new(TEMPORARY)).map_err(failed("replace", path))?;
        symlinkat(target, &directory, TEMPORARY).map_err(failed("create", path))?;
        label::copy(&directory, Path::new(TEMPORARY), Some(Path::new(&name))).map_err(unlabelled(path))?;
        renameat(&directory, TEMPORARY, &directory, name.as_str()).map_err(failed("put in place", path))?;
        fsync(&directory).map_err(failed("flush the directory of", path))
    }

    /// Removes a file or link; a missing one is not an error.
    ///
    /// # Errors
    /// [`TreeError`]
    pub(crate) fn remove(&self, path: &str) -> Result<(), TreeError> {
        let path = Path::new(path);
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = match self.directory(parent) {
            Ok(directory) => directory,
            Err(Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(failed("open", parent)(e)),
        };
        remove(&directory, Path::new(path.file_name().unwrap_or_default())).map_err(failed("remove", path))?;
        fsync(&directory).map_err(failed("flush the directory of", path))
    }

    /// Makes a directory (0755) at an absolute path, with those on the way, where it is missing.
    ///
    /// # Errors
    /// [`TreeError`]
    pub(super) fn make_directory(&self, path: &str) -> Result<(), TreeError> {
        self.parent(&Path::new(path).join("x")).map(drop)
    }

    /// The directory of `path`, made where missing, and the last part of it.
    fn parent(&self, path: &Path) -> Result<(OwnedFd, String), TreeError> {
        let none = || TreeError { what: "write to", path: path.to_owned(), source: io::ErrorKind::InvalidInput.into() };
        let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(none)?;
        let directory = path.parent().ok_or_else(none)?;
        let mut open = self.directory(Path::new("/")).map_err(failed("open", Path::new("/")))?;
        let mut reached = PathBuf::from("/");
        for part in directory.iter().skip(1) {
            let next = reached.join(part);
            open = match self.directory(&next) {
                Err(Errno::ENOENT) => {
                    match mkdirat(&open, part, Mode::from_bits_truncate(0o755)) {
                        Ok(()) => label::copy(&open, Path::new(part), None).map_err(unlabelled(&next))?,
                        // A link to nowhere stands there: ENOENT when opened, EEXIST when made.
                        Err(Errno::EEXIST) => {}
                        Err(e) => return Err(failed("make the directory", &next)(e)),
                    }
                    // The new name is as durable as what will stand below it.
                    fsync(&open).map_err(failed("flush", &reached))?;
                    self.directory(&next).map_err(failed("open", &next))?
                }
                other => other.map_err(failed("open", &next))?,
            };
            reached = next;
        }
        Ok((open, name.to_owned()))
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    pub(super) fn directory(&self, path: &Path) -> nix::Result<OwnedFd> {
        let how = OpenHow::new().flags(OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC).resolve(IN_TREE);
        openat2(&self.root, path, how)
    }
}

fn remove(directory: &OwnedFd, name: &Path) -> nix::Result<()> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(e),
    }
}

fn unlabelled(path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    move |source| TreeError { what: "set the SELinux label of", path: path.to_owned(), source }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> TreeError {
    move |errno| TreeError { what, path: path.to_owned(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn tree() -> (tempfile::TempDir, Tree, PathBuf) {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir(&root).unwrap();
        let tree = Tree::open(&root).unwrap();
        (outer, tree, root)
    }

    #[test]
    fn a_file_is_written_with_its_mode_and_missing_directories() {
        let (_outer, tree, root) = tree();
        for _ in 0..2 {
            tree.write("/var/lib/seed/user-data", 0o600, &b"secret"[..]).unwrap();
        }
        let path = root.join("var/lib/seed/user-data");
        assert_eq!(fs::read(&path).unwrap(), b"secret");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(root.join("var/lib/seed")).unwrap().count(), 1, "a temporary file was left");
        tree.remove("/var/lib/seed/user-data").unwrap();
        tree.remove("/var/lib/seed/user-data").unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_gets_its_owner_and_keeps_set_user_id() {
        let (_outer, tree, root) = tree();
        let me = fs::metadata(&root).unwrap();
        let (user, group) = if me.uid() == 0 { (4321, 5432) } else { (me.uid(), me.gid()) };
        let owner = Owner { user: Some(user), group: Some(group) };
        tree.write_owned("/bin/tool", 0o4755, owner, &b"x"[..]).unwrap();
        let tool = fs::metadata(root.join("bin/tool")).unwrap();
        assert_eq!((tool.uid(), tool.gid(), tool.mode() & 0o7777), (user, group, 0o4755));
        assert_eq!(fs::metadata(root.join("bin")).unwrap().uid(), me.uid());
    }

    #[test]
    fn all_that_is_added_gets_the_directorys_label() {
        let (_outer, tree, root) = tree();
        let label = "security.selinux";
        if let Err(e) = rustix::fs::lsetxattr(&root, label, b"u:r:t:s0\0", rustix::fs::XattrFlags::empty()) {
            eprintln!("SKIPPED: labels cannot be set here: {e}");
            return;
        }
        tree.write("/etc/landfall/config", 0o600, &b"x"[..]).unwrap();
        tree.link("/etc/wants", "landfall/config").unwrap();
        tree.make_directory("/var/lib").unwrap();
        for path in ["etc", "etc/landfall", "etc/landfall/config", "etc/wants", "var", "var/lib"] {
            let mut found = [0; 64];
            let length = rustix::fs::lgetxattr(root.join(path), label, &mut found[..]).expect(path);
            assert_eq!(&found[..length], b"u:r:t:s0\0", "{path}");
        }
    }

    #[test]
    fn links_out_of_the_tree_are_resolved_inside_it() {
        let (outer, tree, root) = tree();
        fs::create_dir(outer.path().join("etc")).unwrap();
        symlink("../etc", root.join("up")).unwrap();
        symlink(outer.path().join("etc"), root.join("absolute")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        tree.write("/up/passwd", 0o644, &b"x"[..]).unwrap();
        assert!(root.join("etc/passwd").exists());
        // Inside the tree the absolute path does not exist, so it is refused.
        tree.write("/absolute/passwd", 0o644, &b"x"[..]).unwrap_err();
        assert_eq!(fs::read_dir(outer.path().join("etc")).unwrap().count(), 0);
    }

    #[test]
    fn a_link_at_the_files_path_is_replaced() {
        let (outer, tree, root) = tree();
        let victim = outer.path().join("victim");
        fs::write(&victim, "old").unwrap();
        symlink(&victim, root.join("file")).unwrap();
        symlink(&victim, root.join(TEMPORARY)).unwrap();
        tree.write("/file", 0o644, &b"new"[..]).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"old");
        assert_eq!(fs::read(root.join("file")).unwrap(), b"new");
        tree.link("/file", "elsewhere").unwrap();
        assert_eq!(fs::read_link(root.join("file")).unwrap(), Path::new("elsewhere"));
    }
}
