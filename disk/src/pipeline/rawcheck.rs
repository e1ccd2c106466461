//! The stage that looks at raw bytes as they pass, where the proof is of these.

use crossbeam_channel::{Receiver, Sender};

use super::blocks::Blocks;
use super::evidence::Evidence;
use super::hasher::Hasher;
use super::queue::{Queue, Source};
use crate::{WriteError, decode::Decoded};

/// What looks at raw bytes as they pass. They must come in order.
pub(super) enum RawCheck<'a> {
    /// One digest of them all.
    Whole {
        hasher: Hasher,
        /// Offset of the next byte.
        next: u64,
    },
    /// A digest for each mapped block.
    Blocks(Blocks<'a>),
}

impl RawCheck<'_> {
    fn look(&mut self, piece: &mut Decoded) -> Result<(), WriteError> {
        match self {
            Self::Whole { hasher, next } => {
                let range = piece.range();
                if range.start != *next {
                    return Err(WriteError::Internal("raw bytes came out of order".into()));
                }
                *next = range.end;
                match piece {
                    Decoded::Block { bytes, .. } => hasher.update(bytes.data()),
                    Decoded::Zeroes(_) => hasher.zeroes(range.end - range.start),
                }
                Ok(())
            }
            Self::Blocks(blocks) => blocks.check(piece),
        }
    }

    fn conclude(self, evidence: Evidence) -> Result<Evidence, WriteError> {
        Ok(match self {
            Self::Whole { hasher, .. } => Evidence { raw_digest: Some(hasher.finish()), ..evidence },
            Self::Blocks(blocks) => {
                blocks.end()?;
                Evidence { chunks: true, ..evidence }
            }
        })
    }
}

/// Passes pieces on, looking at each.
pub(super) fn check_raw(
    input: &Source<Decoded>, out: &Queue<Decoded>, evidence: &Receiver<Evidence>, judged: &Sender<Evidence>,
    mut check: RawCheck<'_>,
) {
    for item in input {
        let item = item.and_then(|mut piece| check.look(&mut piece).map(|()| piece));
        if out.send(item).is_err() {
            return;
        }
    }
    // Without evidence an earlier stage failed and has reported it.
    let Ok(evidence) = evidence.recv() else { return };
    match check.conclude(evidence) {
        Ok(evidence) => {
            // A writer that has gone needs no verdict.
            let _ = judged.send(evidence);
        }
        Err(error) => {
            // A writer that has gone needs no reason.
            let _ = out.send(Err(error));
        }
    }
}
