//! The directory that is unpacked to, in the installed system that it belongs to, and those below it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, chmodat, fstat, mkdirat, openat, openat2, readlinkat, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::follow::Identity;
use crate::hidden::Hidden;
use crate::inherit::Heritage;
use crate::name::{MAX_NAME, shown};
use crate::resolve::{DIRECTORY, IN_ROOT, in_root};
use crate::target::Target;
use crate::{Fault, UnpackError, follow};

/// How many directories are kept open. Archives go through a tree in order, so few are needed at a time; a process may have
/// 1024 descriptors.
const KEPT: usize = 256;

/// An open directory, and what it gives to what is made in it.
pub(crate) struct Directory {
    fd: OwnedFd,
    pub(crate) heritage: Heritage,
}

impl Directory {
    fn new(fd: OwnedFd) -> Result<Rc<Self>, Errno> {
        let heritage = Heritage::of(&fd)?;
        Ok(Rc::new(Self { fd, heritage }))
    }
}

impl Deref for Directory {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The directory that is unpacked to.
pub(crate) struct Root {
    /// The root of the installed system.
    system: OwnedFd,
    /// Its place there, without a leading slash; empty for the root itself.
    path: Vec<u8>,
    hidden: Hidden,
    top: Rc<Directory>,
    /// It did not stand there before.
    new: bool,
    /// An image is unpacked, which is a root of its own: every link leads within this directory.
    alone: bool,
    /// Symbolic links that the archive made.
    links: HashSet<Identity>,
    /// Those of the system through which it went to an entry's directory.
    followed: RefCell<HashSet<Identity>>,
    /// Directories by the name under which they were found.
    kept: HashMap<Vec<u8>, Rc<Directory>>,
}

/// A directory that cannot be had.
#[derive(Debug)]
pub(crate) struct Unopened {
    /// Which: the innermost that was tried.
    part: Vec<u8>,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Refused(Errno),
    Hidden(String),
}

impl Unopened {
    fn at(part: &[u8]) -> impl FnOnce(Errno) -> Self {
        move |errno| Self { part: part.to_vec(), why: Why::Refused(errno) }
    }

    /// With the entry that needs it.
    pub(crate) fn of(self, entry: &str) -> UnpackError {
        let entry = entry.into();
        match self.why {
            Why::Hidden(why) => UnpackError::Refused { entry, fault: Fault::Hidden(why) },
            Why::Refused(errno) => {
                let action = format!("open the directory {} of", shown(&self.part));
                UnpackError::Io { action, entry, source: errno.into() }
            }
        }
    }
}

impl Root {
    /// Opens it; makes it where it is missing (root's, 0755), with the directories on the way.
    pub(crate) fn make(target: &Target<'_>) -> Result<Self, UnpackError> {
        target.look()?;
        let (system, path) = target.open()?;
        let of_path = |unopened: Unopened| unopened.of(target.path);
        let hidden = Hidden::new(&system, target.hidden).map_err(Unopened::at(b"/")).map_err(of_path)?;
        let top = in_root(&system, b"").map_err(Unopened::at(b"/")).map_err(of_path)?;
        let (fd, new) = made(&|place| in_root(&system, place), &hidden, top, &path, false).map_err(of_path)?;
        let top = Directory::new(fd).map_err(Unopened::at(&path)).map_err(of_path)?;
        Ok(Self {
            system,
            path,
            hidden,
            top,
            new,
            alone: false,
            links: HashSet::new(),
            followed: RefCell::default(),
            kept: HashMap::new(),
        })
    }

    /// The directory itself.
    pub(crate) fn top(&self) -> &OwnedFd {
        &self.top
    }

    /// Its attributes were changed.
    pub(crate) fn renewed(&mut self) -> Result<(), Errno> {
        self.top = Directory::new(self.top.fd.try_clone().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?)?;
        Ok(())
    }

    /// Whether a directory is on the file system of the installed system's root.
    pub(crate) fn is_of_system(&self, directory: &OwnedFd) -> Result<bool, Errno> {
        Ok(fstat(directory)?.st_dev == fstat(&self.system)?.st_dev)
    }

    /// Whether it was made for this archive.
    pub(crate) fn is_new(&self) -> bool {
        self.new
    }

    /// What comes is a layer of an image, or an archive.
    pub(crate) fn begin(&mut self, image: bool) {
        self.alone = image;
        self.changed();
    }

    /// The directory of this name, made where it is missing (root's, 0755), with those on the way.
    pub(crate) fn directory(&mut self, name: &[u8]) -> Result<Rc<Directory>, Unopened> {
        if name.is_empty() {
            return Ok(Rc::clone(&self.top));
        }
        if let Some(kept) = self.kept.get(name) {
            return Ok(Rc::clone(kept));
        }
        let place = if self.path.is_empty() { name.to_vec() } else { [&self.path, name].join(&b'/') };
        seen(self.hidden.by_name(&place), name)?;
        let fd = match self.through(name) {
            Ok(fd) => fd,
            Err(_) => {
                let top = self.existing(b"").map_err(Unopened::at(b"."))?;
                made(&|place| self.through(place), &self.hidden, top, name, self.alone)?.0
            }
        };
        seen(self.hidden.by_place(&fd).map_err(Unopened::at(name))?, name)?;
        if self.kept.len() >= KEPT {
            self.kept.clear();
        }
        let directory = Directory::new(fd).map_err(Unopened::at(name))?;
        self.kept.insert(name.to_vec(), Rc::clone(&directory));
        Ok(directory)
    }

    /// The directory of this name as it stands. A link that was there before leads where it leads in the installed system; with
    /// a link of the archive's own on the way, and of an image, this directory is the root of all of them.
    pub(crate) fn existing(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        self.found(name).map(|(fd, _)| fd)
    }

    /// The same for what an entry says to be in it: the links of the system on the way must stay what they are.
    pub(crate) fn through(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let (fd, others) = self.found(name)?;
        self.followed.borrow_mut().extend(others);
        Ok(fd)
    }

    /// The same, and the links of the system on the way.
    fn found(&self, name: &[u8]) -> Result<(OwnedFd, Vec<Identity>), Errno> {
        debug_assert!(name.len() <= MAX_NAME, "names are checked when they are read");
        let only = |fd| (fd, Vec::new());
        if self.alone {
            return in_root(&self.top.fd, name).map(only);
        }
        let name = if name.is_empty() { b"." } else { name };
        match openat2(&self.top.fd, name, DIRECTORY, Mode::empty(), IN_ROOT.union(ResolveFlags::NO_SYMLINKS)) {
            Err(Errno::LOOP) => {}
            other => return other.map(only),
        }
        let met = follow::met(&self.system, &self.path, name, &self.links)?;
        let fd = match met.own {
            true => in_root(&self.top.fd, name),
            false => in_root(&self.system, &[&self.path, &b"/"[..], name].concat()),
        };
        Ok((fd?, met.others))
    }

    /// The same, if it is a directory and no link to one.
    pub(crate) fn itself(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let (parent, last) = match name.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&name[..at], &name[at + 1..]),
            None => (&b""[..], name),
        };
        let last = if last.is_empty() { b"." } else { last };
        openat(self.existing(parent)?, last, DIRECTORY.union(OFlags::NOFOLLOW), Mode::empty())
    }

    /// A directory or a link was removed or replaced: names may lead elsewhere now.
    pub(crate) fn changed(&mut self) {
        self.kept.clear();
    }

    /// The archive made a link. Returns how many are known.
    pub(crate) fn linked(&mut self, directory: &OwnedFd, name: &[u8]) -> Result<usize, Errno> {
        // An image's all lead within this directory.
        if !self.alone {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            self.links.insert((stat.st_dev, stat.st_ino));
        }
        Ok(self.links.len() + self.followed.borrow().len())
    }

    /// Whether the archive made this link.
    pub(crate) fn is_own(&self, link: Identity) -> bool {
        self.links.contains(&link)
    }

    /// Whether what stands here is a link of the system through which an entry's directory was found, and which does not lead to
    /// `target`. In its place another attempt would find something else.
    pub(crate) fn was_way(&self, directory: &OwnedFd, name: &[u8], target: Option<&[u8]>) -> Result<bool, Errno> {
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            other => other?,
        };
        let link = (stat.st_dev, stat.st_ino);
        // A number of a link that is gone may be another file's now.
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink
            || self.is_own(link)
            || !self.followed.borrow().contains(&link)
        {
            return Ok(false);
        }
        Ok(target != Some(readlinkat(directory, name, Vec::new())?.as_bytes()))
    }
}

/// Makes what is missing of a way that begins in `top`; whether the last directory is new. `open` opens each by its whole name.
/// A directory `replaces` a file, as a layer over other layers does.
fn made(
    open: &dyn Fn(&[u8]) -> Result<OwnedFd, Errno>, hidden: &Hidden, top: OwnedFd, name: &[u8], replaces: bool,
) -> Result<(OwnedFd, bool), Unopened> {
    let (mut directory, mut new, mut end) = (top, false, 0);
    for part in name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        end += part.len();
        let reached = &name[..end];
        new = false;
        directory = match open(reached) {
            Err(errno) if errno == Errno::NOENT || (replaces && errno == Errno::NOTDIR) => {
                seen(hidden.by_place(&directory).map_err(Unopened::at(reached))?, reached)?;
                if errno == Errno::NOTDIR {
                    free(&directory, part).map_err(Unopened::at(reached))?;
                }
                new = added(&directory, part).map_err(Unopened::at(reached))?;
                // A link to nowhere stands there where nothing was added; then this says so.
                open(reached).map_err(Unopened::at(reached))?
            }
            other => other.map_err(Unopened::at(reached))?,
        };
        end += 1;
    }
    Ok((directory, new))
}

/// Refuses what the running system would not see.
fn seen(why: Option<&str>, part: &[u8]) -> Result<(), Unopened> {
    why.map_or(Ok(()), |why| Err(Unopened { part: part.to_vec(), why: Why::Hidden(why.into()) }))
}

/// Removes what is no directory. A link stays: where it leads is not this entry's.
fn free(directory: &OwnedFd, part: &[u8]) -> Result<(), Errno> {
    let stat = statat(directory, part, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Err(Errno::NOTDIR),
        _ => unlinkat(directory, part, AtFlags::empty()),
    }
}

/// Whether it was not there.
fn added(directory: &OwnedFd, part: &[u8]) -> Result<bool, Errno> {
    let mode = Mode::from_raw_mode(0o755);
    match mkdirat(directory, part, mode) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(e) => return Err(e),
    }
    Heritage::of(directory)?.settle(directory, part, None, None).map_err(|(_, errno)| errno)?;
    // Whatever the process's mask is.
    chmodat(directory, part, mode, AtFlags::empty())?;
    Ok(true)
}
