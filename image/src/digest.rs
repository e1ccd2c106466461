//! SHA-256 as bytes pass by, written the way Landfall's documents write it.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

/// Counts and hashes the bytes that pass through it, as reader or as writer.
#[derive(Debug)]
pub struct Hashing<T> {
    inner: T,
    hash: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    /// Wraps `inner`; nothing is hashed yet.
    pub fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new(), bytes: 0 }
    }

    /// Bytes passed and their digest, as `sha256:<hex>`.
    pub fn finish(self) -> (u64, String) {
        (self.bytes, format!("sha256:{}", hex::encode(self.hash.finalize())))
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.hash.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.hash.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
}
