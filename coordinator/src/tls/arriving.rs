//! A request's body on its way in: it ends within a time and a size, or the request fails.
//!
//! Only the agents' streams are meant to last; what they say is bounded message by message.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::Request;
use axum::http::header::AUTHORIZATION;
use hyper::body::{Frame, Incoming, SizeHint};
use landfall_proto::v1::agent_service_server::SERVICE_NAME;
use tokio::time::{Sleep, sleep};

/// A whole body.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);
/// The largest body from a caller without certificate and token: an enrolment, some kilobytes.
const ANONYMOUS_BYTES: u64 = 64 * 1024;

/// The request with its body bounded; `anonymous`: its connection has no certificate.
pub(super) fn bounded(request: Request<Incoming>, anonymous: bool) -> Request<Body> {
    let (parts, body) = request.into_parts();
    if body.is_end_stream() {
        return Request::from_parts(parts, Body::empty());
    }
    let path = parts.uri.path();
    let agents = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME));
    // Callers without a certificate get no streams. The route checks a token before it reads a body.
    let bare = anonymous && (agents.is_some() || !parts.headers.contains_key(AUTHORIZATION));
    if !anonymous && matches!(agents, Some("/Session" | "/Telemetry")) {
        return Request::from_parts(parts, Body::new(body));
    }
    let left = if bare { ANONYMOUS_BYTES } else { u64::MAX };
    Request::from_parts(parts, Body::new(Arriving { body, left, deadline: Box::pin(sleep(ARRIVAL_LIMIT)) }))
}

struct Arriving {
    body: Incoming,
    left: u64,
    deadline: Pin<Box<Sleep>>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Pending => {
                return self
                    .deadline
                    .as_mut()
                    .poll(context)
                    .map(|()| Some(Err("the body did not arrive in time".into())));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(frame)) => frame?,
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                let message = format!(
                    "the body is larger than {ANONYMOUS_BYTES} bytes, the limit without a certificate or token"
                );
                return Poll::Ready(Some(Err(message.into())));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
