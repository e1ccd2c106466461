//! The verifier that a pinned CA's key decides, and a client configuration made with it.

use std::{error::Error, fmt, io, sync::Arc};

use landfall_api::{Pin, SERVER_NAME};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};
use x509_parser::{certificate::X509Certificate, parse_x509_certificate};

use crate::pin_of_spki;

/// Whether certificates must be valid today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Yes: every connection but those for Enroll and for the phone-home.
    Now,
    /// Dates are ignored: for Enroll, so that a machine with a wrong clock can enrol and set its clock from the answer, and
    /// for the phone-home of an installed system, which has no clock to trust yet.
    AnyTime,
}

/// No certificate in the server's chain has a pinned key.
#[derive(Clone, PartialEq, Eq)]
pub struct PinMismatch {
    /// The pins of the CA certificates that the server did show; empty: it showed none.
    pub shown: Vec<Pin>,
}

impl PinMismatch {
    /// The mismatch that ended a handshake with this error, if one did.
    pub fn of(error: &rustls::Error) -> Option<&Self> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(other)) => other.0.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for PinMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shown.is_empty() {
            return f.write_str("the server shows no CA certificate");
        }
        f.write_str("the server's CA is not the one that is pinned; it shows")?;
        let mut between = " ";
        self.shown.iter().try_for_each(|pin| write!(f, "{}{pin}", std::mem::replace(&mut between, ", ")))
    }
}

impl fmt::Debug for PinMismatch {
    /// The same sentence: rustls shows people the debug form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for PinMismatch {}

/// The rustls error somewhere in a chain. An `io::Error` hides the error it wraps from `source()`, so it is asked
/// separately.
pub fn rustls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// A certificate chain, the own one first, and the private key of the first.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A client configuration that trusts only servers with a certificate from a pinned CA, offering `alpn`.
///
/// # Errors
/// [`rustls::Error`] if the identity's key and certificate do not fit.
pub fn client_config(
    pins: &[Pin], validity: Validity, identity: Option<Identity>, alpn: &[&[u8]],
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = PinnedVerifier { pins: pins.to_vec(), validity, provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    Ok(config)
}

#[derive(Debug)]
struct PinnedVerifier {
    pins: Vec<Pin>,
    validity: Validity,
    provider: Arc<CryptoProvider>,
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    parse_x509_certificate(certificate).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, parsed)| parsed)
}

impl PinnedVerifier {
    /// The pinned CA's certificate out of those shown.
    fn pinned_ca<'a>(&self, shown: &'a [CertificateDer<'a>]) -> Result<&'a CertificateDer<'a>, PinMismatch> {
        let mut others = Vec::new();
        for certificate in shown {
            let Some(parsed) = parse(certificate).filter(|parsed| parsed.is_ca()) else { continue };
            let pin = pin_of_spki(parsed.public_key().raw);
            if self.pins.contains(&pin) {
                return Ok(certificate);
            }
            others.push(pin);
        }
        Err(PinMismatch { shown: others })
    }
    /// The instant at which the chain is judged.
    fn judged_at(&self, leaf: &CertificateDer<'_>, now: UnixTime) -> Result<UnixTime, rustls::Error> {
        match self.validity {
            Validity::Now => Ok(now),
            Validity::AnyTime => {
                let leaf = parse(leaf).ok_or(rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
                // The last second of its own life: whatever the clock says, and still refusing one whose dates are
                // no span at all.
                let end = u64::try_from(leaf.validity().not_after.timestamp()).unwrap_or(0);
                Ok(UnixTime::since_unix_epoch(std::time::Duration::from_secs(end)))
            }
        }
    }
}

/// webpki's answer as rustls says it, so that an expired certificate reads as one.
fn refused(error: webpki::Error) -> rustls::Error {
    let why = match error {
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        webpki::Error::CertNotValidForName(_) => CertificateError::NotValidForName,
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    };
    rustls::Error::InvalidCertificate(why)
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self, end_entity: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>], _dialled: &ServerName<'_>,
        _ocsp_response: &[u8], now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = self.pinned_ca(intermediates).map_err(|mismatch| {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(mismatch))))
        })?;
        let anchor = webpki::anchor_from_trusted_cert(ca).map_err(refused)?;
        let leaf = webpki::EndEntityCert::try_from(end_entity).map_err(refused)?;
        leaf.verify_for_usage(
            self.provider.signature_verification_algorithms.all,
            &[anchor],
            intermediates,
            self.judged_at(end_entity, now)?,
            webpki::KeyUsage::server_auth(),
            None,
            None,
        )
        .map_err(refused)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(|_| CertificateError::NotValidForName)?;
        leaf.verify_is_valid_for_subject_name(&name).map_err(refused)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
