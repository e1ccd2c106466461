//! Unpacks one archive, or one layer after the other.

use std::io::BufRead;

use crate::entry::{Entry, Kind};
use crate::layer::Layers;
use crate::reader::Reader;
use crate::root::Root;
use crate::target::Target;
use crate::write::{Replace, Tree};
use crate::{Fault, UnpackError};

/// What an archive may have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries, of all layers together.
    pub entries: u64,
    /// Bytes of content, of all layers together; a file with holes counts with its content, and its size is no more than this.
    pub bytes: u64,
}

impl Default for Limits {
    /// Far more than any root file system has: 20 million entries, and 16 TiB, ext4's largest file.
    fn default() -> Self {
        Self { entries: 20_000_000, bytes: 16 << 40 }
    }
}

/// How entries are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As tar does. A directory that is not empty is not replaced, and a directory's entry goes through a link that leads to one.
    Archive,
    /// As a layer of an OCI image: whiteouts remove, everything is replaced, and all links lead within the directory.
    Layer,
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries, of all layers together.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// A directory that archives are unpacked to.
pub struct Unpacker<'a> {
    tree: Tree,
    layers: Layers,
    limits: Limits,
    tally: Tally,
    /// Asked for every entry and every piece of content.
    go_on: &'a dyn Fn() -> bool,
}

impl<'a> Unpacker<'a> {
    /// Unpacks to this directory, which is made where it is missing. `go_on` is asked again and again, and ends the work where it
    /// says false.
    ///
    /// # Errors
    /// [`UnpackError::Io`] where there can be no such directory.
    pub fn new(target: &Target<'_>, limits: Limits, go_on: &'a dyn Fn() -> bool) -> Result<Self, UnpackError> {
        let tree = Tree::new(Root::make(target)?);
        Ok(Self { tree, layers: Layers::default(), limits, tally: Tally::default(), go_on })
    }

    /// Unpacks everything in `input`, a tar stream without compression, to its end.
    ///
    /// # Errors
    /// [`UnpackError`]; what was unpacked before it stays.
    pub fn archive(&mut self, input: &mut dyn BufRead, manner: Manner) -> Result<(), UnpackError> {
        let mut reader = Reader::new(input);
        self.layers.begin();
        self.tree.root.begin(manner == Manner::Layer);
        while let Some(entry) = reader.next()? {
            self.count(&entry)?;
            if !(self.go_on)() {
                return Err(UnpackError::Stopped { entry: entry.shown });
            }
            if manner == Manner::Layer && self.layers.takes(&entry, &mut self.tree)? {
                continue;
            }
            let own = |place: &[u8]| self.layers.own(place);
            let replace = if manner == Manner::Layer { Replace::Directories(&own) } else { Replace::Files };
            self.tree.put(&entry, &mut reader, replace, self.go_on)?;
        }
        Ok(())
    }

    /// Sets owners, modes and times of directories and brings everything to the disk.
    ///
    /// # Errors
    /// [`UnpackError::Io`]
    pub fn finish(self) -> Result<Tally, UnpackError> {
        self.tree.finish().map(|()| self.tally)
    }

    /// What was unpacked so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn count(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        let refused = |fault| UnpackError::Refused { entry: entry.shown.clone(), fault };
        let Limits { entries, bytes } = self.limits;
        self.tally.entries += 1;
        self.tally.bytes = self.tally.bytes.saturating_add(entry.content);
        let size = if let Kind::Sparse(sparse) = &entry.kind { sparse.size } else { 0 };
        if self.tally.entries > entries {
            return Err(refused(Fault::Many(entries)));
        }
        if self.tally.bytes.max(size) > bytes {
            return Err(refused(Fault::Large(bytes)));
        }
        Ok(())
    }
}
