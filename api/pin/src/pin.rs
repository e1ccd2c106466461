//! The pin of a CA's key.

use landfall_api::Pin;
use sha2::{Digest as _, Sha256};

/// The pin of a SubjectPublicKeyInfo, DER.
pub fn pin_of_spki(spki_der: &[u8]) -> Pin {
    Pin::from_sha256(Sha256::digest(spki_der).into())
}
