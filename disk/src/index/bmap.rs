//! bmap-tools' block maps: XML, versions 1.4 and 2.0 (1.4 is 2.0 under a number that was taken back; see the version
//! history at the head of bmaptools/BmapCreate.py). Older ones are known and refused: 1.2 has no digests at all, 1.3 has
//! SHA-1.

use roxmltree::{Document, Node, ParsingOptions};
use sha2::{Digest as _, Sha256};

use super::{ALIGNMENT, Chunk, ChunkKind, Index, IndexError, StoredAs, damaged};

/// A bmap of 150,000 ranges has this size; real ones have a few thousand.
const MAX_BYTES: usize = 16 << 20;
/// Elements and comments; text nodes stand between them. A range has an opening and a closing tag.
const MAX_TAGS: usize = 400_000;
/// Of one tag; none that is known has more than one.
const MAX_ATTRIBUTES: usize = 16;

pub(super) fn parse(bytes: &[u8]) -> Result<Index, IndexError> {
    bounded(bytes)?;
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
    // Each tag comes with at most one text before it.
    let limits = ParsingOptions { allow_dtd: false, nodes_limit: 2 * MAX_TAGS as u32, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, limits).map_err(|error| damaged(format!("as XML, {error}")))?;
    let root = document.root_element();
    if root.tag_name().name() != "bmap" {
        return Err(IndexError::Unknown);
    }
    version(root.attribute("version").unwrap_or_default())?;
    let kind = word(root, "ChecksumType")?;
    if kind != "sha256" {
        return Err(IndexError::Refused(format!(
            "its digests are {kind}, but only sha256 is supported; make the bmap again with bmaptool create"
        )));
    }
    own_digest(text, root)?;

    let block = number(root, "BlockSize")?;
    if block == 0 || !block.is_multiple_of(ALIGNMENT) {
        return Err(IndexError::Refused(format!(
            "its blocks have {block} bytes, but only multiples of {ALIGNMENT} can be written to every disk; make the \
                bmap again on a file system with blocks of {ALIGNMENT}"
        )));
    }
    let (raw_bytes, blocks) = (number(root, "ImageSize")?, number(root, "BlocksCount")?);
    if raw_bytes.div_ceil(block) != blocks {
        return Err(damaged(format!("{blocks} blocks of {block} bytes are not an image of {raw_bytes} bytes")));
    }
    let mut chunks = Vec::new();
    let (mut next, mut mapped) = (0, 0_u64);
    // A block number below the count of blocks times the block size is below the image's size, but for the last block.
    let place = |from: u64, to: u64| {
        let start = from.checked_mul(block)?;
        Some(start..to.checked_mul(block).map_or(raw_bytes, |end| end.min(raw_bytes)))
    };
    let too_large = || damaged("its blocks extend beyond the size of any disk");
    for range in child(root, "BlockMap")?.children().filter(|node| node.has_tag_name("Range")) {
        let (first, end) = blocks_of(text_of(range))?;
        if first < next || end > blocks {
            return Err(damaged(format!("the range \"{}\" is out of order or behind the end", text_of(range))));
        }
        let mut digest = [0; 32];
        hex::decode_to_slice(range.attribute("chksum").unwrap_or_default(), &mut digest)
            .map_err(|_| damaged(format!("the range \"{}\" has no SHA-256", text_of(range))))?;
        if first > next {
            chunks.push(zeros(place(next, first).ok_or_else(too_large)?));
        }
        chunks.push(Chunk {
            raw: place(first, end).ok_or_else(too_large)?,
            stored: 0..0,
            kind: ChunkKind::Data { stored_digest: None, raw_digest: Some(digest) },
        });
        mapped = mapped.saturating_add(end - first);
        next = end;
    }
    if next < blocks {
        chunks.push(zeros(place(next, blocks).ok_or_else(too_large)?));
    }
    let stated = number(root, "MappedBlocksCount")?;
    if mapped != stated {
        return Err(damaged(format!("it maps {mapped} blocks but states {stated}")));
    }
    Ok(Index {
        raw_bytes,
        stored_bytes: 0,
        format: StoredAs::Linear,
        chunk_bytes: block,
        stored_digest: None,
        raw_digest: None,
        chunks,
    })
}

/// Refuses what would make an XML parser take memory or time out of proportion: it reserves by the number of tags and
/// attributes, compares every attribute of a tag with every other, and copies namespaces from level to level.
fn bounded(bytes: &[u8]) -> Result<(), IndexError> {
    if bytes.len() > MAX_BYTES {
        return Err(IndexError::TooLarge { limit: MAX_BYTES as u64, unit: "bytes, for a bmap" });
    }
    let (mut tags, mut equals) = (0, 0);
    for byte in bytes {
        match byte {
            // It stands in no attribute's value, unlike the sign that closes a tag.
            b'<' => (tags, equals) = (tags + 1, 0),
            b'=' => equals += 1,
            _ => {}
        }
        if tags > MAX_TAGS {
            return Err(IndexError::TooLarge { limit: MAX_TAGS as u64, unit: "tags" });
        }
        if equals > MAX_ATTRIBUTES {
            return Err(damaged(format!("a tag has more than {MAX_ATTRIBUTES} attributes")));
        }
    }
    if bytes.windows(5).any(|word| word == b"xmlns") {
        return Err(damaged("it has XML namespaces, which a bmap never has"));
    }
    Ok(())
}

fn version(stated: &str) -> Result<(), IndexError> {
    const REMAKE: &str =
        "make it again with bmaptool create, 3.0 or later, or state a digest of the image itself instead";
    match stated {
        "1.4" | "2.0" => Ok(()),
        "1.0" | "1.1" | "1.2" => Err(IndexError::Refused(format!(
            "a bmap of version {stated} has no digests of its blocks, so it proves nothing; {REMAKE}"
        ))),
        "1.3" => Err(IndexError::Refused(format!(
            "a bmap of version 1.3 has SHA-1 digests, which two different images can share; {REMAKE}"
        ))),
        other => {
            Err(IndexError::Version { kind: "bmap", version: other.to_owned(), known: "1.4 and 2.0", hint: REMAKE })
        }
    }
}

/// `BmapFileChecksum` is the digest of the file in which that very field is all zeros (the digit).
fn own_digest(text: &str, root: Node<'_, '_>) -> Result<(), IndexError> {
    let field = child(root, "BmapFileChecksum")?;
    let stated = text_of(field);
    let within = field.range();
    let start = text
        .get(within.clone())
        .and_then(|element| element.find(stated))
        .map(|at| within.start + at)
        .filter(|_| stated.len() == 64)
        .ok_or_else(|| damaged("its BmapFileChecksum is not a SHA-256"))?;
    let (before, after) = (text.get(..start), text.get(start + stated.len()..));
    let (Some(before), Some(after)) = (before, after) else {
        return Err(damaged("its BmapFileChecksum is not a SHA-256"));
    };
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update([b'0'; 64]);
    hash.update(after);
    if hex::encode(hash.finalize()).eq_ignore_ascii_case(stated) {
        return Ok(());
    }
    Err(damaged("its BmapFileChecksum is not the digest of the rest"))
}

fn zeros(raw: std::ops::Range<u64>) -> Chunk {
    Chunk { raw, stored: 0..0, kind: ChunkKind::Zero }
}

/// `a-b`, both inclusive, or `a`, as the first block and the one behind the last.
fn blocks_of(text: &str) -> Result<(u64, u64), IndexError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let bounds = plain(first).zip(plain(last).and_then(|last| last.checked_add(1)));
    bounds.filter(|(first, end)| first < end).ok_or_else(|| damaged(format!("\"{text}\" is not a range of blocks")))
}

/// Digits alone: Rust's own parser would take a sign too.
fn plain(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The only child of that name: other tools could choose another one of two children.
fn child<'a, 'i>(root: Node<'a, 'i>, name: &str) -> Result<Node<'a, 'i>, IndexError> {
    let mut found = root.children().filter(|node| node.has_tag_name(name));
    match (found.next(), found.next()) {
        (Some(node), None) => Ok(node),
        (None, _) => Err(damaged(format!("it has no {name}"))),
        (Some(_), Some(_)) => Err(damaged(format!("it has more than one {name}"))),
    }
}

fn word<'a>(root: Node<'a, '_>, name: &str) -> Result<&'a str, IndexError> {
    Ok(text_of(child(root, name)?))
}

fn number(root: Node<'_, '_>, name: &str) -> Result<u64, IndexError> {
    let text = word(root, name)?;
    plain(text).ok_or_else(|| damaged(format!("{name} is \"{text}\", which is not a number")))
}

fn text_of<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default().trim()
}
