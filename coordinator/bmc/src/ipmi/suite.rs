//! Cipher suites: which algorithms a session uses. Pure.
//!
//! Numbers of sections and tables are those of the IPMI specification, second generation, v2.0 rev. 1.1.

use ring::hmac;
use subtle::ConstantTimeEq as _;

/// A suite with authentication, integrity and encryption (table 22-20). Others are never used: they leave one of the three out, or
/// compute it with MD5 or RC4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// Suite 17: RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128.
    Sha256,
    /// Suite 3: RAKP-HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128.
    Sha1,
}

/// AES-CBC-128 (table 13-19).
pub(super) const CONFIDENTIALITY: u8 = 0x01;

impl Suite {
    /// The better one first.
    pub(super) const ALL: [Self; 2] = [Self::Sha256, Self::Sha1];

    /// The number of the authentication algorithm (table 13-17).
    pub(super) const fn authentication(self) -> u8 {
        match self {
            Self::Sha256 => 0x03,
            Self::Sha1 => 0x01,
        }
    }

    /// The number of the integrity algorithm (table 13-18).
    pub(super) const fn integrity(self) -> u8 {
        match self {
            Self::Sha256 => 0x04,
            Self::Sha1 => 0x01,
        }
    }

    /// Bytes of a whole HMAC: what RAKP 2 and 3 carry (13.21, 13.22).
    pub(super) const fn whole(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha1 => 20,
        }
    }

    /// Bytes that an HMAC is cut to in RAKP 4 and behind each packet (13.23, 13.28.4).
    pub(super) const fn cut(self) -> usize {
        match self {
            Self::Sha256 => 16,
            Self::Sha1 => 12,
        }
    }

    /// The HMAC over `parts`, one after the other.
    pub(super) fn sign(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        for part in parts {
            context.update(part);
        }
        context.sign().as_ref().to_vec()
    }

    /// Whether `code` is the HMAC over `parts`, cut to `length` bytes.
    pub(super) fn verifies(self, key: &[u8], parts: &[&[u8]], length: usize, code: &[u8]) -> bool {
        let signed = self.sign(key, parts);
        signed.get(..length).is_some_and(|wanted| wanted.ct_eq(code).into())
    }
}
