//! Our own manifest of a packed image, version 1.
//!
//! ```json
//! {"format": "landfall-index", "version": 1, "chunkBytes": 1048576, "rawBytes": 4194304, "storedBytes": 270112,
//!  "seekTableBytes": 49, "rawDigest": "sha256:…", "storedDigest": "sha256:…", "chunks": [
//! [269905, "<SHA-256 of the stored bytes, hex>", "<SHA-256 of the raw bytes, hex>"],
//! [3, 158]
//! ]}
//! ```
//!
//! A chunk of data is its stored length and its two digests; a run of zero chunks is their number and the stored length
//! of all of them. In the stored file the frames follow each other in this order from byte 0, and the seek table
//! follows them, so lengths tell places. Unknown members are refused: a change that adds one must raise the version.

use std::{borrow::Cow, fmt, fmt::Write};

use landfall_api::Digest;
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Chunk, ChunkKind, Index, IndexError, MAX_CHUNKS, MAX_INDEX_BYTES, StoredAs, check, damaged};

const FORMAT: &str = "landfall-index";
const VERSION: u64 = 1;

/// What says whether the rest can be read.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    format: Option<Cow<'a, str>>,
    version: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Manifest {
    #[serde(rename = "format")]
    _format: IgnoredAny,
    #[serde(rename = "version")]
    _version: IgnoredAny,
    chunk_bytes: u64,
    raw_bytes: u64,
    stored_bytes: u64,
    seek_table_bytes: u64,
    raw_digest: Digest,
    stored_digest: Digest,
    chunks: Entries,
}

struct Entries(Vec<Entry>);

enum Entry {
    Data { stored: u64, stored_digest: [u8; 32], raw_digest: [u8; 32] },
    Zeros { chunks: u64, stored: u64 },
}

pub(super) fn parse(text: &[u8]) -> Result<Index, IndexError> {
    let head: Head<'_> = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    if head.format.as_deref() != Some(FORMAT) {
        return Err(IndexError::Unknown);
    }
    match head.version {
        Some(VERSION) => {}
        other => {
            return Err(IndexError::Version {
                kind: "manifest",
                version: other.map_or_else(|| "unknown".to_owned(), |version| version.to_string()),
                known: "1",
                hint: "use a newer Landfall, or pack the image again with the landfall-image of this one",
            });
        }
    }
    let manifest: Manifest = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    check::chunk_size(manifest.chunk_bytes)?;
    let mut chunks = Vec::with_capacity(manifest.chunks.0.len());
    let (mut raw, mut stored) = (0_u64, 0_u64);
    for entry in &manifest.chunks.0 {
        let (count, length, kind) = match *entry {
            Entry::Zeros { chunks, stored } => (chunks, stored, ChunkKind::Zero),
            Entry::Data { stored, stored_digest, raw_digest } => {
                let kind = ChunkKind::Data { stored_digest: Some(stored_digest), raw_digest: Some(raw_digest) };
                (1, stored, kind)
            }
        };
        // The last chunk may be shorter; what reaches further is more than the shortness of one chunk.
        let end = manifest.chunk_bytes.checked_mul(count).and_then(|bytes| raw.checked_add(bytes));
        let stored_end = stored.checked_add(length);
        let (Some(end), Some(stored_end)) = (end, stored_end) else {
            return Err(damaged("its chunks are larger than any disk"));
        };
        let over = end.saturating_sub(manifest.raw_bytes);
        let end = if over < manifest.chunk_bytes { end - over } else { end };
        chunks.push(Chunk { raw: raw..end, stored: stored..stored_end, kind });
        (raw, stored) = (end, stored_end);
    }
    if stored.checked_add(manifest.seek_table_bytes) != Some(manifest.stored_bytes) {
        return Err(damaged(format!(
            "its frames and seek table do not add up to the {} bytes of the stored file",
            manifest.stored_bytes
        )));
    }
    Ok(Index {
        raw_bytes: manifest.raw_bytes,
        stored_bytes: manifest.stored_bytes,
        format: StoredAs::Zstd,
        chunk_bytes: manifest.chunk_bytes,
        stored_digest: Some(manifest.stored_digest),
        raw_digest: Some(manifest.raw_digest),
        chunks,
    })
}

pub(super) fn write(index: &Index) -> Result<String, IndexError> {
    let (StoredAs::Zstd, Some(raw_digest), Some(stored_digest)) = (index.format, index.raw_digest, index.stored_digest)
    else {
        return Err(IndexError::Refused("only a packed image with both digests of the whole has a manifest".into()));
    };
    let frames_end = index.chunks.last().map_or(0, |chunk| chunk.stored.end);
    let mut text = format!(
        "{{\"format\": \"{FORMAT}\", \"version\": {VERSION}, \"chunkBytes\": {}, \"rawBytes\": {}, \"storedBytes\": {},\n \
         \"seekTableBytes\": {}, \"rawDigest\": \"{raw_digest}\",\n \"storedDigest\": \"{stored_digest}\", \"chunks\": [\n",
        index.chunk_bytes,
        index.raw_bytes,
        index.stored_bytes,
        index.stored_bytes - frames_end,
    );
    for (number, chunk) in index.chunks.iter().enumerate() {
        let comma = if number == 0 { "" } else { ",\n" };
        let stored = chunk.stored_bytes();
        let written = match chunk.kind {
            ChunkKind::Data { stored_digest: Some(s), raw_digest: Some(r) } => {
                write!(text, "{comma}[{stored}, \"{}\", \"{}\"]", hex::encode(s), hex::encode(r))
            }
            _ => write!(text, "{comma}[{}, {stored}]", chunk.raw_bytes().div_ceil(index.chunk_bytes)),
        };
        written.map_err(|_| damaged("it cannot be written"))?;
        if text.len() as u64 > MAX_INDEX_BYTES {
            return Err(IndexError::TooLarge { limit: MAX_INDEX_BYTES, unit: "bytes" });
        }
    }
    text.push_str("\n]}\n");
    Ok(text)
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of chunks")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = list.next_element()? {
                    if entries.len() == MAX_CHUNKS {
                        return Err(A::Error::custom(format_args!("more than {MAX_CHUNKS} chunks")));
                    }
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_seq(All)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = Entry;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[stored bytes, digest, digest] or [zero chunks, stored bytes]")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entry, A::Error> {
                let first = list.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                match list.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))? {
                    Second::Bytes(stored) => Ok(Entry::Zeros { chunks: first, stored }),
                    Second::Digest(stored_digest) => {
                        let raw_digest = match list.next_element()? {
                            Some(Second::Digest(digest)) => digest,
                            _ => return Err(A::Error::invalid_length(2, &self)),
                        };
                        Ok(Entry::Data { stored: first, stored_digest, raw_digest })
                    }
                }
            }
        }
        deserializer.deserialize_seq(One)
    }
}

/// What follows a chunk's number: it tells data from zeros.
enum Second {
    Bytes(u64),
    Digest([u8; 32]),
}

impl<'de> Deserialize<'de> for Second {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Second;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length, or the 64 hexadecimal digits of a SHA-256")
            }
            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Second, E> {
                Ok(Second::Bytes(bytes))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Second, E> {
                let mut digest = [0; 32];
                hex::decode_to_slice(text, &mut digest)
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))?;
                Ok(Second::Digest(digest))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
