//! Files of the new system, by their paths there. Every link on the way is one of that system and never leads out of it; files are
//! put in place by renaming, which replaces a link and leaves the old file or the new one after a power cut. What is new has the
//! SELinux label of what it replaces, else that of its directory.

use std::fs::File;
use std::io;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use landfall_api::{ErrorCode, Problem};
use landfall_unpack::inherit;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, XattrFlags, chownat, fchmod, fchown, fgetxattr,
    fsetxattr, fsync, mkdirat, openat, openat2, readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::Failure;

/// The largest file that is read, bytes: a hundred times the largest `/etc/passwd` that was seen.
const MOST: u64 = 1 << 20;
/// Where new content waits before it is renamed; what an interrupted attempt left is replaced.
const NEW: &str = ".landfall-new";
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);
/// What says which programs may use a file, on a system that enforces a policy; no label is longer than a page.
const LABEL: (&std::ffi::CStr, usize) = (c"security.selinux", 4096);
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Mode and owner of what is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Permission bits.
    pub(crate) mode: u32,
    /// User and group, by number.
    pub(crate) owner: (u32, u32),
}

impl Attributes {
    /// Root's.
    pub(crate) const fn of_root(mode: u32) -> Self {
        Self { mode, owner: (0, 0) }
    }
}

/// The files of the new system.
#[derive(Debug)]
pub(crate) struct Files {
    root: OwnedFd,
}

impl Files {
    /// Those below `root`.
    ///
    /// # Errors
    /// It is no directory.
    pub(crate) fn of(root: &Path) -> Result<Self, Failure> {
        let root = openat(CWD, root, DIRECTORY, Mode::empty()).map_err(failed("open", "/"))?;
        Ok(Self { root })
    }

    /// Whether something stands at `path`, links followed.
    pub(crate) fn has(&self, path: &str) -> bool {
        let how = OFlags::PATH | OFlags::CLOEXEC;
        openat2(&self.root, below(path), how, Mode::empty(), IN_ROOT).is_ok()
    }

    /// What stands at `path` itself; `None`: nothing.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn kind(&self, path: &str) -> Result<Option<FileType>, Failure> {
        let (directory, name) = parts(path);
        let Some(directory) = self.existing(directory)? else { return Ok(None) };
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(failed("look at", path)(e)),
        }
    }

    /// The content of the file at `path`, links followed; `None`: there is none.
    ///
    /// # Errors
    /// The file system's; it is no file, or larger than a mebibyte.
    pub(crate) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Failure> {
        // A pipe in the file's place would never open.
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat2(&self.root, below(path), how, Mode::empty(), IN_ROOT) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(failed("read", path)(e)),
        };
        let unread = |error: io::Error| unusable("read", path, &error);
        let facts = file.metadata().map_err(unread)?;
        if !facts.is_file() || facts.len() > MOST {
            let error = io::Error::other("it is no file, or larger than 1 MiB");
            return Err(unread(error));
        }
        let mut content = Vec::new();
        file.take(MOST).read_to_end(&mut content).map_err(unread)?;
        Ok(Some(content))
    }

    /// The same as text.
    ///
    /// # Errors
    /// As [`Self::read`], and content that is no UTF-8.
    pub(crate) fn text(&self, path: &str) -> Result<Option<String>, Failure> {
        let text = self.read(path)?.map(String::from_utf8).transpose();
        text.map_err(|error| unusable("read", path, &io::Error::other(error)))
    }

    /// Mode and owner of what stands at `path`, links followed.
    ///
    /// # Errors
    /// The file system's; nothing stands there.
    pub(crate) fn attributes(&self, path: &str) -> Result<Attributes, Failure> {
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let open = openat2(&self.root, below(path), how, Mode::empty(), IN_ROOT);
        let stat = open.and_then(|open| statat(&open, "", AtFlags::EMPTY_PATH)).map_err(failed("look at", path))?;
        Ok(Attributes { mode: stat.st_mode & 0o7777, owner: (stat.st_uid, stat.st_gid) })
    }

    /// Names in the directory at `path`, in order; none where there is no such directory.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, Failure> {
        let Some(directory) = self.existing(path)? else { return Ok(Vec::new()) };
        let entries = Dir::read_from(&directory).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let entries = entries.map_err(failed("list", path))?;
        let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }

    /// Puts a file in place of what stands at `path`, whole or not at all. Missing directories are made (root's, 0755).
    ///
    /// # Errors
    /// The file system's; what stood there before still does.
    pub(crate) fn put(&self, path: &str, content: &[u8], attributes: Attributes) -> Result<(), Failure> {
        let (directory, name) = parts(path);
        let directory = self.made(directory, Attributes::of_root(0o755))?;
        discard(&directory, NEW).map_err(failed("write", path))?;
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&directory, NEW, how, Mode::from_raw_mode(0o600)).map_err(failed("write", path))?;
        inherit(&directory, NEW.as_bytes(), Some(name.as_bytes())).map_err(failed("label", path))?;
        let mut file = File::from(made);
        file.write_all(content).map_err(|error| unusable("write", path, &error))?;
        settle(&file, attributes).and_then(|()| fsync(&file)).map_err(failed("write", path))?;
        renameat(&directory, NEW, &directory, name).map_err(failed("replace", path))?;
        fsync(&directory).map_err(failed("write", path))
    }

    /// Puts a link to `target` in place of what stands at `path`; `owner` is its user and group.
    ///
    /// # Errors
    /// The file system's; what stood there before still does.
    pub(crate) fn link(&self, path: &str, target: &str, (user, group): (u32, u32)) -> Result<(), Failure> {
        let (directory, name) = parts(path);
        let directory = self.made(directory, Attributes::of_root(0o755))?;
        discard(&directory, NEW).map_err(failed("write", path))?;
        symlinkat(target, &directory, NEW).map_err(failed("write", path))?;
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        chownat(&directory, NEW, user, group, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("write", path))?;
        inherit(&directory, NEW.as_bytes(), Some(name.as_bytes())).map_err(failed("label", path))?;
        renameat(&directory, NEW, &directory, name).map_err(failed("replace", path))?;
        fsync(&directory).map_err(failed("write", path))
    }

    /// Where the link at `path` leads; `None`: no link stands there.
    pub(crate) fn target(&self, path: &str) -> Option<String> {
        let (directory, name) = parts(path);
        let directory = self.existing(directory).ok()??;
        readlinkat(&directory, name, Vec::new()).ok()?.into_string().ok()
    }

    /// Removes the file or link at `path`; none is no error.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn remove(&self, path: &str) -> Result<(), Failure> {
        let (directory, name) = parts(path);
        let Some(directory) = self.existing(directory)? else { return Ok(()) };
        discard(&directory, name).and_then(|()| fsync(&directory)).map_err(failed("remove", path))
    }

    /// Makes the directory at `path` where it is missing, with those attributes; those on the way are root's, 0755. It is there
    /// with its attributes, or not at all. Whether it was missing.
    ///
    /// # Errors
    /// The file system's, such as a file in a directory's place.
    pub(crate) fn make(&self, path: &str, attributes: Attributes) -> Result<bool, Failure> {
        let missing = self.existing(path)?.is_none();
        self.made(path, attributes)?;
        Ok(missing)
    }

    /// Gives the file or directory at `path` these attributes; what stands there must not be a link.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn settle(&self, path: &str, attributes: Attributes) -> Result<(), Failure> {
        if self.attributes(path)? == attributes {
            return Ok(());
        }
        let open = self.open_itself(path).map_err(failed("open", path))?;
        settle(&open, attributes).and_then(|()| fsync(&open)).map_err(failed("change the owner of", path))
    }

    /// Gives the file or directory at `path` the SELinux type of what it is for, where it has a label at all; the rest of the label
    /// stays. The agent's own kernel has no policy, which would know it.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn relabel(&self, path: &str, kind: &str) -> Result<(), Failure> {
        let open = self.open_itself(path).map_err(failed("open", path))?;
        let mut label = vec![0; LABEL.1];
        let label = match fgetxattr(&open, LABEL.0, &mut label[..]) {
            Ok(length) => String::from_utf8_lossy(label.get(..length).unwrap_or_default()).into_owned(),
            Err(Errno::NODATA | Errno::NOTSUP) => return Ok(()),
            Err(e) => return Err(failed("read the SELinux label of", path)(e)),
        };
        // user:role:type:level
        let mut parts: Vec<&str> = label.splitn(4, ':').collect();
        let Some(part) = parts.get_mut(2).filter(|part| **part != kind) else { return Ok(()) };
        *part = kind;
        let label = parts.join(":");
        let set = fsetxattr(&open, LABEL.0, label.as_bytes(), XattrFlags::empty());
        set.map_err(failed("set the SELinux label of", path))
    }

    fn made(&self, path: &str, attributes: Attributes) -> Result<OwnedFd, Failure> {
        let names: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let mut open = self.open(".").map_err(failed("open", path))?;
        for (n, name) in names.iter().enumerate() {
            let so_far = names.get(..=n).unwrap_or_default().join("/");
            open = match self.open(&so_far) {
                Err(Errno::NOENT) => {
                    let attributes = if n + 1 == names.len() { attributes } else { Attributes::of_root(0o755) };
                    new_directory(&open, name, attributes).map_err(failed("make the directory", path))?;
                    self.open(&so_far).map_err(failed("make the directory", path))?
                }
                other => other.map_err(failed("open", path))?,
            };
        }
        Ok(open)
    }

    /// What stands at `path` itself; a link is an error.
    fn open_itself(&self, path: &str) -> Result<OwnedFd, Errno> {
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(&self.root, below(path), how, Mode::empty(), IN_ROOT)
    }

    fn existing(&self, path: &str) -> Result<Option<OwnedFd>, Failure> {
        match self.open(path) {
            Ok(open) => Ok(Some(open)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(failed("open", path)(e)),
        }
    }

    fn open(&self, path: &str) -> Result<OwnedFd, Errno> {
        openat2(&self.root, below(path), DIRECTORY, Mode::empty(), IN_ROOT)
    }
}

/// Under its own name it appears with its attributes: an attempt after a power cut takes what is there for what was made.
fn new_directory(parent: &OwnedFd, name: &str, attributes: Attributes) -> Result<(), Errno> {
    discard(parent, NEW)?;
    mkdirat(parent, NEW, Mode::from_raw_mode(0o700))?;
    inherit(parent, NEW.as_bytes(), None)?;
    let new = openat(parent, NEW, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    settle(&new, attributes).and_then(|()| fsync(&new))?;
    renameat(parent, NEW, parent, name)?;
    fsync(parent)
}

/// The path from the root on. The kernel would take a leading slash for that root too; this needs no flag for it.
fn below(path: &str) -> &str {
    let path = path.trim_start_matches('/');
    if path.is_empty() { "." } else { path }
}

/// The directory of a path, and its last part.
fn parts(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// A change of owner takes bits of the mode away; so the mode comes last.
fn settle(file: &impl std::os::fd::AsFd, Attributes { mode, owner: (user, group) }: Attributes) -> Result<(), Errno> {
    fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    fchmod(file, Mode::from_raw_mode(mode))
}

fn discard(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // A directory that an interrupted attempt left is empty.
        Err(Errno::ISDIR) if name == NEW => unlinkat(directory, name, AtFlags::REMOVEDIR),
        Err(e) => Err(e),
    }
}

fn failed(doing: &'static str, path: &str) -> impl FnOnce(Errno) -> Failure {
    move |errno| unusable(doing, path, &errno.into())
}

fn unusable(doing: &str, path: &str, error: &io::Error) -> Failure {
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let problem = Problem::new(ErrorCode::DeviceIo, format!("cannot {doing} {path} of the new system"));
    Failure::last(problem.caused_by(error).hint("check whether its root file system is full or damaged").at(path))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use rustix::fs::inotify;

    use super::*;
    use crate::testing::caged;

    #[test]
    fn files_replace_links_and_stay_in_the_new_system() {
        caged(|| {
            let root = Path::new("/root");
            fs::create_dir_all(root.join("data")).unwrap();
            fs::write("/victim", "old").unwrap();
            symlink("/data", root.join("etc")).unwrap();
            symlink("/victim", root.join("data/passwd")).unwrap();
            symlink("/victim", root.join(format!("data/{NEW}"))).unwrap();
            symlink("../../..", root.join("up")).unwrap();
            let files = Files::of(root).unwrap();
            assert_eq!(files.read("/etc/passwd").unwrap(), None, "outside of the new system");
            for path in ["/etc/passwd", "/up/victim"] {
                files.put(path, b"new", Attributes::of_root(0o640)).unwrap();
                assert_eq!(files.text(path).unwrap().as_deref(), Some("new"));
            }
            assert_eq!(fs::read_to_string("/victim").unwrap(), "old");
            assert_eq!(fs::metadata(root.join("victim")).unwrap().mode() & 0o7777, 0o640);
            assert_eq!(files.names("/etc").unwrap(), ["passwd"]);
            files.remove("/etc/passwd").unwrap();
            files.remove("/etc/none/passwd").unwrap();
            assert_eq!(
                (files.kind("/etc/passwd").unwrap(), files.kind("/etc").unwrap()),
                (None, Some(FileType::Symlink))
            );
        });
    }

    #[test]
    fn only_the_last_directory_gets_the_attributes() {
        caged(|| {
            fs::create_dir("/root").unwrap();
            let files = Files::of(Path::new("/root")).unwrap();
            let own = Attributes { mode: 0o700, owner: (4321, 5432) };
            assert!(files.make("/home/anna", own).unwrap());
            assert!(!files.make("/home/anna", Attributes::of_root(0o755)).unwrap());
            let facts = |path: &str| files.attributes(path).unwrap();
            assert_eq!((facts("/home"), facts("/home/anna")), (Attributes::of_root(0o755), own));
        });
    }

    /// What the kernel says of `directory` while `work` is done: each name with whether it was made there, or moved to there.
    fn watched(directory: &Path, work: impl FnOnce()) -> Vec<(String, bool)> {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, directory, flags).unwrap();
        work();
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        let mut seen = Vec::new();
        while let Ok(event) = reader.next() {
            let name = event.file_name().unwrap().to_string_lossy().into_owned();
            seen.push((name, event.events().contains(inotify::ReadFlags::CREATE)));
        }
        seen
    }

    #[test]
    fn a_directory_appears_with_its_attributes_or_not_at_all() {
        caged(|| {
            // An interrupted attempt left this.
            fs::create_dir_all(format!("/root/home/{NEW}")).unwrap();
            let files = Files::of(Path::new("/root")).unwrap();
            let own = Attributes { mode: 0o700, owner: (4321, 5432) };
            let seen = watched(Path::new("/root/home"), || assert!(files.make("/home/anna", own).unwrap()));
            assert_eq!(seen, [(NEW.to_owned(), true), ("anna".to_owned(), false)], "never under its name alone");
            assert_eq!(files.names("/home").unwrap(), ["anna"]);
        });
    }

    #[test]
    fn settling_changes_what_is_there_and_no_link() {
        caged(|| {
            fs::create_dir_all("/root/home/.ssh").unwrap();
            symlink("home", "/root/link").unwrap();
            let files = Files::of(Path::new("/root")).unwrap();
            let own = Attributes { mode: 0o700, owner: (4321, 5432) };
            files.settle("/home/.ssh", own).unwrap();
            assert_eq!(files.attributes("/home/.ssh").unwrap(), own);
            assert!(files.settle("/link", own).is_err());
            assert_eq!(files.attributes("/home").unwrap(), Attributes::of_root(0o755));
        });
    }

    #[test]
    fn a_label_keeps_all_but_its_type() {
        caged(|| {
            fs::create_dir_all("/root/home/.ssh").unwrap();
            let files = Files::of(Path::new("/root")).unwrap();
            files.relabel("/home/.ssh", "ssh_home_t").unwrap();
            let label = |path: &str| {
                let mut label = [0; 100];
                let length = rustix::fs::lgetxattr(path, LABEL.0, &mut label[..]).ok()?;
                Some(String::from_utf8(label[..length].to_vec()).unwrap())
            };
            assert_eq!(label("/root/home/.ssh"), None, "a system without labels gets none");
            let old = b"system_u:object_r:home_root_t:s0:c1,c2\0";
            let labelled = rustix::fs::setxattr("/root/home", LABEL.0, old, XattrFlags::empty());
            if let Err(error) = labelled {
                eprintln!("SKIPPED: no labels can be set here: {error}");
                return;
            }
            files.make("/home/anna", Attributes::of_root(0o700)).unwrap();
            assert_eq!(label("/root/home/anna").as_deref(), Some("system_u:object_r:home_root_t:s0:c1,c2\0"));
            files.relabel("/home/anna", "user_home_dir_t").unwrap();
            assert_eq!(label("/root/home/anna").as_deref(), Some("system_u:object_r:user_home_dir_t:s0:c1,c2\0"));
        });
    }

    #[test]
    fn pipes_and_huge_files_are_not_read() {
        caged(|| {
            fs::create_dir("/root").unwrap();
            nix::unistd::mkfifo("/root/pipe", nix::sys::stat::Mode::S_IRUSR).unwrap();
            fs::File::create("/root/huge").unwrap().set_len(MOST + 1).unwrap();
            let files = Files::of(Path::new("/root")).unwrap();
            for path in ["/pipe", "/huge"] {
                assert_eq!(files.read(path).unwrap_err().problem.subject, path);
            }
        });
    }
}
