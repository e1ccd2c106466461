//! What comes next in the stream, as its marker says.

use std::fmt;

use super::super::DecodeError;
use super::super::reader::{Reader, bad, cut};
use super::SECTOR;

/// A marker. All but a grain's fill their sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// So many stored bytes follow at once, padded to a whole sector: the disk from this sector on.
    Grain { at: u64, stored: u32 },
    /// A grain table in so many sectors.
    Table { sectors: u64 },
    /// The directory.
    Directory { sectors: u64 },
    /// The header once more.
    Footer { sectors: u64 },
    /// Nothing.
    End,
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grain { .. } => "grain",
            Self::Table { .. } => "grain table",
            Self::Directory { .. } => "grain directory",
            Self::Footer { .. } => "footer",
            Self::End => "end of the stream",
        })
    }
}

impl Marker {
    /// The next one; `None` at the end of input.
    pub(super) fn read(input: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        const WITHIN: &str = "middle of a VMDK marker";
        let place = input.offset();
        let mut start = Vec::with_capacity(12);
        if !input.gather(&mut start, 12)? {
            return if start.is_empty() { Ok(None) } else { Err(cut(WITHIN)) };
        }
        let (value, size) = start.split_at(8);
        let value = value.try_into().map_or(0, u64::from_le_bytes);
        let size = size.try_into().map_or(0, u32::from_le_bytes);
        if size > 0 {
            return Ok(Some(Self::Grain { at: value, stored: size }));
        }
        let kind = u32::from_le_bytes(input.take(WITHIN)?);
        input.skip(SECTOR - 16, WITHIN)?;
        Ok(Some(match kind {
            0 if value == 0 => Self::End,
            1 => Self::Table { sectors: value },
            2 => Self::Directory { sectors: value },
            3 => Self::Footer { sectors: value },
            _ => return Err(bad(format!("its marker at byte {place} is of the unknown type {kind}"))),
        }))
    }
}
