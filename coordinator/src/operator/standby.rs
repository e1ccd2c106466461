//! What a coordinator answers while another one has the store: that it lives, is not ready, and which one to ask.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use landfall_api::{ErrorCode, Problem};
use serde_json::json;
use tokio::sync::watch;

use super::ops::{TEXT, healthz};
use crate::finding::{Finding, worst};
use crate::metrics;

/// The check of `/readyz` that a standby alone has.
pub const STANDBY: &str = "standby";

/// The routes of a standby. `active`: the name of the coordinator that has the store.
pub fn standby_router(active: watch::Receiver<String>) -> Router {
    let (ready, other) = (active.clone(), active);
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(async move || readyz(&ready.borrow())))
        .route("/metrics", get(async || ([(CONTENT_TYPE, TEXT)], metrics::of_process())))
        .fallback(async move || not_here(&other.borrow()))
}

fn readyz(active: &str) -> Response {
    let hint = "ask that coordinator; this one takes its place when it stops";
    let findings = [Finding::fail(STANDBY, format!("{active} has the store"), hint)];
    let shown = json!({ "status": worst(&findings), "checks": findings });
    (StatusCode::SERVICE_UNAVAILABLE, Json(shown)).into_response()
}

fn not_here(active: &str) -> Response {
    let message = format!("this coordinator is a standby; {active} has the store");
    let problem = Problem::new(ErrorCode::StoreUnavailable, message).hint("ask that coordinator");
    (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response()
}
