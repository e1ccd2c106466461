//! The header of a VMDK, which is its footer as well.

use std::ops::Range;

use super::super::DecodeError;
use super::super::reader::cut;
use super::SECTOR;
use super::tables::{ENTRIES, Listed, Seen};

/// The header and the descriptor end within so many bytes. The descriptor has 1 to 20 sectors in the files of every known
/// writer.
pub(crate) const START: usize = 512 << 10;
/// Most grain tables. With grains of 64 KiB they make a disk of 16 TiB.
const TABLES_MAX: u64 = 1 << 19;
/// Bytes in memory for each table, at most: as the grains make it, as it was seen in the file and as the directory lists it, in
/// vectors that may have room for twice what they hold; and its entry of the directory, likewise, and once more.
const TABLE: u64 = 2 * (2 * size_of::<Listed>() + size_of::<Seen>() + 4) as u64 + 4;
/// Sectors of a grain: pieces of the raw image start at multiples of 4096 bytes, and a grain is held in memory.
const GRAIN: std::ops::RangeInclusive<u64> = 8..=8192;
/// In place of the directory's sector: the footer has it.
const AT_END: u64 = u64::MAX;
/// What the bytes 73 to 76 are, to show a transfer that took the file for a text.
const LINES: [u8; 4] = *b"\n \r\n";
/// The only compression that exists.
const DEFLATE: u16 = 1;

/// Flags: [`LINES`] is there; an entry 1 of a table means zeroes; grains are compressed; grains have markers. The upper half is
/// of those that a reader must know.
const HAS_LINES: u32 = 1;
const ZERO_GRAINS: u32 = 1 << 2;
const COMPRESSED: u32 = 1 << 16;
const MARKERS: u32 = 1 << 17;
const MUST_KNOW: u32 = 0xffff_0000;

/// Why a file is not taken. Texts continue "… is not a usable image: ".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is a VMDK of another kind.
    Kind(String),
    /// It contradicts itself, or has what a VMDK cannot have.
    Bad(String),
    /// It ends within this.
    Short(String),
}

impl From<Refusal> for DecodeError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Kind(reason) | Refusal::Bad(reason) => Self::Bad(reason),
            Refusal::Short(within) => cut(&within),
        }
    }
}

/// Where the tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Directory {
    /// Before the grains: the directory begins at this sector.
    Front(u64),
    /// Behind them.
    End,
}

/// A checked header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    version: u32,
    flags: u32,
    /// Sectors of the disk.
    capacity: u64,
    /// Sectors of a grain, a power of two.
    grain: u64,
    /// Sectors of the file.
    descriptor: Range<u64>,
    directory: u64,
    /// Sectors before the first grain.
    overhead: u64,
}

fn u32_at(bytes: &[u8; SECTOR as usize], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8; SECTOR as usize], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Header {
    /// Reads the first sector.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let sector: &[u8; SECTOR as usize] =
            bytes.first_chunk().ok_or_else(|| Refusal::Short("header of the VMDK".into()))?;
        let header = Self::fields(sector)?;
        header.check()?;
        Ok(header)
    }

    /// The directory's sector, from the footer. It must be a header that says the same as this one.
    pub(super) fn footer(&self, sector: &[u8; SECTOR as usize]) -> Result<u64, Refusal> {
        let footer = Self::fields(sector)?;
        let same = |header: &Self| (header.version, header.flags, header.capacity, header.grain);
        if same(&footer) != same(self) {
            return Err(Refusal::Bad("its footer contradicts its header".into()));
        }
        Ok(footer.directory)
    }

    /// Everything that can be judged field by field.
    fn fields(sector: &[u8; SECTOR as usize]) -> Result<Self, Refusal> {
        let bad = |reason: String| Err(Refusal::Bad(reason));
        if !sector.starts_with(b"KDMV") {
            return bad("its VMDK header does not start with KDMV".into());
        }
        let (version, flags) = (u32_at(sector, 4), u32_at(sector, 8));
        if !(1..=3).contains(&version) {
            return bad(format!("it is version {version} of the VMDK format, and versions 1 to 3 are supported"));
        }
        if flags & HAS_LINES != 0 && sector[73..77] != LINES {
            return bad("its header was altered by a transfer that took the file for a text".into());
        }
        if flags & (COMPRESSED | MARKERS) == 0 {
            return Err(Refusal::Kind("it is a VMDK of the kind monolithicSparse, not streamOptimized".into()));
        }
        if flags & (COMPRESSED | MARKERS) != COMPRESSED | MARKERS {
            return bad(format!("its flags {flags:#x} are of no kind of VMDK: compressed grains need markers"));
        }
        let unknown = flags & MUST_KNOW & !(COMPRESSED | MARKERS);
        if unknown != 0 {
            return Err(Refusal::Kind(format!("it uses VMDK features that are not supported: flags {unknown:#x}")));
        }
        let algorithm = u16::from_le_bytes([sector[77], sector[78]]);
        if algorithm != DEFLATE {
            return Err(Refusal::Kind(format!(
                "its compression algorithm {algorithm} is not supported; deflate (1) is"
            )));
        }
        if sector[72] != 0 {
            return bad("it was not closed by the program that wrote it (unclean shutdown)".into());
        }
        let entries = u32_at(sector, 44);
        if entries as usize != ENTRIES {
            return bad(format!("its grain tables have {entries} entries, and a VMDK's have {ENTRIES}"));
        }
        let first = u64_at(sector, 28);
        let descriptor = first..first.saturating_add(u64_at(sector, 36));
        Ok(Self {
            version,
            flags,
            capacity: u64_at(sector, 12),
            grain: u64_at(sector, 20),
            descriptor,
            directory: u64_at(sector, 56),
            overhead: u64_at(sector, 64),
        })
    }

    /// What the fields say together.
    fn check(&self) -> Result<(), Refusal> {
        let bad = |reason: String| Err(Refusal::Bad(reason));
        let Self { capacity, grain, descriptor, overhead, .. } = self;
        if !grain.is_power_of_two() || !GRAIN.contains(grain) {
            let (least, most) = (GRAIN.start(), GRAIN.end());
            return bad(format!("its grains have {grain} sectors; a power of two from {least} to {most} is needed"));
        }
        if *capacity == 0 {
            return bad("its virtual disk is empty".into());
        }
        if self.tables() > TABLES_MAX {
            return bad(format!(
                "its disk of {capacity} sectors needs {} grain tables, more than the limit of {TABLES_MAX}; use larger \
                 grains or another format",
                self.tables()
            ));
        }
        if descriptor.is_empty() {
            return Err(Refusal::Kind("it is a VMDK in several files: its descriptor is in another one".into()));
        }
        if descriptor.start == 0 || descriptor.end > START as u64 / SECTOR {
            return bad(format!("its descriptor cannot be in the sectors {} to {}", descriptor.start, descriptor.end));
        }
        let front = match self.place() {
            Directory::Front(directory) => directory.max(descriptor.end),
            Directory::End => descriptor.end,
        };
        let directory_first = matches!(self.place(), Directory::Front(directory) if directory < descriptor.end);
        if *overhead < front || directory_first || *overhead > u64::from(u32::MAX) {
            return bad(format!("its header states impossible places: grains after sector {overhead}"));
        }
        Ok(())
    }

    /// Where the tables are.
    pub(super) fn place(&self) -> Directory {
        if self.directory == AT_END { Directory::End } else { Directory::Front(self.directory) }
    }

    /// Where the descriptor is in the file, bytes.
    pub(super) fn descriptor(&self) -> Range<u64> {
        self.descriptor.start * SECTOR..self.descriptor.end * SECTOR
    }

    /// Sectors of the disk.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Sectors of a grain.
    pub(super) fn grain(&self) -> u64 {
        self.grain
    }

    /// Bytes of a grain.
    pub(super) fn grain_bytes(&self) -> usize {
        (self.grain * SECTOR) as usize
    }

    /// Sectors before the first grain.
    pub(super) fn overhead(&self) -> u64 {
        self.overhead
    }

    /// How many tables the disk has.
    pub(super) fn tables(&self) -> u64 {
        self.capacity.div_ceil(self.grain * ENTRIES as u64)
    }

    /// Whether an entry 1 of a table means zeroes.
    pub(super) fn has_zero_grains(&self) -> bool {
        self.flags & ZERO_GRAINS != 0
    }

    /// Bytes of the raw image.
    pub(crate) fn raw_bytes(&self) -> u64 {
        // At most TABLES_MAX tables of 512 grains of 4 MiB.
        self.capacity * SECTOR
    }

    /// What decoding takes beside the buffers of all stages, bytes, at most.
    pub(crate) fn memory(&self) -> u64 {
        // As it is stored it may have twice its length.
        self.tables() * TABLE + 3 * self.grain_bytes() as u64
    }
}
