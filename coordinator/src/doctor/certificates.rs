//! When certificates end: the CA's, the first operator's, and the one a running coordinator shows.

use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;
use landfall_api::SERVER_NAME;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::running::Running;
use crate::config::Config;
use crate::finding::Finding;
use crate::health::{authority, ends};

/// To connect and shake hands.
const LIMIT: Duration = Duration::from_secs(10);
/// An operator's certificate, and the server's, with less left than this should have been renewed.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

pub(super) async fn check(config: &Config, running: &Running) -> Vec<Finding> {
    let now = Timestamp::now();
    let read = |name: &str| pem(&config.data_dir.join(name));
    let mut findings = Vec::new();
    let ca = config.data_dir.join("pki/ca.pem");
    if ca.exists() || running.pid.is_some() {
        findings.push(authority(now, read("pki/ca.pem").as_ref().and_then(ends)));
    } else {
        let from = if config.store.url.is_some() { "or takes over the store's" } else { "" };
        let none = format!("none yet: the first start creates it {from}");
        findings.push(Finding::ok("certificate authority", none.trim_end()));
    }
    if let Some(admin) = read("admin/admin.pem") {
        let hint = "restart the coordinator; it renews the certificate if admin.key is beside it";
        findings.push(judge("operator's certificate", now, ends(&admin), hint));
    }
    if running.pid.is_some() {
        let port = config.tls.listen.port();
        let at = if config.tls.listen.ip().is_unspecified() { config.advertise } else { config.tls.listen.ip() };
        let hint = "restart the coordinator; it issues a new one";
        findings.push(match shown(SocketAddr::new(at, port)).await {
            Ok(certificate) => judge("server's certificate", now, ends(&certificate), hint),
            Err(why) => Finding::fail("server's certificate", format!("cannot get it from {at}:{port}: {why}"), hint),
        });
    }
    findings
}

fn pem(path: &Path) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(&fs::read(path).ok()?).ok()
}

/// Pure.
fn judge(check: &'static str, now: Timestamp, ends: Option<Timestamp>, hint: &str) -> Finding {
    let Some(ends) = ends else { return Finding::fail(check, "it does not parse", hint) };
    let left = ends.duration_since(now);
    if left.is_negative() {
        Finding::fail(check, format!("it expired {ends}"), hint)
    } else if left.unsigned_abs() < SOON {
        Finding::warn(check, format!("it expires {ends}"), hint)
    } else {
        Finding::ok(check, format!("valid until {ends}"))
    }
}

/// The certificate of a TLS port. Its name is not checked here: the caller does that.
async fn shown(at: SocketAddr) -> Result<CertificateDer<'static>, String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Look(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from(SERVER_NAME).map_err(|error| error.to_string())?;
    let connect = async {
        let tcp = TcpStream::connect(at).await?;
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    };
    let stream = timeout(LIMIT, connect).await.map_err(|_| "no answer".to_owned())?.map_err(|e| e.to_string())?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    chain.first().map(|leaf| leaf.clone().into_owned()).ok_or_else(|| "no certificate".to_owned())
}

/// Takes every certificate: this connection sends no data, and its content is not trusted.
#[derive(Debug)]
struct Look(Arc<CryptoProvider>);

impl ServerCertVerifier for Look {
    fn verify_server_cert(
        &self, _: &CertificateDer<'_>, _: &[CertificateDer<'_>], _: &ServerName<'_>, _: &[u8], _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self, message: &[u8], certificate: &CertificateDer<'_>, signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self, message: &[u8], certificate: &CertificateDer<'_>, signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_certificate_is_warned_of_before_its_end() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let level = |left| judge("c", at(0), Some(at(left)), "").level;
        let soon = i64::try_from(SOON.as_secs()).unwrap();
        assert_eq!([level(soon + 1), level(soon - 1), level(-1)], [Level::Ok, Level::Warn, Level::Fail]);
    }
}
