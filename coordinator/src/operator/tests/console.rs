//! The console's routes.

use futures::StreamExt as _;
use landfall_api::{ConsoleLine, Role};
use landfall_bmcsim::{BmcSim, PASSWORD, Quirks, USERNAME};

use super::*;

/// An answer that goes on, as it is read.
struct Reading {
    body: axum::body::BodyDataStream,
    rest: Vec<u8>,
}

impl Reading {
    async fn line(&mut self) -> ConsoleLine {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if end > 0 {
                    return serde_json::from_slice(&line).unwrap();
                }
                continue;
            }
            let piece = tokio::time::timeout(LIMIT, self.body.next()).await.unwrap();
            self.rest.extend(piece.expect("a line").unwrap());
        }
    }
}

async fn open(api: &Api, peer: Peer) -> axum::response::Response {
    let path = format!("{API_PATH}/machines/m1/console");
    let mut request = Request::builder().method(Method::POST).uri(path).body(Body::from("{}")).unwrap();
    request.extensions_mut().insert(peer);
    api.router.clone().oneshot(request).await.unwrap()
}

/// What the audit log has of the console, once it has that many entries of it.
async fn audited(api: &Api, count: usize) -> Vec<String> {
    let mut written = api.coordinator.store.audit().written();
    tokio::time::timeout(LIMIT, async {
        loop {
            let entries = api.coordinator.store.audit().list(0, 100).await.unwrap();
            let of_console: Vec<String> = entries
                .into_iter()
                .filter(|entry| entry.action.contains("/console"))
                .map(|entry| {
                    format!(
                        "{} {} {} {:?}",
                        entry.who,
                        entry.action.replace(API_PATH, ""),
                        entry.subject,
                        entry.outcome
                    )
                })
                .collect();
            if of_console.len() >= count {
                return of_console;
            }
            written.changed().await.unwrap();
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_console_is_read_typed_at_and_audited() {
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let api = api().await;
    let secret = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Secret", "metadata": {"name": "bmc"},
        "spec": {"data": {"username": USERNAME, "password": PASSWORD}, "bmcs": ["127.0.0.0/8"]}});
    let mut document = machine("m1", "52:54:00:00:00:01");
    document["spec"]["bmc"] = json!({"address": sim.address(), "credentials": "bmc"});
    for document in [secret, document] {
        let (status, answer) = api.post("/apply", &document).await;
        assert!(status.is_success(), "{answer}");
    }
    assert_eq!(open(&api, with_role("vic", Role::Viewer)).await.status(), StatusCode::FORBIDDEN);
    let response = open(&api, admin()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut reading = Reading { body: response.into_body().into_data_stream(), rest: Vec::new() };
    let ConsoleLine::Opened(id) = reading.line().await else { panic!("the first line is the id") };
    sim.writes(b"login: ");
    assert!(matches!(reading.line().await, ConsoleLine::Output(characters) if characters.0 == b"login: "));
    let typed = json!({"console": id, "number": 1, "characters": "cm9vdA0="});
    let (status, answer) = api.post("/machines/m1/console/input", &typed).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"number": 1})));
    sim.until("what was typed", |state| state.serial.typed == b"root\r").await;
    drop(reading);
    sim.until("the end", |state| state.serial.owner.is_none() && state.accounts.sessions.is_empty()).await;
    let entries = audited(&api, 3).await;
    let wanted = [
        "viewer/vic POST /machines/m1/console  Refused", "admin/ann POST /machines/m1/console machine/m1 Done",
        "admin/ann CLOSE /machines/m1/console machine/m1 Done",
    ];
    assert_eq!(entries, wanted, "and none for what was typed");
}
