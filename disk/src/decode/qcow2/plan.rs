//! Reads header and tables by random access, and makes the plan for the one pass over the file.

use std::{ops::Range, sync::atomic::AtomicBool};

use sha2::{Digest as _, Sha256};

use super::super::{DecodeError, Limits};
use super::bytes::u64s;
use super::header::{Header, READ};
use super::map::{Map, Run};
use super::place::{Item, MOST, Unpack};
use super::tables::{SECTOR, l2_table, mapping};
use super::watch::Watched;
use crate::{gpt, source::ImageSource};

/// Most bytes of L1 and L2 tables together. With clusters of 64 KiB they map 384 GiB of data.
const TABLES_MAX: u64 = 48 << 20;
/// Bytes in memory for each entry of a table, at most: a run, and four bytes while the runs are put in order.
const ENTRY: u64 = size_of::<Run>() as u64 + 4;
/// Likewise for each L2 table: how it is recognised in the stream, and its place three times.
const TABLE: u64 = (size_of::<Watched>() + 3 * size_of::<Range<u64>>()) as u64;
/// The L1 table is read in parts of so many bytes.
const PART: usize = 64 * 1024;

/// A parsed qcow2 file.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) header: Header,
    /// Without the head.
    pub(super) map: Map,
    /// In the order of the file.
    pub(super) watched: Vec<Watched>,
    /// The first bytes of the raw image: 1 MiB or a cluster, whichever is more, or all there is.
    pub(super) head: Vec<u8>,
    /// Whether one pass can give the raw image in its order.
    pub(super) in_order: bool,
    /// Bytes of the file, where the source says so.
    pub(super) announced: Option<u64>,
}

impl Plan {
    /// Reads what decides where the file's bytes go: header, tables, and the image's first block. Leaves the source at
    /// no particular place. `memory`: how many bytes the plan and its decoding may take; `None`: enough.
    ///
    /// # Errors
    /// [`DecodeError`]: nothing was decoded yet, so nothing is written of an image refused here.
    pub(crate) fn read(
        source: &mut dyn ImageSource, memory: Option<u64>, stop: &AtomicBool,
    ) -> Result<Self, DecodeError> {
        let mut reader = Reader { source, stop };
        let mut start = vec![0; READ];
        let length = reader.at_most(0, &mut start)?;
        start.truncate(length);
        let header = Header::parse(&start)?;
        start.truncate(header.cluster() as usize);
        let mut watched = vec![Watched::new(0, &start)];
        let mut map = Map::default();
        let tables = read_l1(&mut reader, &header, &mut map, &mut watched)?;
        let needed = memory_for(&header, tables.len() as u64, Limits::default().threads);
        if memory.is_some_and(|memory| memory < needed) {
            return Err(DecodeError::Memory(needed));
        }
        read_l2(&mut reader, &header, tables, &mut map, &mut watched)?;
        let places = in_order(&watched)?;
        map.settle(&places, &header).map_err(DecodeError::Bad)?;
        if let (Some(total), Some(last)) = (reader.source.total(), map.runs.last()) {
            let needed = last.stored(&header);
            // Of a compressed cluster's last sector not all need be there.
            let least = if last.compressed() { (needed.end - SECTOR).max(needed.start) + 1 } else { needed.end };
            if least > total {
                return Err(DecodeError::Unfinished(format!("it has {total} bytes, but its data extends to {least}")));
            }
        }
        let clusters = (gpt::HEAD as u64).div_ceil(header.cluster()).min(header.clusters());
        let runs = map.take_head(u32::try_from(clusters).unwrap_or(u32::MAX), &header);
        let head = read_head(&mut reader, &header, &runs, clusters, &mut watched)?;
        in_order(&watched)?;
        watched.sort_unstable_by_key(|watched| watched.place().start);
        let in_order = map.mark_order(&header);
        let announced = reader.source.total();
        Ok(Self { header, map, watched, head, in_order, announced })
    }

    /// Bytes of the raw image.
    pub(crate) fn raw_bytes(&self) -> u64 {
        self.header.size
    }

    /// The first bytes of the raw image: at least 1 MiB of it, or all there is.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }
}

/// What the plan of a file with so many L2 tables and its decoding by so many threads take, bytes, at most.
fn memory_for(header: &Header, tables: u64, threads: usize) -> u64 {
    let plan = (header.l1_entries() + tables * header.l2_entries()) * ENTRY + tables * TABLE;
    let head = (gpt::HEAD as u64).max(header.cluster());
    // Each thread has a cluster in hand, and two batches more than threads are under way.
    let decoding = (threads as u64 + 2) * MOST + threads as u64 * header.cluster();
    plan + head + decoding
}

/// The places in the order of the file; refused where two overlap.
fn in_order(watched: &[Watched]) -> Result<Vec<Range<u64>>, DecodeError> {
    let mut places: Vec<_> = watched.iter().map(Watched::place).collect();
    places.sort_unstable_by_key(|place| place.start);
    for (last, next) in places.iter().zip(places.iter().skip(1)) {
        if next.start < last.end {
            return Err(DecodeError::Bad(format!(
                "it is corrupt: two of its tables share the bytes at {}",
                next.start
            )));
        }
    }
    Ok(places)
}

/// Reads the L1 table: (offset, number) of every L2 table, in the order of the file.
fn read_l1(
    reader: &mut Reader<'_>, header: &Header, map: &mut Map, watched: &mut Vec<Watched>,
) -> Result<Vec<(u64, u32)>, DecodeError> {
    let bytes = header.l1_entries() * 8;
    let (mut tables, mut count, mut number) = (Vec::new(), 0_u64, 0_u32);
    let mut hasher = Sha256::new();
    let mut part = [0; PART];
    reader.open(header.l1_offset..header.l1_offset + bytes, "L1 table")?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(PART as u64) as usize;
        let part = &mut part[..now];
        reader.fill(part, "L1 table")?;
        hasher.update(&*part);
        left -= now as u64;
        for entry in u64s(part) {
            match l2_table(entry, header).map_err(DecodeError::Bad)? {
                Some(offset) => {
                    count += 1;
                    // One over the limit is counted for the message, and not kept.
                    if bytes + count * header.cluster() <= TABLES_MAX {
                        tables.push((offset, number));
                    }
                }
                None => {
                    let first = u64::from(number) * header.l2_entries();
                    let after = (first + header.l2_entries()).min(header.clusters());
                    map.push_zeroes(first as u32, (after - first) as u32);
                }
            }
            number += 1;
        }
    }
    let needed = bytes + count * header.cluster();
    if needed > TABLES_MAX {
        return Err(DecodeError::Bad(format!(
            "its tables have {needed} bytes, more than the limit of {} MiB; use larger clusters to make them smaller",
            TABLES_MAX >> 20
        )));
    }
    watched.push(Watched::hashed(header.l1_offset, bytes, hasher));
    tables.sort_unstable();
    Ok(tables)
}

/// Reads L2 tables, those that lie together in one request.
fn read_l2(
    reader: &mut Reader<'_>, header: &Header, tables: Vec<(u64, u32)>, map: &mut Map, watched: &mut Vec<Watched>,
) -> Result<(), DecodeError> {
    let cluster = header.cluster();
    let mut bytes = vec![0; cluster as usize];
    for together in tables.chunk_by(|last, next| last.0 + cluster == next.0) {
        let (Some(first), Some(last)) = (together.first(), together.last()) else { continue };
        reader.open(first.0..last.0 + cluster, "L2 table")?;
        for (offset, number) in together {
            reader.fill(&mut bytes, "L2 table")?;
            watched.push(Watched::new(*offset, &bytes));
            let first = u64::from(*number) * header.l2_entries();
            for (guest, entry) in (first..header.clusters()).zip(u64s(&bytes)) {
                let mapping = mapping(entry, header).map_err(DecodeError::Bad)?;
                // Less than 2^32, as the header was checked for.
                map.push(guest as u32, mapping, header);
            }
        }
    }
    Ok(())
}

/// Reads what is stored of the first clusters, and decodes it.
fn read_head(
    reader: &mut Reader<'_>, header: &Header, runs: &[Run], clusters: u64, watched: &mut Vec<Watched>,
) -> Result<Vec<u8>, DecodeError> {
    let length = (clusters << header.cluster_bits).min(header.size) as usize;
    let mut head = vec![0; length];
    let mut unpack = Unpack::new(header)?;
    for together in runs.chunk_by(|last, next| next.start() <= last.stored(header).end) {
        let (Some(first), Some(last)) = (together.first(), together.last()) else { continue };
        let place = first.start()..last.stored(header).end;
        // A run is at most the head, and a packed cluster at most twice a cluster.
        let mut stored = vec![0; (place.end - place.start) as usize];
        let got = reader.at_most(place.start, &mut stored)?;
        stored.truncate(got);
        watched.push(Watched::new(place.start, &stored));
        for run in together {
            let at = run.stored(header);
            let range = (at.start - place.start) as usize..((at.end - place.start) as usize).min(got);
            let cut = range.end < (at.end - place.start) as usize;
            let item = Item { raw: run.raw(header), stored: range.clone(), compressed: run.compressed(), cut };
            let (from, to) = (stored.get(range), head.get_mut(item.raw.start as usize..item.raw.end as usize));
            let (Some(from), Some(to)) = (from, to) else {
                return Err(DecodeError::Unfinished(format!("it ends before its data at {}", at.start)));
            };
            if item.compressed {
                unpack.unpack(&item, from, to)?;
            } else if from.len() == to.len() {
                to.copy_from_slice(from);
            } else {
                return Err(DecodeError::Unfinished(format!("it ends within its data at {}", at.start)));
            }
        }
    }
    Ok(head)
}

/// Random access.
struct Reader<'a> {
    source: &'a mut dyn ImageSource,
    stop: &'a AtomicBool,
}

impl Reader<'_> {
    /// The next [`Reader::fill`]s get these bytes.
    fn open(&mut self, place: Range<u64>, what: &str) -> Result<(), DecodeError> {
        if let Some(total) = self.source.total().filter(|total| *total < place.end) {
            return Err(DecodeError::Unfinished(format!(
                "it has {total} bytes, and an {what} goes on to {}",
                place.end
            )));
        }
        self.source.seek(place, self.stop).map_err(DecodeError::Input)
    }

    fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<(), DecodeError> {
        if self.pull(buffer)? < buffer.len() {
            return Err(DecodeError::Unfinished(format!("it ends in the middle of an {what}")));
        }
        Ok(())
    }

    /// As much from `start` on as there is and fits.
    fn at_most(&mut self, start: u64, buffer: &mut [u8]) -> Result<usize, DecodeError> {
        let wanted = start + buffer.len() as u64;
        let end = self.source.total().map_or(wanted, |total| total.min(wanted));
        if end <= start {
            return Ok(0);
        }
        self.source.seek(start..end, self.stop).map_err(DecodeError::Input)?;
        let (now, _) = buffer.split_at_mut((end - start) as usize);
        self.pull(now)
    }

    fn pull(&mut self, buffer: &mut [u8]) -> Result<usize, DecodeError> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.source.read(rest, self.stop).map_err(DecodeError::Input)? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }
}
