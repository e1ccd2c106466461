//! The operators' API, from its routes on, over a memory store.

mod access;
mod changes;
mod console;
mod reading;
mod requests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use landfall_api::{API_PATH, Problem, Role};
use landfall_store::Store;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::router;
use crate::config::Config;
use crate::engine::{Engine, Settings, SourceChecker};
use crate::pki::Pki;
use crate::state::Coordinator;
use crate::tls::{OperatorCert, Peer};

/// Generous: a loaded machine must not fail a test.
const LIMIT: Duration = Duration::from_secs(60);

struct AllThere;

#[async_trait]
impl SourceChecker for AllThere {
    async fn check(&self, _: &landfall_api::Download) -> Result<(), Problem> {
        Ok(())
    }
}

pub(crate) struct Api {
    router: Router,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) async fn api() -> Api {
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
    let settings = Settings::from_config(&config, Default::default());
    let engine = Engine::start(store.clone(), settings, Arc::new(Timestamp::now), pki.clone(), sources).await.unwrap();
    let coordinator = Arc::new(Coordinator { config, store, engine, pki, ops: Arc::default() });
    Api { router: router(coordinator.clone()), coordinator, dir }
}

fn with_role(name: &str, role: Role) -> Peer {
    let not_after = Timestamp::now() + jiff::SignedDuration::from_hours(1);
    Peer::Operator(OperatorCert { name: name.into(), role, made: Timestamp::now(), not_after, stands_in: false })
}

pub(super) fn admin() -> Peer {
    with_role("ann", Role::Admin)
}

impl Api {
    async fn send(&self, peer: Option<Peer>, method: Method, path: &str, body: Body) -> (StatusCode, String) {
        let mut request = Request::builder().method(method).uri(path).body(body).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
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
