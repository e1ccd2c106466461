//! Makes what entries say, below the root. What stands in an entry's place is replaced, never written through.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use rustix::fs::{
    AtFlags, Dev, FileType, Mode, OFlags, ftruncate, linkat, mkdirat, mknodat, openat, statat, symlinkat, syncfs,
};
use rustix::io::{Errno, pwrite, write};

use crate::attributes::Failed;
use crate::entry::{Attributes, Entry, Kind, Sparse};
use crate::name::{Name, shown};
use crate::reader::Reader;
use crate::remove::Removed;
use crate::root::{Directory, Root};
use crate::{Fault, UnpackError, attributes, inherit, remove};

/// What may be kept of directories until their attributes are set at the end, bytes: of about 200,000 of them.
const MAX_KEPT: usize = 64 << 20;
/// What one takes beside its name and extended attributes, bytes; rounded up.
const ONE: usize = 128;
/// What a known link takes, bytes; rounded up.
const LINK: usize = 32;

/// What may stand in the place of an entry.
#[derive(Clone, Copy)]
pub(crate) enum Replace<'a> {
    /// A file, a link or an empty directory; a directory may be found through a link.
    Files,
    /// A whole directory too, as a layer over other layers does. On the system's own file system with all that is in it, since
    /// an attempt that was interrupted may have left it; on another, which may hold data to be kept, only with what has the
    /// name of something that this image made.
    Directories(&'a dyn Fn(&[u8]) -> bool),
}

/// A tree that is being made.
pub(crate) struct Tree {
    pub(crate) root: Root,
    /// Directories by name. What is made in one changes its time, so theirs are set last.
    directories: BTreeMap<Vec<u8>, Kept>,
    /// How many came.
    came: u64,
    /// Bytes of memory that those take.
    kept: usize,
}

/// What is set of a directory at the end.
struct Kept {
    /// One directory may have two names through links; the later entry holds.
    order: u64,
    attributes: Attributes,
    /// For people.
    shown: String,
    /// Bytes of memory that it takes.
    size: usize,
}

impl Tree {
    pub(crate) fn new(root: Root) -> Self {
        Self { root, directories: BTreeMap::new(), came: 0, kept: 0 }
    }

    /// Makes one entry; its content is taken from the reader. `go_on` is asked between two pieces of it.
    pub(crate) fn put(
        &mut self, entry: &Entry, reader: &mut Reader<'_>, replace: Replace<'_>, go_on: &dyn Fn() -> bool,
    ) -> Result<(), UnpackError> {
        let io = |(action, errno): Failed| UnpackError::Io { action, entry: entry.shown.clone(), source: errno.into() };
        if entry.kind == Kind::Label {
            return Ok(());
        }
        if entry.name.is_root() {
            return self.top(entry);
        }
        let (parent, name) = entry.name.split();
        let parent = self.root.directory(parent).map_err(|unopened| unopened.of(&entry.shown))?;
        if entry.kind == Kind::Directory {
            return if self.directory(&parent, name, entry, replace)? { self.keep(entry) } else { Ok(()) };
        }
        let attributes = &entry.attributes;
        let mut make =
            |make: &dyn Fn() -> Result<Option<OwnedFd>, Errno>| self.make(&parent, name, entry, replace, make);
        match &entry.kind {
            Kind::File | Kind::Sparse(_) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = make(&|| openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map(Some))?;
                let Some(file) = file else { return Ok(()) };
                match &entry.kind {
                    Kind::Sparse(sparse) => scattered(&file, sparse, entry, reader, go_on)?,
                    _ => whole(&file, entry, reader, go_on)?,
                }
                attributes::set(&file, attributes).map_err(io)
            }
            Kind::Symlink(target) => {
                make(&|| symlinkat(target.as_slice(), &*parent, name).map(|()| None))?;
                let links = self.root.linked(&parent, name).map_err(|e| failed("look at", entry, e))?;
                self.remember(entry, links * LINK)?;
                attributes::set_at(&parent, name, attributes, true).map_err(io)
            }
            Kind::HardLink(target) => self.link(&parent, name, target, entry, replace),
            Kind::Character(device) => {
                make(&|| node(&parent, name, FileType::CharacterDevice, *device))?;
                attributes::set_at(&parent, name, attributes, false).map_err(io)
            }
            Kind::Block(device) => {
                make(&|| node(&parent, name, FileType::BlockDevice, *device))?;
                attributes::set_at(&parent, name, attributes, false).map_err(io)
            }
            Kind::Fifo => {
                make(&|| node(&parent, name, FileType::Fifo, 0))?;
                attributes::set_at(&parent, name, attributes, false).map_err(io)
            }
            Kind::Directory | Kind::Label => Ok(()),
        }
    }

    /// Sets what is kept of directories, and brings everything to the disk.
    pub(crate) fn finish(self) -> Result<(), UnpackError> {
        let mut last: Vec<_> = self.directories.iter().collect();
        last.sort_unstable_by_key(|(_, kept)| kept.order);
        for (name, Kept { attributes, shown, .. }) in last {
            let io = |(action, errno): Failed| UnpackError::Io { action, entry: shown.clone(), source: errno.into() };
            match self.root.itself(name) {
                Ok(directory) => attributes::set(&directory, attributes).map_err(io)?,
                // A later entry took its place.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(io(("open".into(), errno))),
            }
        }
        let io =
            |errno: Errno| UnpackError::Io { action: "flush".into(), entry: "the files".into(), source: errno.into() };
        syncfs(self.root.top()).map_err(io)
    }

    /// Forgets a directory that is gone, and those in it, except what `stays`.
    pub(crate) fn forget(&mut self, removed: &[u8], stays: &dyn Fn(&[u8]) -> bool) {
        // Those in it have a slash behind its name, and `0` is the byte after a slash.
        let inside = match removed {
            b"" => self.directories.range::<[u8], _>(..),
            _ => self.directories.range([removed, b"/"].concat()..[removed, b"0"].concat()),
        };
        let inside = inside.map(|(name, _)| name.clone());
        let gone: Vec<_> = inside.chain([removed.to_vec()]).filter(|name| !stays(name)).collect();
        for name in gone {
            self.kept -= self.directories.remove(&name).map_or(0, |kept| kept.size);
        }
        self.root.changed();
    }

    /// The directory that is unpacked to: what stood there before is the installed system's.
    fn top(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        if !self.root.is_new() {
            return Ok(());
        }
        let io = |(action, errno): Failed| UnpackError::Io { action, entry: entry.shown.clone(), source: errno.into() };
        // Another attempt finds it there, so its owner and mode do not wait for the end.
        attributes::set(self.root.top(), &entry.attributes).map_err(io)?;
        self.root.renewed().map_err(|e| failed("look at", entry, e))?;
        self.keep(entry)
    }

    fn keep(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        let extended: usize =
            entry.attributes.extended.iter().map(|(name, value)| name.len() + value.len() + ONE).sum();
        let size = ONE + entry.name.bytes().len() + entry.shown.len() + extended;
        self.came += 1;
        let kept = Kept { order: self.came, attributes: entry.attributes.clone(), shown: entry.shown.clone(), size };
        let before = self.directories.insert(entry.name.bytes().to_vec(), kept);
        self.kept = self.kept + size - before.map_or(0, |kept| kept.size);
        self.remember(entry, 0)
    }

    /// Refuses the entry with which what is remembered of directories and so many bytes of links are too much.
    fn remember(&self, entry: &Entry, links: usize) -> Result<(), UnpackError> {
        if self.kept + links > MAX_KEPT {
            let fault = Fault::Memory((MAX_KEPT >> 20) as u64);
            return Err(UnpackError::Refused { entry: entry.shown.clone(), fault });
        }
        Ok(())
    }

    /// Whether the attributes of the entry are the directory's: not where it was found through a link.
    fn directory(
        &mut self, parent: &Directory, name: &[u8], entry: &Entry, replace: Replace<'_>,
    ) -> Result<bool, UnpackError> {
        let make = || mkdirat(parent, name, Mode::RWXU);
        match make() {
            Ok(()) => return settle(parent, name, entry, None).map(|()| true),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("make", entry, errno)),
        }
        let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| failed("look at", entry, e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return Ok(true),
            // An archive of additions has /lib, and the system a link from there to /usr/lib.
            FileType::Symlink if matches!(replace, Replace::Files) => match self.root.existing(entry.name.bytes()) {
                Ok(_) => return Ok(false),
                // To nowhere, to itself, or to what is no directory. What the archive's own leads to may come later, and then
                // another attempt would go through it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if self.root.is_own((stat.st_dev, stat.st_ino)) => {
                    return Err(UnpackError::Refused { entry: entry.shown.clone(), fault: Fault::OwnLink });
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(failed("follow the link in the place of", entry, errno)),
            },
            _ => {}
        }
        let label = self.clear(parent, name, entry, replace)?;
        make().map_err(|e| failed("make", entry, e))?;
        settle(parent, name, entry, label).map(|()| true)
    }

    /// Makes something under a name that must be free, and frees it where it is not.
    fn make(
        &mut self, parent: &Directory, name: &[u8], entry: &Entry, replace: Replace<'_>,
        make: &dyn Fn() -> Result<Option<OwnedFd>, Errno>,
    ) -> Result<Option<OwnedFd>, UnpackError> {
        let (made, replaced) = match make() {
            Err(Errno::EXIST) => {
                let label = self.clear(parent, name, entry, replace)?;
                (make(), label)
            }
            other => (other, None),
        };
        let made = made.map_err(|e| failed("make", entry, e))?;
        // Another name changes nothing of the file.
        if !matches!(entry.kind, Kind::HardLink(_)) {
            settle(parent, name, entry, replaced)?;
        }
        Ok(made)
    }

    fn link(
        &mut self, parent: &Directory, name: &[u8], target: &Name, entry: &Entry, replace: Replace<'_>,
    ) -> Result<(), UnpackError> {
        let (at, file) = target.split();
        let missing = |e| failed(&format!("link its target {} to", shown(target.bytes())), entry, e);
        let at = self.root.through(at).map_err(missing)?;
        let old = statat(&at, file, AtFlags::SYMLINK_NOFOLLOW).map_err(missing)?;
        // The same file already, by this or another way: what stands there must not be removed.
        let new = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if new.is_ok_and(|new| (new.st_dev, new.st_ino) == (old.st_dev, old.st_ino)) {
            return Ok(());
        }
        self.make(parent, name, entry, replace, &|| linkat(&at, file, parent, name, AtFlags::empty()).map(|()| None))?;
        Ok(())
    }

    /// Frees a name; the label of what stood there.
    fn clear(
        &mut self, parent: &OwnedFd, name: &[u8], entry: &Entry, replace: Replace<'_>,
    ) -> Result<Option<Vec<u8>>, UnpackError> {
        let label = inherit::label(parent, name).map_err(|e| failed("read the SELinux label of", entry, e))?;
        let target = if let Kind::Symlink(target) = &entry.kind { Some(target.as_slice()) } else { None };
        if self.root.was_way(parent, name, target).map_err(|e| failed("look at", entry, e))? {
            return Err(UnpackError::Refused { entry: entry.shown.clone(), fault: Fault::Way });
        }
        let removed = match replace {
            Replace::Files => remove::one(parent, name),
            Replace::Directories(own) => {
                let free = self.root.is_of_system(parent).map_err(|e| failed("look at", entry, e))?;
                let own = |below: &[u8]| own(&[entry.name.bytes(), b"/", below].concat());
                remove::whole(parent, name, &|below| !free && !own(below))
            }
        };
        match removed {
            Ok(Removed::Way) => self.forget(entry.name.bytes(), &|_| false),
            Ok(Removed::File | Removed::Nothing) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => {
                return Err(UnpackError::Refused { entry: entry.shown.clone(), fault: Fault::Occupied });
            }
            Err(errno) => return Err(failed("replace what stands in the place of", entry, errno)),
        }
        Ok(label)
    }
}

/// What was made takes what its directory gives, and no more.
fn settle(parent: &Directory, name: &[u8], entry: &Entry, replaced: Option<Vec<u8>>) -> Result<(), UnpackError> {
    let settled = parent.heritage.settle(parent, name, Some(&entry.attributes), replaced);
    settled.map_err(|(action, errno)| failed(&action, entry, errno))
}

fn node(parent: &OwnedFd, name: &[u8], kind: FileType, device: Dev) -> Result<Option<OwnedFd>, Errno> {
    mknodat(parent, name, kind, Mode::RUSR | Mode::WUSR, device).map(|()| None)
}

/// The content of a file from its start to its end.
fn whole(file: &OwnedFd, entry: &Entry, reader: &mut Reader<'_>, go_on: &dyn Fn() -> bool) -> Result<(), UnpackError> {
    let mut left = entry.content;
    while left > 0 {
        let n = match write(file, reader.content(left)?) {
            Err(Errno::INTR) => 0,
            other => other.map_err(|e| failed("write", entry, e))?,
        };
        reader.used(n);
        left -= n as u64;
        stopped(entry, go_on)?;
    }
    Ok(())
}

/// The pieces of a file with holes, each at its place.
fn scattered(
    file: &OwnedFd, sparse: &Sparse, entry: &Entry, reader: &mut Reader<'_>, go_on: &dyn Fn() -> bool,
) -> Result<(), UnpackError> {
    ftruncate(file, sparse.size).map_err(|e| failed("set the size of", entry, e))?;
    for (offset, length) in &sparse.pieces {
        let mut done = 0;
        while done < *length {
            let n = match pwrite(file, reader.content(length - done)?, offset + done) {
                Err(Errno::INTR) => 0,
                other => other.map_err(|e| failed("write", entry, e))?,
            };
            reader.used(n);
            done += n as u64;
            stopped(entry, go_on)?;
        }
    }
    Ok(())
}

fn stopped(entry: &Entry, go_on: &dyn Fn() -> bool) -> Result<(), UnpackError> {
    if go_on() { Ok(()) } else { Err(UnpackError::Stopped { entry: entry.shown.clone() }) }
}

fn failed(action: &str, entry: &Entry, errno: Errno) -> UnpackError {
    UnpackError::Io { action: action.into(), entry: entry.shown.clone(), source: errno.into() }
}
