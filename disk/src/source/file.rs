//! A file or a block device of this machine as a source.

use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::ImageSource;
use crate::{Defect, WriteError};

/// Opened at the first read or seek.
pub(super) struct FileSource {
    name: String,
    path: PathBuf,
    file: Option<File>,
    total: Option<u64>,
    position: u64,
    end: u64,
}

impl FileSource {
    pub(super) fn new(path: &Path) -> Self {
        let name = format!("file:{}", path.display());
        Self { name, path: path.to_owned(), file: None, total: None, position: 0, end: u64::MAX }
    }

    /// A file that is open already, from its start; `name` is what messages call it.
    pub(super) fn opened(name: &str, file: File) -> Self {
        Self { name: name.into(), path: PathBuf::new(), file: Some(file), total: None, position: 0, end: u64::MAX }
    }

    fn bad(&self, reason: &str) -> WriteError {
        WriteError::BadFormat { subject: self.name.clone(), reason: reason.into(), defect: Defect::Settings }
    }

    fn unreadable(&self, error: &io::Error) -> WriteError {
        // A retry does not help: a missing path stays missing, and a disk that fails to read does not recover.
        WriteError::Status { url: self.name.clone(), status: error.to_string() }
    }

    /// The open file and how long it is.
    fn open(&mut self) -> Result<u64, WriteError> {
        if let (Some(_), Some(total)) = (&self.file, self.total) {
            return Ok(total);
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.found()?,
        };
        // A block device's size is where its end is; its metadata says 0.
        let total = file.seek(SeekFrom::End(0)).map_err(|e| self.unreadable(&e))?;
        file.seek(SeekFrom::Start(self.position)).map_err(|e| self.unreadable(&e))?;
        (self.file, self.total) = (Some(file), Some(total));
        Ok(total)
    }

    fn found(&self) -> Result<File, WriteError> {
        // Looked at before it is opened: opening a pipe waits for its writer.
        let kind = std::fs::metadata(&self.path).map_err(|e| self.unreadable(&e))?.file_type();
        if kind.is_dir() {
            return Err(self.bad("it is a directory; name the image file in it"));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(self.bad("it is neither a regular file nor a block device"));
        }
        File::open(&self.path).map_err(|e| self.unreadable(&e))
    }
}

impl ImageSource for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError> {
        let total = self.open()?;
        let left = self.end.min(total).saturating_sub(self.position);
        let room = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let (Some(file), Some(room)) = (&mut self.file, buffer.get_mut(..room)) else { return Ok(0) };
        if room.is_empty() {
            return Ok(0);
        }
        loop {
            if stop.load(Ordering::Acquire) {
                return Err(WriteError::Unreachable { url: self.name.clone(), reason: "the write ended".into() });
            }
            match file.read(room) {
                Ok(0) => {
                    let reason = format!("the file became shorter: it has {} of {total} bytes", self.position);
                    return Err(WriteError::Truncated { subject: self.name.clone(), reason });
                }
                Ok(n) => {
                    self.position += n as u64;
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreadable(&error)),
            }
        }
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn seek(&mut self, range: Range<u64>, _: &AtomicBool) -> Result<(), WriteError> {
        self.open()?;
        (self.position, self.end) = (range.start, range.end);
        let moved = self.file.as_mut().map(|file| file.seek(SeekFrom::Start(range.start)));
        moved.transpose().map_err(|e| self.unreadable(&e))?;
        Ok(())
    }
}
