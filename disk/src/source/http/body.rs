//! The body of one answer: chunks as the client gives them, copied once, into the reader's own buffer.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::{Buf, Bytes};
use reqwest::Response;

use super::broken::{READ, chain};
use super::client::TICK;

/// What is left of it.
pub(super) struct Body {
    response: Response,
    /// What came and was not taken yet.
    chunk: Bytes,
    /// Bytes to pass over before the next one that is wanted.
    skip: u64,
    /// Place in the image of its end, if its head said so.
    end: Option<u64>,
}

/// What a pull brought.
pub(super) struct Pulled {
    pub(super) bytes: usize,
    pub(super) then: Then,
}

/// And what comes after it.
pub(super) enum Then {
    /// Perhaps more.
    More,
    /// The end, in good order.
    Ended,
    /// The connection broke.
    Broke(String),
}

impl Body {
    pub(super) fn new(response: Response, skip: u64, end: Option<u64>) -> Self {
        Self { response, chunk: Bytes::new(), skip, end }
    }

    pub(super) fn end(&self) -> Option<u64> {
        self.end
    }

    pub(super) fn skipping(&self) -> bool {
        self.skip > 0
    }

    /// So many more bytes are not wanted.
    pub(super) fn pass(&mut self, bytes: u64) {
        self.skip = self.skip.saturating_add(bytes);
    }

    /// Takes in the end of an answer that was read whole, so that its connection is free.
    pub(super) async fn settle(mut self) {
        // The result does not matter: the bytes are here, and a connection that does not end cleanly is not used again.
        let _ = tokio::time::timeout(TICK, self.response.chunk()).await;
    }

    /// Fills `room`; with less once a tick passed or the answer came to an end. `None` once `stop` is set. One timer a
    /// tick, not one a chunk.
    pub(super) async fn pull(&mut self, room: &mut [u8], stop: &AtomicBool) -> Option<Pulled> {
        let (filled, chunks) = (Cell::new(0), Cell::new(0));
        let (mut seen, mut since) = (0, Instant::now());
        let mut filling = std::pin::pin!(self.fill(room, &filled, &chunks));
        loop {
            if stop.load(Ordering::Acquire) {
                return None;
            }
            let then = match tokio::time::timeout(TICK, &mut filling).await {
                Ok(then) => then,
                Err(_) if filled.get() > 0 => Then::More,
                Err(_) if chunks.get() != seen => {
                    (seen, since) = (chunks.get(), Instant::now());
                    continue;
                }
                Err(_) if since.elapsed() >= READ => Then::Broke("the server fell silent".into()),
                Err(_) => continue,
            };
            return Some(Pulled { bytes: filled.get(), then });
        }
    }

    /// May be dropped while it waits: whatever came is in `chunk` or counted in `filled`.
    async fn fill(&mut self, room: &mut [u8], filled: &Cell<usize>, chunks: &Cell<u64>) -> Then {
        let mut room = room;
        loop {
            let skip = usize::try_from(self.skip).map_or(self.chunk.len(), |skip| skip.min(self.chunk.len()));
            self.chunk.advance(skip);
            self.skip -= skip as u64;
            let now = self.chunk.len().min(room.len());
            let (here, rest) = room.split_at_mut(now);
            self.chunk.copy_to_slice(here);
            filled.set(filled.get() + now);
            room = rest;
            if room.is_empty() {
                return Then::More;
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => {
                    self.chunk = chunk;
                    chunks.set(chunks.get() + 1);
                }
                Ok(None) => return Then::Ended,
                Err(error) => return Then::Broke(chain(error)),
            }
        }
    }
}
