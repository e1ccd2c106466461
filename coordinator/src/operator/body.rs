//! Request bodies and queries, whose every fault is answered as a problem.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{StatusCode, request::Parts},
};
use landfall_api::{ErrorCode, Problem};
use serde::de::DeserializeOwned;

use super::problem::Refusal;
use crate::store::MAX_DOCUMENT_BYTES;

/// A JSON body, whatever `Content-Type` says: `curl -d @file` sends none that fits.
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;
    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                let message = format!("the body is larger than {MAX_DOCUMENT_BYTES} bytes");
                let problem = Problem::new(ErrorCode::LimitReached, message).hint("send one document at a time");
                return Refusal::with_status(StatusCode::PAYLOAD_TOO_LARGE, problem);
            }
            Problem::new(ErrorCode::InvalidDocument, format!("the body did not arrive: {rejection}"))
                .hint("send it again")
                .into()
        })?;
        let deserializer = &mut serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            Problem::new(ErrorCode::InvalidDocument, format!("the body does not read: {}", error.into_inner()))
                .at(if path == "." { String::new() } else { path })
                .hint("send JSON of the shape that GET /openapi.json describes")
        })?;
        Ok(Self(value))
    }
}

/// Query parameters; unknown ones are refused where `T` refuses unknown fields.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri).map_err(|rejection| {
            let cause =
                std::error::Error::source(&rejection).map_or_else(|| rejection.to_string(), ToString::to_string);
            Problem::new(ErrorCode::InvalidDocument, format!("the query does not read: {cause}"))
                .at(parts.uri.query().unwrap_or_default())
                .hint("GET /openapi.json lists each route's parameters")
        })?;
        Ok(Self(query.0))
    }
}
