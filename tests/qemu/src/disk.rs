//! A machine's disk: a sparse raw file that can be read from outside at any time.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::LabError;

/// One MiB.
const MIB: u64 = 1 << 20;
/// Bytes of a logical sector of every disk in this lab.
const SECTOR: u64 = 512;

/// A raw disk image.
#[derive(Debug, Clone)]
pub struct DiskImage {
    path: PathBuf,
}

impl DiskImage {
    /// Makes an empty disk of `bytes`, all zero, replacing what was there.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn create(path: &Path, bytes: u64) -> Result<Self, LabError> {
        let file = File::create(path).map_err(LabError::file("cannot make disk", path))?;
        file.set_len(bytes).map_err(LabError::file("cannot size disk", path))?;
        Ok(Self { path: path.to_owned() })
    }

    /// A disk that exists.
    pub fn open(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `length` bytes at `offset`.
    ///
    /// # Errors
    /// [`LabError::File`], also beyond the end.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, LabError> {
        let file = File::open(&self.path).map_err(LabError::file("cannot open disk", &self.path))?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).map_err(LabError::file("cannot read disk", &self.path))?;
        Ok(bytes)
    }

    /// Writes bytes at `offset`, as another tool might have done before.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), LabError> {
        let mut file =
            OpenOptions::new().write(true).open(&self.path).map_err(LabError::file("cannot open disk", &self.path))?;
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| file.write_all(bytes))
            .map_err(LabError::file("cannot write disk", &self.path))
    }

    /// Capacity, bytes.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn size(&self) -> Result<u64, LabError> {
        Ok(std::fs::metadata(&self.path).map_err(LabError::file("cannot read", &self.path))?.len())
    }

    /// Bytes that take room on the host: how much the machine has really written.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn allocated(&self) -> Result<u64, LabError> {
        Ok(std::fs::metadata(&self.path).map_err(LabError::file("cannot read", &self.path))?.blocks() * 512)
    }

    /// Whether nothing was ever written but zeroes: the first and last MiB are read, and nothing else may take room.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn is_untouched(&self) -> Result<bool, LabError> {
        let size = self.size()?;
        let edge = usize::try_from(MIB.min(size)).unwrap_or(usize::MAX);
        let zero = |bytes: Vec<u8>| bytes.iter().all(|byte| *byte == 0);
        Ok(self.allocated()? <= 2 * MIB && zero(self.read(0, edge)?) && zero(self.read(size - edge as u64, edge)?))
    }

    /// Whether LBA 0 carries the boot signature 0x55AA.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn has_boot_signature(&self) -> Result<bool, LabError> {
        Ok(self.read(510, 2)? == [0x55, 0xaa])
    }

    /// Whether LBA 1 carries a GPT header.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn has_primary_gpt(&self) -> Result<bool, LabError> {
        Ok(self.read(SECTOR, 8)? == *b"EFI PART")
    }

    /// Whether the last sector carries a GPT header.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn has_backup_gpt(&self) -> Result<bool, LabError> {
        Ok(self.read(self.size()? - SECTOR, 8)? == *b"EFI PART")
    }
}
