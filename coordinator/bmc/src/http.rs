//! HTTP to one server: bounded waits and answers, and trust in the certificate that its document names.

use std::time::Duration;

use landfall_api::BmcSpec;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect::Policy};

use crate::error::BmcError;
use crate::tls::{self, Shown};

/// From the first packet to the connection, where nothing answers.
const CONNECT: Duration = Duration::from_secs(5);
/// For a whole answer: slow BMCs take 10 s and more for a system's resource.
const ANSWER: Duration = Duration::from_secs(30);
/// A resource has some tens of kB.
const MAX_BODY: usize = 1 << 20;

/// A client of one server, which follows no redirect.
pub(crate) struct Http {
    client: Client,
    base: String,
    shown: Shown,
}

/// What came back, whatever its status.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Http {
    /// Nothing is sent yet.
    pub(crate) fn new(spec: &BmcSpec) -> Result<Self, BmcError> {
        let (shown, base) = (Shown::default(), spec.address.base());
        let builder = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .http1_only()
            // BMCs end idle connections without a word, and have few.
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .tls_backend_preconfigured(tls::client_config(spec, shown.clone())?);
        let client =
            builder.build().map_err(|error| BmcError::Unreachable { url: base.clone(), why: chain(&error) })?;
        Ok(Self { client, base, shown })
    }

    /// The URL before a path.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// A request to this URL.
    pub(crate) fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.client.request(method, url).header(ACCEPT_ENCODING, "identity")
    }

    /// Sends it. In errors its URL is `shown`.
    pub(crate) async fn send(&self, request: RequestBuilder, shown: &str) -> Result<Answer, BmcError> {
        let answer = request.send().await.map_err(|error| self.unreachable(shown, &error))?;
        self.take_in(answer, shown).await
    }

    async fn take_in(&self, mut answer: Response, shown: &str) -> Result<Answer, BmcError> {
        let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| self.unreachable(shown, &error))? {
            if body.len() + part.len() > MAX_BODY {
                let what = format!("it has more than {MAX_BODY} bytes");
                return Err(BmcError::Invalid { url: shown.to_owned(), what });
            }
            body.extend_from_slice(&part);
        }
        Ok(Answer { status, headers, body })
    }

    fn unreachable(&self, url: &str, error: &reqwest::Error) -> BmcError {
        let why = match tls::take(&self.shown) {
            Some((certificate, why)) => return BmcError::Untrusted { url: self.base.clone(), certificate, why },
            None if error.is_timeout() && !error.is_connect() => format!("no answer within {} s", ANSWER.as_secs()),
            None => chain(error),
        };
        BmcError::Unreachable { url: url.to_owned(), why }
    }
}

/// An error with what caused it, without the URL, which is said elsewhere.
fn chain(error: &reqwest::Error) -> String {
    let mut source = std::error::Error::source(error);
    let mut last = None;
    while let Some(inner) = source {
        last = Some(inner.to_string());
        source = inner.source();
    }
    // Of an error without a cause, such as a body that ends early; its URL may hold a secret.
    last.unwrap_or_else(|| "the request failed".to_owned())
}
