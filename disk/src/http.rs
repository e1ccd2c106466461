//! HTTP as a source: async at the edge, pulled synchronously by the fetch thread; a broken connection is resumed by Range.
//!
//! What counts as broken is bounded: answers that bring nothing new, and time without any answer. A changed ETag is never
//! resumed across.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{
    Client, Response, StatusCode,
    header::{self, HeaderMap, HeaderValue},
};
use tokio::runtime::{Builder, Runtime};

use crate::{LogLevel, Observer, WriteError, source::ImageSource};

/// Answers in a row that brought no new byte, before the image counts as cut short.
const FRUITLESS: u32 = 4;
/// Resumptions in all: a server that gives a byte at a time is no server.
const RESUMPTIONS: u32 = 1000;
/// How long a server may not answer at all: long enough for it to be restarted.
const SILENT: Duration = Duration::from_secs(60);
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(10);
const READ: Duration = Duration::from_secs(30);
/// How soon a wait notices that it is no longer wanted.
const TICK: Duration = Duration::from_millis(100);

/// An image behind a URL.
pub struct HttpSource<'a> {
    url: String,
    client: Client,
    runtime: Runtime,
    observer: &'a dyn Observer,
    /// A digest will tell whether bytes fetched from different answers belong together.
    digest_guards: bool,
    response: Option<Response>,
    chunk: bytes_left::BytesLeft,
    /// What identifies the content, for If-Range.
    validator: Option<HeaderValue>,
    total: Option<u64>,
    /// Stored bytes handed on.
    position: u64,
    /// Bytes of the present answer still to be passed over.
    to_skip: u64,
    fruitless: u32,
    resumptions: u32,
    silent_since: Option<Instant>,
    backoff: Duration,
    done: bool,
}

mod bytes_left {
    //! The rest of a chunk that did not fit the reader's buffer.
    #[derive(Default)]
    pub(super) struct BytesLeft {
        bytes: Vec<u8>,
        at: usize,
    }
    impl BytesLeft {
        pub(super) fn set(&mut self, chunk: &[u8]) {
            self.bytes.clear();
            self.bytes.extend_from_slice(chunk);
            self.at = 0;
        }
        pub(super) fn take(&mut self, out: &mut [u8]) -> usize {
            let n = out.len().min(self.bytes.len() - self.at);
            out[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
            self.at += n;
            n
        }
    }
}

/// How one request went wrong.
enum Broken {
    /// No answer, or one that says to come back.
    NoAnswer(String),
    /// It will not get better.
    Final(WriteError),
}

impl<'a> HttpSource<'a> {
    /// A source; nothing is fetched before the first read.
    ///
    /// # Errors
    /// [`WriteError::BadFormat`] for a URL that is none, [`WriteError::Start`] if no client can be made.
    pub fn new(url: &str, digest_guards: bool, observer: &'a dyn Observer) -> Result<Self, WriteError> {
        let bad = |reason: String| WriteError::BadFormat { subject: url.into(), reason };
        let parsed = reqwest::Url::parse(url).map_err(|error| bad(format!("it is not a URL: {error}")))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(bad(format!("{} URLs are not supported; use http or https", parsed.scheme())));
        }
        let start = |error: Box<dyn Error + Send + Sync>| WriteError::Start {
            what: "HTTP client",
            source: std::io::Error::other(error),
        };
        // The boot image has no certificate store, and no provider need have been installed for a plain command line.
        let roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| start(e.into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let builder = Client::builder().tls_backend_preconfigured(tls).connect_timeout(CONNECT).read_timeout(READ);
        // Static glibc has no getaddrinfo; literal addresses never reach a resolver.
        let client = builder.hickory_dns(true).no_proxy().build().map_err(|e| start(e.into()))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| start(e.into()))?;
        Ok(Self {
            url: url.to_owned(),
            client,
            runtime,
            observer,
            digest_guards,
            response: None,
            chunk: bytes_left::BytesLeft::default(),
            validator: None,
            total: None,
            position: 0,
            to_skip: 0,
            fruitless: 0,
            resumptions: 0,
            silent_since: None,
            backoff: FIRST_BACKOFF,
            done: false,
        })
    }

    fn truncated(&self, reason: impl Into<String>) -> WriteError {
        WriteError::Truncated { subject: self.url.clone(), reason: reason.into() }
    }

    /// Asks for the rest of the image, and takes what the answer says of it.
    fn ask(&mut self, stop: &AtomicBool) -> Result<(), Broken> {
        let mut request = self.client.get(&self.url).header(header::ACCEPT_ENCODING, "identity");
        if self.position > 0 {
            request = request.header(header::RANGE, format!("bytes={}-", self.position));
            if let Some(validator) = &self.validator {
                request = request.header(header::IF_RANGE, validator);
            }
        }
        // Inside the block, because reqwest starts its timers when the request is sent, and wants the runtime for it.
        let answer = self.runtime.block_on(async { until_stopped(stop, request.send()).await });
        let response = answer.ok_or_else(|| Broken::Final(self.stopped()))?;
        let response = response.map_err(|error| Broken::NoAnswer(chain(&error)))?;
        let status = response.status();
        if status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) {
            return Err(Broken::NoAnswer(status.to_string()));
        }
        if status == StatusCode::RANGE_NOT_SATISFIABLE && self.position > 0 {
            let reason = format!("the server has no more than {} bytes of it", self.position);
            return Err(Broken::Final(self.truncated(reason)));
        }
        if !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Err(Broken::Final(WriteError::Status { url: self.url.clone(), status: status.to_string() }));
        }
        self.accept(status, response).map_err(Broken::Final)
    }

    fn accept(&mut self, status: StatusCode, response: Response) -> Result<(), WriteError> {
        let changed = || WriteError::SourceChanged { url: self.url.clone() };
        let validator = validator(response.headers());
        if status == StatusCode::OK {
            let length = content_length(response.headers());
            if self.position == 0 {
                (self.validator, self.total) = (validator, length);
            } else {
                let same = self.validator.is_some() && validator == self.validator;
                // Without a validator only a digest can tell that the two answers belong together.
                if !same && (self.validator.is_some() || !self.digest_guards) {
                    return Err(changed());
                }
                if self.total.is_some() && length.is_some() && self.total != length {
                    return Err(changed());
                }
            }
            self.to_skip = self.position;
        } else {
            let range = response.headers().get(header::CONTENT_RANGE).and_then(|v| v.to_str().ok());
            let Some((first, total)) = range.and_then(content_range) else {
                return Err(WriteError::BadFormat {
                    subject: self.url.clone(),
                    reason: "the server answers 206 without a Content-Range".into(),
                });
            };
            let other_total = self.total.is_some() && total.is_some() && self.total != total;
            let other_content = self.validator.is_some() && validator.is_some() && validator != self.validator;
            let unguarded = self.validator.is_none() && !self.digest_guards;
            if first != self.position || other_total || other_content || unguarded {
                return Err(changed());
            }
            self.to_skip = 0;
        }
        self.response = Some(response);
        Ok(())
    }

    fn stopped(&self) -> WriteError {
        WriteError::Unreachable { url: self.url.clone(), reason: "the write ended".into() }
    }

    /// Counts a broken connection and waits, or says that it was the last one.
    fn pause(&mut self, answered: bool, reason: &str, stop: &AtomicBool) -> Result<(), WriteError> {
        self.response = None;
        self.resumptions += 1;
        if answered {
            self.silent_since = None;
            self.fruitless += 1;
            if self.fruitless >= FRUITLESS || self.resumptions > RESUMPTIONS {
                let of = self.total.map_or("an unknown number of".into(), |total| total.to_string());
                return Err(self.truncated(format!("{} of {of} bytes came, and no more ({reason})", self.position)));
            }
        } else if self.silent_since.get_or_insert_with(Instant::now).elapsed() >= SILENT {
            return Err(WriteError::Unreachable { url: self.url.clone(), reason: reason.into() });
        }
        let line = format!("fetching {} broke at byte {} and will be resumed: {reason}", self.url, self.position);
        self.observer.log(LogLevel::Warn, &line);
        let wait = self.backoff;
        self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
        match self.runtime.block_on(async { until_stopped(stop, tokio::time::sleep(wait)).await }) {
            Some(()) => Ok(()),
            None => Err(self.stopped()),
        }
    }

    /// The next chunk into `self.chunk`; false at the end.
    fn advance(&mut self, stop: &AtomicBool) -> Result<bool, WriteError> {
        loop {
            let Some(response) = self.response.as_mut() else {
                match self.ask(stop) {
                    Ok(()) => continue,
                    Err(Broken::Final(error)) => return Err(error),
                    Err(Broken::NoAnswer(reason)) => {
                        self.pause(false, &reason, stop)?;
                        continue;
                    }
                }
            };
            let Some(next) = self.runtime.block_on(until_stopped(stop, response.chunk())) else {
                return Err(self.stopped());
            };
            match next {
                Ok(Some(chunk)) => {
                    let skip = usize::try_from(self.to_skip).map_or(chunk.len(), |n| n.min(chunk.len()));
                    self.to_skip -= skip as u64;
                    if skip < chunk.len() {
                        self.chunk.set(&chunk[skip..]);
                        (self.fruitless, self.silent_since, self.backoff) = (0, None, FIRST_BACKOFF);
                        return Ok(true);
                    }
                }
                Ok(None) if self.to_skip > 0 => self.pause(true, "the answer ended before what was known", stop)?,
                Ok(None) => match self.total {
                    Some(total) if self.position < total => self.pause(true, "the answer ended early", stop)?,
                    _ => return Ok(false),
                },
                Err(error) => self.pause(true, &chain(&error), stop)?,
            }
        }
    }
}

impl ImageSource for HttpSource<'_> {
    fn name(&self) -> &str {
        &self.url
    }

    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError> {
        loop {
            let n = self.chunk.take(buffer);
            if n > 0 {
                self.position += n as u64;
                return Ok(n);
            }
            if self.done || !self.advance(stop)? {
                self.done = true;
                return Ok(0);
            }
        }
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn seek(&mut self, _: std::ops::Range<u64>, _: &AtomicBool) -> Result<(), WriteError> {
        Err(WriteError::Internal("not yet".into()))
    }
}

/// The future's value, or `None` once `stop` is set.
async fn until_stopped<T>(stop: &AtomicBool, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    loop {
        if stop.load(Ordering::Acquire) {
            return None;
        }
        if let Ok(value) = tokio::time::timeout(TICK, &mut future).await {
            return Some(value);
        }
    }
}

/// What If-Range may carry: a strong ETag, else a date.
fn validator(headers: &HeaderMap) -> Option<HeaderValue> {
    let etag = headers.get(header::ETAG).filter(|etag| !etag.as_bytes().starts_with(b"W/"));
    etag.or_else(|| headers.get(header::LAST_MODIFIED)).cloned()
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// First byte and total of `bytes 5-9/10`; the total may be `*`.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_whole_or_not_at_all() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        for bad in ["", "bytes */10", "items 5-9/10", "bytes x-9/10", "bytes 5"] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
