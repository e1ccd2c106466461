//! Pins: which CA keys are trusted.

use std::{fmt, str::FromStr};

use landfall_api::Digest;
use sha2::{Digest as _, Sha256};

/// SHA-256 over a CA's SubjectPublicKeyInfo, DER. Pins the key and not the certificate, so a CA's certificate can be
/// renewed without touching any kernel command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin(Digest);

/// A pin that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a CA pin; write sha256: and 64 hexadecimal digits, as landfall.ca= on the kernel command line has them"
)]
pub struct PinError(String);

impl Pin {
    /// The pin of a SubjectPublicKeyInfo.
    pub fn of_spki(spki_der: &[u8]) -> Self {
        Self(Digest::from_sha256(Sha256::digest(spki_der).into()))
    }
}

impl From<Digest> for Pin {
    /// A digest that was already read as one.
    fn from(digest: Digest) -> Self {
        Self(digest)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pin {
    type Err = PinError;
    fn from_str(text: &str) -> Result<Self, PinError> {
        text.parse().map(Self).map_err(|_| PinError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_round_trips_and_an_invalid_one_is_explained() {
        let pin = Pin::of_spki(b"key");
        assert_eq!(pin.to_string().parse::<Pin>(), Ok(pin));
        let error = "sha1:00".parse::<Pin>().unwrap_err().to_string();
        assert!(error.contains("sha1:00") && error.contains("sha256:"), "{error}");
    }
}
