//! From stored bytes to raw ones: one file a format. A decoder pulls from an [`Input`] and fills a [`Sink`]; it
//! succeeds only when the input has ended and no byte is missing or left over.

mod bzip2;
mod gzip;
mod lz4;
pub(crate) mod qcow2;
mod raw;
mod reader;
mod sink;
mod sniff;
pub(crate) mod vmdk;
mod xz;
mod zstd;

#[cfg(test)]
pub(crate) mod testing;

pub(crate) use sink::{Decoded, Sink};
pub(crate) use sniff::format_of;

use crate::{Format, WriteError};

/// The largest window or block a stream may declare, bytes. Our memory is bounded by 64 MiB plus what the stream declares,
/// and a machine that netboots may have no more than 512 MiB.
pub(crate) const WINDOW_MAX: u64 = 128 << 20;

/// Stored bytes, pulled in order.
pub(crate) trait Input {
    /// The next bytes that were not consumed; empty only at the end.
    fn fill(&mut self) -> Result<&[u8], DecodeError>;
    /// Marks so many of them as consumed.
    fn consume(&mut self, bytes: usize);
}

/// Why a decoder stopped.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// The content is not what it claims to be, or asks for more memory than it may have. A clause that continues "… is
    /// not a usable image: ".
    Bad(String),
    /// Its windows, blocks or tables take so many bytes beside the buffers of all stages, more than it may have.
    Memory(u64),
    /// The input ended where more must come. A clause that continues "… ended early: ".
    Unfinished(String),
    /// The error of an earlier stage.
    Input(WriteError),
    /// The receiver of the output has gone.
    Abandoned,
}

/// What a decoder that can work in parallel may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Pieces must come in the image's order, because they are hashed.
    pub(crate) ordered: bool,
    /// Threads that decode; 1: the calling one alone.
    pub(crate) threads: usize,
    /// What the image's own windows and blocks may take: [`WINDOW_MAX`], or less where memory is short, bytes.
    pub(crate) window: u64,
}

impl Limits {
    /// Refuses an image that declares more.
    fn allow(self, bytes: u64) -> Result<(), DecodeError> {
        if bytes > self.window { Err(DecodeError::Memory(bytes)) } else { Ok(()) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { ordered: false, threads: 2, window: WINDOW_MAX }
    }
}

/// Decodes everything there is.
pub(crate) fn decode(
    format: Format, input: &mut dyn Input, sink: &mut Sink, limits: Limits,
) -> Result<(), DecodeError> {
    match format {
        Format::Raw => raw::decode(input, sink)?,
        Format::Gzip => gzip::decode(input, sink)?,
        Format::Xz => xz::decode(input, sink, limits)?,
        Format::Bzip2 => bzip2::decode(input, sink, limits)?,
        Format::Lz4 => lz4::decode(input, sink, limits)?,
        Format::Zstd => zstd::decode(input, sink, limits)?,
        Format::Vmdk => vmdk::decode(input, sink, limits)?,
        other => return Err(DecodeError::Bad(format!("it is {other}, which is not supported"))),
    }
    sink.flush()
}
