//! The virtual CD drive.

use axum::Json;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::State;
use crate::answers::{error, tag_refused, with_tag};
use crate::quirks::{Eject, Insert, MediaAt};

/// The drive.
#[derive(Debug, Clone, Default)]
pub struct Drive {
    /// What is in it.
    pub image: Option<String>,
    /// A person put it in.
    pub is_persons: bool,
    /// Media that were put in.
    pub inserts: u32,
    /// Media that were taken out.
    pub ejects: u32,
    /// What was in it before, as some go on showing it.
    stale: Option<String>,
}

/// Where the drives are.
pub(crate) fn parent(at: MediaAt) -> Option<&'static str> {
    match at {
        MediaAt::Systems => Some("/redfish/v1/Systems/1"),
        MediaAt::Managers | MediaAt::SharedManager => Some("/redfish/v1/Managers/1"),
        MediaAt::Nowhere => None,
    }
}

/// Adds the link to the resource that has the drives.
pub(crate) fn link(state: &State, path: &str, resource: &mut Value) {
    if parent(state.quirks.media_at) == Some(path) {
        if state.quirks.media_at == MediaAt::SharedManager {
            let system = |n: u32| json!({"@odata.id": format!("/redfish/v1/Systems/{n}")});
            resource["Links"] = json!({"ManagerForServers": [system(1), system(2)]});
        }
        resource["VirtualMedia"] = json!({"@odata.id": format!("{path}/VirtualMedia")});
    }
}

/// Answers for the drives; absent: it is no path of theirs.
pub(crate) fn respond(
    state: &mut State, method: &Method, path: &str, headers: &HeaderMap, body: &Value,
) -> Option<Response> {
    if path == "/redfish/v1/TaskService/Tasks/1" {
        let message = json!({"MessageId": "Oem.1.0.Unreachable", "Message": "the remote file is not accessible"});
        return Some(Json(json!({"TaskState": "Exception", "Messages": [message]})).into_response());
    }
    let drives = format!("{}/VirtualMedia", parent(state.quirks.media_at)?);
    let rest = path.strip_prefix(&drives)?;
    if state.quirks.media_busy {
        return Some(error(StatusCode::SERVICE_UNAVAILABLE, "ServiceTemporarilyUnavailable", "the host is in POST"));
    }
    Some(match (method.as_str(), rest) {
        ("GET", "") => {
            let of = |name: &str| json!({"@odata.id": format!("{drives}/{name}")});
            Json(json!({"Members": [of("Floppy1"), of("Cd1")]})).into_response()
        }
        ("GET", "/Floppy1") => Json(json!({"MediaTypes": ["Floppy"], "Inserted": false})).into_response(),
        ("GET", "/Cd1") => with_tag(state, drive(state, &drives)),
        ("POST", "/Cd1/Actions/VirtualMedia.InsertMedia") => insert(state, body),
        ("POST", "/Cd1/Actions/VirtualMedia.EjectMedia") => eject(state),
        ("PATCH", "/Cd1") if state.quirks.insert == Insert::ByPatch => match tag_refused(state, headers) {
            Some(refused) => refused,
            None if body["Image"].is_null() => eject(state),
            None if body["Inserted"] == true => take(state, body),
            // As Lenovo's do.
            None => StatusCode::OK.into_response(),
        },
        _ => error(StatusCode::NOT_FOUND, "ResourceMissingAtURI", "not here"),
    })
}

fn drive(state: &State, drives: &str) -> Value {
    let Drive { image, is_persons, stale, .. } = &state.drive;
    let via = match image {
        None => "NotConnected",
        Some(_) if *is_persons => "Applet",
        Some(_) => "URI",
    };
    let shown = image.as_ref().or(stale.as_ref());
    let mut drive =
        json!({"MediaTypes": ["CD", "DVD"], "Image": shown, "Inserted": shown.is_some(), "ConnectedVia": via});
    if state.quirks.insert != Insert::ByPatch {
        let target = |name: &str| json!({"target": format!("{drives}/Cd1/Actions/VirtualMedia.{name}")});
        drive["Actions"] = json!({"#VirtualMedia.InsertMedia": target("InsertMedia"), "#VirtualMedia.EjectMedia": target("EjectMedia")});
    }
    drive
}

fn insert(state: &mut State, body: &Value) -> Response {
    let has = |key: &str| body.get(key).is_some();
    let missing = |what| error(StatusCode::BAD_REQUEST, "ActionParameterMissing", what);
    match state.quirks.insert {
        Insert::ByPatch => error(StatusCode::NOT_FOUND, "ResourceMissingAtURI", "not here"),
        Insert::CannotReach if !has("Inserted") && !has("TransferMethod") => {
            error(StatusCode::BAD_REQUEST, "ResourceAtUriInUnknownFormat", "no route to the file")
        }
        Insert::CannotReach => error(StatusCode::BAD_REQUEST, "ActionParameterUnknown", "unknown parameter"),
        Insert::UrlAlone if has("Inserted") || has("WriteProtected") || has("TransferMethod") => {
            error(StatusCode::BAD_REQUEST, "ActionParameterUnknown", "only Image is known")
        }
        Insert::WantsFlags if !has("Inserted") || !has("WriteProtected") => missing("WriteProtected is missing"),
        Insert::WantsProtocol if !has("TransferProtocolType") => missing("TransferProtocolType is missing"),
        Insert::FailsLater => {
            let headers = [("Location", "/redfish/v1/TaskService/Tasks/1")];
            (StatusCode::ACCEPTED, headers).into_response()
        }
        _ => take(state, body),
    }
}

fn take(state: &mut State, body: &Value) -> Response {
    if state.drive.image.is_some() {
        return error(StatusCode::BAD_REQUEST, "ResourceInUse", "there is a medium in it");
    }
    state.drive.image = body["Image"].as_str().map(str::to_owned);
    state.drive.inserts += 1;
    state.computer.has_medium = true;
    state.computer.version += 1;
    StatusCode::NO_CONTENT.into_response()
}

fn eject(state: &mut State) -> Response {
    match state.quirks.eject {
        Eject::Refused => return error(StatusCode::BAD_REQUEST, "ActionNotSupported", "it cannot be ejected"),
        Eject::Ignored => {}
        Eject::ShownStill => {
            state.drive.stale = state.drive.image.take();
            state.drive.ejects += 1;
        }
        Eject::Done => {
            state.drive.ejects += u32::from(state.drive.image.take().is_some());
        }
    }
    state.computer.has_medium = state.drive.image.is_some();
    state.computer.version += 1;
    StatusCode::NO_CONTENT.into_response()
}
