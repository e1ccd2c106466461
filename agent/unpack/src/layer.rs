//! Layers of an OCI image (image specification 1.1, "Layer Filesystem Changeset"): a file named `.wh.NAME` removes NAME of the
//! layers below, `.wh..wh..opq` everything that they have in its directory. What the same layer has stays, and so does what no
//! layer made: the directory may hold another system's files, or a file system with data that is to be kept.

use std::{collections::HashSet, os::fd::OwnedFd};

use rustix::io::Errno;

use crate::entry::Entry;
use crate::name::{MAX_DEPTH, Name};
use crate::write::Tree;
use crate::{Fault, UnpackError, remove};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names of this kind are aufs' own records, which are nothing of the image.
const RESERVED: &[u8] = b".wh..wh.";

/// What may be kept of the names of all layers, bytes; those of a whole distribution's root take 20 MiB.
const MAX_KEPT: usize = 256 << 20;
/// What one takes beside its bytes, rounded up.
const ONE: usize = 64;

/// What an image's layers made.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// Those below the present one.
    lower: HashSet<Vec<u8>>,
    /// The present one.
    made: HashSet<Vec<u8>>,
    /// Bytes of memory that they take.
    kept: usize,
}

impl Layers {
    /// The next layer comes.
    pub(crate) fn begin(&mut self) {
        self.lower.extend(self.made.drain());
    }

    /// Whether any layer made what has this name.
    pub(crate) fn own(&self, place: &[u8]) -> bool {
        self.made.contains(place) || self.lower.contains(place)
    }

    /// Whether the entry was a whiteout; then what it names is gone.
    pub(crate) fn takes(&mut self, entry: &Entry, tree: &mut Tree) -> Result<bool, UnpackError> {
        let (parent, name) = entry.name.split();
        let Some(named) = name.strip_prefix(WHITEOUT) else {
            self.made(&entry.name);
            if self.kept > MAX_KEPT {
                let fault = Fault::Memory((MAX_KEPT >> 20) as u64);
                return Err(UnpackError::Refused { entry: entry.shown.clone(), fault });
            }
            return Ok(false);
        };
        let io = |errno: Errno| UnpackError::Io {
            action: "remove what is meant by".into(),
            entry: entry.shown.clone(),
            source: errno.into(),
        };
        if name == OPAQUE {
            let Some(directory) = existing(tree, parent).map_err(io)? else { return Ok(true) };
            self.clear(&directory, b".", parent, tree).map_err(io)?;
            return Ok(true);
        }
        if name.starts_with(RESERVED) {
            return Ok(true);
        }
        if matches!(named, b"" | b"." | b"..") {
            return Err(UnpackError::Refused { entry: entry.shown.clone(), fault: Fault::Whiteout });
        }
        let place = joined(parent, named);
        let Some(directory) = existing(tree, parent).map_err(io)? else { return Ok(true) };
        // The order within a layer means nothing: its own file of that name stays, and in a directory what is its own.
        match self.clear(&directory, named, &place, tree) {
            Ok(()) | Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
            Err(errno) => return Err(io(errno)),
        }
        if self.stays(&place) {
            return Ok(true);
        }
        match remove::one(&directory, named) {
            Ok(_) => tree.forget(&place, &|_| false),
            // It is left with what stays in it, or another file system is mounted there.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => {}
            Err(errno) => return Err(io(errno)),
        }
        Ok(true)
    }

    /// Removes what lower layers have in a directory.
    fn clear(&self, directory: &OwnedFd, name: &[u8], place: &[u8], tree: &mut Tree) -> Result<(), Errno> {
        remove::content(directory, name, &|below| self.stays(&joined(place, below)), MAX_DEPTH)?;
        tree.forget(place, &|name| name == place || self.stays(name));
        Ok(())
    }

    /// Whether a whiteout leaves what has this name.
    fn stays(&self, place: &[u8]) -> bool {
        self.made.contains(place) || !self.lower.contains(place)
    }

    /// An entry's directories are the layer's as well.
    fn made(&mut self, name: &Name) {
        let mut rest = name.bytes();
        while !rest.is_empty() && self.made.insert(rest.to_vec()) {
            if !self.lower.contains(rest) {
                self.kept += rest.len() + ONE;
            }
            rest = rest.iter().rposition(|byte| *byte == b'/').map_or(&[], |at| &rest[..at]);
        }
    }
}

fn existing(tree: &Tree, name: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    match tree.root.existing(name) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        other => other.map(Some),
    }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}
