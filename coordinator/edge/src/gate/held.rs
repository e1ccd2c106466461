//! An answer that counts as under way until its last byte is handed over.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::Busy;

/// A body with the request it answers.
#[derive(Debug)]
pub struct Held {
    inner: Body,
    _busy: Busy,
}

impl Held {
    /// The request ends with this body.
    pub fn answer(inner: Body, busy: Busy) -> Body {
        Body::new(Self { inner, _busy: busy })
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>, context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
