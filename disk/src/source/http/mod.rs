//! HTTP as a source: pulled synchronously by the fetch thread; a broken connection is resumed by Range.
//!
//! Retries are bounded: by responses without new bytes, and by time without any response. Across a changed ETag a download
//! is resumed only where a digest decides: the servers behind one name often differ in it, although their files are equal.

mod answer;
mod body;
mod broken;
mod call;
mod client;
mod credentials;
mod login;
mod patience;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode, Url, header};

pub(super) use answer::format_of_type;
pub(crate) use answer::retry_after;
pub(crate) use answer::{ContentRange, claimed_format, encoding};
use answer::{content_length, validator};
use body::{Body, Pulled};
use broken::Broken;
pub use call::{Call, CallAnswer, CallError};
pub(super) use client::Connector;
use client::until_stopped;
pub(super) use login::Login;
pub(crate) use login::bearer_challenge;
pub(super) use patience::Patience;

use super::{ImageSource, locator::shown};
use crate::{Defect, Format, LogLevel, Observer, WriteError};

/// A gap up to which reading on is cheaper than asking anew, bytes: about what a round trip costs on a LAN.
const GAP: u64 = 256 * 1024;
/// How many bytes in all may be passed over to seek on a server that answers without the range that was asked for.
const PASSED_OVER: u64 = 256 << 20;

/// An image behind a URL.
pub(super) struct HttpSource<'a> {
    connector: Arc<Connector>,
    url: Url,
    name: String,
    /// Beyond what every request carries.
    headers: HeaderMap,
    login: Option<Arc<Login>>,
    observer: &'a dyn Observer,
    /// A digest will show whether bytes from different responses belong together.
    digest_guards: bool,
    patience: Patience,
    body: Option<Body>,
    /// A response has set the next two fields.
    known: bool,
    /// What identifies the content, for If-Range.
    validator: Option<HeaderValue>,
    total: Option<u64>,
    claimed: Option<Format>,
    /// Place of the next byte to hand on.
    position: u64,
    /// Where the range asked for ends; [`u64::MAX`]: with the image.
    end: u64,
    /// The next request is for a place other than where the last answer was.
    sought: bool,
    passed_over: u64,
    /// Why the present answer will bring nothing more; dealt with at the next read.
    broke: Option<String>,
}

impl<'a> HttpSource<'a> {
    /// A source; nothing is fetched before the first read.
    pub(super) fn new(
        connector: Arc<Connector>, url: Url, digest_guards: bool, patience: Patience, observer: &'a dyn Observer,
    ) -> Self {
        Self {
            connector,
            name: shown(&url),
            url,
            headers: HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))]),
            login: None,
            observer,
            digest_guards,
            patience,
            body: None,
            known: false,
            validator: None,
            total: None,
            claimed: None,
            position: 0,
            end: u64::MAX,
            sought: false,
            passed_over: 0,
            broke: None,
        }
    }

    /// The same behind a registry's login, asking for these media types.
    pub(super) fn of_registry(mut self, login: Arc<Login>, accept: Option<&'static str>) -> Self {
        self.login = Some(login);
        if let Some(accept) = accept {
            self.headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        }
        self
    }

    fn truncated(&self, reason: impl Into<String>) -> WriteError {
        WriteError::Truncated { subject: self.name.clone(), reason: reason.into() }
    }

    fn bad(&self, defect: Defect, reason: impl Into<String>) -> WriteError {
        WriteError::BadFormat { subject: self.name.clone(), reason: reason.into(), defect }
    }

    fn stopped(&self) -> WriteError {
        WriteError::Unreachable { url: self.name.clone(), reason: "the write ended".into() }
    }

    /// Asks for the rest of the range, and takes what the answer says of it.
    fn ask(&mut self, stop: &AtomicBool) -> Result<(), Broken> {
        let mut headers = self.headers.clone();
        if self.position > 0 || self.end != u64::MAX {
            let last = if self.end == u64::MAX { String::new() } else { (self.end - 1).to_string() };
            let range = HeaderValue::from_str(&format!("bytes={}-{last}", self.position));
            headers.insert(header::RANGE, range.map_err(|e| Broken::Final(WriteError::Internal(e.to_string())))?);
            if let Some(validator) = self.validator.as_ref().filter(|_| !self.digest_guards) {
                headers.insert(header::IF_RANGE, validator.clone());
            }
        }
        let get = self.connector.get(&self.url, &headers, self.login.as_deref());
        let answer = self.connector.run(async { until_stopped(stop, get).await });
        let response = answer.ok_or_else(|| Broken::Final(self.stopped()))??;
        self.accept(response).map_err(Broken::Final)
    }

    fn accept(&mut self, response: Response) -> Result<(), WriteError> {
        let (status, headers) = (response.status(), response.headers());
        let changed = || WriteError::SourceChanged { url: self.name.clone() };
        if status == StatusCode::RANGE_NOT_SATISFIABLE && self.position > 0 {
            return Err(self.truncated(format!("the server has only {} bytes of it", self.position)));
        }
        if !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Err(WriteError::Status { url: self.name.clone(), status: status.to_string() });
        }
        if let Some(encoding) = encoding(headers) {
            let reason = format!("the server compresses it in transfer ({encoding}) although the request forbids it");
            return Err(self.bad(Defect::Reencoded, reason));
        }
        let validator = validator(headers);
        let (first, end, total) = if status == StatusCode::OK {
            let length = content_length(headers);
            (0, length, length)
        } else {
            let range = ContentRange::of(headers)
                .ok_or_else(|| self.bad(Defect::Server, "the server answered 206 without a valid Content-Range"))?;
            if range.first != self.position {
                return Err(changed());
            }
            (range.first, Some(range.end), range.total)
        };
        if self.known {
            let same = match (&self.validator, &validator) {
                (Some(known), Some(now)) => known == now,
                // A part may leave out what identifies it, because If-Range held; the whole may not.
                (Some(_), None) => self.digest_guards || status == StatusCode::PARTIAL_CONTENT,
                // Without a validator only a digest can show that the two responses belong together.
                (None, _) => self.digest_guards,
            };
            let other_total = self.total.is_some() && total.is_some() && self.total != total;
            if other_total || !(same || self.digest_guards) {
                return Err(changed());
            }
            if !same {
                let line = format!("{} has another ETag or date than before; its digest will decide", self.name);
                self.observer.log(LogLevel::Warn, &line);
                self.validator = validator;
            }
            self.total = self.total.or(total);
        } else {
            (self.known, self.validator, self.total) = (true, validator, total);
            self.claimed = claimed_format(headers);
        }
        let skip = self.position - first;
        if skip > 0 && self.sought {
            self.passed_over += skip;
            if self.passed_over > PASSED_OVER {
                return Err(WriteError::NoRanges { url: self.name.clone() });
            }
        }
        self.sought = false;
        self.body = Some(Body::new(response, skip, end));
        Ok(())
    }

    /// Reports the retry and waits, or reports that this was the last attempt.
    fn pause(&mut self, wait: Option<Duration>, given_up: WriteError, stop: &AtomicBool) -> Result<(), WriteError> {
        self.body = None;
        let Some(wait) = wait else { return Err(given_up) };
        let reason = match &given_up {
            WriteError::Unreachable { reason, .. } | WriteError::Truncated { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        let seconds = wait.as_secs_f32();
        let line = format!(
            "the download of {} broke at byte {} and resumes in {seconds:.1} s: {reason}",
            self.name, self.position
        );
        self.observer.log(LogLevel::Warn, &line);
        self.connector.run(async { until_stopped(stop, tokio::time::sleep(wait)).await }).ok_or_else(|| self.stopped())
    }

    /// Makes one more request; returns without a response if a retry is worthwhile.
    fn ask_again(&mut self, stop: &AtomicBool) -> Result<(), WriteError> {
        match self.ask(stop) {
            Ok(()) => Ok(()),
            Err(Broken::Final(error)) => Err(error),
            Err(Broken::NoAnswer(reason, asked)) => {
                let wait = match asked {
                    Some(wait) => self.patience.told_to_wait(wait),
                    None => self.patience.unanswered(),
                };
                self.pause(wait, WriteError::Unreachable { url: self.name.clone(), reason }, stop)
            }
        }
    }

    fn resume(&mut self, reason: &str, stop: &AtomicBool) -> Result<(), WriteError> {
        let of = self.total.map_or("an unknown number of".into(), |total| total.to_string());
        let given_up = self.truncated(format!("only {} of {of} bytes arrived ({reason})", self.position));
        let wait = self.patience.broken();
        self.pause(wait, given_up, stop)
    }

    /// What the end of an answer means.
    fn ended(&mut self, body_end: Option<u64>, skipping: bool) {
        self.body = None;
        // A part that says where it ends is whole only there.
        let whole = self.total.is_none() && body_end.is_none_or(|end| end == self.position && self.end == u64::MAX);
        if skipping {
            self.broke = Some("the response ended before its known length".into());
        } else if whole {
            // It did not say how long it is; this is how long.
            self.total = Some(self.position);
        } else if body_end != Some(self.position) {
            self.broke = Some("the response ended early".into());
        }
    }
}

impl ImageSource for HttpSource<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, WriteError> {
        loop {
            if let Some(reason) = self.broke.take() {
                self.resume(&reason, stop)?;
            }
            let left = self.end.min(self.total.unwrap_or(u64::MAX)).saturating_sub(self.position);
            let room = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let Some(room) = buffer.get_mut(..room).filter(|room| !room.is_empty()) else {
                // A connection whose answer was read to its end can be used again.
                if let Some(body) = self.body.take_if(|body| body.end() == Some(self.position)) {
                    self.connector.run(body.settle());
                }
                return Ok(0);
            };
            let Some(body) = &mut self.body else {
                self.ask_again(stop)?;
                continue;
            };
            let pulled = self.connector.run(body.pull(room, stop));
            let (end, skipping) = (body.end(), body.skipping());
            let Pulled { bytes, then } = pulled.ok_or_else(|| self.stopped())?;
            self.position += bytes as u64;
            match then {
                body::Then::More => {}
                body::Then::Ended => self.ended(end, skipping),
                body::Then::Broke(reason) => {
                    self.body = None;
                    self.broke = Some(reason);
                }
            }
            if bytes > 0 {
                self.patience.progress();
                return Ok(bytes);
            }
        }
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn seek(&mut self, range: Range<u64>, _: &AtomicBool) -> Result<(), WriteError> {
        // A seek after the last retry allows one more request.
        self.patience.again();
        (self.end, self.broke) = (range.end.max(range.start), None);
        let gap = range.start.checked_sub(self.position).filter(|gap| *gap <= GAP);
        let on_its_way = |body: &&mut Body| body.end().is_none_or(|end| range.start < end);
        match (self.body.as_mut().filter(on_its_way), gap) {
            (Some(body), Some(gap)) => body.pass(gap),
            _ => (self.body, self.sought) = (None, true),
        }
        self.position = range.start;
        Ok(())
    }

    fn claimed_format(&self) -> Option<Format> {
        self.claimed
    }
}
