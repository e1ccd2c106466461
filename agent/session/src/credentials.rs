//! The agent's key and the certificate the coordinator gave for it. Both live in memory only.

use std::{sync::Arc, time::Duration};

use landfall_api::Digest;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};

/// The key could not be made or used.
#[derive(Debug, thiserror::Error)]
#[error("cannot create or use the agent's key")]
pub struct KeyError(#[from] rcgen::Error);

/// A fresh ECDSA P-256 key, made at each start of the agent and never written anywhere.
#[derive(Debug, Clone)]
pub struct AgentKey(Arc<KeyPair>);

impl AgentKey {
    /// Makes a key.
    ///
    /// # Errors
    /// [`KeyError`] if the system gives no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        Ok(Self(Arc::new(KeyPair::generate()?)))
    }
    /// SHA-256 over the key's SubjectPublicKeyInfo, for a person to compare with what the coordinator shows.
    pub fn fingerprint(&self) -> String {
        Digest::from_sha256(Sha256::digest(self.0.subject_public_key_info()).into()).to_string()
    }
    /// The same for a person to read: its 64 digits in groups of four.
    pub fn readable_fingerprint(&self) -> String {
        let fingerprint = self.fingerprint();
        let digits: Vec<char> = fingerprint.rsplit(':').next().unwrap_or_default().chars().collect();
        digits.chunks(4).map(|group| group.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
    }
    /// The request for a certificate, PKCS#10 DER. Only its public key counts; it contains no name.
    pub(crate) fn request_der(&self) -> Result<Vec<u8>, KeyError> {
        let params = CertificateParams::default();
        Ok(params.serialize_request(&*self.0)?.der().to_vec())
    }
    /// Whether a certificate is for this key.
    pub(crate) fn matches(&self, certificate: &CertificateDer<'_>) -> bool {
        x509_parser::parse_x509_certificate(certificate)
            .is_ok_and(|(_, parsed)| parsed.public_key().raw == self.0.subject_public_key_info())
    }
    fn private_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.serialize_der()).into()
    }
}

/// A key and its certificate chain.
#[derive(Debug, Clone)]
pub struct Credentials {
    key: AgentKey,
    chain: Vec<CertificateDer<'static>>,
}

impl Credentials {
    /// A key and its chain, the machine's own certificate first.
    pub const fn new(key: AgentKey, chain: Vec<CertificateDer<'static>>) -> Self {
        Self { key, chain }
    }
    /// The chain, the machine's own certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
    /// The key.
    pub(crate) const fn key(&self) -> &AgentKey {
        &self.key
    }
    /// How long until another certificate should be asked for: two thirds of what is left of this one, so that there is time
    /// to try again. None is left of one that does not parse.
    pub(crate) fn renew_in(&self) -> Duration {
        let leaf = self.chain.first().and_then(|leaf| x509_parser::parse_x509_certificate(leaf).ok());
        let ends = leaf.map_or(0, |(_, leaf)| leaf.validity().not_after.timestamp());
        let left = ends.saturating_sub(crate::clock::wall_time().as_second());
        Duration::from_secs(u64::try_from(left).unwrap_or(0)) * 2 / 3
    }
    /// Whether the certificate has run out by this machine's clock (which Enroll's answer has set).
    pub(crate) fn have_expired(&self) -> bool {
        let leaf = self.chain.first().and_then(|leaf| x509_parser::parse_x509_certificate(leaf).ok());
        leaf.is_none_or(|(_, leaf)| leaf.validity().not_after.timestamp() < crate::clock::wall_time().as_second())
    }
    /// For rustls.
    pub(crate) fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.private_der())
    }
}

#[cfg(test)]
mod tests {
    use super::AgentKey;

    #[test]
    fn the_readable_fingerprint_is_the_whole_one_in_groups() {
        let key = AgentKey::generate().unwrap();
        let readable = key.readable_fingerprint();
        assert_eq!(readable.split(' ').count(), 16);
        assert_eq!(format!("sha256:{}", readable.replace(' ', "")), key.fingerprint());
    }
}
