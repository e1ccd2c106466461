//! Entry points for the fuzz targets in `disk/fuzz`: parsers and decoders that are otherwise private, with plain data
//! types. Public for them alone, and hidden: no promise is made of it.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use landfall_api::{Digest, DiskReceipt};
use reqwest::header::{self, HeaderMap, HeaderValue};

use crate::buffer::Pool;
use crate::decode::{DecodeError, Decoded, Input, Limits, Sink, qcow2};
use crate::gpt::{Kept, Layout, Legacy, Old, Piece};
use crate::{BlockDevice, Format, ImageSource, ReadAt, WriteError, content, decode, proof, receipt, source};

/// Why decoding ended before the image did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// The content is not what it claims to be.
    Bad(String),
    /// The input is cut.
    Unfinished(String),
    /// More came out than was asked for.
    Enough,
}

/// A whole raw image.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Raw {
    /// Its bytes.
    pub length: u64,
    /// What was put out as bytes, in the order of the image.
    pub blocks: Vec<(u64, Vec<u8>)>,
    /// What was put out as zeroes, likewise.
    pub zeroes: Vec<Range<u64>>,
}

impl Raw {
    /// All of it, where it has no more than `most` bytes.
    pub fn bytes(&self, most: u64) -> Option<Vec<u8>> {
        let mut image = vec![0; usize::try_from(self.length).ok().filter(|_| self.length <= most)?];
        for (offset, bytes) in &self.blocks {
            image[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Some(image)
    }
}

/// How to decode.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Stored bytes that a decoder is given at once; at least 1.
    pub step: usize,
    /// Pieces must come in order.
    pub ordered: bool,
    /// Threads.
    pub threads: usize,
    /// Raw bytes after which the output is abandoned. Zeroes that are not put out as bytes do not count.
    pub most: u64,
}

/// Stored bytes in pieces of `step`.
pub(crate) struct Pieces<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) step: usize,
}

impl Input for Pieces<'_> {
    fn fill(&mut self) -> Result<&[u8], DecodeError> {
        Ok(&self.bytes[..self.step.min(self.bytes.len())])
    }
    fn consume(&mut self, bytes: usize) {
        self.bytes = &self.bytes[bytes..];
    }
}

/// A file in memory, with random access.
pub(crate) struct Memory<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) range: Range<u64>,
    /// Bytes of a read, at most.
    pub(crate) step: usize,
    /// How long it says that it is.
    pub(crate) total: Option<u64>,
}

impl ImageSource for Memory<'_> {
    fn name(&self) -> &str {
        "memory:fuzz"
    }
    fn read(&mut self, buffer: &mut [u8], _: &AtomicBool) -> Result<usize, WriteError> {
        let at = usize::try_from(self.range.start).unwrap_or(usize::MAX);
        let end = usize::try_from(self.range.end).unwrap_or(usize::MAX).min(self.bytes.len());
        let there = self.bytes.get(at..end).unwrap_or_default();
        let n = there.len().min(buffer.len()).min(self.step);
        buffer[..n].copy_from_slice(&there[..n]);
        self.range.start += n as u64;
        Ok(n)
    }
    fn total(&self) -> Option<u64> {
        self.total
    }
    fn seek(&mut self, range: Range<u64>, _: &AtomicBool) -> Result<(), WriteError> {
        self.range = range;
        Ok(())
    }
}

/// Decodes `stored` as `format`. Panics where the pieces break what `Decoded` promises.
///
/// # Errors
/// [`Stopped`].
pub fn decode(format: Format, stored: &[u8], how: How) -> Result<Raw, Stopped> {
    let Format::Qcow2 = format else {
        return collect(stored, how, |input, sink, limits| decode::decode(format, input, sink, limits));
    };
    let total = (!how.step.is_multiple_of(3)).then_some(stored.len() as u64);
    let mut source = Memory { bytes: stored, range: 0..u64::MAX, step: how.step.max(64), total };
    let plan = qcow2::Plan::read(&mut source, None, &AtomicBool::new(false)).map_err(stopped)?;
    let raw = collect(stored, how, |input, sink, limits| plan.decode(input, sink, limits))?;
    assert_eq!(raw.length, plan.raw_bytes(), "the image is as long as its header says");
    let head = Raw { length: plan.head().len() as u64, ..raw.clone() };
    assert!(plan.head().len() as u64 >= raw.length.min(1 << 20));
    let start = raw.blocks.iter().take_while(|(offset, _)| *offset < head.length);
    for (offset, bytes) in start {
        let at = *offset as usize;
        let n = bytes.len().min(plan.head().len() - at);
        assert!(bytes[..n] == plan.head()[at..at + n], "what was read first is what was put out");
    }
    Ok(raw)
}

fn stopped(error: DecodeError) -> Stopped {
    match error {
        DecodeError::Bad(reason) => Stopped::Bad(reason),
        DecodeError::Unfinished(reason) => Stopped::Unfinished(reason),
        DecodeError::Memory(bytes) => panic!("{bytes} are no more than the limit"),
        DecodeError::Abandoned => Stopped::Enough,
        DecodeError::Input(error) => panic!("memory cannot fail: {error}"),
    }
}

fn collect(
    stored: &[u8], how: How, run: impl FnOnce(&mut dyn Input, &mut Sink, Limits) -> Result<(), DecodeError>,
) -> Result<Raw, Stopped> {
    let (out, pieces) = crossbeam_channel::bounded::<Result<Decoded, WriteError>>(4);
    let (done, mut raw) = std::thread::scope(|scope| {
        let taker = scope.spawn(move || {
            let (mut raw, mut taken, mut next) = (Raw::default(), 0_u64, 0_u64);
            for piece in pieces {
                let piece = piece.expect("decoders hand on no errors");
                let range = piece.range();
                assert!(next > 0 || range.start == 0, "the first piece is the image's start");
                assert!(range.start.is_multiple_of(4096), "pieces start at multiples of 4096");
                assert!(!how.ordered || range.start == next, "pieces come in order where that is asked for");
                next = next.max(range.end);
                match piece {
                    Decoded::Zeroes(range) => raw.zeroes.push(range),
                    Decoded::Block { offset, bytes } => {
                        taken += bytes.len as u64;
                        raw.blocks.push((offset, bytes.data().to_vec()));
                    }
                }
                if taken > how.most || raw.zeroes.len() > 1 << 16 {
                    break;
                }
            }
            raw
        });
        let mut sink = Sink::new(Arc::new(Pool::new(64 * 1024)), out);
        let limits = Limits { ordered: how.ordered, threads: how.threads, ..Limits::default() };
        let done =
            run(&mut Pieces { bytes: stored, step: how.step.max(1) }, &mut sink, limits).and_then(|()| sink.flush());
        let length = sink.end();
        drop(sink);
        let raw = taker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (done.map(|()| length), raw)
    });
    raw.length = done.map_err(stopped)?;
    if raw.blocks.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() > how.most || raw.zeroes.len() > 1 << 16 {
        // The last piece exceeded the limit.
        return Err(Stopped::Enough);
    }
    raw.blocks.sort_unstable_by_key(|(offset, _)| *offset);
    raw.zeroes.sort_unstable_by_key(|range| range.start);
    let blocks = raw.blocks.iter().map(|(offset, bytes)| *offset..*offset + bytes.len() as u64);
    let mut all: Vec<_> = blocks.chain(raw.zeroes.iter().cloned()).collect();
    all.sort_unstable_by_key(|range| range.start);
    let end = all.iter().fold(0, |end, range| {
        assert_eq!(range.start, end, "no byte is missing and none comes twice");
        range.end
    });
    assert_eq!(end, raw.length, "the pieces cover the image");
    Ok(raw)
}

/// The format of content by its first bytes.
pub fn sniff(start: &[u8]) -> Format {
    decode::format_of(start)
}

/// What content that starts like this is, if it is no disk image but known.
pub fn recognise(start: &[u8]) -> Option<&'static str> {
    content::recognise(start).map(|(name, _)| name)
}

/// What an install would make of an image's head.
#[derive(Debug, Clone)]
pub struct Planned {
    /// LBA 0, table and backup: offset and bytes.
    pub pieces: Vec<(u64, Vec<u8>)>,
    /// The disk cut by what becomes of the image's bytes there.
    pub parts: Vec<Range<u64>>,
    /// An image shorter than this is cut.
    pub least_raw: u64,
    /// Whether the image has a GPT.
    pub gpt: bool,
}

/// Plans an install on `disk`, keeping its partitions of these names.
pub fn plan(head: &[u8], disk: &dyn ReadAt, sector: u32, no_table: bool, keep: &[String]) -> Option<Planned> {
    let old = Old::read(disk, sector).ok()?;
    let kept = Kept::choose(&old, keep, sector).ok()?;
    let layout = Layout::plan(head, sector, disk.size(), "disk", "image", no_table, &kept).ok()?;
    let parts = layout.split(0..disk.size()).into_iter().map(|(range, _)| range).collect();
    let first = std::iter::once((0, layout.lba0.clone()));
    let pieces = layout.table.iter().chain(&layout.backup).map(|Piece { offset, bytes }| (*offset, bytes.clone()));
    let pieces = first.chain(pieces).collect();
    Some(Planned { pieces, parts, least_raw: layout.least_raw, gpt: !layout.table.is_empty() })
}

/// A header sector, and the pieces that are written with it, each at its offset.
pub type RetiredHeader = (Vec<u8>, Vec<(u64, Vec<u8>)>);

/// What the old tables of a disk lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldTables {
    /// Every partition of every table.
    pub partitions: Vec<Range<u64>>,
    /// The extended boot records.
    pub records: Vec<Range<u64>>,
    /// What LBA 0 becomes, if it has a table of the old kind.
    pub retired_first: Vec<u8>,
    /// What LBA 1 becomes, and what is written where before; if there is a GPT that can outlive its headers.
    pub retired_header: Option<RetiredHeader>,
    /// A backup header that is not in the last sector.
    pub stray: Option<Range<u64>>,
}

/// Reads a disk's old tables as an install does.
///
/// # Errors
/// The disk's.
pub fn old_tables(disk: &dyn ReadAt, sector: u32) -> io::Result<OldTables> {
    let old = Old::read(disk, sector)?;
    let legacy = Legacy::read(disk, sector)?;
    let header = old.retirement().map(|retirement| {
        let start = retirement.array.start;
        (retirement.header, retirement.entries.into_iter().map(|entries| (start, entries)).collect())
    });
    Ok(OldTables {
        partitions: old.partitions(),
        records: legacy.records,
        retired_first: legacy.retired,
        retired_header: header,
        stray: old.stray_backup(),
    })
}

/// Leaves a receipt beside the newest one; whether it fits.
pub fn write_mark(device: &dyn BlockDevice, mark: &DiskReceipt) -> bool {
    receipt::write_mark(device, mark, Vec::new()).is_ok()
}

/// The digest that a file of checksums has for this name.
///
/// # Errors
/// Why there is none.
pub fn digest_of(sums: &[u8], name: &str) -> Result<Digest, String> {
    proof::digest_of(sums, name)
}

/// What each header of an answer says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Answer {
    /// First byte, end and total of `Content-Range`.
    pub range: Option<(u64, u64, Option<u64>)>,
    /// `Retry-After`.
    pub wait: Option<Duration>,
    /// `Content-Type`.
    pub format: Option<Format>,
    /// `Content-Encoding`.
    pub encoding: Option<String>,
    /// Realm, service and scope of `WWW-Authenticate`.
    pub challenge: Option<(String, Option<String>, Option<String>)>,
}

/// Parses `value` as each header that we read; `None` if it is not a valid header value.
pub fn answer(value: &[u8]) -> Option<Answer> {
    let value = HeaderValue::from_bytes(value).ok()?;
    let names = [header::RETRY_AFTER, header::CONTENT_RANGE, header::CONTENT_TYPE, header::CONTENT_ENCODING];
    let headers = HeaderMap::from_iter(names.map(|name| (name, value.clone())));
    let challenge = value.to_str().ok().and_then(source::bearer_challenge);
    Some(Answer {
        range: source::ContentRange::of(&headers).map(|range| (range.first, range.end, range.total)),
        wait: source::retry_after(&headers, jiff::Timestamp::UNIX_EPOCH),
        format: source::claimed_format(&headers),
        encoding: source::encoding(&headers),
        challenge: challenge.map(|challenge| (challenge.realm, challenge.service, challenge.scope)),
    })
}

/// Reads a URL as an image's; how it is shown, and the file name it ends in.
pub fn locator(text: &str) -> Option<Option<String>> {
    source::Locator::parse(text).ok().map(|locator| locator.file_name())
}

/// Reads a reference to an artefact; it, written out again.
pub fn reference(text: &str) -> Option<String> {
    source::Reference::parse(text).ok().map(|reference| reference.to_string())
}

/// The digest and size of the layer that a manifest has for the image.
///
/// # Errors
/// Why there is none.
pub fn choose_layer(manifest: &[u8], wanted: Option<&str>) -> Result<(Digest, u64), String> {
    source::choose_layer(manifest, wanted).map(|layer| (layer.digest, layer.size))
}

/// The only manifest of a list; `None` if it is no list.
///
/// # Errors
/// It has several, or is none.
pub fn only_of_list(manifest: &[u8]) -> Result<Option<Digest>, String> {
    source::only_of_list(manifest)
}
