//! One entry of an archive, checked: everything in it can be asked of the kernel as it is.

use rustix::fs::{Dev, makedev};
use tar_core::{EntryType, SparseEntry, parse::ParsedEntry};

use crate::name::{MAX_NAME, Name, shown};
use crate::pax::{Attribute, Extra, Time};
use crate::{Fault, pax};

/// The numbers that Linux has for devices: 12 bits, 20 bits.
const MAX_MAJOR: u32 = (1 << 12) - 1;
const MAX_MINOR: u32 = (1 << 20) - 1;

/// An entry whose content, if it has any, follows in the archive.
#[derive(Debug)]
pub(crate) struct Entry {
    /// For people.
    pub(crate) shown: String,
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    pub(crate) attributes: Attributes,
    /// Bytes of content in the archive.
    pub(crate) content: u64,
}

/// What an entry is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    /// A file with holes.
    Sparse(Sparse),
    Directory,
    Symlink(Vec<u8>),
    /// To another entry.
    HardLink(Name),
    Character(Dev),
    Block(Dev),
    Fifo,
    /// The name of the archive itself: nothing to unpack.
    Label,
}

/// Where the content of a file with holes goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sparse {
    /// Bytes of the file with its holes.
    pub(crate) size: u64,
    /// Offset and length of each piece, in order.
    pub(crate) pieces: Vec<(u64, u64)>,
}

/// What the kernel keeps of a file beside its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// The lower twelve bits: permissions, set-user-ID, set-group-ID, sticky.
    pub(crate) mode: u32,
    pub(crate) mtime: Time,
    pub(crate) extended: Vec<Attribute>,
}

impl Entry {
    /// Checks what the parser made of headers; `sparse` is the map that it found, and the size of the file with its holes.
    ///
    /// # Errors
    /// [`Fault`], with the entry's name for people.
    pub(crate) fn new(
        parsed: &ParsedEntry<'_>, sparse: Option<(Vec<SparseEntry>, u64)>,
    ) -> Result<Self, (String, Fault)> {
        let shown = shown(&parsed.path);
        match Self::checked(parsed, sparse) {
            Ok((name, kind, attributes)) => Ok(Self { shown, name, kind, attributes, content: parsed.size }),
            Err(fault) => Err((shown, fault)),
        }
    }

    fn checked(
        parsed: &ParsedEntry<'_>, sparse: Option<(Vec<SparseEntry>, u64)>,
    ) -> Result<(Name, Kind, Attributes), Fault> {
        let extra = parsed.pax.map(pax::extra).transpose()?.unwrap_or_default();
        let name = Name::parse(&parsed.path)?;
        let kind = kind(parsed, sparse, &extra)?;
        let owner = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX).ok_or(Fault::Owner(id));
        // A time before 1970 comes as two's complement.
        let seconds = i64::from_ne_bytes(parsed.mtime.to_ne_bytes());
        let attributes = Attributes {
            user: owner(parsed.uid)?,
            group: owner(parsed.gid)?,
            mode: parsed.mode & 0o7777,
            mtime: extra.mtime.unwrap_or((seconds, 0)),
            extended: extra.attributes,
        };
        if name.is_root() && !matches!(kind, Kind::Directory | Kind::Label) {
            return Err(Fault::Root);
        }
        if parsed.size > 0 && !matches!(kind, Kind::File | Kind::Sparse(_)) {
            return Err(Fault::Content);
        }
        Ok((name, kind, attributes))
    }
}

fn kind(parsed: &ParsedEntry<'_>, sparse: Option<(Vec<SparseEntry>, u64)>, extra: &Extra) -> Result<Kind, Fault> {
    let of_file = matches!(parsed.entry_type, EntryType::Regular | EntryType::Continuous | EntryType::GnuSparse);
    if let Some((map, size)) = sparse.filter(|_| of_file) {
        // Which of the two sizes counts the map is not agreed among writers.
        if extra.map_in_content && extra.size {
            return Err(Fault::LargeMap);
        }
        return Ok(Kind::Sparse(Sparse { size, pieces: pieces(&map, size, parsed.size)? }));
    }
    if extra.sparse {
        return Err(Fault::Map("there is none"));
    }
    let target = || parsed.link_target.as_deref().filter(|target| !target.contains(&0)).ok_or(Fault::Target);
    let device = || {
        let (major, minor) = (parsed.dev_major.unwrap_or_default(), parsed.dev_minor.unwrap_or_default());
        let fits = major <= MAX_MAJOR && minor <= MAX_MINOR;
        fits.then(|| makedev(major, minor)).ok_or(Fault::Device(major, minor))
    };
    Ok(match parsed.entry_type {
        // Before there was a type for directories they were files with a slash at the end.
        EntryType::Regular | EntryType::Continuous if parsed.path.ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous => Kind::File,
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink(target().and_then(|t| short(t).ok_or(Fault::Target))?.to_vec()),
        EntryType::Link => Kind::HardLink(linked(target()?)?),
        EntryType::Char => Kind::Character(device()?),
        EntryType::Block => Kind::Block(device()?),
        EntryType::Fifo => Kind::Fifo,
        EntryType::Other(b'V') => Kind::Label,
        other => return Err(Fault::Type(char::from(other.to_byte()))),
    })
}

fn short(target: &[u8]) -> Option<&[u8]> {
    (1..=MAX_NAME).contains(&target.len()).then_some(target)
}

fn linked(target: &[u8]) -> Result<Name, Fault> {
    match Name::parse(target) {
        Ok(name) if name.is_root() => Err(Fault::Target),
        Err(Fault::Upwards) => Err(Fault::OutsideLink),
        other => other,
    }
}

/// The pieces of a file of so many bytes, together so many.
fn pieces(map: &[SparseEntry], size: u64, content: u64) -> Result<Vec<(u64, u64)>, Fault> {
    let (mut end, mut sum) = (0, 0_u64);
    let mut pieces = Vec::with_capacity(map.len());
    for piece in map {
        let SparseEntry { offset, length } = *piece;
        if offset < end {
            return Err(Fault::Map("its pieces overlap or are out of order"));
        }
        end = offset
            .checked_add(length)
            .filter(|end| *end <= size)
            .ok_or(Fault::Map("a piece ends behind the file's end"))?;
        sum += length;
        if length > 0 {
            pieces.push((offset, length));
        }
    }
    if sum != content {
        return Err(Fault::Map("its pieces are not as long as its content"));
    }
    Ok(pieces)
}
