//! One compressed cluster at a time, with a context that is used again.

use flate2::{Decompress, FlushDecompress};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::header::Compression;

/// Most that a cluster's zstd frame may look back, as a power of 2: what RFC 8878 asks of every decoder, and four times
/// the largest cluster.
const WINDOW_BITS: u32 = 23;

/// Unpacks clusters.
pub(super) enum Inflater {
    Deflate(Decompress),
    Zstd(Decoder<'static>),
}

impl Inflater {
    pub(super) fn new(compression: Compression) -> Result<Self, String> {
        match compression {
            Compression::Deflate => Ok(Self::Deflate(Decompress::new(false))),
            Compression::Zstd => {
                let mut decoder = Decoder::new().map_err(|e| e.to_string())?;
                decoder.set_parameter(DParameter::WindowLogMax(WINDOW_BITS)).map_err(|e| e.to_string())?;
                Ok(Self::Zstd(decoder))
            }
        }
    }

    /// Fills `out` from the start of `stored`; the bytes after that belong to other clusters.
    pub(super) fn fill(&mut self, stored: &[u8], out: &mut [u8]) -> Result<(), String> {
        let made = match self {
            Self::Deflate(context) => {
                context.reset(false);
                // One call goes on until the cluster is full or what is stored has run out.
                context.decompress(stored, out, FlushDecompress::None).map_err(|e| e.to_string())?;
                context.total_out()
            }
            Self::Zstd(decoder) => {
                decoder.reinit().map_err(|e| e.to_string())?;
                let (mut from, mut to) = (InBuffer::around(stored), OutBuffer::around(&mut *out));
                loop {
                    let before = (from.pos(), to.pos());
                    let hint = decoder.run(&mut from, &mut to).map_err(|e| e.to_string())?;
                    if hint == 0 || to.pos() == to.capacity() || before == (from.pos(), to.pos()) {
                        break;
                    }
                }
                to.pos() as u64
            }
        };
        if made == out.len() as u64 { Ok(()) } else { Err(format!("it holds {made} of {} bytes", out.len())) }
    }
}
