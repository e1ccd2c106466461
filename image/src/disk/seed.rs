//! Identifiers that follow from a seed, so that the same recipe gives the same disk.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Derives all of an image's identifiers from one string.
#[derive(Debug, Clone)]
pub struct Seed(String);

impl Seed {
    /// Uses `text`; images with the same seed have the same identifiers.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    fn bytes(&self, purpose: &str) -> [u8; 32] {
        Sha256::new()
            .chain_update(self.0.as_bytes())
            .chain_update([0])
            .chain_update(purpose.as_bytes())
            .finalize()
            .into()
    }

    /// A UUID (version 8, RFC 9562) for one purpose, such as `root`.
    pub fn uuid(&self, purpose: &str) -> Uuid {
        let mut half = [0; 16];
        half.copy_from_slice(&self.bytes(purpose)[..16]);
        uuid::Builder::from_custom_bytes(half).into_uuid()
    }

    /// A FAT volume serial number for one purpose.
    pub fn serial(&self, purpose: &str) -> u32 {
        let bytes = self.bytes(purpose);
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_differ_and_repeat() {
        let seed = Seed::new("mini");
        assert_eq!(seed.uuid("root"), Seed::new("mini").uuid("root"));
        assert_ne!(seed.uuid("root"), seed.uuid("disk"));
        assert_ne!(seed.uuid("root"), Seed::new("debian").uuid("root"));
    }
}
