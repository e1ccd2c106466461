//! Trust in a BMC's certificate: one that the document names by its digest, or one that an authority of the document signed. Nothing
//! else is trusted; what was shown is remembered, so that a person can name it.

use std::sync::{Arc, Mutex, PoisonError};

use landfall_api::{BmcSpec, Digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};

use crate::error::BmcError;

/// Why the last certificate was not trusted, and its digest.
pub(crate) type Shown = Arc<Mutex<Option<(Digest, String)>>>;

/// Takes what was noted of an untrusted certificate.
pub(crate) fn take(shown: &Shown) -> Option<(Digest, String)> {
    shown.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// TLS 1.2 and 1.3 towards one BMC. What it shows and is not trusted is noted in `shown`.
///
/// # Errors
/// [`BmcError::Authorities`].
pub(crate) fn client_config(spec: &BmcSpec, shown: Shown) -> Result<ClientConfig, BmcError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |error: &dyn std::fmt::Display| BmcError::Authorities(error.to_string());
    let authorities = if spec.ca_certificates.is_empty() {
        None
    } else {
        let mut roots = RootCertStore::empty();
        for pem in &spec.ca_certificates {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
            }
        }
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Some(built.map_err(|error| unusable(&error))?)
    };
    let trust = Trust { pin: spec.certificate, authorities, provider: provider.clone(), shown };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_no_client_auth();
    Ok(config)
}

#[derive(Debug)]
struct Trust {
    pin: Option<Digest>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    shown: Shown,
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self, end_entity: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>], server_name: &ServerName<'_>,
        ocsp_response: &[u8], now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let digest = Digest::from_sha256(Sha256::digest(end_entity).into());
        let why = match (&self.pin, &self.authorities) {
            (Some(pin), _) if *pin == digest => return Ok(ServerCertVerified::assertion()),
            (Some(pin), None) => format!("the document names {pin}"),
            (_, Some(authorities)) => {
                match authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
                    Ok(verified) => return Ok(verified),
                    Err(error) => error.to_string(),
                }
            }
            (None, None) => "the document names no certificate and no authority".to_owned(),
        };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some((digest, why));
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
