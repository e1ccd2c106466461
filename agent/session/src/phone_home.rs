//! The installed system's report: HTTPS with the pinned CA, for any host in the URL.

use std::time::Duration;

use landfall_api::{ErrorCode, Pin, Problem, SecretText, message::PhoneHomeReport};
use landfall_pin::{client_config, rustls_error};

use crate::{PinMismatch, Validity};

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
/// name, with any host in the URL. No proxy, no redirect, bounded times.
///
/// # Errors
/// A [`Problem`] if the system's resolver configuration cannot be read.
pub fn https_client(pins: &[Pin]) -> Result<reqwest::Client, Problem> {
    let internal = |error: &dyn std::error::Error| {
        Problem::new(ErrorCode::Internal, "cannot set up the HTTPS client").caused_by(error).hint(format!("{error}"))
    };
    let config = client_config(pins, Validity::Now, None, &[b"h2", b"http/1.1"]).map_err(|e| internal(&e))?;
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .hickory_dns(true)
        .no_proxy()
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
    client: &reqwest::Client,
    url: &str,
    token: &SecretText,
    report: &PhoneHomeReport,
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

fn unreachable(url: &str, error: &reqwest::Error) -> PhoneHomeError {
    let wrong_ca = rustls_error(error).and_then(PinMismatch::of).is_some();
    let (code, hint) = if wrong_ca {
        (ErrorCode::Unauthenticated, "another server answers at this address, or the coordinator was set up again")
    } else {
        (ErrorCode::SourceUnreachable, "check the installed system's network and that the coordinator is up")
    };
    let problem = Problem::new(code, "cannot reach the coordinator").caused_by(error).hint(hint).at(url);
    PhoneHomeError { problem, retryable: true }
}
