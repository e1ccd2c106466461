//! Pins: which CA keys an agent trusts.

use std::{fmt, str::FromStr};

use crate::Digest;

/// SHA-256 over a CA's SubjectPublicKeyInfo, DER. It pins the key and not the certificate, so a CA's certificate can be
/// renewed without a change of any kernel command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin(Digest);

/// A pin that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a CA pin; write sha256: and 64 hexadecimal digits, as landfall.ca= on the kernel command line has them"
)]
pub struct PinError(String);

impl Pin {
    /// Wraps the 32 bytes of a finished SHA-256.
    pub const fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(Digest::from_sha256(bytes))
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
    fn a_pin_round_trips_and_an_error_names_the_format() {
        let pin = Pin::from_sha256([7; 32]);
        assert_eq!(pin.to_string().parse::<Pin>(), Ok(pin));
        let error = "sha1:00".parse::<Pin>().unwrap_err().to_string();
        assert!(error.contains("sha1:00") && error.contains("sha256:"), "{error}");
    }
}
