//! Documents are applied and deleted, in the version that was meant, or refused with what, where and what to do.

use landfall_store::MAX_DOCUMENT_BYTES;

use super::*;

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
