//! QEMU's qcow2, versions 2 and 3, in one pass over the stored bytes.
//!
//! The tables that say where a cluster belongs lie anywhere in the file, most often after what they speak of. So they
//! are read first, by random access ([`Plan::read`]); then the whole file streams by once, is hashed, and every cluster
//! goes to its place as it passes ([`Plan::decode`]). What was read first is compared with the stream, so the digest of
//! the file proves the tables too.
//!
//! The active state is written. Internal snapshots and dirty bitmaps are skipped; a file marked dirty is accepted,
//! because only its reference counts may be stale. An image that needs a backing file, another data file or a key is
//! refused with the reason.
//!
//! Memory: 16 bytes a run of clusters, at most twice the tables, which may have 48 MiB; the head, at most 2 MiB; and two
//! batches more than there are threads, of 4 MiB raw each. `Plan::read` computes what that comes to before it reads
//! the L2 tables.

mod bytes;
mod header;
mod inflate;
mod map;
mod place;
mod plan;
mod stream;
mod tables;
#[cfg(test)]
mod tests;
mod watch;
mod workers;

pub(crate) use plan::Plan;

use super::{DecodeError, Input, Limits, Sink};

impl Plan {
    /// Decodes the file, from its first byte on. The image's start comes first.
    ///
    /// # Errors [`DecodeError`]; if the raw image's order is required and one pass cannot give it, before any output.
    pub(crate) fn decode(&self, input: &mut dyn Input, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
        if limits.ordered && !self.in_order {
            return Err(DecodeError::Bad(
                "its clusters are not stored in the order of the disk, so the digest of the raw bytes cannot be checked \
                 in one pass; give the digest of the stored file instead"
                    .into(),
            ));
        }
        let mut head = self.head();
        while !head.is_empty() {
            let space = sink.space();
            let n = space.len().min(head.len());
            let (now, rest) = head.split_at(n);
            space[..n].copy_from_slice(now);
            sink.filled(n)?;
            head = rest;
        }
        sink.flush()?;
        if limits.ordered {
            workers::in_order(self, input, sink)
        } else {
            workers::in_parallel(self, input, sink, limits.threads)
        }
    }
}
