//! Trust by the digest of the CA's key: the server's chain must hold a CA certificate with that key, and its own certificate
//! must be signed by it, for Landfall's fixed name.

use std::sync::Arc;

use landfall_api::Digest;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use sha2::{Digest as _, Sha256};
use x509_parser::parse_x509_certificate;

type AnyError = Box<dyn std::error::Error>;

/// In the words of every mismatch, and of nothing else.
pub(crate) const MISMATCH: &str = "not by the CA that is pinned";

/// The server shows no CA certificate with the key that is pinned.
#[derive(thiserror::Error)]
#[error("the server is vouched for by {}, {MISMATCH}", if .shown.is_empty() { "no CA it shows".to_owned() } else { .shown.join(", ") })]
struct PinMismatch {
    shown: Vec<String>,
}

impl std::fmt::Debug for PinMismatch {
    /// The same sentence: rustls shows people the debug form.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A TLS configuration that trusts by `pin`; `pem` is the caller's certificate and key.
///
/// # Errors
/// Where those are none, or do not fit one another.
pub(crate) fn client_config(pin: Digest, pem: Option<&[u8]>) -> Result<ClientConfig, AnyError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Pinned { pin, provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match pem {
        Some(pem) => {
            let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(pem)?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct Pinned {
    pin: Digest,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn ca<'a>(&self, shown: &'a [CertificateDer<'a>]) -> Result<&'a CertificateDer<'a>, PinMismatch> {
        let mut others = Vec::new();
        for certificate in shown {
            let Ok((_, parsed)) = parse_x509_certificate(certificate) else { continue };
            if !parsed.is_ca() {
                continue;
            }
            let pin = Digest::from_sha256(Sha256::digest(parsed.public_key().raw).into());
            if pin == self.pin {
                return Ok(certificate);
            }
            others.push(pin.to_string());
        }
        Err(PinMismatch { shown: others })
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca(intermediates).map_err(other)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(other)?;
        verifier.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::SERVER_NAME;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn pin_of(certificate: &CertificateDer<'_>) -> Digest {
        let (_, parsed) = parse_x509_certificate(certificate).unwrap();
        Digest::from_sha256(Sha256::digest(parsed.public_key().raw).into())
    }

    #[test]
    fn only_a_server_that_the_pinned_ca_signed_for_our_name_is_trusted() {
        let (ours, theirs) = (authority(), authority());
        let leaf = |name: &str, by: &CertifiedIssuer<'_, KeyPair>| {
            let key = KeyPair::generate().unwrap();
            CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, by).unwrap().der().clone()
        };
        let verify = |leaf: &CertificateDer<'static>, shown: &[CertificateDer<'static>]| {
            let pinned =
                Pinned { pin: pin_of(ours.der()), provider: Arc::new(rustls::crypto::ring::default_provider()) };
            pinned.verify_server_cert(leaf, shown, &SERVER_NAME.try_into().unwrap(), &[], UnixTime::now())
        };
        let good = leaf(SERVER_NAME, &ours);
        assert!(verify(&good, &[ours.der().clone()]).is_ok());
        for (what, leaf, shown) in [
            ("another CA", leaf(SERVER_NAME, &theirs), vec![theirs.der().clone()]),
            ("another CA behind ours", leaf(SERVER_NAME, &theirs), vec![ours.der().clone(), theirs.der().clone()]),
            ("another name", leaf("other.example", &ours), vec![ours.der().clone()]),
            ("no CA shown", good, vec![]),
        ] {
            assert!(verify(&leaf, &shown).is_err(), "{what}");
        }
    }
}
