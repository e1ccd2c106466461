//! Random secrets and their comparison.

use landfall_api::{ErrorCode, Problem};
use sha2::{Digest, Sha256};

/// 256 random bits, in hex.
pub(super) fn random() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| Problem::new(ErrorCode::Internal, "the system gave no random numbers"))?;
    Ok(hex::encode(bytes))
}

/// SHA-256 in hex: what of a token is stored.
pub(super) fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// Compares digests, so that the time taken says nothing about a secret's beginning.
pub(super) fn same(a: &str, b: &str) -> bool {
    hash(a) == hash(b)
}
