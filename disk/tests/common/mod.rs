//! Images, sources and a recording device for the integration tests.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used)] // Tests.

pub(crate) mod server;

use std::{
    collections::BTreeMap,
    io::{self, Cursor},
    ops::Range,
    sync::{Mutex, atomic::AtomicBool},
};

use landfall_api::{Digest, DiskId, DiskReceipt, Receipt, ReceiptState};
use landfall_disk::{BlockDevice, ImageSource, ReadAt, WriteError};
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
    let block = if sector == 512 { gpt::disk::LogicalBlockSize::Lb512 } else { gpt::disk::LogicalBlockSize::Lb4096 };
    let mut bytes = vec![0; size as usize];
    gpt::mbr::ProtectiveMBR::with_lb_size(u32::try_from(size / u64::from(sector) - 1).unwrap())
        .overwrite_lba0(&mut Cursor::new(&mut bytes[..]))
        .unwrap();
    bytes[..440].copy_from_slice(&noise(440, seed + 77));
    let mut disk = gpt::GptConfig::new()
        .writable(true)
        .logical_block_size(block)
        .create_from_device(Cursor::new(&mut bytes[..]), None)
        .unwrap();
    let map: BTreeMap<u32, gpt::partition::Partition> = (1..)
        .zip(parts)
        .map(|(id, (first, last))| {
            let part = gpt::partition::Partition {
                part_type_guid: gpt::partition_types::LINUX_FS,
                part_guid: Uuid::from_u128(u128::from(id) + u128::from(seed) * 100),
                first_lba: *first,
                last_lba: *last,
                flags: 0,
                name: format!("p{id}"),
            };
            (id, part)
        })
        .collect();
    disk.update_partitions(map).unwrap();
    disk.write().unwrap();
    for (first, last) in parts {
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

/// An image in memory.
pub(crate) struct MemorySource {
    pub(crate) bytes: Vec<u8>,
    pub(crate) at: usize,
    pub(crate) end: u64,
}

impl MemorySource {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0, end: u64::MAX }
    }
}

impl ImageSource for MemorySource {
    fn name(&self) -> &str {
        "memory:image"
    }
    fn read(&mut self, buffer: &mut [u8], _: &AtomicBool) -> Result<usize, WriteError> {
        let end = usize::try_from(self.end).unwrap_or(usize::MAX).min(self.bytes.len());
        let n = buffer.len().min(end.saturating_sub(self.at));
        buffer[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
    fn total(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
    fn seek(&mut self, range: Range<u64>, _: &AtomicBool) -> Result<(), WriteError> {
        (self.at, self.end) = (usize::try_from(range.start).unwrap(), range.end);
        Ok(())
    }
}

/// What a recording device was told.
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

/// A disk after a power cut: what was durable, and some sectors of what was not.
pub(crate) struct AfterCut<'a> {
    pub(crate) durable: &'a [u8],
    pub(crate) sector: u64,
    pub(crate) kept: &'a BTreeMap<u64, Vec<u8>>,
}

impl ReadAt for AfterCut<'_> {
    fn size(&self) -> u64 {
        self.durable.len() as u64
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.durable.read_at(offset, buffer)?;
        let end = offset + buffer.len() as u64;
        for (at, bytes) in self.kept.range(offset.saturating_sub(self.sector - 1)..end) {
            let from = (*at).max(offset);
            let to = (at + self.sector).min(end);
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        }
        Ok(())
    }
}
