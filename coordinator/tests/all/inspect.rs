//! A machine that is looked at again on demand, by the real coordinator and an agent's real session.

use serde_json::{Value, json};

use super::site::agent::{Agent, patient_template};
use super::site::{API, Coordinator, Site, call};

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_ends_once_the_agent_has_looked() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let site = Site::new();
    let _coordinator = Coordinator::start(&site.config());
    site.api("POST", "/apply", &patient_template(&site));
    let socket = site.data().join("api.sock");
    let _agent = Agent::start(&site, &socket, "agent1", "52:54:00:00:00:01").await;
    let ask = move || call(&socket, "POST", &format!("{API}/machines/agent1/inspect"), &Value::Null).unwrap();
    let (status, answer) = tokio::task::spawn_blocking(ask).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["changes"], json!([]));
}
