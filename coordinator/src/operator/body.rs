//! Request bodies and queries, whose every fault is answered as a problem.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use futures::StreamExt as _;
use landfall_api::{ErrorCode, Problem};
use serde::de::DeserializeOwned;

use super::problem::Refusal;
use landfall_store::MAX_DOCUMENT_BYTES;

/// Bytes of a body that are read and thrown away at most, so that its sender gets an answer.
const MAX_PASSED_OVER: usize = 16 << 20;

/// A JSON body, whatever `Content-Type` says: `curl -d @file` sends none that fits.
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;
    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let bytes = whole(request).await?;
        let deserializer = &mut serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            Problem::new(ErrorCode::InvalidDocument, format!("the body is not valid: {}", error.into_inner()))
                .at(if path == "." { String::new() } else { path })
                .hint("send JSON as described in GET /openapi.json")
        })?;
        Ok(Self(value))
    }
}

/// The body, of at most [`MAX_DOCUMENT_BYTES`].
///
/// A larger one is read to its end, up to [`MAX_PASSED_OVER`], before it is refused: a caller that still sends when the
/// connection closes sees a reset connection and never the answer. One that asks first (`Expect: 100-continue`) is
/// refused at once, and so is one that announces more than that.
async fn whole(request: Request) -> Result<Bytes, Refusal> {
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let asks = request.headers().contains_key(header::EXPECT);
    if announced.is_some_and(|bytes: usize| bytes > if asks { MAX_DOCUMENT_BYTES } else { MAX_PASSED_OVER }) {
        return Err(too_large());
    }
    let (mut body, mut kept, mut seen) = (request.into_body().into_data_stream(), Vec::new(), 0);
    while let Some(piece) = body.next().await {
        let piece: Bytes = piece.map_err(|error| {
            Problem::new(ErrorCode::InvalidDocument, format!("the body did not arrive: {error}")).hint("send it again")
        })?;
        seen += piece.len();
        if seen > MAX_PASSED_OVER {
            break;
        }
        if seen <= MAX_DOCUMENT_BYTES {
            kept.extend_from_slice(&piece);
        }
    }
    if seen > MAX_DOCUMENT_BYTES { Err(too_large()) } else { Ok(kept.into()) }
}

fn too_large() -> Refusal {
    let message = format!("the body is larger than {MAX_DOCUMENT_BYTES} bytes");
    let problem = Problem::new(ErrorCode::LimitReached, message).hint("send one document at a time");
    Refusal::with_status(StatusCode::PAYLOAD_TOO_LARGE, problem)
}

/// Query parameters; unknown ones are refused where `T` refuses unknown fields.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri).map_err(|rejection| {
            let cause =
                std::error::Error::source(&rejection).map_or_else(|| rejection.to_string(), ToString::to_string);
            Problem::new(ErrorCode::InvalidDocument, format!("the query is not valid: {cause}"))
                .at(parts.uri.query().unwrap_or_default())
                .hint("GET /openapi.json lists each route's parameters")
        })?;
        Ok(Self(query.0))
    }
}
