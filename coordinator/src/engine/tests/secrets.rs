//! Secrets: who gets them, when, and where they never are.

use landfall_api::{FileSource, HttpResult, SecretText, message::ActionKind};
use landfall_store::ChangeOp;

use super::*;

fn secret(data: serde_json::Value, more: serde_json::Value) -> serde_json::Value {
    let mut spec = more;
    spec["data"] = data;
    document("Secret", "my-db", spec)
}

fn template_with_secret() -> serde_json::Value {
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    tree["spec"]["actions"][1]["cloudInit"]["userData"] = json!({"password": "pw={{ secrets.my-db.pw }}"});
    tree
}

const VALUE: &str = "correct horse battery staple";

#[tokio::test]
async fn a_secret_reaches_only_its_machines_seed() {
    let world = World::new().await;
    let mut watch = world.store.documents().watch(None, 0).unwrap();
    let (applied, _) = world.apply(secret(json!({"pw": VALUE}), json!({"machines": ["m1"]}))).await.unwrap();
    let Document::Secret(stored) = &applied else { panic!("a secret") };
    assert_eq!((stored.status.clone().unwrap().keys, stored.spec.data.len()), (vec!["pw".to_owned()], 0));
    world.apply(template_with_secret()).await.unwrap();
    let run = world.provision(false).await.unwrap();
    assert!(serde_json::to_string(&run).unwrap().contains("{{ secrets.my-db.pw }}"), "pinned as a reference");
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    let assignment = agent.assigned();
    let seed = seed_of(&assignment.actions[1]);
    assert!(seed.user_data.expose().contains(&format!("pw={VALUE}")), "{}", seed.user_data.expose());

    assert!(!format!("{assignment:?} {seed:?}").contains(VALUE));
    let revision = world.store.documents().list(Kind::Secret).await.unwrap().1;
    let mut seen = 0;
    while seen < revision {
        let change = watch.next().await.unwrap();
        seen = change.revision;
        assert!(!serde_json::to_string(&change.document).unwrap().contains(VALUE), "in a watched document");
    }
    for kind in Kind::ALL {
        for document in world.store.documents().list(kind).await.unwrap().0 {
            assert!(!serde_json::to_string(&document).unwrap().contains(VALUE));
            let history = world.store.documents().history(kind, &document.metadata().name, 99).await.unwrap();
            assert!(!serde_json::to_string(&history).unwrap().contains(VALUE));
        }
    }
}

#[tokio::test]
async fn a_scripts_secret_reaches_the_seed_and_no_document() {
    let world = World::new().await;
    world.apply(secret(json!({"pw": VALUE}), json!({"machines": ["m1"]}))).await.unwrap();
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    let script = "#!/bin/sh\necho '{{ secrets.my-db.pw }}'\n";
    tree["spec"]["actions"][1]["cloudInit"] = json!({"userData": script, "vendorData": script});
    world.apply(tree).await.unwrap();
    let (_, _, mut agent) = world.begins().await;
    let assignment = agent.assigned();
    let seed = seed_of(&assignment.actions[1]);
    let whole = format!("#!/bin/sh\necho '{VALUE}'\n");
    assert_eq!((seed.user_data.expose(), seed.vendor_data.expose()), (whole.as_str(), whole.as_str()));
    assert!(!format!("{assignment:?}").contains(VALUE));
    for kind in Kind::ALL {
        for document in world.store.documents().list(kind).await.unwrap().0 {
            assert!(!serde_json::to_string(&document).unwrap().contains(VALUE));
        }
    }
}

#[tokio::test]
async fn an_ignition_config_gets_its_secret_as_json() {
    let world = World::new().await;
    let value = "pw \"quoted\"";
    world.apply(secret(json!({"pw": value}), json!({"machines": ["m1"]}))).await.unwrap();
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    tree["spec"]["successOn"] = json!("reboot");
    tree["spec"]["actions"][1] = json!({"name": "configure", "ignition": {"config": {
        "ignition": {"version": "3.4.0"},
        "passwd": {"users": [{"name": "core", "passwordHash": "{{ secrets.my-db.pw }}"}]},
    }}});
    world.apply(tree).await.unwrap();
    let (_, _, mut agent) = world.begins().await;
    let assignment = agent.assigned();
    let ActionKind::Ignition(sent) = &assignment.actions[1].kind else { panic!("a config") };
    let config: serde_json::Value = serde_json::from_str(sent.config.expose()).unwrap();
    assert_eq!(config["passwd"]["users"][0]["passwordHash"], value);
    assert!(!format!("{assignment:?}").contains("quoted"));
    for document in world.store.documents().list(Kind::Workflow).await.unwrap().0 {
        assert!(!serde_json::to_string(&document).unwrap().contains("quoted"));
    }
}

#[tokio::test]
async fn a_files_secret_reaches_its_content_and_makes_it_private() {
    let world = World::new().await;
    world.apply(secret(json!({"pw": VALUE}), json!({"machines": ["m1"]}))).await.unwrap();
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    let content = "pw={{ secrets.my-db.pw }}";
    tree["spec"]["actions"][1] = json!({"name": "key", "writeFile": {"path": "/etc/key", "content": content}});
    world.apply(tree).await.unwrap();
    let run = world.provision(false).await.unwrap();
    assert!(serde_json::to_string(&run).unwrap().contains("{{ secrets.my-db.pw }}"), "pinned as a reference");
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    let assignment = agent.assigned();
    let ActionKind::WriteFile(sent) = &assignment.actions[1].kind else { panic!("a file") };
    assert_eq!(sent.source, FileSource::Content(SecretText::new(format!("pw={VALUE}"))));
    assert_eq!(sent.mode, 0o600);
    assert!(!format!("{assignment:?} {sent:?}").contains(VALUE));
    assert!(!serde_json::to_string(&world.run(&run.metadata.name).await).unwrap().contains(VALUE));
}

#[tokio::test]
async fn a_programs_secret_is_marked_in_its_environment() {
    let world = World::new().await;
    world.apply(secret(json!({"pw": VALUE}), json!({"machines": ["m1"]}))).await.unwrap();
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    let env = json!({"MODE": "fast", "TOKEN": "{{ secrets.my-db.pw }}"});
    tree["spec"]["actions"][1] = json!({"name": "register", "exec": {"command": ["register"], "env": env}});
    world.apply(tree).await.unwrap();
    let (_, _, mut agent) = world.begins().await;
    let assignment = agent.assigned();
    let ActionKind::Exec(sent) = &assignment.actions[1].kind else { panic!("a program") };
    let seen: Vec<_> = sent.variables.iter().map(|v| (v.name.as_str(), v.value.expose(), v.secret)).collect();
    assert_eq!(seen, [("MODE", "fast", false), ("TOKEN", VALUE, true)]);
    assert!(!format!("{assignment:?}").contains(VALUE));
}

#[tokio::test]
async fn a_calls_secret_is_kept_out_of_its_result() {
    let world = World::new().await;
    world.apply(secret(json!({"pw": VALUE}), json!({"machines": ["m1"]}))).await.unwrap();
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    let headers = json!({"Authorization": "Bearer {{ secrets.my-db.pw }}"});
    let call = json!({"name": "say", "http": {"url": "https://h/x", "headers": headers, "result": "text"}});
    tree["spec"]["actions"].as_array_mut().unwrap().insert(0, call);
    world.apply(tree).await.unwrap();
    let (_, uid, mut agent) = world.begins().await;
    let assignment = agent.assigned();
    let ActionKind::Http(sent) = &assignment.actions[0].kind else { panic!("a call") };
    assert_eq!((sent.headers[0].1.expose(), sent.secret), (format!("Bearer {VALUE}").as_str(), true));
    assert!(!format!("{assignment:?} {sent:?}").contains(VALUE));
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    // The server repeats what it was sent; what was kept ends in the middle of the secret.
    let body = format!("you sent {VALUE}, {}{}", "x".repeat(900), &VALUE[..10]);
    let result = ActionResult::Http(HttpResult { status: 200, body, cut: true });
    agent.report(uid, 0, 1, EventBody::Finished { result }).await.unwrap();
    let events = world.store.events().list(uid, 0, 99).await.unwrap();
    let stored = format!("{events:?}");
    assert!(stored.contains("you sent") && !stored.contains("correct"), "{stored}");
}

#[tokio::test]
async fn a_missing_or_foreign_secret_prevents_the_workflow() {
    let world = World::new().await;
    world.apply(template_with_secret()).await.unwrap();
    let refused = |problem: Problem, code| {
        assert_eq!((problem.code, problem.subject.as_str()), (code, "Secret/my-db"), "{problem}");
        assert!(!problem.hint.is_empty());
    };
    refused(world.provision(false).await.unwrap_err(), ErrorCode::NotFound);
    world.apply(secret(json!({"other": VALUE}), json!({"machines": ["m1"]}))).await.unwrap();
    refused(world.provision(false).await.unwrap_err(), ErrorCode::NotFound);
    for owners in [json!({}), json!({"machines": ["m2"]}), json!({"matchLabels": {"rack": "7", "row": "1"}})] {
        world.apply(secret(json!({"pw": VALUE}), owners)).await.unwrap();
        refused(world.provision(false).await.unwrap_err(), ErrorCode::Forbidden);
    }
    assert!(world.store.workflows().await.unwrap().is_empty());
    let mut labelled = machine("m1", MAC);
    labelled["metadata"]["labels"] = json!({"rack": "7", "row": "1", "unit": "9"});
    world.apply(labelled).await.unwrap();
    world.provision(false).await.unwrap();
}

#[tokio::test]
async fn applying_a_secret_again_keeps_or_replaces_its_values() {
    let world = World::new().await;
    let version = |document: &Document| match document {
        Document::Secret(secret) => secret.status.clone().unwrap().version,
        other => panic!("{other:?}"),
    };
    let empty = world.apply(secret(json!({}), json!({}))).await.unwrap_err();
    assert_eq!(empty.code, ErrorCode::InvalidDocument);
    let dry = Document::from_value(secret(json!({"pw": VALUE}), json!({}))).unwrap();
    let (shown, outcome) = world.engine.documents().apply(dry, "ann", true).await.unwrap();
    assert_eq!((outcome, format!("{shown:?}").contains(VALUE)), (ApplyOutcome::Created, false));
    assert!(world.store.documents().list(Kind::Secret).await.unwrap().0.is_empty());

    let (first, outcome) = world.apply(secret(json!({"pw": VALUE}), json!({}))).await.unwrap();
    assert_eq!((outcome, version(&first)), (ApplyOutcome::Created, 1));
    let (_, outcome) = world.apply(secret(json!({"pw": VALUE}), json!({}))).await.unwrap();
    assert_eq!(outcome, ApplyOutcome::Unchanged);
    // Without data, as `get -o yaml` answers it: the values stay.
    let (same, outcome) = world.apply(secret(json!({}), json!({"machines": ["m1"]}))).await.unwrap();
    assert_eq!((outcome, version(&same)), (ApplyOutcome::Configured, 1));
    let mut watch = world.store.documents().watch(Some(Kind::Secret), same.metadata().resource_version).unwrap();
    let (other, outcome) = world.apply(secret(json!({"pw": "new"}), json!({"machines": ["m1"]}))).await.unwrap();
    assert_eq!((outcome, version(&other)), (ApplyOutcome::Configured, 2));
    assert_eq!(watch.next().await.unwrap().op, ChangeOp::Modified, "watchers see that a value changed, not which");
    let mut stale = secret(json!({"pw": "late"}), json!({"machines": ["m1"]}));
    stale["metadata"]["resourceVersion"] = json!(first.metadata().resource_version);
    assert_eq!(world.apply(stale).await.unwrap_err().code, ErrorCode::Conflict);
    let kept = world.store.secrets().get("secret/my-db", Timestamp::UNIX_EPOCH).await.unwrap().unwrap();
    assert!(String::from_utf8(kept).unwrap().contains("new"), "a refused write left its value");

    world.engine.documents().delete(Kind::Secret, "my-db", "ann").await.unwrap();
    assert_eq!(world.store.secrets().get("secret/my-db", Timestamp::UNIX_EPOCH).await.unwrap(), None);
}

#[tokio::test]
async fn a_secret_in_an_agents_reports_is_removed() {
    let world = World::new().await;
    let pem = "-----BEGIN KEY-----\nc2VjcmV0bGluZQ==\n-----END KEY-----\n";
    world.apply(secret(json!({"pw": VALUE, "key": pem}), json!({"machines": ["m1"]}))).await.unwrap();
    let mut tree = template_with_secret();
    tree["spec"]["actions"][1]["cloudInit"]["userData"]["key"] = json!("{{ secrets.my-db.key }}");
    world.apply(tree).await.unwrap();
    let (name, uid, mut agent) = world.begins().await;
    agent.assigned();
    let mut problem = Problem::new(ErrorCode::Timeout, format!("the script said pw={VALUE}!")).hint(VALUE);
    problem.causes = vec!["c2VjcmV0bGluZQ==".into()];
    problem.last_log_lines = vec![format!("+ echo {VALUE}")];
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    agent.report(uid, 0, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
    world.engine.telemetry().prepare_logs(uid).await.unwrap();
    let time = Timestamp::UNIX_EPOCH;
    let line =
        LogLine { time, level: LogLevel::Info, action_index: 0, attempt: 1, message: format!("{VALUE} {VALUE}") };
    world.engine.telemetry().log(uid, line);

    let kept = serde_json::to_string(&world.store.events().list(uid, 0, 9).await.unwrap()).unwrap();
    let shown = serde_json::to_string(&world.run(&name).await).unwrap();
    let logged = serde_json::to_string(&world.engine.telemetry().logs(uid).0).unwrap();
    for text in [&kept, &shown, &logged] {
        assert!(!text.contains(VALUE) && !text.contains("c2VjcmV0bGluZQ"), "{text}");
        assert!(text.contains("[secret]"), "{text}");
    }
    assert!(kept.contains("pw=[secret]!") && logged.contains("[secret] [secret]"));
}

#[tokio::test]
async fn a_missing_secret_fails_the_workflow_at_assignment() {
    let world = World::new().await;
    world.apply(secret(json!({"pw": VALUE}), json!({"machines": ["m1"]}))).await.unwrap();
    world.apply(template_with_secret()).await.unwrap();
    let run = world.provision(false).await.unwrap().metadata.name;
    world.engine.documents().delete(Kind::Secret, "my-db", "ann").await.unwrap();
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    let received: Vec<_> = std::iter::from_fn(|| agent.received()).collect();
    assert!(matches!(received.last(), Some(ToAgent::Idle { boot_disk: false, .. })), "{received:?}");
    let status = world.run(&run).await.status.unwrap();
    let problem = status.problem.unwrap();
    assert_eq!((status.phase, problem.code), (WorkflowPhase::Failed, ErrorCode::NotFound));
    assert!(problem.message.contains("my-db") && problem.subject == "Secret/my-db", "{problem}");
    assert_eq!(world.phase().await, MachinePhase::Failed);
    let leased = world.machine().await.status.unwrap().session.unwrap().leased;
    assert!(!leased, "it was given nothing to work on");
    // With the secret back, and asked again, the agent that is there begins.
    world.apply(secret(json!({"pw": VALUE}), json!({"machines": ["m1"]}))).await.unwrap();
    world.provision(false).await.unwrap();
    agent.assigned();
}

#[tokio::test]
async fn a_workflows_token_never_appears_in_its_log() {
    let world = World::new().await;
    let (name, uid, mut agent) = world.begins().await;
    let bearer = bearer_of(&agent.assigned().actions[1]);
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    let problem = Problem::new(ErrorCode::Timeout, format!("cannot post with {bearer}"));
    agent.report(uid, 0, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
    let shown = serde_json::to_string(&world.run(&name).await).unwrap();
    assert!(!shown.contains(&bearer) && shown.contains("[secret]"), "{shown}");
}
