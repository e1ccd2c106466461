//! What several fuzz targets need: taking an input apart, and disks in memory.

use std::{collections::BTreeMap, io, sync::Mutex};

use landfall_disk::{BlockDevice, Index, MAX_CHUNK_BYTES, MAX_CHUNKS, ReadAt, StoredAs};

/// An input, taken apart from its front. Where it is used up, numbers are 0.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two, little-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four, little-endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight, little-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// The next `count`, or what there is.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.take(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }
}

const PAGE: u64 = 512;

/// A disk of any size in memory: zero where nothing was written.
#[derive(Debug)]
pub struct Disk {
    size: u64,
    sector: u32,
    pages: Mutex<BTreeMap<u64, [u8; PAGE as usize]>>,
}

impl Disk {
    /// `size` zero bytes.
    pub fn new(size: u64, sector: u32) -> Self {
        Self { size, sector, pages: Mutex::default() }
    }

    /// Writes at any offset; parts beyond the end are dropped.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        let mut pages = self.pages.lock().unwrap();
        for (at, byte) in (offset..self.size).zip(bytes) {
            pages.entry(at / PAGE).or_insert([0; PAGE as usize])[(at % PAGE) as usize] = *byte;
        }
    }
}

impl ReadAt for Disk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.size);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.fill(0);
        for (page, bytes) in self.pages.lock().unwrap().range(offset / PAGE..end.div_ceil(PAGE)) {
            let (start, stop) = ((page * PAGE).max(offset), ((page + 1) * PAGE).min(end));
            let within = (start - page * PAGE) as usize..(stop - page * PAGE) as usize;
            buffer[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(&bytes[within]);
        }
        Ok(())
    }
}

impl BlockDevice for Disk {
    fn logical_sector(&self) -> u32 {
        self.sector
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(offset + data.len() as u64 <= self.size, "writes stay on the disk");
        assert!(offset.is_multiple_of(self.sector.into()) && data.len().is_multiple_of(self.sector as usize));
        self.put(offset, data);
        Ok(())
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.put(offset, &vec![0; length as usize]);
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// What every index promises.
pub fn check_index(index: &Index) {
    assert!(index.raw_bytes > 0 && index.chunks.len() <= MAX_CHUNKS);
    let (mut raw, mut stored) = (0, 0);
    for chunk in &index.chunks {
        assert!(chunk.raw.start == raw && chunk.raw.end > raw && chunk.raw.end <= index.raw_bytes);
        assert!(chunk.raw.end.is_multiple_of(4096) || chunk.raw.end == index.raw_bytes);
        raw = chunk.raw.end;
        match index.format {
            StoredAs::Linear => assert_eq!(chunk.stored, 0..0),
            StoredAs::Zstd => {
                assert!(chunk.stored.start >= stored && chunk.stored.end > chunk.stored.start);
                assert!(chunk.stored.end <= index.stored_bytes);
                assert!(!chunk.is_data() || chunk.raw_bytes() <= MAX_CHUNK_BYTES.min(index.chunk_bytes));
                stored = chunk.stored.end;
            }
        }
    }
    assert_eq!(raw, index.raw_bytes, "the chunks cover the image");
    assert!(index.data_bytes() <= index.raw_bytes);
    assert!(index.format == StoredAs::Linear || index.fetched_bytes() <= index.stored_bytes);
}
