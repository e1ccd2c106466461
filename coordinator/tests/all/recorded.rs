//! A backup that an earlier version wrote (`tests/golden/store/`): this version opens its database, restores it, and gives
//! the answers that the earlier one gave.

use std::{collections::BTreeMap, path::Path};

use super::site::{API, Coordinator, Site, call, run};
use jiff::Timestamp;
use landfall_api::Kind;
use landfall_store::Store;
use serde_json::Value;

/// What the earlier version answered, by path below the API.
fn answers() -> BTreeMap<String, Vec<Value>> {
    serde_json::from_str(&landfall_golden::text("store/answers.json")).unwrap()
}

/// The backup's files, as a data directory.
fn unpack(data: &Path) {
    let backup = std::fs::File::open(landfall_golden::path("store/backup.tar")).unwrap();
    tar::Archive::new(backup).unpack(data).unwrap();
}

#[tokio::test]
async fn a_database_of_an_earlier_version_opens_unchanged() {
    let data = tempfile::tempdir().unwrap();
    unpack(data.path());
    let answers = answers();
    // Opened again from what the first time made of it.
    for _ in 0..2 {
        let store = Store::open(data.path()).unwrap();
        for kind in Kind::ALL {
            let (documents, _) = store.documents().list(kind).await.unwrap();
            let documents: Vec<_> = documents.iter().map(|document| serde_json::to_value(document).unwrap()).collect();
            // Pools are younger than the database.
            let recorded = answers.get(&format!("/{}", kind.plural()));
            assert!(recorded.is_some() || kind == Kind::Pool, "{kind}");
            assert_eq!(&documents, recorded.unwrap_or(&Vec::new()));
            for document in documents {
                let name = document["metadata"]["name"].as_str().unwrap();
                let history = store.documents().history(kind, name, usize::MAX).await.unwrap();
                let history: Vec<_> = history.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect();
                assert_eq!(&history, &answers[&format!("/{}/{name}/history", kind.plural())]);
            }
        }
        let secret = store.secrets().get("secret/root", Timestamp::UNIX_EPOCH).await.unwrap().unwrap();
        assert_eq!(secret, br#"{"version":1,"data":{"password":"correct horse"}}"#);
    }
}

/// An event without its text, which is made when it is asked for.
fn without_text(event: &Value) -> Value {
    let mut event = event.clone();
    event.as_object_mut().unwrap().remove("message");
    event
}

#[test]
fn a_backup_of_an_earlier_version_is_restored() {
    let site = Site::new();
    let paths =
        [site.config(), landfall_golden::path("store/backup.tar")].map(|path| path.to_str().unwrap().to_owned());
    let (good, said) = run(&["restore", "--config", &paths[0], "--from", &paths[1]]);
    assert!(good, "{said}");
    let _coordinator = Coordinator::start(&site.config());
    let answers = answers();
    let ended = |workflow: &Value| ["Failed", "Cancelled"].map(Value::from).contains(&workflow["status"]["phase"]);
    let mut compared = 0;
    for recorded in answers["/workflows"].iter().filter(|workflow| ended(workflow)) {
        let name = recorded["metadata"]["name"].as_str().unwrap();
        assert_eq!(site.api("GET", &format!("/workflows/{name}"), &Value::Null), *recorded);
        let events = format!("/workflows/{name}/events");
        let (status, lines) =
            call(&site.data().join("api.sock"), "GET", &format!("{API}{events}"), &Value::Null).unwrap();
        assert_eq!(status, 200, "{lines}");
        let now: Vec<_> = lines.lines().map(|line| without_text(&serde_json::from_str(line).unwrap())).collect();
        assert_eq!(now, answers[&events].iter().map(without_text).collect::<Vec<_>>());
        compared += 1;
    }
    assert_eq!(compared, 2);
    let uids = |machines: &[Value]| machines.iter().map(|m| m["metadata"]["uid"].clone()).collect::<Vec<_>>();
    let machines = site.api("GET", "/machines", &Value::Null);
    assert_eq!(uids(machines["items"].as_array().unwrap()), uids(&answers["/machines"]));
}
