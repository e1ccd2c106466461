//! Is it alive, can it work, what has it counted.

use std::{sync::Arc, time::Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use landfall_api::{API_PATH, ManifestReport, SightingList};
use serde_json::{Value, json};

use super::caller::Operator;
use super::elsewhere::{is_passed_on, parts};
use super::problem::Refusal;
use crate::finding::{Finding, worst};
use crate::health::ready;
use crate::metrics;
use crate::sightings::merged;
use crate::state::Coordinator;
use crate::tls::Peer;

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

/// Of all coordinators of this database: which one a port's requests reach is chance.
pub(super) async fn sightings(
    State(coordinator): State<Arc<Coordinator>>, peer: Option<Extension<Peer>>, operator: Operator,
) -> Result<Json<SightingList>, Refusal> {
    let own = coordinator.ops.sightings.list(|mac| coordinator.engine.boot().machine_of_mac(mac));
    if coordinator.config.others.is_empty() || is_passed_on(peer.as_deref()) {
        return Ok(Json(SightingList { items: own, missing: Vec::new() }));
    }
    let (others, missing) = parts::<SightingList>(&coordinator, &operator, &format!("{API_PATH}/sightings")).await?;
    let mut items = Vec::new();
    for sighting in merged(std::iter::once(own).chain(others.into_iter().map(|list| list.items))) {
        // One coordinator may have seen the port before another one booted it.
        let machine = match &sighting.machine {
            Some(name) => coordinator.store.machine(name).await?,
            None => None,
        };
        let heard = machine.and_then(|machine| machine.status.as_ref()?.last_heard);
        if heard.is_none_or(|heard| heard <= sighting.last_seen) {
            items.push(sighting);
        }
    }
    Ok(Json(SightingList { items, missing }))
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
