//! Images, sources and a recording device for the integration tests.

pub(crate) mod coverage;
pub(crate) mod device;
pub(crate) mod faults;
pub(crate) mod fetch;
pub(crate) mod formats;
pub(crate) mod mutate;
pub(crate) mod old;
pub(crate) mod order;
pub(crate) mod replay;
pub(crate) mod request;
pub(crate) mod script;
pub(crate) mod server;
pub(crate) mod tools;
pub(crate) mod vmdk;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::io::Cursor;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use landfall_api::{Digest, DiskId, DiskReceipt, Receipt, ReceiptState};
use landfall_disk::{BlockDevice, Chunk, ChunkKind, ImageSource, Index, ReadAt, StoredAs, WriteError};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub(crate) const MIB: u64 = 1 << 20;

/// Bytes that look like nothing in particular, with runs of zeroes among them.
pub(crate) fn noise(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(length as usize);
    while (out.len() as u64) < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let zero_run = (out.len() / (128 * 1024)) % 3 == 2;
        out.extend_from_slice(&if zero_run { [0; 8] } else { state.to_le_bytes() });
    }
    out.truncate(length as usize);
    out
}

/// A disk image with a GPT, made by the `gpt` crate: partitions of (first, last) sector, filled with noise.
pub(crate) fn gpt_image(size: u64, sector: u32, parts: &[(u64, u64)], seed: u64) -> Vec<u8> {
    let named: Vec<_> = (1..).zip(parts).map(|(id, (first, last))| (*first, *last, format!("p{id}"))).collect();
    let named: Vec<_> = named.iter().map(|(first, last, name)| (*first, *last, name.as_str())).collect();
    gpt_disk(size, sector, &named, seed)
}

/// The same with partitions of (first, last, name).
pub(crate) fn gpt_disk(size: u64, sector: u32, parts: &[(u64, u64, &str)], seed: u64) -> Vec<u8> {
    let block = if sector == 512 { gpt::disk::LogicalBlockSize::Lb512 } else { gpt::disk::LogicalBlockSize::Lb4096 };
    let mut bytes = vec![0; size as usize];
    gpt::mbr::ProtectiveMBR::with_lb_size(u32::try_from(size / u64::from(sector) - 1).unwrap())
        .overwrite_lba0(&mut Cursor::new(&mut bytes[..]))
        .unwrap();
    bytes[..440].copy_from_slice(&noise(440, seed + 77));
    let mut disk = gpt::GptConfig::new()
        .writable(true)
        .logical_block_size(block)
        // Otherwise it is random, and no run would repeat another.
        .create_from_device(Cursor::new(&mut bytes[..]), Some(Uuid::from_u128(0xd15c | u128::from(seed) << 64)))
        .unwrap();
    let map: BTreeMap<u32, gpt::partition::Partition> = (1..)
        .zip(parts)
        .map(|(id, (first, last, name))| {
            let part = gpt::partition::Partition {
                part_type_guid: gpt::partition_types::LINUX_FS,
                part_guid: Uuid::from_u128(u128::from(id) + u128::from(seed) * 100),
                first_lba: *first,
                last_lba: *last,
                flags: 0,
                name: (*name).into(),
            };
            (id, part)
        })
        .collect();
    disk.update_partitions(map).unwrap();
    disk.write().unwrap();
    for (first, last, _) in parts {
        let range = (first * u64::from(sector)) as usize..((last + 1) * u64::from(sector)) as usize;
        let length = range.len() as u64;
        bytes[range].copy_from_slice(&noise(length, seed + first));
    }
    bytes
}

/// An image with a partition table of the old kind and one partition from 1 MiB to its end.
pub(crate) fn mbr_image(size: u64, seed: u64) -> Vec<u8> {
    let mut bytes = noise(size, seed);
    bytes[446..510].fill(0);
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[458..462].copy_from_slice(&u32::try_from(size / 512 - 2048).unwrap().to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}

pub(crate) fn mark(image: &[u8], size_bytes: u64) -> DiskReceipt {
    DiskReceipt {
        disk: DiskId { serial: "crash".into(), size_bytes, ..DiskId::default() },
        receipt: Receipt {
            machine_uid: Uuid::from_u128(1),
            workflow_uid: Uuid::from_u128(2),
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
            image_digest: Some(digest(image)),
            state: ReceiptState::Intent,
            written_at: jiff::Timestamp::UNIX_EPOCH,
        },
    }
}

/// An error with its causes.
pub(crate) fn words(error: &WriteError) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// An image in memory.
pub(crate) struct MemorySource {
    pub(crate) bytes: Vec<u8>,
    pub(crate) at: usize,
    /// Where reads end.
    pub(crate) end: usize,
    /// How many bytes were read in all.
    pub(crate) read: u64,
}

impl MemorySource {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0, end: bytes.len(), read: 0 }
    }
}

impl ImageSource for MemorySource {
    fn name(&self) -> &str {
        "memory:image"
    }
    fn read(&mut self, buffer: &mut [u8], _: &AtomicBool) -> Result<usize, WriteError> {
        let n = buffer.len().min(self.end - self.at);
        buffer[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        self.read += n as u64;
        Ok(n)
    }
    fn seek(&mut self, range: Range<u64>, _: &AtomicBool) -> Result<(), WriteError> {
        let place = |offset: u64| usize::try_from(offset).map_or(self.bytes.len(), |at| at.min(self.bytes.len()));
        (self.at, self.end) = (place(range.start), place(range.end));
        Ok(())
    }
    fn total(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
}

/// An operation on a recording device.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Write(u64, Vec<u8>),
    Flush,
}

/// A disk in memory that writes down every operation.
pub(crate) struct Recorder {
    pub(crate) sector: u32,
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) ops: Mutex<Vec<Op>>,
}

impl Recorder {
    pub(crate) fn new(bytes: Vec<u8>, sector: u32) -> Self {
        Self { sector, bytes: Mutex::new(bytes), ops: Mutex::default() }
    }
}

impl ReadAt for Recorder {
    fn size(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.bytes.lock().unwrap().read_at(offset, buffer)
    }
}

impl BlockDevice for Recorder {
    fn logical_sector(&self) -> u32 {
        self.sector
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let sector = u64::from(self.sector);
        assert!(offset.is_multiple_of(sector) && (data.len() as u64).is_multiple_of(sector), "whole sectors only");
        self.bytes.lock().unwrap()[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        self.ops.lock().unwrap().push(Op::Write(offset, data.to_vec()));
        Ok(())
    }
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.write_at(offset, &vec![0; length as usize])?;
        Ok(true)
    }
    fn flush(&self) -> io::Result<()> {
        self.ops.lock().unwrap().push(Op::Flush);
        Ok(())
    }
}

/// A packed image: one zstd frame a chunk, and its index.
pub(crate) fn packed(raw: &[u8], chunk_bytes: usize) -> (Vec<u8>, Index) {
    let (mut stored, mut chunks) = (Vec::new(), Vec::new());
    for (start, bytes) in (0..).step_by(chunk_bytes).zip(raw.chunks(chunk_bytes)) {
        let frame = zstd::bulk::compress(bytes, 1).unwrap();
        let place = stored.len() as u64..(stored.len() + frame.len()) as u64;
        let kind = if bytes.iter().all(|byte| *byte == 0) {
            ChunkKind::Zero
        } else {
            ChunkKind::Data {
                stored_digest: Some(Sha256::digest(&frame).into()),
                raw_digest: Some(Sha256::digest(bytes).into()),
            }
        };
        stored.extend(frame);
        chunks.push(Chunk { raw: start..start + bytes.len() as u64, stored: place, kind });
    }
    let index = Index {
        raw_bytes: raw.len() as u64,
        stored_bytes: stored.len() as u64,
        format: StoredAs::Zstd,
        chunk_bytes: chunk_bytes as u64,
        stored_digest: Some(digest(&stored)),
        raw_digest: Some(digest(raw)),
        chunks,
    };
    (stored, index)
}
