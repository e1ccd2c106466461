//! Making certificates.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use landfall_api::Digest;
use landfall_proto::SERVER_NAME;
use rcgen::string::Ia5String;
use rcgen::{
    CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, PublicKey, PublicKeyData,
    SanType, SerialNumber,
};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::PkiError;

/// Certificates start this long before they are made, so that a machine whose clock is a little late can use them.
pub(super) const EARLY: Duration = Duration::from_secs(24 * 3600);
/// A request is a few hundred bytes; more is not parsed.
const MAX_REQUEST: usize = 16 * 1024;

/// Whom a certificate is for, and for what.
pub(super) struct Template {
    pub(super) common_name: String,
    pub(super) names: Vec<SanType>,
    pub(super) usage: ExtendedKeyUsagePurpose,
}

impl Template {
    /// A client with one role.
    pub(super) fn client(name: &str, role_uri: String) -> Self {
        // Roles are ASCII by construction; an impossible one yields a certificate without a role, which opens nothing.
        let names = Ia5String::try_from(role_uri).map(SanType::URI).into_iter().collect();
        Self { common_name: name.to_owned(), names, usage: ExtendedKeyUsagePurpose::ClientAuth }
    }
    /// The server, by its fixed logical name and the address machines reach it at.
    pub(super) fn server(advertise: IpAddr) -> Result<Self, PkiError> {
        Ok(Self {
            common_name: SERVER_NAME.to_owned(),
            names: vec![SanType::DnsName(Ia5String::try_from(SERVER_NAME)?), SanType::IpAddress(advertise)],
            usage: ExtendedKeyUsagePurpose::ServerAuth,
        })
    }
}

/// A certificate just made.
pub(super) struct Issued {
    pub(super) der: CertificateDer<'static>,
    pub(super) pem: String,
    pub(super) serial_hex: String,
    pub(super) not_after: SystemTime,
}

pub(super) fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// 121 random bits; positive and without a leading zero byte, so that it reads the same in every encoding.
pub(super) fn serial() -> (SerialNumber, String) {
    let mut bytes = Uuid::new_v4().into_bytes();
    bytes[0] = bytes[0] & 0x7f | 0x40;
    (SerialNumber::from_slice(&bytes), hex::encode(bytes))
}

/// The public key of a request whose signature holds.
pub(super) fn public_key(csr_der: &[u8]) -> Result<PublicKey, PkiError> {
    if csr_der.len() > MAX_REQUEST {
        return Err(PkiError::Request(format!("the request is too large: {} bytes", csr_der.len())));
    }
    let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(csr_der))
        .map_err(|e| PkiError::Request(e.to_string()))?;
    if *request.public_key.algorithm() != rcgen::PKCS_ECDSA_P256_SHA256 {
        return Err(PkiError::Request("its key is not ECDSA P-256".to_owned()));
    }
    Ok(request.public_key)
}

/// `sha256:…` over a public key's SubjectPublicKeyInfo.
pub(super) fn fingerprint(key: &impl PublicKeyData) -> String {
    spki_fingerprint(&key.subject_public_key_info())
}

/// The same, of the SubjectPublicKeyInfo itself, DER.
pub(super) fn spki_fingerprint(spki: &[u8]) -> String {
    Digest::from_sha256(Sha256::digest(spki).into()).to_string()
}
