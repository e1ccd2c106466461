//! A file's raw content as a stream whose end proves it: for readers that write no disk.

use std::{
    io::{self, BufRead, Read},
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use landfall_api::Digest;

use super::{
    Check, Context, Expectation, StopOnDrop,
    hasher::ZEROES,
    meter::Meter,
    next,
    opened::{Opened, Recipe},
    stages::Stages,
    watched,
};
use crate::{
    Defect, Observer, WriteError,
    buffer::{Buffer, Pool},
    decode::Decoded,
    memory::BUFFERS,
    source::ImageSource,
};

/// Bytes of a piece of raw content: small enough to be in a processor's cache still when it is read.
const PIECE: usize = 256 * 1024;
/// How much content is decoded only to tell altered content from a wrong file, bytes.
const TO_THE_END: u64 = 16 << 30;

/// What may be read of a file, and on what conditions.
#[derive(Clone, Copy)]
pub struct ContentOrder<'a> {
    /// Digest of the stored bytes.
    pub digest: Digest,
    /// Memory that is available, bytes; `None`: enough.
    pub memory: Option<u64>,
    /// Gets progress and lines for people.
    pub observer: &'a dyn Observer,
    /// Whether the caller may still act; asked while it waits for content.
    pub may_act: Check<'a>,
}

/// Raw content: the stored bytes, decompressed where they are compressed. The read that would say "the end" fails instead if
/// the stored bytes are not those of the digest, so what was done up to a good end was done from proven bytes.
pub struct Content<'a> {
    stages: Stages,
    pool: Arc<Pool>,
    block: Option<Buffer>,
    at: usize,
    /// Zero bytes that come next.
    zeroes: u64,
    ended: bool,
    failure: Option<WriteError>,
    expectation: Expectation<'a>,
    image: &'a str,
    meter: &'a Meter<'a>,
    may_act: Check<'a>,
}

/// Fetches, hashes and decompresses `source` on threads of their own while `work` reads its content. What failed of the file
/// itself comes before what `work` makes of it.
///
/// # Errors
/// [`WriteError`]: the file could not be had, is not the one of the digest, or does not decompress; or `may_act` said so.
pub fn with_content<T>(
    source: &mut dyn ImageSource,
    order: ContentOrder<'_>,
    work: impl FnOnce(&mut Content<'_>) -> T,
) -> Result<T, WriteError> {
    let ContentOrder { digest, memory, observer, may_act } = order;
    let stop = AtomicBool::new(false);
    let meter = Meter::new(observer);
    let image = source.name().to_owned();
    let context = Context { image: &image, stop: &stop, meter: &meter, memory };
    if let Some(available) = memory.filter(|available| *available < BUFFERS) {
        return Err(WriteError::NotEnoughMemory { subject: image, needed: BUFFERS, available });
    }
    meter.stage("fetch");
    let opened = watched(may_act, &stop, || Opened::look(source, None, context))?;
    if let Recipe::Qcow2(_) = opened.recipe {
        let reason = "it is a qcow2 disk image, and no archive".into();
        return Err(WriteError::BadFormat { subject: image, reason, defect: Defect::Stated });
    }
    let pool = Arc::new(Pool::new(PIECE));
    let expectation = Expectation::Stored(digest);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let stages = Stages::start(scope, opened, source, expectation, true, &pool, context)?;
        meter.stage("unpack");
        let mut content = Content {
            stages,
            pool: Arc::clone(&pool),
            block: None,
            at: 0,
            zeroes: 0,
            ended: false,
            failure: None,
            expectation,
            image: &image,
            meter: &meter,
            may_act,
        };
        let made = work(&mut content);
        match content.failure {
            Some(failure) => Err(failure),
            None => Ok(made),
        }
    })
}

impl Content<'_> {
    /// Reads the rest, of at most 16 GiB, for its digest alone: bytes that were altered explain content that makes no sense.
    /// What is found is what [`with_content`] fails with.
    pub fn finish(&mut self) {
        let mut left = TO_THE_END;
        while let Ok(bytes) = self.fill_buf().map(<[u8]>::len) {
            if bytes == 0 || bytes as u64 > left {
                return;
            }
            left -= bytes as u64;
            self.consume(bytes);
        }
    }

    fn advance(&mut self) -> Result<(), WriteError> {
        while !self.ended && self.zeroes == 0 && self.block.as_ref().is_none_or(|block| self.at == block.len) {
            if let Some(done) = self.block.take() {
                self.pool.give(done);
            }
            match next(&self.stages.pieces, self.meter, self.may_act)? {
                Some(Decoded::Block { bytes, .. }) => {
                    self.meter.raw(bytes.len as u64, bytes.len as u64);
                    (self.block, self.at) = (Some(bytes), 0);
                }
                Some(Decoded::Zeroes(range)) => self.zeroes = range.end - range.start,
                None => {
                    self.stages.evidence()?.check(self.expectation, 0, self.image)?;
                    self.meter.finish();
                    self.ended = true;
                }
            }
        }
        Ok(())
    }
}

impl BufRead for Content<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Some(failure) = &self.failure {
            return Err(io::Error::other(failure.to_string()));
        }
        if let Err(failure) = self.advance() {
            let text = failure.to_string();
            self.failure = Some(failure);
            return Err(io::Error::other(text));
        }
        if self.zeroes > 0 {
            let n = usize::try_from(self.zeroes).map_or(ZEROES.len(), |zeroes| zeroes.min(ZEROES.len()));
            return Ok(&ZEROES[..n]);
        }
        Ok(self.block.as_ref().map_or(&[], |block| &block.data()[self.at..]))
    }

    fn consume(&mut self, bytes: usize) {
        if self.zeroes > 0 {
            self.zeroes = self.zeroes.saturating_sub(bytes as u64);
        } else {
            self.at += bytes;
        }
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let n = bytes.len().min(buffer.len());
        buffer[..n].copy_from_slice(&bytes[..n]);
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, path::Path};

    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::{Image, Proof, Unobserved, open_source};

    fn digest_of(bytes: &[u8]) -> Digest {
        Digest::from_sha256(Sha256::digest(bytes).into())
    }

    /// What comes out of a file of these bytes with the digest of those.
    fn read(stored: &[u8], of: &[u8], may_act: Check<'_>) -> (Vec<u8>, Result<bool, WriteError>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all(stored).unwrap();
        let mut source = source(file.path());
        let mut content = Vec::new();
        let order = ContentOrder { digest: digest_of(of), memory: None, observer: &Unobserved, may_act };
        let ended = with_content(source.as_mut(), order, |reader| reader.read_to_end(&mut content).is_ok());
        (content, ended)
    }

    fn source(path: &Path) -> Box<dyn ImageSource> {
        let image = Image {
            urls: vec![format!("file://{}", path.display())],
            proof: Proof::Waived,
            format: None,
            no_table: false,
            access: crate::Access::default(),
        };
        open_source(&image, true, &Unobserved).unwrap()
    }

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        // Frames of their own are decoded by several threads.
        bytes.chunks(300_000).flat_map(|part| zstd::bulk::compress(part, 1).unwrap()).collect()
    }

    #[test]
    fn content_comes_whole_in_order_and_decompressed() {
        let raw: Vec<u8> = (0..2_000_003_u32).flat_map(|n| (n / 7).to_le_bytes()).take(2_000_003).collect();
        for stored in [raw.clone(), compressed(&raw)] {
            let (content, ended) = read(&stored, &stored, &|| Ok(()));
            assert!(ended.unwrap());
            assert!(content == raw, "{} bytes of {}", content.len(), raw.len());
        }
    }

    #[test]
    fn content_of_another_digest_has_no_end() {
        let raw = vec![7; 1_000_000];
        for stored in [raw.clone(), compressed(&raw)] {
            let (content, ended) = read(&stored, b"another", &|| Ok(()));
            assert_eq!(content.len(), raw.len());
            assert!(matches!(ended, Err(WriteError::DigestMismatch { .. })), "{ended:?}");
        }
    }

    #[test]
    fn cut_content_fails_though_its_digest_is_right() {
        let stored = compressed(&(0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
        let cut = &stored[..stored.len() - 10];
        assert!(matches!(read(cut, cut, &|| Ok(())).1, Err(WriteError::Truncated { .. })));
    }

    #[test]
    fn reading_ends_when_the_caller_may_not_act() {
        let refused = || Err(WriteError::Cancelled { device: "x".into() });
        assert!(matches!(read(&[7; 100], &[7; 100], &refused).1, Err(WriteError::Cancelled { .. }) | Ok(true)));
        let image = [&b"QFI\xfb\0\0\0\x03"[..], &[0; 2000]].concat();
        assert!(matches!(read(&image, &image, &|| Ok(())).1, Err(WriteError::BadFormat { .. })));
    }

    #[test]
    fn altered_content_is_known_by_its_digest_after_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all(&[7; 3_000_000]).unwrap();
        let order =
            ContentOrder { digest: digest_of(b"another"), memory: None, observer: &Unobserved, may_act: &|| Ok(()) };
        let ended = with_content(source(file.path()).as_mut(), order, |reader| {
            let mut start = [0; 512];
            reader.read_exact(&mut start).unwrap();
            reader.finish();
        });
        assert!(matches!(ended, Err(WriteError::DigestMismatch { .. })), "{ended:?}");
    }
}
