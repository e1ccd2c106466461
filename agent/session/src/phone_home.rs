//! The installed system's report: HTTPS with the pinned CA, for any host in the URL.

use std::time::Duration;

use landfall_api::{ErrorCode, Pin, Problem, SecretText, message::PhoneHomeReport};
use landfall_pin::{client_config, rustls_error};

use crate::{PinMismatch, Proxy, Validity};

/// Connecting, TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// The whole request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// An error's body is read up to here.
const MAX_ANSWER: usize = 16 * 1024;

/// The phone-home failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct PhoneHomeError {
    /// Why, for people.
    pub problem: Problem,
    /// False: the coordinator understood and refused; trying again cannot help.
    pub retryable: bool,
}

/// An HTTPS client that trusts only servers with a certificate from a pinned CA, for the coordinator's fixed logical
/// name, with any host in the URL. Dates of certificates are ignored: an installed system may not know the time before it
/// has reached a time server. The environment's proxies are not used; no redirect, bounded times.
///
/// # Errors
/// A [`Problem`] if the system's resolver configuration cannot be read.
pub fn https_client(pins: &[Pin], proxy: Option<&Proxy>) -> Result<reqwest::Client, Problem> {
    let internal = |error: &dyn std::error::Error| {
        Problem::new(ErrorCode::Internal, "cannot set up the HTTPS client").caused_by(error).hint(format!("{error}"))
    };
    let config = client_config(pins, Validity::AnyTime, None, &[b"h2", b"http/1.1"]).map_err(|e| internal(&e))?;
    let mut builder = reqwest::Client::builder().no_proxy();
    if let Some(proxy) = proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy.to_string()).map_err(|e| internal(&e))?);
    }
    builder
        .tls_backend_preconfigured(config)
        .hickory_dns(true)
        .https_only(true)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .timeout(REQUEST_LIMIT)
        .build()
        .map_err(|e| internal(&e))
}

/// Phones home once.
///
/// # Errors
/// [`PhoneHomeError`]; whether to try again is in it.
pub async fn phone_home(
    client: &reqwest::Client, url: &str, token: &SecretText, report: &PhoneHomeReport,
) -> Result<(), PhoneHomeError> {
    let sent = client.post(url).bearer_auth(token.expose()).json(report).send().await;
    let mut answer = sent.map_err(|error| unreachable(url, &error))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_ANSWER - body.len())]);
        if body.len() == MAX_ANSWER {
            break;
        }
    }
    let problem = serde_json::from_slice(&body).unwrap_or_else(|_| {
        Problem::new(ErrorCode::SourceUnreachable, format!("the coordinator answered {status}"))
            .hint("read the coordinator's log for the reason")
            .at(url)
    });
    let temporary = status.is_server_error()
        || matches!(status, reqwest::StatusCode::REQUEST_TIMEOUT | reqwest::StatusCode::TOO_MANY_REQUESTS);
    Err(PhoneHomeError { problem, retryable: temporary })
}

pub(crate) fn unreachable(url: &str, error: &reqwest::Error) -> PhoneHomeError {
    let wrong_ca = rustls_error(error).and_then(PinMismatch::of).is_some();
    let (code, hint) = if wrong_ca {
        (ErrorCode::Unauthenticated, "another server answers at this address, or the coordinator was set up again")
    } else {
        (ErrorCode::SourceUnreachable, "check the installed system's network and that the coordinator is up")
    };
    let problem = Problem::new(code, "cannot reach the coordinator").caused_by(error).hint(hint).at(url);
    PhoneHomeError { problem, retryable: true }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, sync::Arc};

    use landfall_pin::pin_of_spki;
    use landfall_proto::SERVER_NAME;
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use rustls::{ServerConfig, crypto::ring::default_provider, pki_types::PrivateKeyDer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A coordinator that takes every phone-home, with a certificate for these years.
    async fn coordinator(from: i32, to: i32) -> (SocketAddr, Pin) {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let pin = pin_of_spki(&rcgen::PublicKeyData::subject_public_key_info(&ca_key));
        let mut leaf = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
        leaf.not_before = rcgen::date_time_ymd(from, 1, 1);
        leaf.not_after = rcgen::date_time_ymd(to, 1, 1);
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let chain = vec![leaf.der().clone(), ca_certificate.der().clone()];
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
            stream.read_buf(&mut Vec::with_capacity(4096)).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            stream.flush().await.unwrap();
        });
        (address, pin)
    }

    #[tokio::test]
    async fn a_wrong_clock_does_not_keep_a_system_silent() {
        // By this host's clock; to a clock that is wrong the right certificate looks the same.
        for (from, to) in [(2001, 2002), (2120, 2121)] {
            let (address, pin) = coordinator(from, to).await;
            let url = format!("https://{address}/phone-home");
            let client = https_client(&[pin], None).unwrap();
            phone_home(&client, &url, &SecretText::new("t"), &PhoneHomeReport::default()).await.expect("its report");
        }
    }

    #[tokio::test]
    async fn another_authority_is_refused_at_any_date() {
        let (address, _) = coordinator(2001, 2120).await;
        let client = https_client(&[pin_of_spki(b"another")], None).unwrap();
        let url = format!("https://{address}/phone-home");
        let refused = phone_home(&client, &url, &SecretText::new("t"), &PhoneHomeReport::default()).await.unwrap_err();
        assert_eq!(refused.problem.code, ErrorCode::Unauthenticated);
    }
}
