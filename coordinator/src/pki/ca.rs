//! The CA's key pair on disk.

use std::path::Path;
use std::time::{Duration, SystemTime};

use landfall_api::Pin;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256};
use x509_parser::parse_x509_certificate;

use super::{PkiError, files, issue};

/// Longer than the machines last: its key is what they pin, so replacing it touches all of them.
const LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 3600);

/// The CA's certificate and key.
pub(super) struct Ca {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca").field("pin", &self.pin()).finish_non_exhaustive()
    }
}

impl Ca {
    /// Opens `<data_dir>/pki`, or makes it if this data directory never had one.
    pub(super) fn open(data_dir: &Path) -> Result<Self, PkiError> {
        let directory = data_dir.join("pki");
        let (certificate, key) = (directory.join("ca.pem"), directory.join("ca.key"));
        if !files::populated(&directory)? {
            // An operator's certificate without the CA that signed it: something was lost.
            if files::populated(&data_dir.join("admin"))? {
                return Err(PkiError::Missing { path: key });
            }
            let (certificate, key) = generate()?;
            files::create_directory(&directory, &[("ca.pem", &certificate), ("ca.key", &key)])?;
        }
        let pem = files::read(&certificate)?;
        let key_pem = files::read_secret(&key)?;
        let damaged = |path: &Path, what: String| PkiError::Damaged { path: path.to_owned(), what };
        let key_pair = KeyPair::from_pem(&key_pem).map_err(|e| damaged(&key, e.to_string()))?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| damaged(&certificate, e.to_string()))?;
        let (_, parsed) = parse_x509_certificate(&der).map_err(|e| damaged(&certificate, e.to_string()))?;
        if !parsed.is_ca() {
            return Err(damaged(&certificate, "it is not a CA's certificate".to_owned()));
        }
        if parsed.public_key().raw != key_pair.subject_public_key_info() {
            return Err(damaged(&certificate, format!("it is not for the key in {}", key.display())));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key_pair).map_err(|e| damaged(&certificate, e.to_string()))?;
        Ok(Self { certificate: der, pem, issuer })
    }
    pub(super) const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }
    /// Signs a certificate for `key` that is good until `ttl` after `now`.
    pub(super) fn issue(
        &self, key: &impl PublicKeyData, template: issue::Template, now: SystemTime, ttl: Duration,
    ) -> Result<issue::Issued, PkiError> {
        let not_after = now.checked_add(ttl).ok_or(PkiError::Time)?;
        let (serial, serial_hex) = issue::serial();
        let mut params = CertificateParams::default();
        params.not_before = now.checked_sub(issue::EARLY).ok_or(PkiError::Time)?.into();
        params.not_after = not_after.into();
        params.serial_number = Some(serial);
        params.subject_alt_names = template.names;
        params.distinguished_name = issue::common_name(&template.common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![template.usage];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok(issue::Issued { der: certificate.der().clone(), pem: certificate.pem(), serial_hex, not_after })
    }
    pub(super) fn pin(&self) -> Pin {
        Pin::from_sha256(Sha256::digest(self.issuer.key().subject_public_key_info()).into())
    }
}

/// A new CA: certificate and key, PEM.
fn generate() -> Result<(String, String), PkiError> {
    let now = SystemTime::now();
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.not_before = now.checked_sub(issue::EARLY).ok_or(PkiError::Time)?.into();
    params.not_after = now.checked_add(LIFE).ok_or(PkiError::Time)?.into();
    params.distinguished_name = issue::common_name("Landfall CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}
