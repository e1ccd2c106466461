//! What the fake coordinator tells of workflows: their events, and one whose agent goes from coordinator to coordinator.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::hostile;

pub(crate) async fn events(Path((_, name)): Path<(String, String)>) -> String {
    let message = if name.starts_with("evil") { hostile::EVIL } else { "attempt 1 began" };
    let event = json!({"position": 1, "time": "2026-01-01T00:00:00Z", "machine": "node-1", "workflow": "node-1-a",
        "workflowUid": "2c5f3d0e-0f4b-4f0e-9d0a-5f1a2b3c4d5e", "actionIndex": 0, "action": "write", "attempt": 1,
        "reason": "Started", "message": message});
    format!("{event}\n")
}

/// The workflow after so many requests for its logs: it ends before its last lines were read.
pub(crate) fn moving(mut workflow: Value, requests: usize) -> Value {
    if requests < 3 {
        workflow["status"]["phase"] = "Running".into();
    }
    workflow
}

/// Logs of an agent that goes from one coordinator to the next: the first one lets it go, the next one dies, and another one does
/// not have it yet. Each answer says that one is missing.
pub(crate) fn moved_logs(request: usize) -> Response {
    let line = |second: u8, message: &str| {
        let time = format!("2026-01-01T00:00:0{second}Z");
        let line = json!({"time": time, "level": "info", "action": "write", "attempt": 1, "message": message});
        Ok(format!("{line}\n"))
    };
    let warning = json!({"time": format!("2026-01-01T00:00:1{request}Z"), "level": "warn", "message": "gone"});
    let mut lines = match request {
        1 => vec![line(0, "one"), line(1, "two")],
        2 => vec![line(1, "two"), line(1, "three"), Err(std::io::Error::other("killed"))],
        3 => {
            let problem = json!({"code": "StoreUnavailable", "message": "the coordinator cannot be asked"});
            return (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response();
        }
        _ => vec![line(1, "three"), line(2, "four")],
    };
    lines.insert(0, Ok(format!("{warning}\n")));
    axum::body::Body::from_stream(futures::stream::iter(lines)).into_response()
}
