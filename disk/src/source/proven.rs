//! A file behind a URL as a reader whose end proves its digest.

use std::io;
use std::io::Read;
use std::sync::atomic::Ordering;

use landfall_api::Digest;

use super::{ImageSource, Locator, image_at, open};
use crate::{Access, CancelFlag, Defect, Image, Observer, Proof, WriteError, pipeline::Hasher};

/// A file behind an `http(s):` or `file:` URL, read in a stream. The read that would say "the end" fails instead if the bytes
/// are not those of the digest, so a file put in place after that read is a proven one.
pub struct ProvenFile<'a> {
    source: Box<dyn ImageSource + 'a>,
    cancel: &'a CancelFlag,
    digest: Digest,
    /// Taken at the end.
    hasher: Option<Hasher>,
    /// Bytes read.
    read: u64,
    /// The most bytes that are taken.
    limit: u64,
    failure: Option<WriteError>,
}

impl std::fmt::Debug for ProvenFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProvenFile")
            .field("name", &self.source.name())
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl<'a> ProvenFile<'a> {
    /// The file at `url`, of at most `limit` bytes; nothing is fetched before the first read.
    ///
    /// # Errors
    /// [`WriteError::BadFormat`] for a URL that cannot be used, [`WriteError::Start`] if no client can be made.
    pub fn open(
        url: &str, digest: Digest, limit: u64, observer: &'a dyn Observer, cancel: &'a CancelFlag,
    ) -> Result<Self, WriteError> {
        Self::open_by(url, &Access::default(), digest, limit, observer, cancel)
    }

    /// The same, from a server that is asked in a certain way.
    ///
    /// # Errors
    /// As [`Self::open`]
    pub fn open_by(
        url: &str, access: &Access, digest: Digest, limit: u64, observer: &'a dyn Observer, cancel: &'a CancelFlag,
    ) -> Result<Self, WriteError> {
        if let Locator::Oci(_) = Locator::parse(url)? {
            let reason = "oci:// can name only an image".into();
            return Err(WriteError::BadFormat { subject: super::shown_text(url), reason, defect: Defect::Beside });
        }
        let image = Image { access: access.clone(), ..image_at(url, Proof::Stored(digest)) };
        Ok(Self::of(open(&image, true, observer)?, digest, limit, cancel))
    }

    /// What `source` gives, of at most `limit` bytes.
    pub fn of(source: Box<dyn ImageSource + 'a>, digest: Digest, limit: u64, cancel: &'a CancelFlag) -> Self {
        Self { source, cancel, hasher: Some(Hasher::like(&digest)), digest, read: 0, limit, failure: None }
    }

    /// How many bytes there are in all, once known; at the latest after the first read.
    pub fn total(&self) -> Option<u64> {
        self.source.total()
    }

    /// Why a read failed.
    pub fn into_failure(self) -> Option<WriteError> {
        self.failure
    }

    fn next(&mut self, buffer: &mut [u8]) -> Result<usize, WriteError> {
        let read = self.source.read(buffer, self.cancel.flag());
        // A source that was stopped ends early, or calls itself unreachable.
        if self.cancel.flag().load(Ordering::Acquire) {
            return Err(WriteError::Cancelled { device: self.source.name().into() });
        }
        let count = read?;
        if count == 0 {
            let actual = self.hasher.take().map(Hasher::finish);
            return match actual {
                Some(actual) if actual != self.digest => {
                    Err(WriteError::DigestMismatch { url: self.source.name().into(), expected: self.digest, actual })
                }
                _ => Ok(0),
            };
        }
        self.read += count as u64;
        if self.read > self.limit || self.source.total().is_some_and(|total| total > self.limit) {
            let reason = format!("it is larger than {} bytes, which is too much for such a file", self.limit);
            return Err(WriteError::BadFormat { subject: self.source.name().into(), reason, defect: Defect::Beside });
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(buffer.get(..count).unwrap_or_default());
        }
        Ok(count)
    }
}

impl Read for ProvenFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.next(buffer).map_err(|failure| {
            let text = failure.to_string();
            self.failure = Some(failure);
            io::Error::other(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::Unobserved;

    const BYTES: &[u8] = b"a file of some length";

    fn fetched(digest: &[u8], limit: u64, cancel: &CancelFlag) -> (io::Result<u64>, Option<WriteError>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), BYTES).unwrap();
        let url = format!("file://{}", file.path().display());
        let digest = landfall_api::Digest::from_sha256(Sha256::digest(digest).into());
        let mut proven = ProvenFile::open(&url, digest, limit, &Unobserved, cancel).unwrap();
        let copied = io::copy(&mut proven, &mut io::sink());
        (copied, proven.into_failure())
    }

    #[test]
    fn only_the_whole_proven_file_reaches_its_end() {
        let never = CancelFlag::new();
        let (copied, failure) = fetched(BYTES, BYTES.len() as u64, &never);
        assert!(copied.unwrap() == BYTES.len() as u64 && failure.is_none());
        let (copied, failure) = fetched(b"another", 1000, &never);
        assert!(copied.is_err() && matches!(failure, Some(WriteError::DigestMismatch { .. })));
        let (copied, failure) = fetched(BYTES, BYTES.len() as u64 - 1, &never);
        assert!(copied.is_err() && matches!(failure, Some(WriteError::BadFormat { .. })));
        let stopped = CancelFlag::new();
        stopped.cancel();
        let (copied, failure) = fetched(BYTES, 1000, &stopped);
        assert!(copied.is_err() && matches!(failure, Some(WriteError::Cancelled { .. })));
    }
}
