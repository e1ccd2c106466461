//! Reading from a foreign directory tree without ever leaving it: as in `tree`, every path is resolved by the kernel with the
//! tree as its root, so a link in it that points to `/dev` or to `../..` leads nowhere else.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, openat2};

use super::tree::{IN_TREE, Tree};

/// The largest text read: many times any boot loader's configuration.
const MAX_TEXT: u64 = 4 << 20;
/// Names taken from one directory.
const MAX_NAMES: usize = 4096;

/// A regular file of the tree, opened for reading.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The file.
    pub(crate) file: File,
    /// Where it is inside the tree, links resolved.
    pub(crate) path: String,
}

impl Tree {
    /// Opens a regular file at an absolute path.
    ///
    /// # Errors The kernel's; `InvalidInput` if it is not a regular file.
    pub(crate) fn open_file(&self, path: &str) -> io::Result<Opened> {
        // Non-blocking, because a pipe would be waited on before its kind is known; to a regular file it means nothing.
        let how = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).resolve(IN_TREE);
        let file = File::from(openat2(self.root(), path, how)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let path = self.inside(&file)?;
        Ok(Opened { file, path })
    }

    /// The text of a file; `None` if it is not there. Invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// The kernel's; `FileTooLarge` above 4 MiB.
    pub(crate) fn read_text(&self, path: &str) -> io::Result<Option<String>> {
        let opened = match self.open_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        opened.file.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_TEXT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Names in a directory, sorted; none if it is not there.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let directory = match self.directory(Path::new(path)) {
            Err(Errno::ENOENT) => return Ok(Vec::new()),
            other => other?,
        };
        let entries = fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))?.take(MAX_NAMES);
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether something stands at an absolute path; a link counts, wherever it leads.
    pub(super) fn has(&self, path: &str) -> bool {
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).resolve(IN_TREE);
        openat2(self.root(), path, how).is_ok()
    }

    /// Whether a directory is the root of a btrfs subvolume: those alone have this number (BTRFS_FIRST_FREE_OBJECTID).
    pub(super) fn is_subvolume(&self, path: &str) -> bool {
        let number =
            self.directory(Path::new(path)).and_then(|open| nix::sys::stat::fstat(&open)).map(|facts| facts.st_ino);
        number == Ok(256)
    }

    /// Where a directory really is inside the tree, links resolved; what of it does not exist stays as it is.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn real_directory(&self, path: &str) -> io::Result<String> {
        for above in Path::new(path).ancestors() {
            match self.directory(above) {
                Ok(open) => {
                    let rest = Path::new(path).strip_prefix(above).unwrap_or(Path::new(""));
                    let real = Path::new(&self.inside(&open)?).join(rest);
                    return Ok(real.display().to_string().trim_end_matches('/').to_owned());
                }
                // A file stands there, or a link that leads nowhere: what writes there says so.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(path.to_owned())
    }

    /// A directory to mount something on, and its real path outside the tree.
    ///
    /// # Errors
    /// The kernel's; `NotFound` if it is not there.
    pub(crate) fn mount_point(&self, path: &str) -> io::Result<(OwnedFd, PathBuf)> {
        let directory = self.directory(Path::new(path))?;
        let real = real_path(&directory)?;
        Ok((directory, real))
    }

    /// The path inside the tree of what was opened in it.
    fn inside(&self, file: &impl AsFd) -> io::Result<String> {
        let (root, real) = (real_path(self.root())?, real_path(file)?);
        let below = real.strip_prefix(&root).map_err(io::Error::other)?;
        Ok(Path::new("/").join(below).display().to_string())
    }
}

fn real_path(fd: &impl AsFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_never_lead_out_of_the_tree() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("boot")).unwrap();
        fs::write(outer.path().join("secret"), "outside").unwrap();
        fs::write(root.join("boot/vmlinuz-1"), "inside").unwrap();
        symlink("boot/vmlinuz-1", root.join("relative")).unwrap();
        symlink("/boot/vmlinuz-1", root.join("absolute")).unwrap();
        symlink("../../../boot/vmlinuz-1", root.join("boot/up")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink(outer.path().join("secret"), root.join("far")).unwrap();
        let tree = Tree::open(&root).unwrap();
        for path in ["/relative", "/absolute", "/boot/up", "/boot/vmlinuz-1"] {
            assert_eq!(tree.open_file(path).unwrap().path, "/boot/vmlinuz-1", "{path}");
            assert_eq!(tree.read_text(path).unwrap().unwrap(), "inside");
        }
        for path in ["/out", "/far", "/none"] {
            assert_eq!(tree.open_file(path).unwrap_err().kind(), io::ErrorKind::NotFound, "{path}");
            assert_eq!(tree.read_text(path).unwrap(), None);
        }
        assert_eq!(tree.names("/boot").unwrap(), ["up", "vmlinuz-1"]);
        assert_eq!(tree.names("/nowhere").unwrap(), [""; 0]);
        assert_eq!(tree.mount_point("/boot").unwrap().1, root.canonicalize().unwrap().join("boot"));
    }

    #[test]
    fn a_directorys_real_place_is_known_before_it_exists() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("var/home")).unwrap();
        symlink("var/home", root.path().join("home")).unwrap();
        let tree = Tree::open(root.path()).unwrap();
        for (path, real) in
            [("/home/me/.ssh", "/var/home/me/.ssh"), ("/home", "/var/home"), ("/etc/x", "/etc/x"), ("/", "")]
        {
            assert_eq!(tree.real_directory(path).unwrap(), real);
        }
        assert!(tree.has("/home") && !tree.has("/home/me"));
    }

    #[test]
    fn directories_pipes_and_large_files_are_refused() {
        let root = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&root.path().join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        File::create(root.path().join("large")).unwrap().set_len(MAX_TEXT + 1).unwrap();
        let tree = Tree::open(root.path()).unwrap();
        for path in ["/", "/pipe"] {
            assert_eq!(tree.open_file(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        assert_eq!(tree.read_text("/large").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
