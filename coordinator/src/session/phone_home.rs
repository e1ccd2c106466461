//! `POST /phone-home`: an installed system says that it is up.

use std::{net::SocketAddr, sync::Arc};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use landfall_api::{ErrorCode, Problem, message::PhoneHomeReport};

use super::{access, failures::Failures};
use crate::{engine::Engine, tls::Peer};

/// Many times what the report takes.
const MAX_BODY: usize = 16 * 1024;

pub(super) fn router(engine: Engine) -> Router {
    Router::new()
        .route("/phone-home", post(phone_home))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Shared { engine, failures: Arc::default() })
}

#[derive(Clone)]
struct Shared {
    engine: Engine,
    failures: Arc<Failures>,
}

async fn phone_home(
    State(Shared { engine, failures }): State<Shared>, peer: Option<Extension<Peer>>,
    from: Option<Extension<SocketAddr>>, headers: HeaderMap, body: Bytes,
) -> Response {
    let address = from.as_ref().map(|Extension(address)| address);
    if let Err(problem) = failures.may_try(address) {
        // It asks again until its patience ends.
        return (StatusCode::TOO_MANY_REQUESTS, Json(problem)).into_response();
    }
    match take(&engine, &headers, &body).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(problem) => {
            if let Some(left_out) = failures.failed(address) {
                tracing::warn!(%problem, left_out, "a phone-home was refused");
            }
            let peer = peer.map_or(Peer::Anonymous, |Extension(peer)| peer);
            let from = from.map(|Extension(address)| address.ip().to_canonical().to_string());
            access::refused(&engine, "POST /phone-home", &peer, from, &problem).await;
            let status = match problem.code {
                ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
                ErrorCode::InvalidDocument => StatusCode::BAD_REQUEST,
                // It asks again until its patience ends.
                ErrorCode::StoreUnavailable | ErrorCode::MachineBusy => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, Json(problem)).into_response()
        }
    }
}

async fn take(engine: &Engine, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .ok_or_else(|| Problem::new(ErrorCode::Unauthenticated, "a phone-home needs its workflow's bearer token"))?;
    let report: PhoneHomeReport = if body.is_empty() {
        PhoneHomeReport::default()
    } else {
        serde_json::from_slice(body).map_err(|error| Problem::new(ErrorCode::InvalidDocument, error.to_string()))?
    };
    engine.sessions().phone_home(bearer.trim(), report).await
}
