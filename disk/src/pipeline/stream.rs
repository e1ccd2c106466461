//! The raw content of a file whose stored bytes were proven before, as a stream: for readers that write no disk.

use std::io::{BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{io, thread};

use super::hasher::ZEROES;
use super::meter::Meter;
use super::opened::{Opened, Recipe};
use super::stages::Stages;
use super::{Check, Context, Expectation, StopOnDrop, fits_memory, next, watched};
use crate::buffer::{Buffer, Pool};
use crate::decode::Decoded;
use crate::memory::BUFFERS;
use crate::source::ImageSource;
use crate::{Defect, Format, Observer, WriteError};

/// Bytes of a piece of raw content: small enough to be in a processor's cache still when it is read.
const PIECE: usize = 256 * 1024;
/// What may be read of a file, and on what conditions.
#[derive(Clone, Copy)]
pub struct ContentOrder<'a> {
    /// Memory that is available, bytes; `None`: enough.
    pub memory: Option<u64>,
    /// Gets progress and lines for people.
    pub observer: &'a dyn Observer,
    /// Whether the caller may still act; asked while it waits for content.
    pub may_act: Check<'a>,
}

/// Raw content: the stored bytes, decompressed where they are compressed. The read that would say "the end" fails instead if
/// they end early.
pub struct Content<'a> {
    stages: Stages,
    pool: Arc<Pool>,
    block: Option<Buffer>,
    at: usize,
    /// Zero bytes that come next.
    zeroes: u64,
    ended: bool,
    failure: Option<WriteError>,
    image: &'a str,
    meter: &'a Meter<'a>,
    may_act: Check<'a>,
}

/// Reads and decompresses `source` on threads of their own while `work` reads its content. No digest is checked here: its bytes
/// are proven already, as those of [`crate::open_file`] are. What failed of the file itself comes before what `work` makes of it.
///
/// # Errors
/// [`WriteError`]: the file could not be read, or does not decompress; or `may_act` said so.
pub fn with_content<T>(
    source: &mut dyn ImageSource, order: ContentOrder<'_>, work: impl FnOnce(&mut Content<'_>) -> T,
) -> Result<T, WriteError> {
    let ContentOrder { memory, observer, may_act } = order;
    let stop = AtomicBool::new(false);
    let meter = Meter::new(observer);
    let image = source.name().to_owned();
    let context = Context { image: &image, stop: &stop, meter: &meter, memory };
    fits_memory(memory, &image, BUFFERS)?;
    meter.stage("unpack");
    let opened = watched(may_act, &stop, || Opened::look(source, None, context))?;
    if let Recipe::Qcow2(_) | Recipe::Linear(Format::Vmdk) = opened.recipe {
        let reason = "it is the disk image of a virtual machine, and no archive".into();
        return Err(WriteError::BadFormat { subject: image, reason, defect: Defect::Stated });
    }
    let pool = Arc::new(Pool::new(PIECE));
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let stages = Stages::start(scope, opened, source, Expectation::Waived, true, &pool, context)?;
        let mut content = Content {
            stages,
            pool: Arc::clone(&pool),
            block: None,
            at: 0,
            zeroes: 0,
            ended: false,
            failure: None,
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
                    self.stages.evidence()?.check(Expectation::Waived, 0, self.image)?;
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
    use std::io::{Seek as _, Write as _};

    use super::*;
    use crate::{Unobserved, open_file};

    const ORDER: ContentOrder<'static> = ContentOrder { memory: None, observer: &Unobserved, may_act: &|| Ok(()) };

    /// What comes out of a file of these bytes.
    fn read(stored: &[u8], order: ContentOrder<'_>) -> (Vec<u8>, Result<bool, WriteError>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(stored).unwrap();
        file.rewind().unwrap();
        let mut content = Vec::new();
        let mut source = open_file("http://h/archive", file);
        let ended = with_content(source.as_mut(), order, |reader| reader.read_to_end(&mut content).is_ok());
        (content, ended)
    }

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        // Frames of their own are decoded by several threads.
        bytes.chunks(300_000).flat_map(|part| zstd::bulk::compress(part, 1).unwrap()).collect()
    }

    #[test]
    fn content_comes_whole_in_order_and_decompressed() {
        let raw: Vec<u8> = (0..2_000_003_u32).flat_map(|n| (n / 7).to_le_bytes()).take(2_000_003).collect();
        for stored in [raw.clone(), compressed(&raw)] {
            let (content, ended) = read(&stored, ORDER);
            assert!(ended.unwrap());
            assert!(content == raw, "{} bytes of {}", content.len(), raw.len());
        }
    }

    #[test]
    fn cut_content_fails_by_the_name_of_its_file() {
        let stored = compressed(&(0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
        let cut = &stored[..stored.len() - 10];
        let ended = read(cut, ORDER).1;
        assert!(
            matches!(&ended, Err(WriteError::Truncated { subject, .. }) if subject == "http://h/archive"),
            "{ended:?}"
        );
    }

    #[test]
    fn reading_ends_when_the_caller_may_not_act() {
        let refused = || Err(WriteError::Cancelled { device: "x".into() });
        let order = ContentOrder { may_act: &refused, ..ORDER };
        assert!(matches!(read(&[7; 100], order).1, Err(WriteError::Cancelled { .. }) | Ok(true)));
        for magic in [&b"QFI\xfb\0\0\0\x03"[..], b"KDMV\x03\0\0\0"] {
            let image = [magic, &[0; 2000]].concat();
            assert!(matches!(read(&image, ORDER).1, Err(WriteError::BadFormat { .. })));
        }
    }

    #[test]
    fn content_that_takes_more_memory_is_refused() {
        let raw = vec![7; 3_000_000];
        for stored in [raw.clone(), compressed(&raw)] {
            let order = ContentOrder { memory: Some(BUFFERS - 1), ..ORDER };
            assert!(matches!(read(&stored, order).1, Err(WriteError::NotEnoughMemory { .. })));
        }
        // Its window is larger than what is left.
        let window = zstd::stream::Encoder::new(Vec::new(), 1).and_then(|mut encoder| {
            encoder.window_log(24)?;
            encoder.write_all(&raw)?;
            encoder.finish()
        });
        let order = ContentOrder { memory: Some(BUFFERS + (1 << 20)), ..ORDER };
        let ended = read(&window.unwrap(), order).1;
        assert!(matches!(ended, Err(WriteError::NotEnoughMemory { .. })), "{ended:?}");
    }
}
