//! The one pass: tables before the grains or behind them, and every grain to its place.

use super::super::reader::{Reader, bad, cut};
use super::super::{DecodeError, Input as _, Sink};
use super::grain::Inflater;
use super::header::{Directory, Header};
use super::marker::Marker;
use super::tables::{ENTRIES, Listed, Made, Read, Seen};
use super::{SECTOR, tables};

/// What has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Grains may come.
    Grains,
    /// The directory behind the grains has passed, at this sector.
    Directory(u32),
    /// The footer has.
    Footer,
}

struct Pass<'r, 's> {
    header: Header,
    input: Reader<'r>,
    sink: &'s mut Sink,
    inflater: Inflater,
    stored: Vec<u8>,
    /// For grains that do not fit the rest of a block, or go on beyond the disk's end.
    scratch: Vec<u8>,
    made: Made,
    /// Sector of the file of the last grain.
    last: u32,
}

/// Reads everything after the descriptor.
pub(super) fn run(header: Header, input: Reader<'_>, sink: &mut Sink) -> Result<(), DecodeError> {
    let (stored, scratch) = (Vec::new(), Vec::new());
    let (inflater, made) = (Inflater::new(), Made::new());
    let mut pass = Pass { header, input, sink, inflater, stored, scratch, made, last: 0 };
    let place = pass.header.place();
    let front = match place {
        Directory::Front(directory) => Some(pass.front(directory)?),
        Directory::End => None,
    };
    pass.skip_to(pass.header.overhead())?;
    let listed = match front {
        Some((listed, furthest)) => {
            pass.grains_behind_tables(furthest)?;
            listed
        }
        None => pass.grains_before_tables()?,
    };
    pass.end()?;
    let Pass { made, header, .. } = &mut pass;
    std::mem::replace(made, Made::new()).compare(&listed).map_err(|number| {
        let bytes = header.grain() * SECTOR * ENTRIES as u64;
        let start = u64::from(number) * bytes;
        bad(format!("its grain tables and its grains differ for the disk's bytes {start} to {}", start + bytes))
    })?;
    pass.zeroes_to(pass.header.raw_bytes())
}

impl Pass<'_, '_> {
    /// The file of `qemu-img`: grains up to the last one that the tables list, which is the end.
    fn grains_behind_tables(&mut self, furthest: u32) -> Result<(), DecodeError> {
        let end = loop {
            let sector = self.sector()?;
            match self.marker()? {
                Some(Marker::Grain { at, stored }) => self.grain(sector, at, stored)?,
                None => break sector,
                // It leaves room for a whole grain where it put the last one.
                Some(Marker::End) => {
                    self.tail()?;
                    break sector;
                }
                Some(other) => return Err(misplaced(other, sector)),
            }
        };
        if self.last < furthest {
            return Err(DecodeError::Unfinished(format!(
                "its tables list a grain at sector {furthest}, and its grains end at sector {end}"
            )));
        }
        Ok(())
    }

    /// The file of VMware: grains and tables, the directory, the footer, the end. Returns the tables.
    fn grains_before_tables(&mut self) -> Result<Vec<Listed>, DecodeError> {
        let (mut seen, mut listed, mut stage) = (Vec::new(), Vec::new(), Stage::Grains);
        loop {
            let sector = self.sector()?;
            // Metadata begins behind the sector of its marker.
            let content = sector.saturating_add(1);
            match (self.marker()?, stage) {
                (Some(Marker::Grain { at, stored }), Stage::Grains) => self.grain(sector, at, stored)?,
                (Some(marker @ Marker::Table { sectors }), Stage::Grains) => {
                    self.at_least(marker, sectors, tables::BYTES, sector)?;
                    // The memory that was allowed is for these.
                    if seen.len() as u64 == self.header.tables() {
                        return Err(bad(format!(
                            "its {marker} at sector {sector} is one more than the {} of its disk",
                            seen.len()
                        )));
                    }
                    seen.push(Seen::new(content, self.table()?));
                    self.surplus(sectors, tables::BYTES)?;
                }
                (Some(marker @ Marker::Directory { sectors }), Stage::Grains) => {
                    let bytes = self.header.tables() as usize * 4;
                    self.at_least(marker, sectors, bytes, sector)?;
                    listed = self.resolve(&seen)?;
                    self.surplus(sectors, bytes)?;
                    stage = Stage::Directory(content);
                }
                (Some(marker @ Marker::Footer { sectors }), Stage::Directory(directory)) => {
                    if sectors != 1 {
                        return Err(bad(format!(
                            "its {marker} at sector {sector} has {sectors} sectors in place of 1"
                        )));
                    }
                    let footer = self.header.footer(&self.input.take("footer of the VMDK")?)?;
                    if footer != u64::from(directory) {
                        return Err(bad(format!(
                            "its footer states that the grain directory is at sector {footer}, and it is at {directory}"
                        )));
                    }
                    stage = Stage::Footer;
                }
                (Some(Marker::End), Stage::Footer) => return Ok(listed),
                (Some(Marker::End), _) => {
                    return Err(bad(format!("its marker of the end, at sector {sector}, comes before its footer")));
                }
                (None, _) => {
                    return Err(DecodeError::Unfinished("it ends without footer and marker of the end".into()));
                }
                (Some(other), _) => return Err(misplaced(other, sector)),
            }
        }
    }

    /// The tables before the grains, in order, and the sector of the furthest grain.
    fn front(&mut self, directory: u64) -> Result<(Vec<Listed>, u32), DecodeError> {
        self.skip_to(directory)?;
        let (mut listed, mut furthest) = (Vec::new(), 0);
        for (number, sector) in (0_u32..).zip(self.directory()?) {
            if sector == 0 {
                continue;
            }
            self.skip_to(sector.into())?;
            if let Some(table) = self.table()? {
                furthest = furthest.max(table.furthest);
                listed.push(Listed::new(number, table));
            }
        }
        Ok((listed, furthest))
    }

    /// The directory here, by the tables that were seen.
    fn resolve(&mut self, seen: &[Seen]) -> Result<Vec<Listed>, DecodeError> {
        let mut listed = Vec::new();
        for (number, sector) in (0_u32..).zip(self.directory()?) {
            if sector == 0 {
                continue;
            }
            let found = seen.binary_search_by_key(&sector, |seen| seen.sector).ok().and_then(|at| seen.get(at));
            let Some(table) = found else {
                return Err(bad(format!("its grain directory leads to sector {sector}, where no grain table is")));
            };
            listed.extend(table.listed(number));
        }
        Ok(listed)
    }

    /// The entries of the directory here: sectors of tables.
    fn directory(&mut self) -> Result<Vec<u32>, DecodeError> {
        // At most 4 MiB.
        let bytes = (self.header.tables() * 4) as usize;
        let mut stored = Vec::new();
        if !self.input.gather(&mut stored, bytes.next_multiple_of(SECTOR as usize))? {
            return Err(cut("grain directory of the VMDK"));
        }
        Ok(stored
            .get(..bytes)
            .unwrap_or_default()
            .as_chunks()
            .0
            .iter()
            .map(|entry| u32::from_le_bytes(*entry))
            .collect())
    }

    /// The table here.
    fn table(&mut self) -> Result<Option<Read>, DecodeError> {
        Ok(tables::read(&self.input.take("middle of a grain table")?, self.header.has_zero_grains()))
    }

    /// The grain whose marker, at this sector of the file, was just read: the disk from sector `at` on.
    fn grain(&mut self, sector: u32, at: u64, stored: u32) -> Result<(), DecodeError> {
        let grain = self.header.grain();
        let named = |reason: String| bad(format!("its grain of the disk's sector {at} {reason}"));
        if at >= self.header.capacity() {
            return Err(named(format!("lies beyond the disk's {} sectors", self.header.capacity())));
        }
        if !at.is_multiple_of(grain) {
            return Err(named(format!("does not start at a multiple of {grain} sectors")));
        }
        if at * SECTOR < self.sink.offset() {
            return Err(named("comes out of order or a second time".into()));
        }
        let full = self.header.grain_bytes();
        if stored as usize > 2 * full {
            return Err(named(format!("has {stored} stored bytes, more than twice its length")));
        }
        self.stored.clear();
        if !self.input.gather(&mut self.stored, stored as usize)? {
            return Err(cut("middle of a grain"));
        }
        self.input.skip(self.input.offset().next_multiple_of(SECTOR) - self.input.offset(), "padding of a grain")?;
        self.zeroes_to(at * SECTOR)?;
        self.unpack(at)?;
        self.made.grain(at / grain, sector);
        self.last = sector;
        Ok(())
    }

    /// Puts out the grain that was gathered.
    fn unpack(&mut self, at: u64) -> Result<(), DecodeError> {
        let full = self.header.grain_bytes();
        let length = ((self.header.raw_bytes() - at * SECTOR) as usize).min(full);
        let undone = |reason: String| bad(format!("its grain of the disk's sector {at} does not unpack: {reason}"));
        // The last one may be as short as the disk, or go on beyond its end.
        let fits = |made: usize| {
            let right = made == full || (length < full && made >= length);
            if right { Ok(()) } else { Err(undone(format!("it has {made} of {full} bytes"))) }
        };
        if length == full
            && let Some(space) = self.sink.space().get_mut(..full)
        {
            fits(self.inflater.unpack(&self.stored, space).map_err(undone)?)?;
            return self.sink.filled(full);
        }
        self.scratch.resize(full, 0);
        fits(self.inflater.unpack(&self.stored, &mut self.scratch).map_err(undone)?)?;
        let mut bytes = &self.scratch[..length];
        while !bytes.is_empty() {
            let space = self.sink.space();
            let (now, rest) = bytes.split_at(space.len().min(bytes.len()));
            space[..now.len()].copy_from_slice(now);
            self.sink.filled(now.len())?;
            bytes = rest;
        }
        Ok(())
    }

    /// The disk is zero up to here. The image's start is a block, and short runs would make small ones: these are filled.
    fn zeroes_to(&mut self, end: u64) -> Result<(), DecodeError> {
        let block = self.sink.block_size() as u64;
        loop {
            let left = end - self.sink.offset();
            if left == 0 {
                return Ok(());
            }
            if left >= block && self.sink.offset() >= block {
                return self.sink.zeroes(left);
            }
            let space = self.sink.space();
            let n = usize::try_from(left).map_or(space.len(), |left| left.min(space.len()));
            space[..n].fill(0);
            self.sink.filled(n)?;
        }
    }

    fn marker(&mut self) -> Result<Option<Marker>, DecodeError> {
        Marker::read(&mut self.input)
    }

    /// The sector of the file that comes next.
    fn sector(&self) -> Result<u32, DecodeError> {
        u32::try_from(self.input.offset() / SECTOR)
            .map_err(|_| bad("it is longer than the 2 TiB that the tables of a VMDK can list"))
    }

    fn skip_to(&mut self, sector: u64) -> Result<(), DecodeError> {
        let (here, there) = (self.input.offset(), sector * SECTOR);
        if there < here {
            return Err(bad(format!("its grain tables are not in order: sector {sector} comes after byte {here}")));
        }
        self.input.skip(there - here, "part of the VMDK before its grains")
    }

    /// Refuses metadata that has no room for so many bytes.
    fn at_least(&self, marker: Marker, sectors: u64, bytes: usize, sector: u32) -> Result<(), DecodeError> {
        let needed = (bytes as u64).div_ceil(SECTOR);
        if sectors >= needed {
            return Ok(());
        }
        Err(bad(format!("its {marker} at sector {sector} has {sectors} sectors, and {needed} are needed")))
    }

    /// Passes over what is left of metadata of which so many bytes were read.
    fn surplus(&mut self, sectors: u64, bytes: usize) -> Result<(), DecodeError> {
        let left = sectors - (bytes as u64).div_ceil(SECTOR);
        self.input.skip(left.saturating_mul(SECTOR), "surplus of a grain table or directory")
    }

    /// Zeroes to the end of input, less than a grain.
    fn tail(&mut self) -> Result<(), DecodeError> {
        let most = self.input.offset() + self.header.grain_bytes() as u64;
        loop {
            let (at, bytes) = (self.input.offset(), self.input.fill()?);
            if bytes.is_empty() {
                return if at.is_multiple_of(SECTOR) { Ok(()) } else { Err(cut("middle of a sector")) };
            }
            let zeroes = bytes.iter().take_while(|byte| **byte == 0).count();
            if zeroes < bytes.len() || at + zeroes as u64 > most {
                return Err(follows(at + zeroes as u64));
            }
            self.input.consume(zeroes);
        }
    }

    /// Refuses more input.
    fn end(&mut self) -> Result<(), DecodeError> {
        let at = self.input.offset();
        if self.input.fill()?.is_empty() { Ok(()) } else { Err(follows(at)) }
    }
}

fn follows(at: u64) -> DecodeError {
    bad(format!("after the end of the VMDK, at byte {at}, is more than zeroes"))
}

fn misplaced(marker: Marker, sector: u32) -> DecodeError {
    bad(format!("its {marker} at sector {sector} is where none can be"))
}
