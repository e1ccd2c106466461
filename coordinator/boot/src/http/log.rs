//! One line a request, written when its body ended or broke off, so that it says how much really went out.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use http::header;
use hyper::body::{Frame, SizeHint};

use super::Client;
use landfall_edge::gate::Limiter;
use landfall_edge::metrics::metrics;
use landfall_edge::text::{MAX_PATH, cut};

/// Lines a second: anybody who reaches the port can cause them. The counters count every request.
static LINES: Limiter = Limiter::a_second(50);
/// Bytes of anything else a client says; an Ethernet address and a range are shorter.
const MAX_WORD: usize = 64;

/// What the line will say.
pub(super) struct Entry {
    method: String,
    path: String,
    mac: Option<String>,
    range: Option<String>,
    client: Option<String>,
    began: Instant,
}

impl Entry {
    /// What a request says. Of the query only `mac` is logged.
    pub(super) fn of(request: &Request) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let mac = query.split('&').find_map(|pair| pair.strip_prefix("mac="));
        let range = request.headers().get(header::RANGE).and_then(|r| r.to_str().ok());
        Self {
            method: cut(request.method().as_str(), MAX_WORD).to_owned(),
            path: cut(request.uri().path(), MAX_PATH).to_owned(),
            mac: mac.map(|m| cut(&m.to_ascii_lowercase().replace("%3a", ":"), MAX_WORD).to_owned()),
            range: range.map(|r| cut(r, MAX_WORD).to_owned()),
            client: request.extensions().get::<Client>().map(|c| c.0.to_string()),
            began: Instant::now(),
        }
    }

    /// Ties the line to the response's body.
    pub(super) fn attach(self, response: Response) -> Response {
        let status = response.status().as_u16();
        // A file is a stream, whose length only the header tells; hyper reads no further than that.
        let stated = response.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse().ok());
        let head = self.method == "HEAD";
        response.map(|inner| {
            let expected = if head { Some(0) } else { inner.size_hint().exact().or(stated) };
            Body::new(Logged { inner, entry: self, status, expected, bytes: 0, ended: false })
        })
    }
}

struct Logged {
    inner: Body,
    entry: Entry,
    status: u16,
    expected: Option<u64>,
    bytes: u64,
    ended: bool,
}

impl HttpBody for Logged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>, context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(context);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => self.bytes += frame.data_ref().map_or(0, |d| d.len() as u64),
            Poll::Ready(None) => self.ended = true,
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        metrics().boot_bytes.add(self.bytes);
        metrics().boot_requests.of(&[("code", &self.status.to_string())]).add(1);
        let Entry { method, path, mac, range, client, began } = &self.entry;
        // A body of known length is dropped after its last byte without being asked for an end.
        let done = self.ended || self.inner.is_end_stream() || self.expected == Some(self.bytes);
        let Some(left_out) = LINES.step() else { return };
        tracing::info!(
            service = "http", %method, %path, mac, status = self.status, range, bytes = self.bytes, done,
            ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX), client, left_out,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_whatever_the_client_says() {
        let uri = format!("/images/{}?mac={}", "a".repeat(30_000), "b".repeat(30_000));
        let request =
            Request::builder().uri(uri).header(header::RANGE, "c".repeat(60_000)).body(Body::empty()).unwrap();
        let entry = Entry::of(&request);
        assert_eq!(
            (entry.path.len(), entry.mac.unwrap().len(), entry.range.unwrap().len()),
            (MAX_PATH, MAX_WORD, MAX_WORD)
        );
        assert_eq!(cut("aé", 2), "a");
    }
}
