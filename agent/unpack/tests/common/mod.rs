//! Trees as they stand on a disk, in a form that can be compared; archives of GNU tar; and headers made by hand.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_unpack::{Limits, Manner, Tally, Target, UnpackError, Unpacker};

/// Everything that an archive stores of one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kind: char,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// Seconds and nanoseconds.
    pub(crate) mtime: (i64, i64),
    pub(crate) content: Vec<u8>,
    /// Every extended attribute.
    pub(crate) attributes: BTreeMap<String, Vec<u8>>,
    /// Which files are one, by the first of their names.
    pub(crate) same_as: Option<PathBuf>,
    pub(crate) device: u64,
    /// It takes less room than it has bytes.
    pub(crate) holes: bool,
}

/// The tree below `root`, by place.
pub(crate) fn facts(root: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut places = vec![PathBuf::new()];
    let (mut all, mut firsts) = (BTreeMap::new(), BTreeMap::new());
    while let Some(place) = places.pop() {
        let path = root.join(&place);
        let meta = fs::symlink_metadata(&path).unwrap();
        let kind = meta.file_type();
        let (letter, content) = match kind {
            k if k.is_dir() => ('d', Vec::new()),
            k if k.is_symlink() => ('l', fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()),
            k if k.is_file() => ('f', fs::read(&path).unwrap()),
            k if k.is_fifo() => ('p', Vec::new()),
            k if k.is_block_device() => ('b', Vec::new()),
            _ => ('c', Vec::new()),
        };
        if kind.is_dir() {
            places.extend(fs::read_dir(&path).unwrap().map(|entry| place.join(entry.unwrap().file_name())));
        }
        let linked = (meta.nlink() > 1 && !kind.is_dir()).then(|| meta.ino());
        let one = Facts {
            kind: letter,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            content,
            attributes: attributes(&path),
            same_as: None,
            device: if matches!(letter, 'b' | 'c') { meta.rdev() } else { 0 },
            holes: kind.is_file() && meta.blocks() * 512 < meta.len(),
        };
        all.insert(place.clone(), (one, linked));
    }
    for (place, (facts, linked)) in &mut all {
        facts.same_as = linked.map(|inode| firsts.entry(inode).or_insert_with(|| place.clone()).clone());
    }
    all.into_iter().map(|(place, (facts, _))| (place, facts)).collect()
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 64 * 1024];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 * 1024];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        (String::from_utf8_lossy(name).into_owned(), value[..length].to_vec())
    };
    names.map(value).collect()
}

/// The first difference of two trees, in words.
pub(crate) fn difference(expected: &BTreeMap<PathBuf, Facts>, found: &BTreeMap<PathBuf, Facts>) -> Option<String> {
    for (place, facts) in expected {
        match found.get(place) {
            None => return Some(format!("{} is missing", place.display())),
            Some(other) if other != facts => {
                let (a, b) = (format!("{facts:?}"), format!("{other:?}"));
                let cut = |text: &str| text.chars().take(600).collect::<String>();
                return Some(format!("{}: {} became {}", place.display(), cut(&a), cut(&b)));
            }
            Some(_) => {}
        }
    }
    found.keys().find(|place| !expected.contains_key(*place)).map(|place| format!("{} is new", place.display()))
}

/// Runs GNU tar.
pub(crate) fn tar(arguments: &[&str], at: &Path) -> Vec<u8> {
    let output = Command::new("tar").args(arguments).current_dir(at).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "tar {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The root of a system as the place of an archive.
pub(crate) fn whole(root: &Path) -> Target<'_> {
    Target { system: root, path: "/", hidden: &[] }
}

/// Unpacks to a directory of a system.
pub(crate) fn unpacked_to(archive: &[u8], target: &Target<'_>) -> Result<Tally, UnpackError> {
    by(archive, target, Manner::Archive, 64 * 1024)
}

/// Unpacks in pieces of `piece` bytes, so that headers lie across them.
pub(crate) fn unpacked_by(archive: &[u8], root: &Path, manner: Manner, piece: usize) -> Result<Tally, UnpackError> {
    by(archive, &whole(root), manner, piece)
}

/// The same, to a directory of a system.
pub(crate) fn by(archive: &[u8], target: &Target<'_>, manner: Manner, piece: usize) -> Result<Tally, UnpackError> {
    let mut unpacker = Unpacker::new(target, Limits::default(), &|| true)?;
    unpacker.archive(&mut BufReader::with_capacity(piece, archive), manner)?;
    unpacker.finish()
}

/// Unpacks as tar does.
pub(crate) fn unpacked(archive: &[u8], root: &Path) -> Result<Tally, UnpackError> {
    unpacked_by(archive, root, Manner::Archive, 64 * 1024)
}

/// A header made by hand, and what follows it.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) link: Vec<u8>,
    pub(crate) content: Vec<u8>,
    /// In place of the content's length.
    pub(crate) size: Option<u64>,
}

impl Made {
    pub(crate) fn new(kind: u8, name: impl AsRef<[u8]>) -> Self {
        Self { name: name.as_ref().into(), kind, link: Vec::new(), content: Vec::new(), size: None }
    }
    pub(crate) fn to(self, link: impl AsRef<[u8]>) -> Self {
        Self { link: link.as_ref().into(), ..self }
    }
    pub(crate) fn with(self, content: impl AsRef<[u8]>) -> Self {
        Self { content: content.as_ref().into(), ..self }
    }

    /// The header and the content.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut header = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.name[..self.name.len().min(100)]);
        put(100, b"0000644\0");
        let me = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        put(108, format!("{:07o}\0", me.0).as_bytes());
        put(116, format!("{:07o}\0", me.1).as_bytes());
        put(124, format!("{:011o}\0", self.size.unwrap_or(self.content.len() as u64)).as_bytes());
        put(136, b"00000000001\0");
        put(156, &[self.kind]);
        put(157, &self.link[..self.link.len().min(100)]);
        put(257, b"ustar\x0000");
        put(329, b"0000001\0");
        put(337, b"0000003\0");
        seal(&mut header);
        let mut bytes = header.to_vec();
        bytes.extend(&self.content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

/// Puts the checksum of a header in place.
pub(crate) fn seal(header: &mut [u8; 512]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A whole archive of such entries.
pub(crate) fn archive(entries: &[Made]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(Made::bytes).collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// A record of an extended header.
pub(crate) fn record(key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let rest = key.len() + value.len() + 3;
    let length = (rest..).find(|length| length.to_string().len() + rest == *length).unwrap();
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// An extended header for the entry after it.
pub(crate) fn extended(records: &[(&str, &[u8])]) -> Made {
    Made::new(b'x', "PaxHeaders/x").with(records.iter().flat_map(|(key, value)| record(key, value)).collect::<Vec<_>>())
}
