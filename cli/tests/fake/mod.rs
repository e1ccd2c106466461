//! A coordinator that serves canned documents over a Unix socket; the real one may not be known to the command line.

use std::{
    path::PathBuf,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};

const API: &str = "/apis/landfall.dev/v1alpha1";

type Seen = Arc<Mutex<Vec<String>>>;

/// The fake, alive until dropped.
pub(crate) struct Fake {
    pub(crate) socket: PathBuf,
    pub(crate) dir: tempfile::TempDir,
    /// What was asked that changes something, in order.
    pub(crate) seen: Seen,
    _runtime: tokio::runtime::Runtime,
}

pub(crate) fn machine() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine",
        "metadata": {"name": "node-1", "generation": 1, "resourceVersion": 5, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}},
        "status": {"phase": "Failed", "workflow": "node-1-a", "conditions": [
            {"type": "Connected", "status": "True", "reason": "SessionOpen", "message": "an agent is connected",
             "since": "2026-01-01T00:00:00Z", "observedGeneration": 1}]}})
}

pub(crate) fn run() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "node-1-a", "resourceVersion": 6, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"machine": "node-1", "template": "mini"},
        "status": {"phase": "Failed", "machineGeneration": 1, "startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:30Z",
            "actions": [
                {"action": {"name": "write", "writeImage": {"image": {"url": "http://h/i", "digestWaived": true}}},
                 "state": "Failed", "attempt": 3, "startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:30Z",
                 "progress": {"storedBytes": 1048576, "storedTotal": 2097152, "rawBytes": 3145728}},
                {"action": {"name": "reboot", "reboot": {}}, "state": "Skipped"}],
            "problem": {"code": "Truncated", "message": "the image ended early", "causes": ["connection reset"],
                "hint": "check the image's server", "subject": "http://h/i", "lastLogLines": ["fetching", "gone"]}}})
}

fn problem(status: StatusCode, code: &str, message: &str) -> Response {
    let hint = "landfall get machines lists them";
    (status, Json(json!({"code": code, "message": message, "hint": hint}))).into_response()
}

type Queries = Query<std::collections::BTreeMap<String, String>>;

async fn list(Path(plural): Path<String>, Query(query): Queries) -> Response {
    if query.contains_key("watch") {
        // Ends at once, as a restarting coordinator's streams do.
        return String::new().into_response();
    }
    let items = match plural.as_str() {
        "machines" => vec![machine()],
        "workflows" => vec![run()],
        _ => Vec::new(),
    };
    Json(json!({"items": items, "metadata": {"resourceVersion": 6}})).into_response()
}

async fn one(Path((plural, name)): Path<(String, String)>) -> Response {
    match (plural.as_str(), name.as_str()) {
        ("machines", "node-1") => Json(machine()).into_response(),
        ("workflows", "node-1-a") => Json(run()).into_response(),
        _ => problem(StatusCode::NOT_FOUND, "NotFound", &format!("there is no {plural} \"{name}\"")),
    }
}

async fn apply(State(seen): State<Seen>, Query(query): Queries, Json(document): Json<Value>) -> Response {
    let name = document["metadata"]["name"].as_str().unwrap().to_owned();
    if name == "taken" {
        return problem(StatusCode::CONFLICT, "AlreadyExists", "52:54:00:00:00:09 belongs to machine \"other\"");
    }
    let dry = query.get("dryRun").map(String::as_str) == Some("true");
    seen.lock().unwrap().push(format!("{} {name}", if dry { "try" } else { "apply" }));
    let outcome = if name == "node-1" { "unchanged" } else { "created" };
    Json(json!({"outcome": outcome, "object": document})).into_response()
}

async fn provision(State(seen): State<Seen>, Path(name): Path<String>, Json(body): Json<Value>) -> Response {
    seen.lock().unwrap().push(format!("provision {name} {body}"));
    Json(run()).into_response()
}

async fn events() -> String {
    let event = json!({"position": 1, "time": "2026-01-01T00:00:00Z", "machine": "node-1", "workflow": "node-1-a",
        "workflowUid": "2c5f3d0e-0f4b-4f0e-9d0a-5f1a2b3c4d5e", "actionIndex": 0, "action": "write", "attempt": 1,
        "reason": "Started", "message": "attempt 1 began"});
    format!("{event}\n")
}

async fn logs() -> String {
    let line = json!({"time": "2026-01-01T00:00:00Z", "level": "info", "action": "write", "attempt": 1, "message": "fetching"});
    format!("{line}\n")
}

impl Fake {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("api.sock");
        let seen = Seen::default();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(async { tokio::net::UnixListener::bind(&socket).unwrap() });
        let router = Router::new()
            .route(&format!("{API}/apply"), post(apply))
            .route(&format!("{API}/{{plural}}"), get(list))
            .route(&format!("{API}/{{plural}}/{{name}}"), get(one))
            .route(&format!("{API}/machines/{{name}}/provision"), post(provision))
            .route(&format!("{API}/{{plural}}/{{name}}/events"), get(events))
            .route(&format!("{API}/workflows/{{name}}/logs"), get(logs))
            .with_state(seen.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { socket, dir, seen, _runtime: runtime }
    }

    /// The real binary, pointed here.
    pub(crate) fn landfall(&self, args: &[&str]) -> Run {
        run_landfall(&format!("unix://{}", self.socket.display()), args)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// What a run of the binary came to.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run_landfall(server: &str, args: &[&str]) -> Run {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_landfall")).env("LANDFALL_SERVER", server).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}
