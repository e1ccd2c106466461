//! One grain at a time, unpacked by a context that is used again.

use flate2::{Decompress, FlushDecompress, Status};

/// Unpacks grains.
pub(super) struct Inflater(Decompress);

impl Inflater {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// All of `stored`, one zlib stream, into `out`: how many bytes it is.
    pub(super) fn unpack(&mut self, stored: &[u8], out: &mut [u8]) -> Result<usize, String> {
        let Self(context) = self;
        let most = out.len() as u64;
        context.reset(true);
        let mut status = context.decompress(stored, out, FlushDecompress::Finish).map_err(|e| e.to_string())?;
        if status != Status::StreamEnd {
            // Without more room it may not have looked at the end that follows.
            let rest = stored.get(context.total_in() as usize..).unwrap_or_default();
            status = context.decompress(rest, &mut [0], FlushDecompress::Finish).map_err(|e| e.to_string())?;
        }
        if context.total_out() > most {
            return Err(format!("it unpacks to more than the {most} bytes of a grain"));
        }
        if status != Status::StreamEnd {
            return Err("its stored bytes end early".into());
        }
        if context.total_in() < stored.len() as u64 {
            return Err(format!("{} bytes follow its end", stored.len() as u64 - context.total_in()));
        }
        Ok(context.total_out() as usize)
    }
}
