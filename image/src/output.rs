//! Output files that appear complete or not at all.
//!
//! A build that is interrupted must never leave half an image under the final name: a later run, or a coordinator
//! that serves the directory, would take it for a good one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// An output file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct OutputError {
    /// The file that was to appear.
    pub path: PathBuf,
    /// Error of the system.
    #[source]
    pub source: io::Error,
}

/// A file under a temporary name beside its final place; dropped uncommitted, it disappears.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
}

impl AtomicFile {
    /// Starts a file that will be called `path`; its directory must exist.
    ///
    /// # Errors
    /// The temporary file cannot be created.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .map_err(|source| OutputError { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), temporary, file: Some(file) })
    }

    /// The open file.
    ///
    /// # Errors
    /// Never before [`Self::commit`], which consumes the value.
    pub fn file(&mut self) -> io::Result<&mut File> {
        self.file.as_mut().ok_or_else(|| io::Error::other("the file is already committed"))
    }

    /// Where the bytes are until the commit, for tools that take a path.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Flushes to the device and gives the file its name.
    ///
    /// # Errors
    /// Flush or rename failed; the final name is untouched.
    pub fn commit(mut self) -> Result<(), OutputError> {
        let error = |source| OutputError { path: self.path.clone(), source };
        if let Some(file) = self.file.take() {
            file.sync_all().map_err(error)?;
        }
        fs::rename(&self.temporary, &self.path).map_err(error)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // After a commit the temporary name no longer exists; before it, an error cannot be handled here.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A directory for intermediate files, beside an output: on a file system with room for it. It goes away with the value, with
/// everything in it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it beside `output`, whose directory must exist.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn beside(output: &Path) -> Result<Self, OutputError> {
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let path = output.with_file_name(format!(".{name}.{}", std::process::id()));
        // Not one that is there: what an earlier process left in it would become part of the output.
        fs::create_dir(&path).map_err(|source| OutputError { path: path.clone(), source })?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-over intermediate files do no harm, and a destructor cannot return an error.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a small file completely or not at all.
///
/// # Errors
/// It cannot be created, written or renamed.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
    let mut out = AtomicFile::create(path)?;
    out.file()
        .and_then(|file| io::Write::write_all(file, bytes))
        .map_err(|source| OutputError { path: path.to_owned(), source })?;
    out.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uncommitted_file_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        fs::write(&path, "old").unwrap();
        let mut out = AtomicFile::create(&path).unwrap();
        io::Write::write_all(out.file().unwrap(), b"half").unwrap();
        drop(out);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
