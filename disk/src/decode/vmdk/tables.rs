//! The tables: what the file has of them, and what the grains that pass make of them. Both must be the same.

use xxhash_rust::xxh3::xxh3_128;

/// Grains of a table.
pub(super) const ENTRIES: usize = 512;
/// Bytes of a table.
pub(super) const BYTES: usize = ENTRIES * 4;

/// A table with at least one grain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    /// Which part of the disk it is of.
    pub(super) number: u32,
    /// XXH3 of its entries: it has to show an error, not an attack, which the digest of the file shows.
    sum: [u8; 16],
}

/// A table of the file that has at least one grain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// Sector of the file of its furthest grain.
    pub(super) furthest: u32,
    sum: [u8; 16],
}

/// A table of the file whose number is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Where it is in the file.
    pub(super) sector: u32,
    /// `None`: it has no grain.
    sum: Option<[u8; 16]>,
}

impl Seen {
    pub(super) fn new(sector: u32, table: Option<Read>) -> Self {
        Self { sector, sum: table.map(|table| table.sum) }
    }

    /// It is of this part of the disk.
    pub(super) fn listed(&self, number: u32) -> Option<Listed> {
        self.sum.map(|sum| Listed { number, sum })
    }
}

/// A table of the file, if it has a grain. `zero_grains`: an entry 1 means zeroes.
pub(super) fn read(bytes: &[u8; BYTES], zero_grains: bool) -> Option<Read> {
    let mut entries = [0; ENTRIES];
    for (entry, bytes) in entries.iter_mut().zip(bytes.as_chunks().0) {
        *entry = u32::from_le_bytes(*bytes);
        // No grain and a grain of zeroes are the same here.
        if zero_grains && *entry == 1 {
            *entry = 0;
        }
    }
    let furthest = entries.iter().max().copied().filter(|furthest| *furthest > 0)?;
    Some(Read { furthest, sum: sum(&entries) })
}

fn sum(entries: &[u32; ENTRIES]) -> [u8; 16] {
    let mut bytes = [0; BYTES];
    for (to, entry) in bytes.as_chunks_mut().0.iter_mut().zip(entries) {
        *to = entry.to_le_bytes();
    }
    xxh3_128(&bytes).to_le_bytes()
}

impl Listed {
    pub(super) fn new(number: u32, table: Read) -> Self {
        Self { number, sum: table.sum }
    }
}

/// The tables as the grains make them.
pub(super) struct Made {
    done: Vec<Listed>,
    number: u32,
    entries: Box<[u32; ENTRIES]>,
}

impl Made {
    pub(super) fn new() -> Self {
        Self { done: Vec::new(), number: 0, entries: Box::new([0; ENTRIES]) }
    }

    /// Grain number `grain` of the disk is at this sector of the file. Grains come in order.
    pub(super) fn grain(&mut self, grain: u64, sector: u32) {
        // Fewer than 2^32 tables, as the header was checked for.
        let number = (grain / ENTRIES as u64) as u32;
        if number != self.number {
            self.finish();
            self.number = number;
        }
        self.entries[(grain % ENTRIES as u64) as usize] = sector;
    }

    fn finish(&mut self) {
        if self.entries.iter().any(|entry| *entry > 0) {
            self.done.push(Listed { number: self.number, sum: sum(&self.entries) });
            self.entries.fill(0);
        }
    }

    /// Compares them with those of the file, in order: the number of the first table that differs.
    pub(super) fn compare(mut self, listed: &[Listed]) -> Result<(), u32> {
        self.finish();
        let mut pairs = self.done.iter().zip(listed);
        if let Some((made, listed)) = pairs.find(|(made, listed)| made != listed) {
            return Err(made.number.min(listed.number));
        }
        let common = self.done.len().min(listed.len());
        match self.done.get(common).or_else(|| listed.get(common)) {
            Some(alone) => Err(alone.number),
            None => Ok(()),
        }
    }
}
