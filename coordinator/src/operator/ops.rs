//! Is it alive, can it work, what has it counted.

use std::{sync::Arc, time::Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use landfall_api::{ManifestReport, SightingList};
use serde_json::{Value, json};

use super::problem::Refusal;
use crate::finding::{Finding, worst};
use crate::health::ready;
use crate::metrics;
use crate::state::Coordinator;

/// Prometheus' text form.
pub(super) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers: the process takes requests. Asks nothing of the store, so that a supervisor does not restart a coordinator
/// whose disk is full.
pub(super) async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Each check with what it found; 503 if one failed.
pub(super) async fn readyz(State(coordinator): State<Arc<Coordinator>>) -> Response {
    let unticked = coordinator.engine.upkeep().since_last_tick();
    let findings = coordinator.ops.health.look(&coordinator.store, coordinator.pki.ca_der(), unticked).await;
    let status = if ready(&findings) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(shown(&findings))).into_response()
}

fn shown(findings: &[Finding]) -> Value {
    json!({ "status": worst(findings), "checks": findings })
}

pub(super) async fn counted(State(coordinator): State<Arc<Coordinator>>) -> Result<Response, Refusal> {
    Ok(([(header::CONTENT_TYPE, TEXT)], metrics::text(&coordinator).await?).into_response())
}

pub(super) async fn manifests(State(coordinator): State<Arc<Coordinator>>) -> Json<ManifestReport> {
    Json(coordinator.ops.manifests.report())
}

pub(super) async fn sightings(State(coordinator): State<Arc<Coordinator>>) -> Json<SightingList> {
    Json(SightingList { items: coordinator.ops.sightings.list(|mac| coordinator.engine.boot().machine_of_mac(mac)) })
}

/// The routes of `[metrics] listen`: open to every caller of that port, so it is off unless configured.
pub fn metrics_router(coordinator: Arc<Coordinator>) -> Router {
    Router::new()
        .route("/metrics", get(counted))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(coordinator)
}

/// Counts every request of the API.
pub(super) async fn count(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let response = next.run(request).await;
    landfall_edge::metrics::metrics().api_seconds.took(begun.elapsed());
    landfall_edge::metrics::metrics().api_requests.of(&[("code", response.status().as_str())]).add(1);
    response
}
