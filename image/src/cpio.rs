//! The `newc` cpio format, as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Written by hand because reproducibility is the whole point here: owner 0, time 0, members sorted by path, inode
//! numbers counted from one. The parents of a member are added by themselves, since the kernel creates none.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::{fs, io};

const MAGIC: &[u8; 6] = b"070701";
const HEADER: usize = 110;
const TRAILER: &str = "TRAILER!!!";
/// A member's name longer than the kernel's PATH_MAX is a broken archive.
const MAX_NAME: usize = 4096;

/// What is kept of all files together, bytes: the longest index of modules has two million.
const MAX_KEPT: u64 = 32 << 20;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFCHR: u32 = 0o020_000;

/// An archive cannot be written or read.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum CpioError {
    /// A file to be packed cannot be read.
    #[error("cannot read {path} for the archive")]
    Source {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// newc holds sizes in 32 bits.
    #[error("{0} is larger than 4 GiB, the limit of a cpio member")]
    TooLarge(String),
    /// Absolute, empty or climbing path.
    #[error("\"{0}\" cannot be a member's path; write it relative to the root, without . or ..")]
    Path(String),
    /// A newc header is missing.
    #[error("not a newc cpio archive at offset {0}")]
    Format(u64),
    /// The output or input failed.
    #[error("the archive cannot be copied")]
    Io(#[from] io::Error),
}

/// Where a file's content comes from.
#[derive(Debug, Clone)]
pub enum Content {
    /// Read when the archive is written.
    Path(PathBuf),
    /// Made here.
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone)]
enum Node {
    Directory,
    File(Content),
    Symlink(String),
    CharDevice { major: u32, minor: u32 },
}

/// Members by path; written in the order of their paths, so parents come first.
#[derive(Debug, Default)]
pub struct Archive {
    members: BTreeMap<String, (u32, Node)>,
}

impl Archive {
    /// An archive with no member.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory (mode bits only, such as 0o755) unless it is there already.
    ///
    /// # Errors
    /// The path is not relative and plain.
    pub fn directory(&mut self, path: &str, mode: u32) -> Result<(), CpioError> {
        self.insert(path, mode, Node::Directory)
    }

    /// Adds a regular file.
    ///
    /// # Errors
    /// The path is not relative and plain.
    pub fn file(&mut self, path: &str, mode: u32, content: Content) -> Result<(), CpioError> {
        self.insert(path, mode, Node::File(content))
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// The path is not relative and plain.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<(), CpioError> {
        self.insert(path, 0o777, Node::Symlink(target.to_owned()))
    }

    /// Adds a character device.
    ///
    /// # Errors
    /// The path is not relative and plain.
    pub fn char_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) -> Result<(), CpioError> {
        self.insert(path, mode, Node::CharDevice { major, minor })
    }

    fn insert(&mut self, path: &str, mode: u32, node: Node) -> Result<(), CpioError> {
        let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        if path.len() >= MAX_NAME || !path.split('/').all(plain) {
            return Err(CpioError::Path(path.to_owned()));
        }
        for (at, _) in path.match_indices('/') {
            self.members.entry(path[..at].to_owned()).or_insert((0o755, Node::Directory));
        }
        self.members.insert(path.to_owned(), (mode, node));
        Ok(())
    }

    /// Writes the archive, trailer included.
    ///
    /// # Errors
    /// A source file cannot be read, is too large, or `out` fails.
    pub fn write_to<W: Write>(&self, mut out: W) -> Result<W, CpioError> {
        for (inode, (path, (mode, node))) in (1u32..).zip(&self.members) {
            let (kind, links, device, content) = match node {
                Node::Directory => (S_IFDIR, 2, (0, 0), Vec::new()),
                Node::Symlink(target) => (S_IFLNK, 1, (0, 0), target.clone().into_bytes()),
                Node::CharDevice { major, minor } => (S_IFCHR, 1, (*major, *minor), Vec::new()),
                Node::File(Content::Bytes(bytes)) => (S_IFREG, 1, (0, 0), bytes.clone()),
                Node::File(Content::Path(source)) => {
                    let bytes = fs::read(source).map_err(|e| CpioError::Source { path: source.clone(), source: e })?;
                    (S_IFREG, 1, (0, 0), bytes)
                }
            };
            let size = u32::try_from(content.len()).map_err(|_| CpioError::TooLarge(path.clone()))?;
            member(&mut out, path, [inode, kind | mode, 0, 0, links, 0, size, 0, 0, device.0, device.1], &content)?;
        }
        member(&mut out, TRAILER, [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], &[])?;
        Ok(out)
    }
}

/// `fields`: inode, mode, uid, gid, links, mtime, size, device major and minor, own device major and minor.
fn member<W: Write>(out: &mut W, path: &str, fields: [u32; 11], content: &[u8]) -> io::Result<()> {
    let mut header = Vec::with_capacity(HEADER + path.len() + 4);
    header.extend_from_slice(MAGIC);
    for field in fields {
        write!(header, "{field:08x}")?;
    }
    write!(header, "{:08x}{:08x}", path.len() + 1, 0)?;
    header.extend_from_slice(path.as_bytes());
    header.push(0);
    header.resize(header.len().next_multiple_of(4), 0);
    out.write_all(&header)?;
    out.write_all(content)?;
    out.write_all(&[0; 3][..content.len().next_multiple_of(4) - content.len()])
}

/// What an archive says about one member.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Path without a leading slash.
    pub path: String,
    /// `directory`, `file`, `symlink`, `device` or `other`.
    pub kind: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// Bytes of content.
    pub size: u64,
    /// Major and minor number of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<(u32, u32)>,
    /// The content, of the files that the reader asked for.
    #[serde(skip)]
    pub content: Vec<u8>,
}

/// Lists an archive, reading it to its trailer. Contents are skipped, but for the files of these names.
///
/// # Errors
/// The bytes are not newc, or end before the trailer.
pub fn list<R: Read>(mut input: R, keep: &[&str]) -> Result<Vec<Member>, CpioError> {
    let mut members = Vec::new();
    let mut offset = 0u64;
    let mut room = MAX_KEPT;
    loop {
        let mut header = [0u8; HEADER];
        input.read_exact(&mut header)?;
        let field = |index: usize| {
            let at = MAGIC.len() + index * 8;
            std::str::from_utf8(&header[at..at + 8])
                .ok()
                .and_then(|text| u32::from_str_radix(text, 16).ok())
                .ok_or(CpioError::Format(offset))
        };
        let (mode, size, name_len) = (field(1)?, u64::from(field(6)?), field(11)? as usize);
        let number = (field(9)?, field(10)?);
        if &header[..MAGIC.len()] != MAGIC || !(1..=MAX_NAME).contains(&name_len) {
            return Err(CpioError::Format(offset));
        }
        let mut name = vec![0u8; (HEADER + name_len).next_multiple_of(4) - HEADER];
        input.read_exact(&mut name)?;
        name.truncate(name_len - 1);
        let path = String::from_utf8(name).map_err(|_| CpioError::Format(offset))?;
        let padded = size.next_multiple_of(4);
        let mut content = Vec::new();
        let mut input = (&mut input).take(padded);
        let kept = size <= room && keep.iter().any(|name| path.rsplit('/').next() == Some(name));
        room -= if kept { size } else { 0 };
        let read = if kept { input.read_to_end(&mut content)? as u64 } else { io::copy(&mut input, &mut io::sink())? };
        if read != padded {
            return Err(CpioError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        if path == TRAILER {
            return Ok(members);
        }
        let kind = match mode & S_IFMT {
            S_IFDIR => "directory",
            S_IFREG => "file",
            S_IFLNK => "symlink",
            S_IFCHR => "device",
            _ => "other",
        };
        let device = (kind == "device").then_some(number);
        content.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        members.push(Member { path, kind, mode: mode & 0o7777, size, device, content });
        offset += ((HEADER + name_len).next_multiple_of(4) as u64) + padded;
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    fn sample() -> Archive {
        let mut archive = Archive::new();
        archive.file("lib/modules/6.1/kernel/a.ko", 0o644, Content::Bytes(b"abcde".to_vec())).unwrap();
        archive.file("init", 0o755, Content::Bytes(b"#!".to_vec())).unwrap();
        archive.symlink("lib64", "lib").unwrap();
        archive.char_device("dev/console", 0o600, 5, 1).unwrap();
        archive
    }

    #[test]
    fn what_is_written_is_listed_with_parents_first() {
        let bytes = sample().write_to(Vec::new()).unwrap();
        let members = list(&bytes[..], &["init"]).unwrap();
        let paths: Vec<_> = members.iter().map(|m| m.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "dev", "dev/console", "init", "lib", "lib/modules", "lib/modules/6.1", "lib/modules/6.1/kernel",
                "lib/modules/6.1/kernel/a.ko", "lib64"
            ]
        );
        assert_eq!(
            members[2],
            Member { path: "init".into(), kind: "file", mode: 0o755, size: 2, device: None, content: b"#!".to_vec() }
        );
        assert_eq!(members[1].device, Some((5, 1)));
    }

    #[test]
    fn a_truncated_archive_is_an_error_at_every_length() {
        let bytes = sample().write_to(Vec::new()).unwrap();
        for length in 0..bytes.len() {
            assert!(list(&bytes[..length], &[]).is_err(), "{length} of {} bytes were accepted", bytes.len());
        }
    }

    #[test]
    fn a_path_that_leaves_the_root_is_refused() {
        for path in ["/init", "a//b", "../a", "a/./b", ""] {
            assert!(matches!(Archive::new().directory(path, 0o755), Err(CpioError::Path(_))), "{path}");
        }
    }

    #[test]
    fn the_cpio_tool_lists_the_same_members() {
        let bytes = sample().write_to(Vec::new()).unwrap();
        let Ok(mut child) =
            Command::new("cpio").arg("-t").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
        else {
            eprintln!("cpio is not installed; the round trip through our own reader still holds");
            return;
        };
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let ours: Vec<_> = list(&bytes[..], &["init"]).unwrap().into_iter().map(|m| m.path).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(), ours);
    }

    proptest! {
        #[test]
        fn the_reader_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), magic in any::<bool>()) {
            let mut input = bytes;
            if magic && input.len() >= MAGIC.len() {
                input[..MAGIC.len()].copy_from_slice(MAGIC);
            }
            // The reader must only return; most of these inputs are not archives.
            let _ = list(&input[..], &["init"]);
        }
    }
}
