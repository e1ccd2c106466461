//! The coordinator's own certificate authority: who the server is, who a machine is, who an operator is.
//!
//! Made at the first start and kept in `<data_dir>/pki/` (`ca.pem`, `ca.key`); machines pin the digest of its public key,
//! so losing it locks every installed machine's phone-home and every booted agent out. That is why a damaged or half
//! missing CA is an error for a person to solve and never silently replaced. Server certificates live in memory only.

mod admin;
mod ca;
mod error;
mod files;
mod issue;
mod operator;
mod role;
mod server;
mod shared;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use landfall_api::{Pin, Role};
use rcgen::KeyPair;
use rustls_pki_types::CertificateDer;
use uuid::Uuid;

pub use error::PkiError;
pub use operator::{ca_pin, issue_operator};
pub use role::{is_name, peer_of};
pub use server::ServerCertificates;
pub use shared::{share, take_over};

/// How long a coordinator asks in an operator's name with one certificate.
const STAND_IN: Duration = Duration::from_secs(3600);

/// The certificate authority.
#[derive(Debug)]
pub struct Pki {
    ca: Arc<ca::Ca>,
    server: Arc<ServerCertificates>,
    certificate_ttl: Duration,
}

/// A certificate given to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The machine's certificate first, then the CA's; DER.
    pub chain_der: Vec<Vec<u8>>,
    /// As in [`crate::tls::MachineCert::serial_hex`].
    pub serial_hex: String,
    /// The fingerprint of the key it is for, as of [`Pki::key_fingerprint`].
    pub key_fingerprint: String,
    /// When it ends.
    pub not_after: Timestamp,
}

impl Pki {
    /// Opens the CA in `<data_dir>/pki/`, making it at the first start, and with it the first operator's certificate in
    /// `<data_dir>/admin/`. `advertise` goes into the server certificate beside the fixed logical name;
    /// `certificate_ttl` is how long machines' certificates last.
    ///
    /// # Errors
    /// [`PkiError`] naming the file: unreadable, damaged, half missing, or readable by others.
    pub fn open(data_dir: &Path, advertise: IpAddr, certificate_ttl: Duration) -> Result<Self, PkiError> {
        let ca = Arc::new(ca::Ca::open(data_dir)?);
        admin::ensure(data_dir, &ca)?;
        let server = Arc::new(ServerCertificates::new(ca.clone(), advertise)?);
        Ok(Self { ca, server, certificate_ttl })
    }
    /// SHA-256 over the CA's SubjectPublicKeyInfo: what `landfall.ca=` on the kernel command line says.
    pub fn ca_pin(&self) -> Pin {
        self.ca.pin()
    }
    /// The CA's certificate, DER.
    pub fn ca_der(&self) -> &CertificateDer<'static> {
        self.ca.certificate()
    }
    /// The server's own certificate, renewed as it ages.
    pub fn server(&self) -> Arc<ServerCertificates> {
        self.server.clone()
    }
    /// `sha256:…` over the public key in a certificate request, for binding a boot token to the first key that uses it.
    /// The request's signature is checked, so the asker holds the private key.
    ///
    /// # Errors
    /// [`PkiError::Request`].
    pub fn key_fingerprint(&self, csr_der: &[u8]) -> Result<String, PkiError> {
        Ok(issue::fingerprint(&issue::public_key(csr_der)?))
    }
    /// A key and a certificate, PEM, with which this coordinator asks another one in the name of an operator that it has admitted. They
    /// last for an hour: one connection is begun with them.
    ///
    /// # Errors
    /// [`PkiError`]: the name cannot stand in a certificate.
    pub fn stand_in(&self, name: &str, role: Role) -> Result<String, PkiError> {
        let (key, uri) = (KeyPair::generate()?, role::stand_in_uri(name, role)?);
        let issued = self.ca.issue(&key, issue::Template::client(name, uri), SystemTime::now(), STAND_IN)?;
        Ok(format!("{}{}", issued.pem, key.serialize_pem()))
    }
    /// Issues a machine's certificate. Only the public key is taken from the request; the names in it are ignored.
    ///
    /// # Errors
    /// [`PkiError::Request`] or [`PkiError::Name`].
    pub fn issue_machine(&self, csr_der: &[u8], name: &str, uid: Uuid) -> Result<IssuedCertificate, PkiError> {
        let key = issue::public_key(csr_der)?;
        let role = role::machine_uri(uid, name)?;
        let issued =
            self.ca.issue(&key, issue::Template::client(name, role), SystemTime::now(), self.certificate_ttl)?;
        Ok(IssuedCertificate {
            chain_der: vec![issued.der.to_vec(), self.ca.certificate().to_vec()],
            serial_hex: issued.serial_hex,
            key_fingerprint: issue::fingerprint(&key),
            not_after: Timestamp::try_from(issued.not_after).map_err(|_| PkiError::Time)?,
        })
    }
}

#[cfg(test)]
mod tests;
