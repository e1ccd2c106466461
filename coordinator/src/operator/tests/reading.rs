//! Lists, watches, histories, and answers that go on.

use futures::FutureExt as _;
use landfall_api::ErrorCode;

use super::*;

async fn relabel(api: &Api, name: &str, mac: &str, labels: Value) {
    let mut document = machine(name, mac);
    document["metadata"]["labels"] = labels;
    let (status, answer) = api.post("/apply", &document).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

async fn watch(api: &Api, path: String) -> Body {
    let mut request = Request::builder().uri(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(admin());
    api.router.clone().oneshot(request).await.unwrap().into_body()
}

/// Exactly these changes, of documents with these names, come next.
async fn assert_reports(mut body: Body, wanted: &[(&str, &str)]) {
    let mut seen = String::new();
    while seen.lines().count() < wanted.len() {
        let frame = tokio::time::timeout(LIMIT, body.frame()).await.unwrap().unwrap().unwrap();
        seen.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let lines: Vec<Value> = seen.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let found = lines.iter().map(|l| (l["type"].as_str().unwrap(), l["object"]["metadata"]["name"].as_str().unwrap()));
    assert_eq!(found.collect::<Vec<_>>(), wanted);
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
    let body = watch(&api, path).await;
    assert_reports(body, &[("ADDED", "node-1"), ("ADDED", "node-2"), ("DELETED", "node-1")]).await;
    let (status, problem) = api.get("/machines?watch=true&resourceVersion=999999").await;
    assert_eq!((status, &problem["code"]), (StatusCode::GONE, &json!(ErrorCode::Expired)), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn changes_of_other_kinds_put_no_bookmark_off() {
    let api = api().await;
    let mut body = watch(&api, format!("{API_PATH}/templates?watch=true")).await;
    for n in ["1", "2", "3"] {
        relabel(&api, "node-1", "52:54:00:00:00:01", json!({"n": n})).await;
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    }
    let frame = body.frame().now_or_never().expect("a line came within 30 s").unwrap().unwrap();
    let line = std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    assert!(line.contains("BOOKMARK"), "{line}");
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
        let body = watch(&api, path).await;
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
        assert_reports(body, &wanted).await;
    }
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
        let mut body = watch(&api, format!("{API_PATH}{path}")).await;
        for _ in 0..3 {
            let frame = tokio::time::timeout(Duration::from_secs(20), body.frame()).await.expect(&path);
            assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "\n", "{path}");
        }
    }
}
