//! Reusable buffers, aligned for O_DIRECT.

use std::sync::{Mutex, PoisonError};

/// What the strictest devices want of a buffer's address.
pub(crate) const ALIGNMENT: usize = 4096;

/// A piece of memory whose start is aligned to [`ALIGNMENT`]. Aligned by slicing, so that no unsafe code is needed.
#[derive(Debug)]
pub(crate) struct Buffer {
    storage: Box<[u8]>,
    start: usize,
    capacity: usize,
    /// Bytes in use.
    pub(crate) len: usize,
}

impl Buffer {
    /// `capacity` zero bytes, none in use.
    pub(crate) fn new(capacity: usize) -> Self {
        let storage = vec![0; capacity + ALIGNMENT].into_boxed_slice();
        let start = storage.as_ptr().align_offset(ALIGNMENT);
        debug_assert!(start <= ALIGNMENT, "a byte pointer can always be aligned");
        Self { storage, start, capacity, len: 0 }
    }
    /// The bytes in use.
    pub(crate) fn data(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }
    /// The whole capacity.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.capacity]
    }
    /// The bytes in use, to be changed.
    pub(crate) fn space_used(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
    /// Zeroes the bytes in use from `start` on.
    pub(crate) fn fill_zero(&mut self, start: usize) {
        let end = self.start + self.len;
        self.storage[(self.start + start).min(end)..end].fill(0);
    }
    /// Whether nothing more fits.
    pub(crate) fn is_full(&self) -> bool {
        self.len == self.capacity
    }
}

/// Buffers waiting to be used again. How many exist is bounded by the queues they travel in.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Mutex<Vec<Buffer>>,
    capacity: usize,
}

impl Pool {
    /// A pool of buffers of so many bytes each.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { free: Mutex::default(), capacity }
    }
    /// Bytes of each buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
    /// An empty buffer.
    pub(crate) fn take(&self) -> Buffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = free.unwrap_or_else(|| Buffer::new(self.capacity));
        buffer.len = 0;
        buffer
    }
    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Buffer) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_is_aligned_and_comes_back_empty() {
        let pool = Pool::new(8192);
        for _ in 0..4 {
            let mut buffer = pool.take();
            assert_eq!(buffer.space().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(buffer.data().len(), 0);
            buffer.len = 8192;
            assert!(buffer.is_full());
            pool.give(buffer);
        }
    }
}
