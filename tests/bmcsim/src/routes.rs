//! The resources of Redfish.

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State as Extract;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::answers::{error, tag_refused, with_tag};
use crate::shared::Shared;
use crate::{State, media};

const ROOT: &str = "/redfish/v1";
/// More than a client should take.
const HUGE: usize = 10_000_000;

pub(crate) fn router(shared: Shared) -> Router {
    Router::new().fallback(answer).with_state(shared)
}

async fn answer(
    Extract(shared): Extract<Shared>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes,
) -> Response {
    let (is_answered, after) = {
        let mut state = shared.lock();
        (state.takes(format!("{method} {}", uri.path())), state.quirks.answers_after)
    };
    shared.notify();
    if !after.is_zero() {
        tokio::time::sleep(after).await;
    }
    if !is_answered {
        std::future::pending::<()>().await;
    }
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let response = respond(&mut shared.lock(), &method, uri.path().trim_end_matches('/'), &headers, &body);
    shared.notify();
    response
}

fn respond(state: &mut State, method: &Method, path: &str, headers: &HeaderMap, body: &Value) -> Response {
    let quirks = state.quirks.clone();
    state.computer.settle(&quirks);
    if quirks.huge {
        return (StatusCode::OK, "x".repeat(HUGE)).into_response();
    }
    if (method, path) == (&Method::GET, ROOT) {
        let mut root = json!({"RedfishVersion": "1.8.0", "Systems": {"@odata.id": "/redfish/v1/Systems"}});
        if !quirks.no_sessions {
            root["Links"] = json!({"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}});
        }
        return Json(root).into_response();
    }
    if (method, path) == (&Method::POST, "/redfish/v1/SessionService/Sessions") && !quirks.no_sessions {
        return log_in(state, body);
    }
    if !state.accounts.admits(headers, &quirks) {
        return error(StatusCode::UNAUTHORIZED, "NoValidSession", "no valid session");
    }
    if *method == Method::DELETE {
        let token = path.rsplit('/').next().unwrap_or_default().to_owned();
        state.accounts.sessions.retain(|open| *open != token);
        return StatusCode::NO_CONTENT.into_response();
    }
    if *method != Method::GET && quirks.is_busy {
        return error(StatusCode::SERVICE_UNAVAILABLE, "ServiceTemporarilyUnavailable", "the host is in POST");
    }
    if *method != Method::GET && quirks.read_only {
        return error(StatusCode::FORBIDDEN, "InsufficientPrivilege", "the account may not do that");
    }
    if let Some(answer) = media::respond(state, method, path, headers, body) {
        return answer;
    }
    match (method.as_str(), path) {
        ("GET", "/redfish/v1/Systems") => {
            let member = |n: usize| json!({"@odata.id": format!("/redfish/v1/Systems/{n}")});
            Json(json!({"Members": (1..=quirks.other_systems + 1).map(member).collect::<Vec<_>>()})).into_response()
        }
        ("GET", "/redfish/v1/Systems/1") => with_tag(state, system(state)),
        ("GET", "/redfish/v1/Systems/1/SD") if quirks.settings => with_tag(state, json!({"Boot": boot(state)})),
        ("PATCH", "/redfish/v1/Systems/1") if !quirks.settings => set_boot(state, headers, body),
        ("PATCH", "/redfish/v1/Systems/1/SD") if quirks.settings => set_boot(state, headers, body),
        ("PATCH", _) => error(StatusCode::METHOD_NOT_ALLOWED, "OperationNotAllowed", "change the settings"),
        ("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset") => {
            let kind = body["ResetType"].as_str().unwrap_or_default();
            if state.computer.reset(kind, &quirks) {
                StatusCode::NO_CONTENT.into_response()
            } else if quirks.refuses_shutdown {
                error(StatusCode::CONFLICT, "ResourceInStandby", "not in this state")
            } else {
                error(StatusCode::BAD_REQUEST, "ActionParameterNotSupported", "not in this state")
            }
        }
        ("GET", "/redfish/v1/Systems/1/EthernetInterfaces") => {
            let port = json!({"@odata.id": "/redfish/v1/Systems/1/EthernetInterfaces/1"});
            Json(json!({"Members": if quirks.no_ports { vec![] } else { vec![port] }})).into_response()
        }
        ("GET", "/redfish/v1/Systems/1/EthernetInterfaces/1") => {
            Json(json!({"MACAddress": "52:54:00:00:00:01"})).into_response()
        }
        ("GET", "/redfish/v1/Managers") => {
            Json(json!({"Members": [{"@odata.id": "/redfish/v1/Managers/1"}]})).into_response()
        }
        ("GET", "/redfish/v1/Managers/1") => {
            let mut manager = json!({"FirmwareVersion": "1.2", "DateTime": quirks.clock});
            media::link(state, path, &mut manager);
            Json(manager).into_response()
        }
        ("GET", "/redfish/v1/Systems/1/LogServices") => {
            Json(json!({"Members": [{"@odata.id": "/redfish/v1/Systems/1/LogServices/SEL"}]})).into_response()
        }
        ("GET", "/redfish/v1/Systems/1/LogServices/SEL") => {
            Json(json!({"Entries": {"@odata.id": "/redfish/v1/Systems/1/LogServices/SEL/Entries"}})).into_response()
        }
        ("GET", "/redfish/v1/Systems/1/LogServices/SEL/Entries") => {
            let entry = |[created, severity, message]: &[String; 3]| json!({"Created": created, "Severity": severity, "Message": message});
            Json(json!({"Members": state.computer.log.iter().map(entry).collect::<Vec<_>>()})).into_response()
        }
        _ => error(StatusCode::NOT_FOUND, "ResourceMissingAtURI", "not here"),
    }
}

fn log_in(state: &mut State, body: &Value) -> Response {
    let quirks = state.quirks.clone();
    let of = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    if !state.accounts.accepts(&of("UserName"), &of("Password"), &quirks) {
        return error(StatusCode::UNAUTHORIZED, "ResourceAtUriUnauthorized", "wrong account");
    }
    if quirks.session_limit.is_some_and(|most| state.accounts.sessions.len() >= most) {
        return error(StatusCode::SERVICE_UNAVAILABLE, "SessionLimitExceeded", "too many sessions");
    }
    let token = state.accounts.open();
    let path = format!("/redfish/v1/SessionService/Sessions/{token}");
    let headers = [("X-Auth-Token", token), ("Location", path.clone())];
    (StatusCode::CREATED, headers, Json(json!({"@odata.id": path}))).into_response()
}

fn boot(state: &State) -> Value {
    let computer = &state.computer;
    let mut boot = Map::new();
    boot.insert("BootSourceOverrideTarget".into(), json!(computer.target));
    boot.insert("BootSourceOverrideEnabled".into(), json!(computer.enabled));
    boot.insert(
        "BootSourceOverrideTarget@Redfish.AllowableValues".into(),
        json!(["None", "Pxe", "Hdd", "UefiHttp", "Cd"]),
    );
    if !state.quirks.no_mode {
        boot.insert("BootSourceOverrideMode".into(), json!(computer.mode));
    }
    Value::Object(boot)
}

fn system(state: &State) -> Value {
    let quirks = &state.quirks;
    let mut system = json!({
        "@odata.id": "/redfish/v1/Systems/1", "Manufacturer": "Acme", "Model": "Anvil 3000", "SerialNumber": "ACME-1",
        "UUID": "12345678-1234-1234-1234-123456789abc", "BiosVersion": "7.1", "Boot": boot(state),
        "PowerState": if state.computer.is_on { "On" } else { "Off" },
        "Links": {"ManagedBy": [{"@odata.id": "/redfish/v1/Managers/1"}]},
        "EthernetInterfaces": {"@odata.id": "/redfish/v1/Systems/1/EthernetInterfaces"},
        "LogServices": {"@odata.id": "/redfish/v1/Systems/1/LogServices"},
        "BootProgress": {"LastState": state.computer.progress},
        "Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"}},
    });
    media::link(state, "/redfish/v1/Systems/1", &mut system);
    if !quirks.reset_types.is_empty() {
        let types = json!(quirks.reset_types);
        system["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = types;
    }
    if quirks.settings {
        system["@Redfish.Settings"] = json!({"SettingsObject": {"@odata.id": "/redfish/v1/Systems/1/SD"}});
    }
    if quirks.odd_fields {
        system["Model"] = Value::Null;
        system["SerialNumber"] = json!(4711);
        system["UUID"] = json!(["none"]);
        system["EthernetInterfaces"] = json!(7);
        system["Links"] = json!([]);
        system["Actions"] = json!("see the manual");
    }
    if quirks.no_power_state {
        system["PowerState"] = Value::Null;
    }
    system
}

fn set_boot(state: &mut State, headers: &HeaderMap, body: &Value) -> Response {
    if let Some(refused) = tag_refused(state, headers) {
        return refused;
    }
    let boot = &body["Boot"];
    if boot.get("BootSourceOverrideMode").is_some() && (state.quirks.no_mode || state.quirks.refuses_mode) {
        return error(StatusCode::BAD_REQUEST, "PropertyNotWritable", "BootSourceOverrideMode is read only");
    }
    let once = boot["BootSourceOverrideEnabled"] == "Once";
    if !(state.quirks.reverts_boot || once && state.quirks.reverts_once) {
        let computer = &mut state.computer;
        computer.version += 1;
        for (key, field) in [
            ("BootSourceOverrideTarget", &mut computer.target),
            ("BootSourceOverrideEnabled", &mut computer.enabled),
            ("BootSourceOverrideMode", &mut computer.mode),
        ] {
            if let Some(value) = boot[key].as_str() {
                value.clone_into(field);
            }
        }
        computer.set_boot(&state.quirks);
    }
    StatusCode::OK.into_response()
}
