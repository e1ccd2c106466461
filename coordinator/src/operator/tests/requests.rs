//! Workflows are requested and cancelled, also where the client goes away.

use super::*;

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
async fn a_dry_run_leaves_no_workflow() {
    let api = api().await;
    api.post("/apply", &machine("node-1", "52:54:00:00:00:01")).await;
    api.post("/apply", &template()).await;
    let request = json!({"template": "mini", "parameters": {"release": 12}});
    let (status, list) = api.post("/machines/node-1/dry-run", &request).await;
    assert_eq!((status, &list["actions"][0]["name"]), (StatusCode::OK, &json!("write")), "{list}");
    // A caller that means a dry run never starts a workflow because a parameter was ignored.
    let (status, refused) = api.post("/machines/node-1/provision?dryRun=true", &request).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    assert!(api.coordinator.store.workflows().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_question_about_a_machine_is_no_change() {
    let api = api().await;
    api.post("/apply", &machine("node-1", "52:54:00:00:00:01")).await;
    api.post("/apply", &template()).await;
    let noted = async || api.coordinator.store.audit().list(0, 10).await.unwrap().len();
    assert_eq!(noted().await, 2, "both were applied");
    let request = json!({"template": "mini", "parameters": {"release": 12}});
    for verb in ["dry-run", "preview", "render"] {
        let path = format!("/machines/node-1/{verb}");
        assert_eq!(api.post(&path, &request).await.0, StatusCode::OK, "{verb}");
        assert_eq!(noted().await, 2, "{verb}");
    }
    for verb in ["dry-run", "preview", "render"] {
        let path = format!("{API_PATH}/machines/node-1/{verb}");
        let foreign = Request::builder().method(Method::POST).uri(path).header("sec-fetch-site", "cross-site");
        let mut foreign = foreign.body(Body::from(request.to_string())).unwrap();
        foreign.extensions_mut().insert(admin());
        assert_eq!(api.router.clone().oneshot(foreign).await.unwrap().status(), StatusCode::FORBIDDEN, "{verb}");
    }
    assert_eq!(noted().await, 5, "a refusal is noted");
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
