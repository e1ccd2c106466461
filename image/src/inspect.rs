//! Shows what an initramfs or a disk image contains. The type is detected by content, never by the file's name.

mod medium;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::io::{BufRead as _, Cursor, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use gpt::disk::LogicalBlockSize;
use landfall_disk::{Index, IndexError, MAX_INDEX_BYTES, StoredAs};
use serde::Serialize;

use crate::cpio;
use crate::cpio::{CpioError, Member};
use crate::digest::Hashing;
use crate::kernel::modinfo::canonical;
use crate::pe::Headers;

/// The modules that a kernel has built in, by path.
const BUILTIN: &str = "modules.builtin";
/// Which module drives which device.
const ALIASES: &str = "modules.alias";
/// A larger EFI program is not read: firmware and the format have 4 GiB.
const MAX_UKI: u64 = (4 << 30) - 1;
/// How much of a disk's beginning is kept: the partition table of either sector size lies within.
const HEAD: u64 = 1 << 20;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A frame that declares a larger window (128 MiB) is refused, as the kernel refuses it.
const WINDOW_LOG_MAX: u32 = 27;

/// The file cannot be inspected.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It cannot be read or decompressed to its end.
    #[error("cannot read {path} to its end")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It begins like a cpio archive but is damaged.
    #[error("{path} is damaged")]
    Cpio {
        path: PathBuf,
        #[source]
        source: CpioError,
    },
    /// It begins like an index but is not usable.
    #[error("{path} is not a usable index")]
    Index {
        path: PathBuf,
        #[source]
        source: IndexError,
    },
    /// None of the supported types.
    #[error(
        "{0} is neither a newc initramfs nor a GPT disk image, plain or zstd-compressed, nor a unified kernel image, a boot medium, or an image's index"
    )]
    Unknown(PathBuf),
}

/// Sizes and digests of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sizes {
    /// Bytes of the file.
    pub stored_bytes: u64,
    /// `sha256:<hex>` of the file.
    pub digest: String,
    /// Bytes after decompression.
    pub raw_bytes: u64,
    /// `sha256:<hex>` after decompression.
    pub raw_digest: String,
}

/// The type and content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Report {
    /// A boot image.
    #[serde(rename_all = "camelCase")]
    Initramfs {
        /// Sizes and digests.
        #[serde(flatten)]
        sizes: Sizes,
        /// Canonical names of the kernel modules inside.
        modules: BTreeSet<String>,
        /// Canonical names of the modules that its kernel has built in.
        builtin: BTreeSet<String>,
        /// Its `modules.alias`.
        #[serde(skip)]
        aliases: String,
        /// Everything inside.
        members: Vec<Member>,
    },
    /// A disk.
    #[serde(rename_all = "camelCase")]
    Disk {
        /// Sizes and digests.
        #[serde(flatten)]
        sizes: Sizes,
        /// Bytes of a logical sector as the partition table counts them.
        sector_bytes: u64,
        /// The disk's GUID.
        guid: uuid::Uuid,
        /// Its partitions, by number.
        partitions: Vec<PartitionReport>,
    },
    /// The index of a packed image, or a bmap.
    Index(IndexReport),
    /// A unified kernel image.
    Uki(Box<UkiReport>),
    /// A boot medium.
    Medium(Box<MediumReport>),
}

impl Report {
    /// The boot image that it is, or that is in it.
    pub fn initramfs(&self) -> Option<&Self> {
        match self {
            Self::Initramfs { .. } => Some(self),
            Self::Uki(uki) => uki.initramfs.initramfs(),
            Self::Medium(medium) => medium.initramfs.initramfs(),
            Self::Disk { .. } | Self::Index(_) => None,
        }
    }
}

/// What is in a unified kernel image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UkiReport {
    /// Bytes of the file.
    pub stored_bytes: u64,
    /// `sha256:<hex>` of the file.
    pub digest: String,
    /// The kernel's command line.
    pub command_line: String,
    /// Whether it carries a signature. By whose key says `sbverify --list`.
    pub is_signed: bool,
    /// Names of its sections, sorted.
    pub sections: Vec<String>,
    /// Its boot image.
    pub initramfs: Report,
}

/// What is on a boot medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MediumReport {
    /// Bytes of the file.
    pub stored_bytes: u64,
    /// `sha256:<hex>` of the file.
    pub digest: String,
    /// The kernel's command line.
    pub command_line: String,
    /// Its boot image.
    pub initramfs: Report,
}

/// What an index states about its image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexReport {
    /// `sha256:<hex>` of the index: what a template names.
    pub digest: String,
    /// Whether it is a bmap rather than our own manifest.
    pub bmap: bool,
    /// Bytes of the disk.
    pub raw_bytes: u64,
    /// Bytes of the disk that are not zero chunks.
    pub data_bytes: u64,
    /// Bytes of the packed image; `None` for a bmap.
    pub stored_bytes: Option<u64>,
    /// Bytes that a first installation fetches; `None` for a bmap.
    pub fetched_bytes: Option<u64>,
    /// Raw bytes of a chunk, or of a bmap's block.
    pub chunk_bytes: u64,
    /// Pieces with data.
    pub data_chunks: usize,
    /// Runs of zeros.
    pub zero_runs: usize,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionReport {
    /// From one.
    pub number: u32,
    /// Label in the table.
    pub name: String,
    /// Type GUID.
    pub type_guid: uuid::Uuid,
    /// Own GUID (PARTUUID).
    pub guid: uuid::Uuid,
    /// Offset in bytes.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Inspects `path`, reading it from end to end.
///
/// # Errors
/// See [`InspectError`].
pub fn inspect(path: &Path) -> Result<Report, InspectError> {
    let io = |source| InspectError::Io { path: path.to_owned(), source };
    let mut file = io::BufReader::with_capacity(1 << 18, File::open(path).map_err(io)?);
    if file.fill_buf().map_err(io)?.starts_with(b"MZ") {
        let mut program = Vec::new();
        file.take(MAX_UKI + 1).read_to_end(&mut program).map_err(io)?;
        if program.len() as u64 > MAX_UKI {
            return Err(InspectError::Unknown(path.to_owned()));
        }
        return uki(path, &program);
    }
    let found = match medium::find(&mut file) {
        // A pipe has no volume. What was read of it is still in the buffer.
        Err(error) if error.kind() == io::ErrorKind::NotSeekable => return content(path, file),
        found => found.map_err(io)?,
    };
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let Some(found) = found else { return content(path, file) };
    let mut whole = Hashing::new(io::sink());
    io::copy(&mut file, &mut whole).map_err(io)?;
    let (stored_bytes, digest) = whole.finish();
    let (start, length) = found.initramfs;
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    let initramfs = content(path, file.take(length))?;
    let command_line = printable(&found.command_line);
    Ok(Report::Medium(Box::new(MediumReport { stored_bytes, digest, command_line, initramfs })))
}

/// An EFI program with an initramfs in it.
fn uki(path: &Path, program: &[u8]) -> Result<Report, InspectError> {
    let unknown = || InspectError::Unknown(path.to_owned());
    let headers = Headers::read(program).ok_or_else(unknown)?;
    let mut sections = BTreeMap::new();
    for section in headers.each(program) {
        let (name, at, stored, used) = section.ok_or_else(unknown)?;
        // What is stored is filled up to a multiple of the file's alignment.
        let (at, size) = (at as usize, if used == 0 { stored } else { stored.min(used) } as usize);
        let bytes = at.checked_add(size).and_then(|end| program.get(at..end)).ok_or_else(unknown)?;
        // Where a name repeats, the first is of the profile that starts by itself.
        sections.entry(printable(&name)).or_insert(bytes);
    }
    let text = |name: &str| {
        let bytes = sections.get(name).copied().unwrap_or_default();
        printable(String::from_utf8_lossy(bytes).trim_matches([' ', '\n', '\0']))
    };
    let initramfs = content(path, *sections.get(".initrd").ok_or_else(unknown)?)?;
    let mut whole = Hashing::new(io::sink());
    whole.write_all(program).map_err(|source| InspectError::Io { path: path.to_owned(), source })?;
    let (stored_bytes, digest) = whole.finish();
    Ok(Report::Uki(Box::new(UkiReport {
        stored_bytes,
        digest,
        command_line: text(".cmdline"),
        is_signed: headers.is_signed(program),
        sections: sections.into_keys().collect(),
        initramfs,
    })))
}

/// A foreign file's text without what a terminal obeys.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn content(path: &Path, input: impl Read) -> Result<Report, InspectError> {
    let io = |source| InspectError::Io { path: path.to_owned(), source };
    let mut stored = Hashing::new(input);
    let mut start = Vec::new();
    stored.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut start).map_err(io)?;
    let whole = Cursor::new(start.clone()).chain(&mut stored);
    if matches!(start.trim_ascii_start().first(), Some(b'{' | b'<')) {
        let mut text = Vec::new();
        // One byte more than there may be, so that the parser sees that it is too large.
        whole.take(MAX_INDEX_BYTES + 1).read_to_end(&mut text).map_err(io)?;
        let index = Index::parse(&text).map_err(|source| InspectError::Index { path: path.to_owned(), source })?;
        return Ok(Report::Index(summary(&index, stored.finish().1)));
    }
    if start != ZSTD_MAGIC {
        let (found, raw_bytes, raw_digest) = look(path, whole)?;
        let (stored_bytes, digest) = stored.finish();
        return found.report(path, Sizes { stored_bytes, digest, raw_bytes, raw_digest });
    }
    let mut decoder = zstd::Decoder::with_buffer(io::BufReader::new(whole)).map_err(io)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(io)?;
    let (found, raw_bytes, raw_digest) = look(path, decoder)?;
    let (stored_bytes, digest) = stored.finish();
    found.report(path, Sizes { stored_bytes, digest, raw_bytes, raw_digest })
}

fn summary(index: &Index, digest: String) -> IndexReport {
    let bmap = index.format == StoredAs::Linear;
    let data_chunks = index.chunks.iter().filter(|chunk| chunk.is_data()).count();
    IndexReport {
        digest,
        bmap,
        raw_bytes: index.raw_bytes,
        data_bytes: index.data_bytes(),
        stored_bytes: (!bmap).then_some(index.stored_bytes),
        fetched_bytes: (!bmap).then(|| index.fetched_bytes()),
        chunk_bytes: index.chunk_bytes,
        data_chunks,
        zero_runs: index.chunks.len() - data_chunks,
    }
}

enum Found {
    Members(Vec<Member>),
    Head(Vec<u8>),
}

fn look(path: &Path, input: impl Read) -> Result<(Found, u64, String), InspectError> {
    let io = |source| InspectError::Io { path: path.to_owned(), source };
    let mut input = Hashing::new(input);
    let mut head = Vec::new();
    input.by_ref().take(HEAD).read_to_end(&mut head).map_err(io)?;
    let found = if head.starts_with(b"070701") {
        let members = cpio::list(Cursor::new(head).chain(&mut input), &[BUILTIN, ALIASES])
            .map_err(|source| InspectError::Cpio { path: path.to_owned(), source })?;
        Found::Members(members)
    } else {
        Found::Head(head)
    };
    io::copy(&mut input, &mut io::sink()).map_err(io)?;
    let (bytes, digest) = input.finish();
    Ok((found, bytes, digest))
}

impl Found {
    fn report(self, path: &Path, sizes: Sizes) -> Result<Report, InspectError> {
        match self {
            Self::Members(members) => {
                let modules = members.iter().filter_map(|member| module_name(&member.path)).collect();
                let text = |name: &str| {
                    let files = members.iter().filter(|member| member.path.rsplit('/').next() == Some(name));
                    files.map(|member| String::from_utf8_lossy(&member.content)).collect::<String>()
                };
                let builtin = text(BUILTIN).lines().filter_map(module_name).collect();
                let aliases = text(ALIASES);
                Ok(Report::Initramfs { sizes, modules, builtin, aliases, members })
            }
            Self::Head(head) => [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096]
                .into_iter()
                .find_map(|sector| table(&head, sector))
                .map(|(sector_bytes, guid, partitions)| Report::Disk { sizes, sector_bytes, guid, partitions })
                .ok_or_else(|| InspectError::Unknown(path.to_owned())),
        }
    }
}

/// The canonical name of the module that a file's path is of.
fn module_name(path: &str) -> Option<String> {
    let (name, end) = path.rsplit('/').next()?.split_once(".ko")?;
    ["", ".gz", ".xz", ".zst"].contains(&end).then(|| canonical(name))
}

fn table(head: &[u8], sector: LogicalBlockSize) -> Option<(u64, uuid::Uuid, Vec<PartitionReport>)> {
    let mut device = Cursor::new(head);
    let header = gpt::header::read_header_from_arbitrary_device(&mut device, sector).ok()?;
    // The gpt crate takes no other entry size, and panics on one.
    if header.part_size != 128 {
        return None;
    }
    let entries = gpt::partition::file_read_partitions(&mut device, &header, sector).ok()?;
    let partitions = entries
        .into_iter()
        .filter(|(_, entry)| entry.is_used() && entry.last_lba >= entry.first_lba)
        .map(|(number, entry)| PartitionReport {
            number,
            name: entry.name,
            type_guid: entry.part_type_guid.guid,
            guid: entry.part_guid,
            start: entry.first_lba.saturating_mul(sector.as_u64()),
            bytes: (entry.last_lba - entry.first_lba).saturating_add(1).saturating_mul(sector.as_u64()),
        })
        .collect();
    Some((sector.as_u64(), header.disk_guid, partitions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio::{Archive, Content};
    use crate::uki;

    #[test]
    fn a_plain_and_a_compressed_initramfs_say_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let mut archive = Archive::new();
        archive.file("lib/modules/6.1/kernel/virtio-rng.ko", 0o644, Content::Bytes(vec![7; 3 << 20])).unwrap();
        archive.file("lib/modules/6.1/kernel/ext4.ko.zst", 0o644, Content::Bytes(vec![8])).unwrap();
        let lists =
            [("modules.builtin", "kernel/drivers/ata/ahci.ko\n"), ("modules.alias", "alias pci:v* virtio_rng\n")];
        for (name, text) in lists {
            archive.file(&format!("lib/modules/6.1/{name}"), 0o644, Content::Bytes(text.into())).unwrap();
        }
        archive.file("lib/modules/6.1/kernel/xfs.ko.old", 0o644, Content::Bytes(vec![9])).unwrap();
        let raw = archive.write_to(Vec::new()).unwrap();
        let (plain, packed) = (dir.path().join("plain"), dir.path().join("packed"));
        std::fs::write(&plain, &raw).unwrap();
        std::fs::write(&packed, zstd::encode_all(&raw[..], 3).unwrap()).unwrap();
        let (Report::Initramfs { sizes: a, modules, builtin, aliases, .. }, Report::Initramfs { sizes: b, .. }) =
            (inspect(&plain).unwrap(), inspect(&packed).unwrap())
        else {
            panic!("not seen as initramfs");
        };
        assert_eq!(modules.iter().collect::<Vec<_>>(), ["ext4", "virtio_rng"]);
        assert_eq!(
            (builtin.iter().map(String::as_str).collect::<Vec<_>>(), aliases.as_str()),
            (vec!["ahci"], lists[1].1)
        );
        assert_eq!((a.raw_bytes, &a.raw_digest), (raw.len() as u64, &a.digest));
        assert_eq!(a.raw_digest, b.raw_digest);
        assert!(b.stored_bytes < a.stored_bytes);
    }

    #[test]
    fn a_uki_shows_its_command_line_and_its_initramfs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("landfall.efi");
        let mut archive = Archive::new();
        archive.file("lib/modules/6.1/kernel/ext4.ko", 0o644, Content::Bytes(vec![8])).unwrap();
        let initramfs = zstd::encode_all(&archive.write_to(Vec::new()).unwrap()[..], 3).unwrap();
        let stub = uki::tests::stub(&[".text", ".sbat"]);
        let parts = uki::Parts {
            stub: &stub,
            kernel: &uki::tests::kernel(),
            initramfs: &initramfs,
            command_line: "quiet landfall.x=1",
            os_release: "NAME=x",
        };
        let made = uki::build(&parts).unwrap();
        std::fs::write(&path, &made).unwrap();
        let report = inspect(&path).unwrap();
        let Report::Uki(seen) = &report else { panic!("{report:?}") };
        assert_eq!((seen.command_line.as_str(), seen.is_signed), ("quiet landfall.x=1", false));
        assert_eq!(seen.stored_bytes, made.len() as u64);
        assert_eq!(seen.sections, [".cmdline", ".initrd", ".linux", ".osrel", ".sbat", ".text"]);
        let Some(Report::Initramfs { modules, .. }) = report.initramfs() else { panic!("{report:?}") };
        assert!(modules.contains("ext4"));
        for (what, bytes) in [("the stub alone", stub), ("cut off", made[..made.len() / 2].to_vec())] {
            std::fs::write(&path, bytes).unwrap();
            assert!(inspect(&path).is_err(), "{what}");
        }
    }

    #[test]
    fn a_truncated_image_and_a_text_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut packed = zstd::encode_all(&vec![1u8; 100_000][..], 3).unwrap();
        packed.truncate(packed.len() - 1);
        std::fs::write(&path, packed).unwrap();
        assert!(matches!(inspect(&path), Err(InspectError::Io { .. })));
        std::fs::write(&path, "hello").unwrap();
        assert!(matches!(inspect(&path), Err(InspectError::Unknown(_))));
    }
}
