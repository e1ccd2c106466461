//! The digests an image may be named by, computed as its bytes pass.

use landfall_api::Digest;
use sha2::{Digest as _, Sha256, Sha512};

/// Hashed over and over where many zeroes are.
pub(super) static ZEROES: [u8; 4096] = [0; 4096];

/// SHA-256 or SHA-512 in the middle.
#[derive(Debug, Clone)]
pub(crate) enum Hasher {
    Sha256(Box<Sha256>),
    Sha512(Box<Sha512>),
}

impl Hasher {
    /// One that makes digests of the same kind as this one.
    pub(crate) fn like(digest: &Digest) -> Self {
        match digest {
            Digest::Sha256(_) => Self::Sha256(Box::default()),
            Digest::Sha512(_) => Self::Sha512(Box::default()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// So many zero bytes.
    pub(crate) fn zeroes(&mut self, mut bytes: u64) {
        while bytes > 0 {
            let now = bytes.min(ZEROES.len() as u64);
            self.update(&ZEROES[..now as usize]);
            bytes -= now;
        }
    }

    pub(crate) fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest::from_sha256(hasher.finalize().into()),
            Self::Sha512(hasher) => Digest::from_sha512(hasher.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_hash_as_if_they_had_been_there() {
        for like in [Digest::from_sha256([0; 32]), Digest::from_sha512([0; 64])] {
            let (mut short, mut long) = (Hasher::like(&like), Hasher::like(&like));
            short.zeroes(100_000);
            long.update(&[0; 100_000]);
            assert_eq!(short.finish(), long.finish());
        }
    }
}
