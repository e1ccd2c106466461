use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode},
};
use http_body_util::BodyExt;
use jiff::Timestamp;
use landfall_api::{API_PATH, ErrorCode, Problem, Role};
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

use super::router;
use crate::{
    config::Config,
    engine::{Engine, Settings, SourceChecker},
    pki::Pki,
    state::Coordinator,
    tls::{MachineCert, OperatorCert, Peer},
};
use landfall_store::{MAX_DOCUMENT_BYTES, Store};

/// Generous: a loaded machine must not fail a test.
const LIMIT: Duration = Duration::from_secs(60);

struct AllThere;

#[async_trait]
impl SourceChecker for AllThere {
    async fn check(&self, _: &landfall_api::Download) -> Result<(), Problem> {
        Ok(())
    }
}

pub(super) struct Api {
    router: Router,
    pub(super) coordinator: Arc<Coordinator>,
    _dir: tempfile::TempDir,
}

pub(super) async fn api() -> Api {
    api_with(Arc::new(AllThere)).await
}

async fn api_with(sources: Arc<dyn SourceChecker>) -> Api {
    // Already installed by another test is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let dir = tempfile::tempdir().unwrap();
    let boot = "[boot]\nkernel = \"/k\"\ninitramfs = \"/i\"\nbootloaders = \"/b\"\nimages = \"/m\"\n";
    let text = format!("data_dir = {:?}\nadvertise = \"127.0.0.1\"\n{boot}", dir.path());
    let config: Config = toml::from_str(&text).unwrap();
    let store = Store::memory();
    let pki = Arc::new(Pki::open(dir.path(), "127.0.0.1".parse().unwrap(), Duration::from_secs(3600)).unwrap());
    let settings = Settings::from_config(&config);
    let engine = Engine::start(store.clone(), settings, Arc::new(Timestamp::now), pki.clone(), sources).await.unwrap();
    let coordinator = Arc::new(Coordinator { config, store, engine, pki, ops: Arc::default() });
    Api { router: router(coordinator.clone()), coordinator, _dir: dir }
}

/// Says that it was asked, and answers when it is let.
#[derive(Default)]
struct Slow {
    asked: tokio::sync::Notify,
    let_go: tokio::sync::Notify,
}

#[async_trait]
impl SourceChecker for Slow {
    async fn check(&self, _: &landfall_api::Download) -> Result<(), Problem> {
        self.asked.notify_one();
        self.let_go.notified().await;
        Ok(())
    }
}

fn with_role(name: &str, role: Role) -> Peer {
    let not_after = Timestamp::now() + jiff::SignedDuration::from_hours(1);
    Peer::Operator(OperatorCert { name: name.into(), role, made: Timestamp::now(), not_after })
}

fn admin() -> Peer {
    with_role("ann", Role::Admin)
}

impl Api {
    async fn send(&self, peer: Option<Peer>, method: Method, path: &str, body: Body) -> (StatusCode, String) {
        let mut request = Request::builder().method(method).uri(path).body(body).unwrap();
        request.extensions_mut().extend(
            peer.map(|peer| {
                let mut extensions = axum::http::Extensions::new();
                extensions.insert(peer);
                extensions
            })
            .unwrap_or_default(),
        );
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = tokio::time::timeout(LIMIT, response.into_body().collect()).await.unwrap().unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    pub(super) async fn get(&self, path: &str) -> (StatusCode, Value) {
        let (status, text) = self.send(Some(admin()), Method::GET, &format!("{API_PATH}{path}"), Body::empty()).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let body = Body::from(body.to_string());
        let (status, text) = self.send(Some(admin()), Method::POST, &format!("{API_PATH}{path}"), body).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

fn machine(name: &str, mac: &str) -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": {"name": name},
        "spec": {"identity": {"macs": [mac]}}})
}

fn template() -> Value {
    let image = json!({"url": "http://127.0.0.1:1/a.zst", "digest": format!("sha256:{}", "00".repeat(32))});
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Template", "metadata": {"name": "mini"},
        "spec": {"parameters": {"release": {}}, "actions": [
            {"name": "write", "writeImage": {"image": image}}, {"name": "reboot", "reboot": {}}]}})
}

#[tokio::test]
async fn every_route_but_health_asks_for_an_operator() {
    let api = api().await;
    let own = nix::unistd::geteuid().as_raw();
    let machine_cert = MachineCert {
        name: "node-1".into(),
        uid: Uuid::nil(),
        serial_hex: "01".into(),
        key_fingerprint: String::new(),
        not_after: Timestamp::MAX,
    };
    let peers = [
        (None, Some(StatusCode::UNAUTHORIZED)),
        (Some(Peer::Anonymous), Some(StatusCode::UNAUTHORIZED)),
        (Some(Peer::Machine(machine_cert)), Some(StatusCode::FORBIDDEN)),
        (Some(Peer::Local { uid: own + 1, user: "eve".into() }), Some(StatusCode::FORBIDDEN)),
        (Some(Peer::Local { uid: own, user: "me".into() }), None),
        (Some(Peer::Local { uid: 0, user: "root".into() }), None),
        (Some(admin()), None),
    ];
    let mut routes = vec![
        (Method::GET, "/openapi.json".to_owned()),
        (Method::GET, "/schemas/machine".to_owned()),
        (Method::POST, format!("{API_PATH}/apply")),
        (Method::POST, format!("{API_PATH}/machines/a/provision")),
        (Method::GET, format!("{API_PATH}/machines/a/events")),
        (Method::POST, format!("{API_PATH}/workflows/a/cancel")),
        (Method::GET, format!("{API_PATH}/workflows/a/events")),
        (Method::GET, format!("{API_PATH}/workflows/a/logs")),
        (Method::GET, "/apis/anything/else".to_owned()),
        (Method::PUT, format!("{API_PATH}/machines/a")),
    ];
    for plural in ["machines", "templates", "workflows"] {
        routes.push((Method::GET, format!("{API_PATH}/{plural}")));
        routes.push((Method::GET, format!("{API_PATH}/{plural}/a")));
        routes.push((Method::DELETE, format!("{API_PATH}/{plural}/a")));
    }
    for (peer, refused) in peers {
        for (method, path) in &routes {
            let (status, text) = api.send(peer.clone(), method.clone(), path, Body::from("{}")).await;
            match refused {
                Some(expected) => {
                    assert_eq!(status, expected, "{peer:?} {method} {path}");
                    let problem: Problem = serde_json::from_str(&text).unwrap();
                    assert!(!problem.hint.is_empty(), "{problem}");
                }
                None => assert!(![401, 403].contains(&status.as_u16()), "{peer:?} {method} {path}: {status} {text}"),
            }
        }
        let (status, _) = api.send(peer, Method::GET, "/healthz", Body::empty()).await;
        assert_eq!(status, StatusCode::OK);
    }
}

#[tokio::test]
async fn apply_creates_and_changes_but_a_dry_run_does_not() {
    let api = api().await;
    let document = machine("node-1", "52:54:00:00:00:01");
    let (status, answer) = api.post("/apply?dryRun=true", &document).await;
    assert_eq!((status, &answer["outcome"]), (StatusCode::OK, &json!("created")), "{answer}");
    assert_eq!(api.get("/machines/node-1").await.0, StatusCode::NOT_FOUND);
    assert_eq!(api.post("/apply", &document).await.1["outcome"], "created");
    assert_eq!(api.post("/apply", &document).await.1["outcome"], "unchanged");
    let mut changed = document.clone();
    changed["spec"]["identity"]["serial"] = "S1".into();
    // A status that is applied is not taken over.
    changed["status"] = json!({"phase": "Held"});
    let (_, answer) = api.post("/apply", &changed).await;
    assert_eq!(answer["outcome"], "configured");
    assert_eq!(answer["object"]["metadata"]["generation"], 2);
    assert_ne!(answer["object"]["status"]["phase"], "Held");
}

#[tokio::test]
async fn an_apply_that_names_an_old_version_is_refused() {
    let api = api().await;
    let mut document = machine("node-1", "52:54:00:00:00:01");
    let first = api.post("/apply", &document).await.1["object"]["metadata"]["resourceVersion"].clone();
    document["spec"]["identity"]["serial"] = "S1".into();
    assert_eq!(api.post("/apply", &document).await.0, StatusCode::OK);
    document["metadata"]["resourceVersion"] = first;
    document["spec"]["identity"]["serial"] = "S2".into();
    let (status, problem) = api.post("/apply", &document).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("Conflict")), "{problem}");
}

#[tokio::test]
async fn a_dry_run_of_an_old_version_is_refused_too() {
    let api = api().await;
    let mut document = machine("node-1", "52:54:00:00:00:01");
    let first = api.post("/apply", &document).await.1["object"]["metadata"]["resourceVersion"].clone();
    document["spec"]["identity"]["serial"] = "S1".into();
    api.post("/apply", &document).await;
    document["metadata"]["resourceVersion"] = first;
    let (status, problem) = api.post("/apply?dryRun=true", &document).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("Conflict")), "{problem}");
    // Of another store's document it says nothing.
    let elsewhere = machine("node-2", "52:54:00:00:00:02");
    let mut named = elsewhere.clone();
    named["metadata"]["resourceVersion"] = 77.into();
    assert_eq!(api.post("/apply?dryRun=true", &named).await.1["outcome"], "created");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_goes_on_in_silence_sends_empty_lines() {
    let api = api().await;
    api.post("/apply", &machine("node-1", "52:54:00:00:00:01")).await;
    api.post("/apply", &template()).await;
    let request = json!({"template": "mini", "parameters": {"release": 12}});
    let run = api.post("/machines/node-1/provision", &request).await.1["metadata"]["name"].clone();
    for path in
        [format!("/workflows/{}/logs?follow=true", run.as_str().unwrap()), "/audit?after=1000&follow=true".into()]
    {
        let mut request = Request::get(format!("{API_PATH}{path}")).body(Body::empty()).unwrap();
        request.extensions_mut().insert(admin());
        let mut body = api.router.clone().oneshot(request).await.unwrap().into_body();
        for _ in 0..3 {
            let frame = tokio::time::timeout(Duration::from_secs(20), body.frame()).await.expect(&path);
            assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "\n", "{path}");
        }
    }
}

#[tokio::test]
async fn bad_requests_say_what_where_and_what_to_do() {
    let api = api().await;
    let mut unknown = machine("node-1", "52:54:00:00:00:01");
    unknown["spec"]["identity"]["mac"] = json!([]);
    let mut twice = machine("node-1", "52:54:00:00:00:01");
    twice["spec"]["identity"]["macs"] = json!(["52:54:00:00:00:01", "52:54:00:00:00:01"]);
    for (body, at) in [(unknown, "spec.identity.mac"), (twice, "spec.identity.macs[1]"), (json!([]), "")] {
        let (status, problem) = api.post("/apply", &body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["subject"].as_str().unwrap_or_default(), at, "{problem}");
        assert_ne!(problem["hint"], Value::Null, "{problem}");
    }
    for (path, status) in [
        ("/machines?wach=true", StatusCode::UNPROCESSABLE_ENTITY),
        ("/machines/none", StatusCode::NOT_FOUND),
        ("/machnes", StatusCode::NOT_FOUND),
    ] {
        let (found, problem) = api.get(path).await;
        assert_eq!(found, status, "{path} {problem}");
        assert_ne!(problem["hint"], Value::Null, "{problem}");
    }
    let (status, _) =
        api.send(Some(admin()), Method::POST, &format!("{API_PATH}/apply"), Body::from("{not json")).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let large = Body::from(vec![b' '; MAX_DOCUMENT_BYTES + 1]);
    let (status, _) = api.send(Some(admin()), Method::POST, &format!("{API_PATH}/apply"), large).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_run_is_asked_for_by_name_shown_and_cancelled() {
    let api = api().await;
    api.post("/apply", &machine("node-1", "52:54:00:00:00:01")).await;
    let (status, answer) = api.post("/apply", &template()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let request = json!({"template": "mini", "parameters": {"release": 12}});
    let (status, run) = api.post("/machines/node-1/provision", &request).await;
    assert_eq!(status, StatusCode::OK, "{run}");
    assert_eq!(run["spec"]["authority"]["person"], "ann");
    let name = run["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(api.post("/machines/node-1/provision", &request).await.1["code"], "MachineBusy");
    let path = format!("{API_PATH}/machines/node-1/events");
    let (_, events) = api.send(Some(admin()), Method::GET, &path, Body::empty()).await;
    assert!(events.contains("\"Requested\""), "{events}");
    let (status, cancelled) = api.post(&format!("/workflows/{name}/cancel"), &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{cancelled}");
    let logs = format!("{API_PATH}/workflows/{name}/logs");
    assert_eq!(api.send(Some(admin()), Method::GET, &logs, Body::empty()).await.0, StatusCode::OK);
    for (path, body) in [
        ("/machines/none/provision", &request),
        ("/machines/node-1/provision", &json!({"template": "none"})),
        ("/workflows/none/cancel", &json!({})),
    ] {
        assert_eq!(api.post(path, body).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn a_watch_reports_every_change_or_410() {
    let api = api().await;
    let (_, list) = api.get("/machines").await;
    let revision = list["metadata"]["resourceVersion"].as_u64().unwrap();
    api.post("/apply", &machine("node-1", "52:54:00:00:00:01")).await;
    api.post("/apply", &template()).await;
    api.post("/apply", &machine("node-2", "52:54:00:00:00:02")).await;
    api.coordinator.engine.documents().delete(landfall_api::Kind::Machine, "node-1", "ann").await.unwrap();
    let path = format!("{API_PATH}/machines?watch=true&resourceVersion={revision}");
    let mut request = Request::builder().uri(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(admin());
    let mut body = api.router.clone().oneshot(request).await.unwrap().into_body();
    let mut seen = String::new();
    while seen.lines().count() < 3 {
        let frame = tokio::time::timeout(LIMIT, body.frame()).await.unwrap().unwrap().unwrap();
        seen.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let lines: Vec<Value> = seen.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let found: Vec<_> = lines
        .iter()
        .map(|l| (l["type"].as_str().unwrap(), l["object"]["metadata"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [("ADDED", "node-1"), ("ADDED", "node-2"), ("DELETED", "node-1")]);
    let (status, problem) = api.get("/machines?watch=true&resourceVersion=999999").await;
    assert_eq!((status, &problem["code"]), (StatusCode::GONE, &json!(ErrorCode::Expired)), "{problem}");
}

async fn relabel(api: &Api, name: &str, mac: &str, labels: Value) {
    let mut document = machine(name, mac);
    document["metadata"]["labels"] = labels;
    let (status, answer) = api.post("/apply", &document).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test]
async fn a_list_filters_by_labels_and_refuses_bad_selectors() {
    let api = api().await;
    relabel(&api, "node-1", "52:54:00:00:00:01", json!({"rack": "r7", "env": "lab"})).await;
    relabel(&api, "node-2", "52:54:00:00:00:02", json!({"rack": "r8"})).await;
    for (selector, names) in [
        ("rack%3Dr7", vec!["node-1"]),
        ("rack%20in%20(r7,r8)", vec!["node-1", "node-2"]),
        ("!env", vec!["node-2"]),
        ("env!%3Dlab,rack", vec!["node-2"]),
        ("", vec!["node-1", "node-2"]),
        ("none", vec![]),
    ] {
        let (status, list) = api.get(&format!("/machines?labelSelector={selector}")).await;
        assert_eq!(status, StatusCode::OK, "{list}");
        let found: Vec<&str> =
            list["items"].as_array().unwrap().iter().map(|d| d["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{selector}");
    }
    let (status, problem) = api.get("/machines?labelSelector=a,,b").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(problem["message"].as_str().unwrap().contains("column 3"), "{problem}");
    assert_eq!(problem["subject"], "labelSelector");
}

#[tokio::test]
async fn a_watch_by_labels_reports_entering_and_leaving_documents() {
    let api = api().await;
    relabel(&api, "node-1", "52:54:00:00:00:01", json!({"rack": "r7"})).await;
    relabel(&api, "node-2", "52:54:00:00:00:02", json!({})).await;
    for resumed in [false, true] {
        relabel(&api, "node-1", "52:54:00:00:00:01", json!({"rack": "r7"})).await;
        relabel(&api, "node-2", "52:54:00:00:00:02", json!({})).await;
        let (_, list) = api.get("/machines").await;
        let revision = list["metadata"]["resourceVersion"].as_u64().unwrap();
        let from = if resumed { format!("&resourceVersion={revision}") } else { String::new() };
        let path = format!("{API_PATH}/machines?watch=true&labelSelector=rack%3Dr7{from}");
        let mut request = Request::builder().uri(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(admin());
        let mut body = api.router.clone().oneshot(request).await.unwrap().into_body();
        relabel(&api, "node-2", "52:54:00:00:00:02", json!({"rack": "r7"})).await;
        relabel(&api, "node-2", "52:54:00:00:00:02", json!({"rack": "r7", "more": "1"})).await;
        relabel(&api, "node-1", "52:54:00:00:00:01", json!({"rack": "r8"})).await;
        // Unseen: it is not in the watch any more.
        relabel(&api, "node-1", "52:54:00:00:00:01", json!({"rack": "r9"})).await;
        relabel(&api, "node-2", "52:54:00:00:00:02", json!({"rack": "r6"})).await;
        let mut wanted =
            vec![("ADDED", "node-2"), ("MODIFIED", "node-2"), ("DELETED", "node-1"), ("DELETED", "node-2")];
        if !resumed {
            wanted.insert(0, ("ADDED", "node-1"));
        }
        let mut seen = String::new();
        while seen.lines().count() < wanted.len() {
            let frame = tokio::time::timeout(LIMIT, body.frame()).await.unwrap().unwrap().unwrap();
            seen.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        let lines: Vec<Value> = seen.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let found: Vec<_> = lines
            .iter()
            .map(|l| (l["type"].as_str().unwrap(), l["object"]["metadata"]["name"].as_str().unwrap()))
            .collect();
        assert_eq!(found, wanted);
    }
}

#[tokio::test]
async fn a_request_completes_even_if_its_client_disconnects() {
    let slow = Arc::new(Slow::default());
    let api = api_with(slow.clone()).await;
    let as_ann = |document: Value| {
        api.coordinator.engine.documents().apply(landfall_api::Document::from_value(document).unwrap(), "ann", false)
    };
    as_ann(machine("node-1", "52:54:00:00:00:01")).await.unwrap();
    let (applied, ()) = tokio::join!(as_ann(template()), async { slow.let_go.notify_one() });
    applied.unwrap();
    slow.asked.notified().await;
    let mut written = api.coordinator.store.audit().written();
    let body = Body::from(json!({"template": "mini", "parameters": {"release": "1"}}).to_string());
    let path = format!("{API_PATH}/machines/node-1/provision");
    let mut request = Request::builder().method(Method::POST).uri(&path).body(body).unwrap();
    request.extensions_mut().insert(admin());
    let asking = tokio::spawn(api.router.clone().oneshot(request));
    tokio::time::timeout(LIMIT, slow.asked.notified()).await.unwrap();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    slow.let_go.notify_one();
    tokio::time::timeout(LIMIT, written.changed()).await.expect("it was noted").unwrap();
    let noted = api.coordinator.store.audit().list(0, 10).await.unwrap();
    assert_eq!((noted[0].who.as_str(), noted[0].action.as_str()), ("admin/ann", format!("POST {path}").as_str()));
    let run = api.coordinator.store.workflows().await.unwrap().remove(0).metadata.name.clone();
    let path = format!("{API_PATH}/workflows/{run}/history");
    let (_, history) = api.send(Some(admin()), Method::GET, &path, Body::empty()).await;
    assert!(history.lines().next().unwrap().contains("\"who\":\"admin/ann\""), "{history}");
}

#[tokio::test]
async fn another_sites_page_cannot_use_an_operators_certificate() {
    let api = api().await;
    let token = landfall_api::TokenRequest { name: "ci".into(), role: Role::Admin, ttl: None };
    let token = api.coordinator.store.access().make_token(token, "ann", Timestamp::now()).await.unwrap().value;
    let send = async |headers: &[(&str, &str)], method: Method, path: &str| {
        let mut request = Request::builder().method(method).uri(path).header("host", "landfall.lan");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::from(machine("m1", "52:54:00:00:00:01").to_string())).unwrap();
        request.extensions_mut().insert(admin());
        api.router.clone().oneshot(request).await.unwrap().status()
    };
    let (apply, list) = (format!("{API_PATH}/apply"), format!("{API_PATH}/machines"));
    for foreign in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        assert_eq!(send(&[foreign], Method::POST, &apply).await, StatusCode::FORBIDDEN, "{foreign:?}");
        assert_eq!(send(&[foreign], Method::GET, &list).await, StatusCode::OK, "it changes nothing");
        let bearer = format!("Bearer {token}");
        let shown = [foreign, ("authorization", bearer.as_str())];
        assert_eq!(send(&shown, Method::POST, &apply).await, StatusCode::OK, "{foreign:?}");
    }
    let refused = api.coordinator.store.audit().list(0, 10).await.unwrap();
    assert!(refused[0].code == ErrorCode::Forbidden.as_str() && refused[0].who == "admin/ann", "{refused:?}");
    let own = [("sec-fetch-site", "same-origin"), ("origin", "https://landfall.lan")];
    assert_eq!(send(&own, Method::POST, &apply).await, StatusCode::OK);
    assert_eq!(send(&[], Method::POST, &apply).await, StatusCode::OK);
}

#[test]
fn the_servers_name_is_the_same_in_both_contracts() {
    assert_eq!(landfall_api::SERVER_NAME, landfall_proto::SERVER_NAME);
}

#[tokio::test]
async fn history_names_each_author_and_outlives_the_document() {
    let api = api().await;
    let url = format!("{API_PATH}/machines/m1/history");
    assert_eq!(api.get("/machines/m1/history").await.0, StatusCode::NOT_FOUND);
    assert_eq!(api.post("/apply", &machine("m1", "52:54:00:00:00:01")).await.0, StatusCode::OK);
    let body = Body::from(machine("m1", "52:54:00:00:00:02").to_string());
    let bob = Some(with_role("bob", Role::Operator));
    assert_eq!(api.send(bob, Method::POST, &format!("{API_PATH}/apply"), body).await.0, StatusCode::OK);
    let gone = api.send(Some(admin()), Method::DELETE, &format!("{API_PATH}/machines/m1"), Body::empty()).await;
    assert_eq!(gone.0, StatusCode::OK);

    let (_, text) = api.send(Some(admin()), Method::GET, &url, Body::empty()).await;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<_> = lines.iter().map(|l| (l["who"].as_str().unwrap(), l["operation"].as_str().unwrap())).collect();
    assert_eq!(found, [("admin/ann", "Created"), ("operator/bob", "Changed"), ("admin/ann", "Deleted")]);
    assert_eq!(lines[1]["change"], json!({"spec": {"identity": {"macs": ["52:54:00:00:00:02"]}}}));
    let (_, newest) = api.send(Some(admin()), Method::GET, &format!("{url}?limit=1"), Body::empty()).await;
    assert_eq!(newest.lines().count(), 1);
}

#[tokio::test]
async fn if_match_limits_a_change_to_that_version() {
    let api = api().await;
    let send = async |method: Method, path: &str, tag: Option<&str>, body: &Value| {
        let mut request = Request::builder().method(method).uri(format!("{API_PATH}{path}"));
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        let mut request = request.body(Body::from(body.to_string())).unwrap();
        request.extensions_mut().insert(admin());
        let response = api.router.clone().oneshot(request).await.unwrap();
        let tag = response.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        (response.status(), tag.unwrap_or_default())
    };
    let (mut document, null) = (machine("node-1", "52:54:00:00:00:01"), Value::Null);
    for tag in ["*", "\"1\""] {
        let (status, _) = send(Method::POST, "/apply", Some(tag), &document).await;
        assert_eq!(status, StatusCode::PRECONDITION_FAILED, "there is none yet: {tag}");
    }
    assert_eq!(send(Method::POST, "/apply", None, &document).await.0, StatusCode::OK);
    let (_, read) = send(Method::GET, "/machines/node-1", None, &null).await;
    document["metadata"]["labels"] = json!({"rack": "1"});
    assert_eq!(send(Method::POST, "/apply", Some(&read), &document).await.0, StatusCode::OK);
    // Another's change lies between.
    document["metadata"]["labels"] = json!({"rack": "2"});
    for (method, path) in [(Method::POST, "/apply"), (Method::DELETE, "/machines/node-1")] {
        let (status, _) = send(method.clone(), path, Some(&read), &document).await;
        assert_eq!(status, StatusCode::PRECONDITION_FAILED, "{method}");
        let (status, _) = send(method, path, Some("7"), &document).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "no entity tag");
    }
    assert_eq!(api.get("/machines/node-1").await.1["metadata"]["labels"]["rack"], "1");
    let (_, read) = send(Method::GET, "/machines/node-1", None, &null).await;
    assert_eq!(send(Method::DELETE, "/machines/node-1", Some(&read), &null).await.0, StatusCode::OK);
}
