//! The header: what the image is, and which of its features this decoder does not support. Offsets, magic numbers and
//! feature bits are those of "Qcow2 Image File Format" (QEMU, docs/interop/qcow2.rst).

use super::super::DecodeError;
use super::bytes::{u32_at, u64_at};

/// Header and extensions lie in the first cluster; of a large one no more than this is read, bytes.
pub(super) const READ: usize = 64 * 1024;

const MAGIC: &[u8] = b"QFI\xfb";
/// Length of a version 2 header, bytes.
const LENGTH_2: usize = 72;
/// Least length of a version 3 header, bytes.
const LENGTH_3: usize = 104;
/// QEMU takes no larger active L1 table (QCOW_MAX_L1_SIZE), bytes.
const L1_MAX: u64 = 32 << 20;
/// Clusters below 4096 bytes cannot be written one by one.
const LEAST_BITS: u32 = 12;

/// Bits of the incompatible features. Bit 0, "dirty", speaks of reference counts alone, which nothing here reads; bit 3
/// announces the compression type.
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
/// The first bit that has no meaning yet.
const FIRST_UNKNOWN: u32 = 5;

/// Header extensions.
const FEATURE_NAMES: u32 = 0x6803_f857;
const DATA_FILE_NAME: u32 = 0x4441_5441;

/// How compressed clusters are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    /// RFC 1951 without any wrapping; QEMU calls it zlib.
    Deflate,
    /// One frame a cluster.
    Zstd,
}

/// What is needed of a header that was found good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// 2 or 3.
    pub(super) version: u32,
    /// 12 to 21.
    pub(super) cluster_bits: u32,
    /// Bytes of the virtual disk; not 0, and less than 2^32 clusters.
    pub(super) size: u64,
    /// A multiple of the cluster size.
    pub(super) l1_offset: u64,
    pub(super) compression: Compression,
}

impl Header {
    /// Reads the start of a file, as much of it as the first cluster and [`READ`] have.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let bad = |reason: String| DecodeError::Bad(reason);
        let short = || DecodeError::Unfinished("it stops in the middle of the qcow2 header".into());
        let start = bytes.get(..MAGIC.len()).unwrap_or(bytes);
        if !MAGIC.starts_with(start) {
            return Err(bad("it does not start like a qcow2 file".into()));
        }
        let version = u32_at(bytes, 4).ok_or_else(short)?;
        if !(2..=3).contains(&version) {
            return Err(bad(format!("it is qcow2 version {version}, and versions 2 and 3 are supported")));
        }
        let least = if version == 2 { LENGTH_2 } else { LENGTH_3 };
        if bytes.len() < least {
            return Err(short());
        }
        let word = |at| u32_at(bytes, at).ok_or_else(short);
        let long = |at| u64_at(bytes, at).ok_or_else(short);
        let cluster_bits = word(20)?;
        if !(9..=21).contains(&cluster_bits) {
            return Err(bad(format!("its clusters of 2^{cluster_bits} bytes are outside what qcow2 allows")));
        }
        if cluster_bits < LEAST_BITS {
            return Err(bad(format!(
                "its clusters have {} bytes, and at least 4096 are needed; convert it with qemu-img convert -O qcow2",
                1 << cluster_bits
            )));
        }
        let length = if version == 2 { LENGTH_2 } else { word(100)? as usize };
        let first = bytes.get(..1 << cluster_bits).unwrap_or(bytes);
        if length < least || length > 1 << cluster_bits || !length.is_multiple_of(8) {
            return Err(bad(format!("its qcow2 header states an invalid length of {length} bytes")));
        }
        let extensions = Extensions(first.get(length..).unwrap_or_default());
        let features = if version == 2 { 0 } else { long(72)? };
        refuse_features(features, &extensions)?;
        refuse_encryption(word(32)?)?;
        refuse_backing(long(8)?, word(16)?, first)?;
        let kind = if length > LENGTH_3 { bytes.get(LENGTH_3).copied().ok_or_else(short)? } else { 0 };
        let compression = match (features & COMPRESSION != 0, kind) {
            (false, 0) => Compression::Deflate,
            (true, 1) => Compression::Zstd,
            (true, 2..) => return Err(bad(format!("its compression type {kind} is not supported"))),
            _ => return Err(bad("its qcow2 header contradicts itself about the compression type".into())),
        };
        let header = Self { version, cluster_bits, size: long(24)?, l1_offset: long(40)?, compression };
        header.check(word(36)?)?;
        Ok(header)
    }

    fn check(&self, l1_size: u32) -> Result<(), DecodeError> {
        let bad = |reason| Err(DecodeError::Bad(reason));
        if self.size == 0 {
            return bad("its virtual disk is empty".into());
        }
        if self.size.div_ceil(self.cluster()) >= 1 << 32 {
            return bad(format!("its virtual disk of {} bytes is larger than any disk", self.size));
        }
        if u64::from(l1_size) * 8 > L1_MAX {
            return bad(format!("its L1 table of {l1_size} entries is over the {} MiB it may have", L1_MAX >> 20));
        }
        if u64::from(l1_size) < self.l1_entries() {
            return bad(format!("its L1 table has {l1_size} entries, and its size needs {}", self.l1_entries()));
        }
        if self.l1_offset == 0 || !self.l1_offset.is_multiple_of(self.cluster()) || self.l1_offset >= 1 << 56 {
            return bad(format!("its L1 table cannot be at {}", self.l1_offset));
        }
        Ok(())
    }

    /// Bytes of a cluster.
    pub(super) fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// How many clusters the virtual disk has.
    pub(super) fn clusters(&self) -> u64 {
        self.size.div_ceil(self.cluster())
    }

    /// How many entries an L2 table has.
    pub(super) fn l2_entries(&self) -> u64 {
        self.cluster() / 8
    }

    /// How many entries of the L1 table the virtual disk takes; what comes after is a saved machine's memory.
    pub(super) fn l1_entries(&self) -> u64 {
        self.clusters().div_ceil(self.l2_entries())
    }
}

fn refuse_features(features: u64, extensions: &Extensions<'_>) -> Result<(), DecodeError> {
    let bad = |reason| Err(DecodeError::Bad(reason));
    if features & CORRUPT != 0 {
        return bad("it is marked corrupt; look at it with qemu-img check".into());
    }
    if features & EXTERNAL_DATA != 0 {
        let name = extensions.find(DATA_FILE_NAME).map(quoted);
        return bad(format!(
            "its data is in another file{}; convert it with qemu-img convert -O qcow2",
            name.map(|name| format!(", {name}")).unwrap_or_default()
        ));
    }
    if features & EXTENDED_L2 != 0 {
        return bad("it has extended L2 entries (subclusters), which are not supported; convert it with qemu-img \
                    convert -O qcow2 -o extended_l2=off"
            .into());
    }
    let unknown = features >> FIRST_UNKNOWN << FIRST_UNKNOWN;
    if unknown != 0 {
        let bit = unknown.trailing_zeros();
        let name = extensions.feature(bit).map(|name| format!(", {name}")).unwrap_or_default();
        return bad(format!("it needs the qcow2 feature of bit {bit}{name}, which is not supported"));
    }
    Ok(())
}

fn refuse_encryption(method: u32) -> Result<(), DecodeError> {
    let name = match method {
        0 => return Ok(()),
        1 => "AES".to_owned(),
        2 => "LUKS".to_owned(),
        other => format!("method {other}"),
    };
    Err(DecodeError::Bad(format!("it is encrypted ({name}); use an image without encryption")))
}

fn refuse_backing(offset: u64, length: u32, first: &[u8]) -> Result<(), DecodeError> {
    // As in QEMU, a name of no bytes is no backing file.
    if offset == 0 || length == 0 {
        return Ok(());
    }
    let start = usize::try_from(offset).ok();
    let name = start.and_then(|start| first.get(start..)?.get(..length as usize)).map(quoted);
    Err(DecodeError::Bad(format!(
        "it holds only the differences from {}; make a complete image with qemu-img convert -O qcow2",
        name.unwrap_or_else(|| "a backing file".into())
    )))
}

/// A name from the file, made safe for a message.
fn quoted(name: &[u8]) -> String {
    let shown = name.split(|b| *b == 0).next().unwrap_or_default();
    format!("{:?}", String::from_utf8_lossy(shown.get(..200).unwrap_or(shown)))
}

/// The header extensions.
struct Extensions<'a>(&'a [u8]);

impl<'a> Extensions<'a> {
    /// Content of the first one of this type.
    fn find(&self, wanted: u32) -> Option<&'a [u8]> {
        let mut rest = self.0;
        loop {
            let (kind, length) = (u32_at(rest, 0)?, u32_at(rest, 4)? as usize);
            let content = rest.get(8..)?;
            if kind == wanted {
                return content.get(..length);
            }
            if kind == 0 {
                return None;
            }
            // Each takes at least the eight bytes of its own head, so this ends.
            rest = content.get(length.checked_next_multiple_of(8)?..)?;
        }
    }

    /// What the file calls an incompatible feature.
    fn feature(&self, bit: u32) -> Option<String> {
        let table = self.find(FEATURE_NAMES)?;
        let entry =
            table.chunks_exact(48).find(|entry| entry.first() == Some(&0) && entry.get(1) == Some(&(bit as u8)));
        entry.and_then(|entry| entry.get(2..)).map(quoted)
    }
}
