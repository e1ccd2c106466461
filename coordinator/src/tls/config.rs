//! What the TLS port speaks.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::parse_x509_certificate;

use crate::pki::{Pki, PkiError};

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, a client certificate of our own CA or none.
///
/// A client certificate that has ended gets through the handshake: every call checks its end, so its caller gets the
/// reason of the refusal, and the audit log records it. An alert in the handshake often does not even reach the other
/// side.
///
/// No session is ever resumed: a resumed one would not look at the client certificate again.
///
/// # Errors
/// [`PkiError::Tls`], which a good CA never causes.
pub fn server_config(pki: &Pki) -> Result<Arc<ServerConfig>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(pki.ca_der().clone())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(EndsLater(clients)))
        .with_cert_resolver(pki.server());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The verifier inside, which takes a certificate that has ended as it was in its last second.
#[derive(Debug)]
struct EndsLater(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for EndsLater {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }
    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }
    fn verify_client_cert(
        &self, end_entity: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>], now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let ends = parse_x509_certificate(end_entity)
            .ok()
            .and_then(|(_, leaf)| u64::try_from(leaf.validity().not_after.timestamp()).ok())
            .map(|seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)));
        let judged = ends.map_or(now, |ends| if ends.as_secs() < now.as_secs() { ends } else { now });
        self.0.verify_client_cert(end_entity, intermediates, judged)
    }
    fn verify_tls12_signature(
        &self, message: &[u8], certificate: &CertificateDer<'_>, signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }
    fn verify_tls13_signature(
        &self, message: &[u8], certificate: &CertificateDer<'_>, signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
