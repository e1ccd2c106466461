//! What answers have in common: errors, and entity tags.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::State;
use crate::quirks::EntityTags;

/// An error, as Redfish has it.
pub(crate) fn error(status: StatusCode, id: &str, message: &str) -> Response {
    let info = json!({"MessageId": format!("Base.1.8.{id}"), "Message": message});
    let body =
        json!({"error": {"code": format!("Base.1.8.{id}"), "message": message, "@Message.ExtendedInfo": [info]}});
    (status, Json(body)).into_response()
}

fn tag(state: &State) -> Option<String> {
    let version = state.computer.version;
    match state.quirks.tags {
        EntityTags::None => None,
        EntityTags::Weak => Some(format!("W/\"{version}\"")),
        EntityTags::Required | EntityTags::OnlyAny => Some(format!("\"{version}\"")),
    }
}

/// A resource with its entity tag, if there are any.
pub(crate) fn with_tag(state: &State, body: Value) -> Response {
    match tag(state) {
        Some(tag) => ([("ETag", tag)], Json(body)).into_response(),
        None => Json(body).into_response(),
    }
}

/// Why a change may not be made with the tag that was sent; absent: it may.
pub(crate) fn tag_refused(state: &State, headers: &HeaderMap) -> Option<Response> {
    let given = headers.get("if-match").and_then(|value| value.to_str().ok());
    let fits = match state.quirks.tags {
        EntityTags::None => true,
        EntityTags::Required => given == tag(state).as_deref(),
        EntityTags::Weak => given == tag(state).as_deref().and_then(|weak| weak.strip_prefix("W/")),
        EntityTags::OnlyAny => given == Some("*"),
    };
    if !fits && given.is_none() {
        return Some(error(StatusCode::PRECONDITION_REQUIRED, "PreconditionRequired", "If-Match is missing"));
    }
    (!fits).then(|| error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "the tag does not match"))
}
