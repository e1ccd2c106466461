//! The operators' HTTP/JSON API: documents, runs, what happened, and the schemas of it all.
//!
//! The same routes stand behind the Unix socket and the TLS port. A request carries the [`Peer`](crate::tls::Peer) its
//! listener saw; every route but `/healthz` asks for an operator before it reads anything else. Every failure is a
//! [`Problem`] in JSON.

mod body;
mod caller;
mod documents;
mod follow;
mod history;
mod problem;
mod runs;
#[cfg(test)]
mod tests;
mod unix;
mod watch;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path},
    http::Uri,
    routing::{any, get, post},
};
use landfall_api::{API_PATH, ErrorCode, Kind, Problem};
use serde_json::{Value, json};

use crate::{state::Coordinator, store::MAX_DOCUMENT_BYTES};
use caller::Operator;
use problem::Refusal;

pub use unix::{BindError, LocalListener};

/// The operators' routes. The listener that serves them must put a [`Peer`](crate::tls::Peer) into every request's
/// extensions; a request without one is anonymous.
pub fn router(coordinator: Arc<Coordinator>) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(healthz))
        .route("/openapi.json", get(openapi))
        .route("/schemas/{kind}", get(schema))
        .route(&format!("{API_PATH}/apply"), post(documents::apply))
        .route(&format!("{API_PATH}/machines/{{name}}/provision"), post(runs::provision))
        .route(&format!("{API_PATH}/machines/{{name}}/events"), get(history::of_machine))
        .route(&format!("{API_PATH}/workflows/{{name}}/cancel"), post(runs::cancel))
        .route(&format!("{API_PATH}/workflows/{{name}}/events"), get(history::of_workflow))
        .route(&format!("{API_PATH}/workflows/{{name}}/logs"), get(follow::logs))
        .route("/apis/{*rest}", any(nowhere));
    for kind in Kind::ALL {
        let plural = kind.plural();
        router = router
            .route(
                &format!("{API_PATH}/{plural}"),
                get(move |operator, state, query| documents::list(kind, operator, state, query)),
            )
            .route(
                &format!("{API_PATH}/{plural}/{{name}}"),
                get(move |operator, state, name| documents::get(kind, operator, state, name))
                    .delete(move |operator, state, name| documents::delete(kind, operator, state, name)),
            );
    }
    router
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_DOCUMENT_BYTES))
        .with_state(coordinator)
}

async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

async fn openapi(_: Operator) -> Json<Value> {
    Json(landfall_api::openapi(env!("CARGO_PKG_VERSION")))
}

async fn schema(_: Operator, Path(kind): Path<String>) -> Result<Json<Value>, Refusal> {
    let kind = Kind::from_word(&kind).ok_or_else(|| {
        let hint = format!("the kinds are {}", Kind::ALL.map(Kind::singular).join(", "));
        Problem::new(ErrorCode::NotFound, format!("there is no kind \"{kind}\"")).hint(hint)
    })?;
    Ok(Json(landfall_api::schema(kind)))
}

async fn nowhere(_: Operator, uri: Uri) -> Refusal {
    Problem::new(ErrorCode::NotFound, "there is no such route")
        .at(uri.path())
        .hint("GET /openapi.json lists them all")
        .into()
}

async fn wrong_method(_: Operator, uri: Uri) -> Refusal {
    let problem = Problem::new(ErrorCode::InvalidDocument, "this route does not take that method")
        .at(uri.path())
        .hint("GET /openapi.json lists each route with its methods");
    Refusal::with_status(axum::http::StatusCode::METHOD_NOT_ALLOWED, problem)
}
