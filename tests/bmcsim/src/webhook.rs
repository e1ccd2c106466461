//! A web server in the place of a BMC: an outlet, with paths and words of its own.

use axum::body::Bytes;
use axum::extract::State as Extract;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::json;

use crate::shared::Shared;

pub(crate) fn router(shared: Shared) -> Router {
    Router::new().fallback(answer).with_state(shared)
}

async fn answer(
    Extract(shared): Extract<Shared>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes,
) -> Response {
    let response = {
        let mut state = shared.lock();
        let quirks = state.quirks.clone();
        state.takes(format!("{method} {} {}", uri.path(), String::from_utf8_lossy(&body)));
        state.computer.settle(&quirks);
        let admitted = state.accounts.admits(&headers, &quirks);
        match (method.as_str(), uri.path()) {
            _ if !admitted => StatusCode::UNAUTHORIZED.into_response(),
            ("GET", "/outlets/m1") => {
                Json(json!({"state": if state.computer.is_on { "on" } else { "off" }})).into_response()
            }
            ("PUT", "/outlets/m1/boot") => {
                (state.computer.target, state.computer.enabled) = ("Pxe".into(), "Once".into());
                StatusCode::NO_CONTENT.into_response()
            }
            ("POST", path) => {
                let kind = match path {
                    "/outlets/m1/on" => "On",
                    "/outlets/m1/off" => "ForceOff",
                    _ => return StatusCode::NOT_FOUND.into_response(),
                };
                state.computer.reset(kind, &quirks);
                // What a careless server answers with.
                (StatusCode::ACCEPTED, body).into_response()
            }
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    };
    shared.notify();
    response
}
