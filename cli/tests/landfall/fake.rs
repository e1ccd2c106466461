//! A coordinator that serves canned documents over a Unix socket; the command line must not depend on the real one.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock, Mutex};

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{console, fleet, hostile, story};

const API: &str = "/apis/landfall.dev/v1alpha1";

pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

/// The fake, alive until dropped.
pub(crate) struct Fake {
    pub(crate) socket: PathBuf,
    pub(crate) dir: tempfile::TempDir,
    /// The requests that change something, in order.
    pub(crate) seen: Seen,
    _runtime: tokio::runtime::Runtime,
}

/// So many days ago, that ages stay what they are.
const DAYS: i64 = 5;

/// When the tests began: the same for every document, or a second that passes between two would show in a duration.
static BEGUN: LazyLock<i64> = LazyLock::new(|| Timestamp::now().as_second());

/// A moment days ago, `seconds` later.
fn ago(seconds: i64) -> String {
    Timestamp::from_second(*BEGUN - DAYS * 86_400 - 600 + seconds).unwrap().to_string()
}

pub(crate) fn machine() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine",
        "metadata": {"name": "node-1", "generation": 1, "resourceVersion": 5, "creationTimestamp": ago(0),
            "labels": {"rack": "r7"}},
        "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}},
        "status": {"phase": "Failed", "workflow": "node-1-a", "conditions": [
            {"type": "Connected", "status": "True", "reason": "SessionOpen", "message": "an agent is connected",
             "since": ago(0), "observedGeneration": 1}]}})
}

pub(crate) fn run() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "node-1-a", "resourceVersion": 6, "creationTimestamp": ago(0)},
        "spec": {"machine": "node-1", "template": "mini"},
        "status": {"phase": "Failed", "machineGeneration": 1, "startedAt": ago(0), "endedAt": ago(30),
            "actions": [
                {"action": {"name": "write", "writeImage": {"image": {"url": "http://h/i", "digestWaived": true}}},
                 "state": "Failed", "attempt": 3, "failures": 3, "logTail": ["opening http://h/i", "connection reset"], "startedAt": ago(0), "endedAt": ago(30),
                 "progress": {"storedBytes": 1048576, "storedTotal": 2097152, "rawBytes": 3145728}},
                {"action": {"name": "reboot", "reboot": {}}, "state": "Skipped"}],
            "problem": {"code": "Truncated", "message": "the image ended early", "causes": ["connection reset"],
                "hint": "check the image's server", "subject": "http://h/i"}}})
}

pub(crate) fn problem(status: StatusCode, code: &str, message: &str) -> Response {
    let hint = "landfall get machines lists them";
    (status, Json(json!({"code": code, "message": message, "hint": hint}))).into_response()
}

pub(crate) type Words = std::collections::BTreeMap<String, String>;
type Queries = Query<Words>;

pub(crate) fn template() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Template",
        "metadata": {"name": "mini", "generation": 2, "resourceVersion": 3, "creationTimestamp": ago(0)},
        "spec": {"parameters": {
                "release": {"type": "integer", "min": 11, "max": 14, "default": 12, "description": "which Debian"},
                "tag": {"type": "text"}}, "actions": [
            {"name": "write", "writeImage": {"image": {"url": "http://h/i", "digestWaived": true}}},
            {"name": "reboot", "reboot": {}}]}})
}

pub(crate) fn secret() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Secret",
        "metadata": {"name": "root-key", "generation": 1, "resourceVersion": 4, "creationTimestamp": ago(0)},
        "spec": {"machines": ["node-1"], "matchLabels": {"rack": "r7"}},
        "status": {"keys": ["password", "ssh"], "version": 3}})
}

pub(crate) fn rule() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "EnrolmentRule",
        "metadata": {"name": "dell", "generation": 1, "resourceVersion": 2, "creationTimestamp": ago(0)},
        "spec": {"priority": 10, "when": {"smbios.manufacturer": "glob Dell*"}, "labels": {"vendor": "dell"},
            "template": "mini", "approve": true},
        "status": {"applied": 7}})
}

pub(crate) fn pool() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Pool",
        "metadata": {"name": "web", "generation": 3, "resourceVersion": 7, "creationTimestamp": ago(0)},
        "spec": {"replicas": 3, "template": "mini", "matchLabels": {"rack": "r7"}, "when": {"memoryBytes": ">= 64GiB"}},
        "status": {"ready": 1, "installing": 1, "failed": 1, "requested": {"person": "ann", "at": ago(0), "force": false},
            "conditions": [{"type": "Ready", "status": "False", "reason": "TooFewMachines", "observedGeneration": 3,
                "message": "1 of 3 machines are ready: 1 more is wanted, and no other machine is free and suitable", "since": ago(0)}],
            "members": [{"name": "node-3", "state": "failed", "problem": "the image ended early"},
                {"name": "node-2", "state": "installing"}, {"name": "node-1", "state": "ready"}]}})
}

/// What a watch tells, one line a change, and then ends as a restarting coordinator's streams do.
fn changes(plural: &str) -> String {
    let line = |kind: &str, version: u64, object: Value| {
        format!("{}\n", json!({"type": kind, "resourceVersion": version, "object": object}))
    };
    match plural {
        "machines" => {
            let mut provisioned = machine();
            provisioned["status"]["phase"] = "Provisioned".into();
            provisioned["metadata"]["resourceVersion"] = 7.into();
            line("MODIFIED", 7, provisioned.clone()) + &line("DELETED", 8, provisioned)
        }
        _ => String::new(),
    }
}

async fn list(State(seen): State<Seen>, Path(plural): Path<String>, Query(query): Queries) -> Response {
    if let Some(answer) = fleet::list(&plural, &query, &seen) {
        return answer;
    }
    let happened = |what: &str| seen.lock().unwrap().iter().any(|s| s == what);
    let (emptied, expired) = (happened("emptied"), format!("expired {plural}"));
    if emptied && query.contains_key("watch") && !happened(&expired) {
        seen.lock().unwrap().push(expired);
        let problem = json!({"code": "Expired", "message": "that revision is no longer kept"});
        return format!("{}\n", json!({"type": "ERROR", "resourceVersion": 6, "problem": problem})).into_response();
    }
    if emptied && query.contains_key("watch") {
        let silence = futures::stream::pending::<Result<String, std::convert::Infallible>>();
        return axum::body::Body::from_stream(silence).into_response();
    }
    if emptied && happened(&expired) {
        return Json(json!({"items": [], "metadata": {"resourceVersion": 9}})).into_response();
    }
    if emptied && plural == "workflows" {
        let mut going = run();
        going["status"]["phase"] = "Running".into();
        return Json(json!({"items": [going], "metadata": {"resourceVersion": 6}})).into_response();
    }
    if query.contains_key("watch") {
        return changes(&plural).into_response();
    }
    if let Some(labels) = query.get("labelSelector") {
        seen.lock().unwrap().push(format!("labels {labels}"));
        if labels == "paged" {
            // Two pages: the second only for the first's token.
            let (mut item, first) = (template(), query.get("continue").is_none_or(|token| token != "6.1.mini"));
            if !first {
                item["metadata"]["name"] = "second".into();
            }
            let metadata = if first {
                json!({"resourceVersion": 6, "continue": "6.1.mini"})
            } else {
                json!({"resourceVersion": 6})
            };
            return Json(json!({"items": [item], "metadata": metadata})).into_response();
        }
        if labels != "rack=r7" {
            return Json(json!({"items": [], "metadata": {"resourceVersion": 6}})).into_response();
        }
    }
    let items = match plural.as_str() {
        "machines" => vec![machine()],
        "workflows" if seen.lock().unwrap().iter().any(|s| s.starts_with("provision evil")) => vec![hostile::run()],
        "workflows" => vec![run()],
        "templates" => vec![template()],
        "secrets" => vec![secret()],
        "enrolmentrules" => vec![rule()],
        "pools" => vec![pool()],
        _ => Vec::new(),
    };
    Json(json!({"items": items, "metadata": {"resourceVersion": 6}})).into_response()
}

async fn one(State(seen): State<Seen>, Path((plural, name)): Path<(String, String)>) -> Response {
    match (plural.as_str(), name.as_str()) {
        ("machines", "node-1") if seen.lock().unwrap().iter().any(|s| s == "conflict node-1") => {
            let mut moved = machine();
            moved["metadata"]["resourceVersion"] = 9.into();
            moved["metadata"]["labels"]["rack"] = "r8".into();
            Json(moved).into_response()
        }
        ("machines", "node-1") => {
            let beats = heartbeats(&seen);
            let mut beaten = machine();
            beaten["metadata"]["resourceVersion"] = (5 + beats).into();
            if beats > 0 {
                beaten["status"]["lastHeard"] = ago(beats).into();
            }
            Json(beaten).into_response()
        }
        ("machines", "twin-1" | "twin-2") => {
            let version = if name == "twin-1" { "2.1" } else { "2.3" };
            let mut seen = machine();
            seen["metadata"]["name"] = name.clone().into();
            seen["status"]["facts"] = json!({
                "smbios": {"uuid": "", "serial": name, "manufacturer": "Dell Inc.", "product": "R640"},
                "cpu": {"model": "", "logical": 64, "architecture": "x86_64"}, "memoryBytes": 1, "disks": [], "nics": [],
                "firmware": {"mode": "uefi", "version": version}});
            Json(seen).into_response()
        }
        ("workflows", "node-1-a") => Json(run()).into_response(),
        ("workflows", "moved-a") => Json(story::moving(run(), log_requests(&seen))).into_response(),
        ("machines", "evil") => Json(hostile::machine()).into_response(),
        ("workflows", "evil-a") => Json(hostile::run()).into_response(),
        ("templates", "mini") => Json(template()).into_response(),
        ("secrets", "root-key") => Json(secret()).into_response(),
        ("enrolmentrules", "dell") => Json(rule()).into_response(),
        ("pools", "web") => Json(pool()).into_response(),
        _ => problem(
            StatusCode::NOT_FOUND,
            "NotFound",
            &format!("there is no {} \"{name}\"", plural.trim_end_matches('s')),
        ),
    }
}

/// How often the machine was heard while it was edited.
fn heartbeats(seen: &Seen) -> i64 {
    seen.lock().unwrap().iter().filter(|s| *s == "heartbeat node-1").count() as i64
}

async fn apply(State(seen): State<Seen>, Query(query): Queries, Json(document): Json<Value>) -> Response {
    let name = document["metadata"]["name"].as_str().unwrap().to_owned();
    if name == "taken" {
        return problem(StatusCode::CONFLICT, "AlreadyExists", "52:54:00:00:00:09 belongs to machine \"other\"");
    }
    let dry = query.get("dryRun").map(String::as_str) == Some("true");
    seen.lock().unwrap().push(format!("{} {name}", if dry { "try" } else { "apply" }));
    // Another person was faster, once.
    if document["spec"]["identity"]["serial"] == "late" && document["metadata"]["resourceVersion"] == 5 && !dry {
        seen.lock().unwrap().push(format!("conflict {name}"));
        return problem(StatusCode::CONFLICT, "Conflict", "the document has changed since it was read");
    }
    // The machine was heard meanwhile, so often as its serial says.
    let beats = heartbeats(&seen);
    let busy = document["spec"]["identity"]["serial"].as_str().and_then(|serial| serial.strip_prefix("busy-"));
    if busy.is_some_and(|times| beats < times.parse().unwrap()) {
        seen.lock().unwrap().push(format!("heartbeat {name}"));
        return problem(StatusCode::CONFLICT, "Conflict", "the document has changed since it was read");
    }
    if busy.is_some() && document["metadata"]["resourceVersion"] != 5 + beats {
        return problem(StatusCode::CONFLICT, "Conflict", "that is not the version");
    }
    let outcome = match document["spec"]["identity"]["serial"].is_string() {
        true => "configured",
        false if name == "node-1" => "unchanged",
        false => "created",
    };
    Json(json!({"outcome": outcome, "object": document})).into_response()
}

/// Deletes, and what else is asked of one document.
async fn delete(State(seen): State<Seen>, Path((plural, name)): Path<(String, String)>) -> Response {
    seen.lock().unwrap().push(format!("delete {plural}/{name}"));
    one(State(seen), Path((plural, name))).await
}

async fn act(
    State(seen): State<Seen>, Path((plural, name, verb)): Path<(String, String, String)>, body: String,
) -> Response {
    // As a coordinator answers that is older than this.
    if name == "aged" && verb == "preview" {
        return problem(StatusCode::NOT_FOUND, "NotFound", "there is no such route");
    }
    if verb == "preview" {
        seen.lock().unwrap().push(format!("preview {name} {body}"));
        return Json(preview(if name == "evil" { hostile::EVIL } else { "Ablage" })).into_response();
    }
    if name.starts_with("evil") {
        return problem(StatusCode::CONFLICT, "Conflict", hostile::EVIL);
    }
    if (name.as_str(), verb.as_str()) == ("nod-1", "adopt") {
        // As the engine answers; what only reads a document leaves the hint to the command.
        let hint = "did you mean node-1 or node-2?";
        let missing = json!({"code": "NotFound", "message": "there is no Machine \"nod-1\"", "hint": hint});
        return (StatusCode::NOT_FOUND, Json(missing)).into_response();
    }
    if !["node-1", "node-1-a", "n1-a", "n4-a"].contains(&name.as_str()) {
        return one(State(seen), Path((plural, name))).await;
    }
    seen.lock().unwrap().push(format!("{verb} {plural}/{name} {body}").trim_end().to_owned());
    match (plural.as_str(), verb.as_str()) {
        ("machines", "detach") => {
            Json(json!({"object": machine(), "stays": ["the receipt on disk vda stays"]})).into_response()
        }
        ("machines", "deprovision") | ("workflows", _) => Json(run()).into_response(),
        _ => Json(machine()).into_response(),
    }
}

/// Of one action that writes a disk, on which everything that has a name has this one.
fn preview(name: &str) -> Value {
    let id = json!({"name": name, "serial": name, "model": name, "wwn": "", "path": "", "sizeBytes": 1_073_741_824});
    let volumes = json!([{"kind": "XFS file system", "label": name}]);
    let contents = json!({"seenAt": ago(0), "table": "gpt",
        "partitions": [{"number": 1, "name": name, "sizeBytes": 1_048_576, "volumes": volumes}]});
    let disk = json!({"id": id, "transport": "sata", "rotational": false, "logicalSectorBytes": 512,
        "physicalSectorBytes": 512, "readOnly": false, "contents": contents});
    let uid = "2c5f3d0e-0f4b-4f0e-9d0a-5f1a2b3c4d5e";
    let receipt = json!({"machineUid": uid, "workflowUid": uid, "workflowName": name, "generation": 1, "actionIndex": 0,
        "state": "Done", "writtenAt": "2026-01-01T00:00:00Z"});
    json!({"disksKnown": true, "actions": [{"name": "write", "disks": [disk], "keep": ["data"]}],
        "receipts": [{"disk": id, "receipt": receipt}], "digest": "sha256:seen"})
}

async fn history() -> String {
    let line = |version: u64, operation: &str, change: Value| {
        json!({"resourceVersion": version, "generation": 1, "time": "2026-01-01T00:00:00Z", "who": "ann",
            "operation": operation, "change": change})
    };
    let made = line(1, "Created", json!({"spec": {}}));
    format!("{made}\n{}\n", line(5, "Changed", json!({"metadata": {"labels": {"rack": "r7"}}})))
}

async fn audit(State(seen): State<Seen>, Query(query): Queries) -> Response {
    seen.lock().unwrap().push(format!("audit {query:?}"));
    let after: u64 = query["after"].parse().unwrap();
    // Two pages and one entry: the newest are on the last.
    let pages = 2001_u64;
    let entry = |position: u64| {
        json!({"position": position, "time": "2026-01-01T00:00:00Z", "who": "admin/ann", "from": "unix",
        "action": format!("POST {API}/machines/node-1/provision"), "subject": "machine/node-1", "outcome": "refused", "code": "Forbidden"})
    };
    let limit: u64 = query["limit"].parse().unwrap();
    (after + 1..=pages.min(after + limit))
        .map(|position| format!("{}\n\n", entry(position)))
        .collect::<String>()
        .into_response()
}

fn token() -> Value {
    json!({"name": "ci", "role": "operator", "createdBy": "ann", "created": "2026-01-01T00:00:00Z",
        "expires": "2026-02-01T00:00:00Z"})
}

async fn tokens() -> Response {
    Json(json!({"items": [token()]})).into_response()
}

async fn sightings() -> Response {
    let hostile = "no machine has this address\u{1b}[2J; describe it with `landfall apply`";
    Json(json!({"items": [{"mac": "52:54:00:00:00:09", "client": "pxe", "reason": hostile,
        "firstSeen": ago(0), "lastSeen": ago(300), "requests": 4}], "missing": ["https://gone:7443"]}))
    .into_response()
}

async fn make_token(State(seen): State<Seen>, Json(body): Json<Value>) -> Response {
    seen.lock().unwrap().push(format!("token {body}"));
    Json(json!({"token": token(), "value": "lft-abc"})).into_response()
}

async fn delete_token(State(seen): State<Seen>, Path(name): Path<String>) -> StatusCode {
    seen.lock().unwrap().push(format!("delete token {name}"));
    StatusCode::NO_CONTENT
}

async fn provision(State(seen): State<Seen>, Path(name): Path<String>, Json(body): Json<Value>) -> Response {
    seen.lock().unwrap().push(format!("provision {name} {body}"));
    if let Some(answer) = fleet::provision(&name) {
        return answer;
    }
    Json(if name == "evil" { hostile::run() } else { run() }).into_response()
}

async fn dry_run(State(seen): State<Seen>, Path(name): Path<String>, Json(body): Json<Value>) -> Response {
    if name == "aged" {
        return problem(StatusCode::NOT_FOUND, "NotFound", "there is no such route");
    }
    seen.lock().unwrap().push(format!("dry {name} {body}"));
    let mut list = rendered_list();
    let refusal = json!({"code": "NoDiskMatches", "message": "action data would fail", "hint": "plug it in"});
    match name.as_str() {
        "idle" => list["machineCheck"] = json!("passed"),
        "wrong" => list["machineCheck"] = json!({"failed": refusal}),
        "away" => list["machineCheck"] = json!({"notMade": "no agent of the machine is connected"}),
        // As a coordinator answers that asks no agent.
        _ => {}
    }
    Json(list).into_response()
}

async fn render(State(seen): State<Seen>, Path(name): Path<String>, Json(body): Json<Value>) -> Response {
    seen.lock().unwrap().push(format!("render {name} {body}"));
    Json(rendered_list()).into_response()
}

/// What a rendering answers.
fn rendered_list() -> Value {
    json!({"machine": "node-1", "template": "mini", "actions": [{"name": "reboot", "reboot": {}}], "timeout": "2h"})
}

async fn logs(State(seen): State<Seen>, Path(name): Path<String>, Query(query): Queries) -> Response {
    seen.lock().unwrap().push(format!("logs {query:?}"));
    if name == "moved-a" {
        return story::moved_logs(log_requests(&seen));
    }
    let message = if name.starts_with("evil") { hostile::EVIL } else { "fetching" };
    let line =
        json!({"time": "2026-01-01T00:00:00Z", "level": "info", "action": "write", "attempt": 1, "message": message});
    // Like a coordinator without news for a while.
    format!("\n{line}\n\n").into_response()
}

fn log_requests(seen: &Seen) -> usize {
    seen.lock().unwrap().iter().filter(|asked| asked.starts_with("logs ")).count()
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
            .route(&format!("{API}/{{plural}}/{{name}}"), get(one).delete(delete))
            .route(&format!("{API}/{{plural}}/{{name}}/{{verb}}"), post(act))
            .route(&format!("{API}/{{plural}}/{{name}}/history"), get(history))
            .route(&format!("{API}/audit"), get(audit))
            .route(&format!("{API}/sightings"), get(sightings))
            .route(&format!("{API}/tokens"), get(tokens).post(make_token))
            .route(&format!("{API}/tokens/{{name}}"), axum::routing::delete(delete_token))
            .route("/backup", get(|| async { "the whole store" }))
            .route("/openapi.json", get(|| async { Json(json!({"info": {"version": "9.9.9"}})) }))
            .route(&format!("{API}/machines/{{name}}/provision"), post(provision))
            .route(&format!("{API}/machines/{{name}}/dry-run"), post(dry_run))
            .route(&format!("{API}/machines/{{name}}/render"), post(render))
            .route(&format!("{API}/{{plural}}/{{name}}/events"), get(story::events))
            .route(&format!("{API}/workflows/{{name}}/logs"), get(logs))
            .with_state(seen.clone())
            .merge(console::routes(API, seen.clone()));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { socket, dir, seen, _runtime: runtime }
    }

    /// One whose documents go between a first watch, which expires, and the second list.
    pub(crate) fn emptied() -> Self {
        let fake = Self::start();
        fake.seen.lock().unwrap().push("emptied".into());
        fake
    }

    /// The real binary, pointed here.
    pub(crate) fn landfall(&self, args: &[&str]) -> Run {
        run_landfall(&format!("unix://{}", self.socket.display()), args)
    }

    pub(crate) fn server(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// A command without any existing contexts, for that server.
pub(crate) fn command(server: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LANDFALL_") || name == "VISUAL") {
        command.env_remove(name);
    }
    command.env("LANDFALL_SERVER", server).env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    command
}

/// What a run of the binary came to.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run_landfall(server: &str, args: &[&str]) -> Run {
    finished(command(server).args(args))
}

pub(crate) fn finished(command: &mut Command) -> Run {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}
