//! One request that is no download: a call to a web server, with the trust and the rules of redirects that images have.

use std::error::Error;
use std::time::Duration;
use std::{io, iter};

use landfall_api::{HttpMethod, SecretText};
use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, Response, Url};

use super::broken::chain;
use super::client::{Connector, distrusted, redirected, until_stopped};
use super::credentials::{same_server, sensitive};
use crate::source::locator::{Locator, shown};
use crate::{Access, CancelFlag, Unobserved, WriteError};

/// A few, as APIs need them: one to a canonical name, one to another host.
const REDIRECTS: usize = 5;

/// A request.
#[derive(Debug)]
pub struct Call<'a> {
    /// What is asked.
    pub method: HttpMethod,
    /// `http:` or `https:`.
    pub url: &'a str,
    /// Header fields, for the URL's own server alone: none follows a redirect to another.
    pub headers: &'a [(String, SecretText)],
    /// What is sent.
    pub body: Option<&'a SecretText>,
    /// How the server is asked. Its `authorization` is not used.
    pub access: &'a Access,
    /// Redirects of these statuses are answers, and not followed.
    pub expected: &'a [u16],
    /// The most bytes that are read of the answer's body.
    pub most: usize,
    /// How long it may take; `None`: until it is cancelled.
    pub within: Option<Duration>,
}

/// A server's answer, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    /// Its status.
    pub status: u16,
    /// The beginning of its body.
    pub body: Vec<u8>,
    /// Whether the body goes on after that.
    pub cut: bool,
}

/// There is no answer. No header and no body is ever in it.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The URL, the access or a header cannot be used.
    #[error("cannot call {url}: {reason}")]
    Unusable { url: String, reason: String },
    /// The server cannot be reached, or broke the connection. `closed`: its host answers that nothing listens there.
    #[error("{url} does not answer: {reason}")]
    NoAnswer { url: String, reason: String, closed: bool },
    /// The server is not trusted, or redirects to where no request goes.
    #[error("{url} cannot be called: {reason}")]
    Refused { url: String, reason: String },
    /// It was stopped.
    #[error("the call was stopped")]
    Cancelled,
}

impl CallError {
    /// Whether another attempt may succeed.
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::NoAnswer { .. })
    }
}

impl Call<'_> {
    /// Makes the request once. A redirect is followed only where the method reads alone.
    ///
    /// # Errors
    /// [`CallError`]; an answer of any status is none.
    pub fn make(&self, cancel: &CancelFlag) -> Result<CallAnswer, CallError> {
        let unusable = |error: &dyn std::fmt::Display| CallError::Unusable {
            url: crate::source::shown_text(self.url),
            reason: error.to_string(),
        };
        let Locator::Http(url) = Locator::parse(self.url).map_err(|error| unusable(&error))? else {
            return Err(unusable(&"it is not the URL of a web server"));
        };
        let headers = headers(self.headers).map_err(|reason| unusable(&reason))?;
        let access = Access { authorization: None, ..self.access.clone() };
        let connector = Connector::new(&[], &access, &Unobserved).map_err(|error| unusable(&error))?;
        let call = async {
            let whole = self.answer(&connector, &url, &headers);
            match self.within {
                None => whole.await,
                Some(limit) => tokio::time::timeout(limit, whole).await.unwrap_or_else(|_| {
                    let reason = format!("there is no answer after {} s", limit.as_secs_f32());
                    Err(CallError::NoAnswer { url: shown(&url), reason, closed: false })
                }),
            }
        };
        connector.run(until_stopped(cancel.flag(), call)).unwrap_or(Err(CallError::Cancelled))
    }

    async fn answer(&self, connector: &Connector, url: &Url, headers: &HeaderMap) -> Result<CallAnswer, CallError> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTS {
            let mut request = connector.client().request(method(self.method), at.clone());
            if same_server(url, &at) {
                request = request.headers(headers.clone());
            }
            if let Some(body) = self.body {
                request = request.body(body.expose().to_owned());
            }
            let answer = request.send().await.map_err(|error| match distrusted(&error) {
                Some(why) => {
                    let reason = format!("its certificate cannot be trusted: {why}");
                    CallError::Refused { url: shown(&at), reason }
                }
                None => CallError::NoAnswer { url: shown(&at), closed: is_closed(&error), reason: chain(error) },
            })?;
            if self.method.only_reads() && !self.expected.contains(&answer.status().as_u16()) {
                let target = redirected(&at, &answer).map_err(|error| {
                    let reason = match error {
                        WriteError::Status { status, .. } => format!("it answers {status}"),
                        other => other.to_string(),
                    };
                    CallError::Refused { url: shown(&at), reason }
                })?;
                if let Some(target) = target {
                    at = target;
                    continue;
                }
            }
            return self.read(answer, &at).await;
        }
        Err(CallError::Refused { url: shown(url), reason: format!("there are more than {REDIRECTS} redirects") })
    }

    /// No further than is wanted: the rest of a body, which may be endless, is never fetched.
    async fn read(&self, mut answer: Response, at: &Url) -> Result<CallAnswer, CallError> {
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while self.most > 0 && body.len() <= self.most {
            let chunk = answer.chunk().await.map_err(|error| CallError::NoAnswer {
                url: shown(at),
                reason: format!("it answered {status}, and then the connection broke: {}", chain(error)),
                closed: false,
            })?;
            let Some(chunk) = chunk else { break };
            let room = (self.most + 1).saturating_sub(body.len());
            body.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
        }
        let cut = body.len() > self.most;
        body.truncate(self.most);
        Ok(CallAnswer { status, body, cut })
    }
}

/// Whether a host says that nothing listens at its port.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let refused = |cause: &io::Error| cause.kind() == io::ErrorKind::ConnectionRefused;
    iter::successors(Some(error), |error| (*error).source()).any(|cause| cause.downcast_ref().is_some_and(refused))
}

const fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}

/// None of them is ever printed, whether it is a secret or not.
fn headers(stated: &[(String, SecretText)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in stated {
        let bad = |what: &str| format!("the header {name:?} {what}");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("has no valid name"))?;
        let value = sensitive(value.expose());
        let value = value.map_err(|_| bad("contains a character that HTTP does not allow, such as a line break"))?;
        headers.insert(key, value);
    }
    Ok(headers)
}
