//! Lists that are shown and not started: renderings and dry runs.

use landfall_api::message::{ActionKind, ToAgent};
use landfall_api::{
    DiskFacts, DiskHealth, DiskId, MAX_FACT_CHANGES, MachineCheck, MachineFacts, PreviewRequest, RenderRequest,
    RenderedList,
};

use super::*;

/// What a dry run answers, and that it left no workflow behind.
async fn dry(world: &World, force: bool) -> Result<RenderedList, Problem> {
    let before = world.store.documents().list(Kind::Workflow).await.unwrap();
    let answer = world.engine.requests().dry_run("m1", "os", &BTreeMap::new(), force).await;
    assert_eq!(world.store.documents().list(Kind::Workflow).await.unwrap(), before, "nothing is stored");
    answer
}

async fn rendered(world: &World, request: serde_json::Value) -> Result<RenderedList, Problem> {
    let request: RenderRequest = serde_json::from_value(request).unwrap();
    world.engine.requests().render("m1", request).await
}

#[tokio::test]
async fn a_dry_run_answers_exactly_what_is_pinned() {
    let world = World::new().await;
    let shown = dry(&world, false).await.unwrap();
    assert_eq!((shown.machine.as_str(), shown.template.as_str()), ("m1", "os"));
    let run = world.provision(false).await.unwrap();
    let pinned: Vec<_> = run.status.unwrap().actions.iter().map(|status| (*status.action).clone()).collect();
    assert_eq!(shown.actions, pinned);
    assert_eq!(dry(&world, false).await.unwrap_err().code, ErrorCode::MachineBusy);
    assert_eq!(world.provision(true).await.unwrap_err().code, ErrorCode::MachineBusy);
    assert_eq!(dry(&world, true).await.unwrap_err().code, ErrorCode::MachineBusy, "the request is refused too");
}

#[tokio::test(start_paused = true)]
async fn a_forced_dry_run_looks_past_a_hold() {
    let world = World::new().await;
    world.provision(false).await.unwrap();
    let enrolled = world.enroll(b"key").await.unwrap();
    let foreign = receipt(enrolled.machine_uid, Uuid::from_u128(99), ReceiptState::Done);
    let _agent = world.connect(hello("b1", "D1", vec![foreign])).await;
    assert_eq!(dry(&world, false).await.unwrap_err().code, ErrorCode::ReceiptMismatch);
    // This agent does not answer; its time is up at once.
    dry(&world, true).await.unwrap();
    world.provision(true).await.expect("as the dry run said");
}

#[tokio::test]
async fn a_dry_run_asks_for_images_and_secrets() {
    let world = World::new().await;
    let mut with_secret = template("http://10.77.0.1:7480/images/os.zst");
    with_secret["spec"]["actions"][1]["cloudInit"]["userData"] = json!({"password": "{{ secrets.my-db.pw }}"});
    world.apply(with_secret).await.unwrap();
    assert_eq!(dry(&world, false).await.unwrap_err().subject, "Secret/my-db");
    let shown = rendered(&world, json!({"template": "os"})).await.unwrap();
    let text = serde_json::to_string(&shown).unwrap();
    assert!(text.contains("{{ secrets.my-db.pw }}"), "a rendering shows the reference and asks for nothing: {text}");
    let mut gone = template("http://10.77.0.1:7480/images/os.zst");
    gone["spec"]["parameters"] = json!({"image": {"default": "gone.zst"}});
    gone["spec"]["actions"][0]["writeImage"]["image"]["url"] = "http://h/{{ params.image }}".into();
    world.apply(gone).await.unwrap();
    assert_eq!(dry(&world, false).await.unwrap_err().code, ErrorCode::SourceUnreachable);
}

#[tokio::test]
async fn a_template_that_is_not_stored_is_rendered() {
    let world = World::new().await;
    let mut own = template("http://h/{{ params.file }}.zst");
    own["metadata"]["name"] = "unstored".into();
    own["spec"]["parameters"] = json!({"file": {"type": "text"}});
    let shown = rendered(&world, json!({"document": own, "parameters": {"file": "a"}})).await.unwrap();
    assert_eq!(shown.template, "unstored");
    let text = serde_json::to_string(&shown.actions[0]).unwrap();
    assert!(text.contains("http://h/a.zst"), "{text}");
    for (request, code) in [
        (json!({}), ErrorCode::InvalidDocument),
        (json!({"template": "os", "document": own}), ErrorCode::InvalidDocument),
        (json!({"document": machine("m9", "52:54:00:00:00:09")}), ErrorCode::InvalidDocument),
        (json!({"document": own, "parameters": {"file": 1}}), ErrorCode::InvalidTemplate),
        (json!({"template": "none"}), ErrorCode::NotFound),
    ] {
        assert_eq!(rendered(&world, request.clone()).await.unwrap_err().code, code, "{request}");
    }
}

#[tokio::test]
async fn a_rendering_waits_for_its_turn_but_not_for_ever() {
    let world = World::new().await;
    let busy = world.engine.requests().renderings.turns.acquire_many(2).await.unwrap();
    tokio::time::pause();
    let refused = rendered(&world, json!({"template": "os"})).await.unwrap_err();
    tokio::time::resume();
    assert_eq!((refused.code, refused.subject.as_str()), (ErrorCode::LimitReached, "Template/os"), "{refused}");
    drop(busy);
    rendered(&world, json!({"template": "os"})).await.unwrap();
}

#[tokio::test]
async fn a_run_pins_the_included_list_of_its_moment() {
    let world = World::new().await;
    let fragment = |message: &str| {
        let actions = json!([{"name": "ask", "hold": {"message": message}}]);
        document("Template", "base", json!({"fragment": true, "actions": actions}))
    };
    let mut main = template("http://10.77.0.1:7480/images/os.zst");
    main["spec"]["actions"][1] = json!({"name": "inner", "include": {"template": "base"}});
    world.apply(main).await.unwrap();
    let missing = world.provision(false).await.unwrap_err();
    assert!(missing.message.contains("no template \"base\""), "{missing}");
    world.apply(fragment("first")).await.unwrap();
    let run = world.provision(false).await.unwrap();
    world.apply(fragment("second")).await.unwrap();
    let pinned = world.run(&run.metadata.name).await.status.unwrap().actions[1].action.clone();
    assert_eq!(serde_json::to_value(&pinned).unwrap(), json!({"name": "inner-ask", "hold": {"message": "first"}}));
    let mut circle = fragment("x");
    circle["spec"]["actions"] = json!([{"name": "main", "include": {"template": "os"}}]);
    let refused = world.apply(circle).await.unwrap_err();
    assert_eq!(refused.message, "templates include each other in a circle: base → os → base");
    let alone =
        world.engine.requests().provision("m1", "base", BTreeMap::new(), world.ann(true), None).await.unwrap_err();
    assert_eq!(alone.code, ErrorCode::InvalidTemplate, "{alone}");
}

/// One disk, which an agent looked at in this second.
fn facts_at(second: u32, serial: &str) -> MachineFacts {
    let mut disk = DiskFacts { transport: "virtio".into(), ..DiskFacts::default() };
    disk.id = DiskId { name: "vda".into(), serial: serial.into(), size_bytes: 1 << 30, ..DiskId::default() };
    let contents = json!({"seenAt": format!("2026-01-01T00:00:{second:02}Z"), "table": "gpt"});
    disk.contents = serde_json::from_value(contents).unwrap();
    disk.health = Some(DiskHealth { power_on_hours: Some(second.into()), ..DiskHealth::default() });
    MachineFacts { disks: vec![disk], ..MachineFacts::default() }
}

#[tokio::test]
async fn a_request_starts_only_what_the_person_saw() {
    let world = World::new().await;
    let (_, _, agent) = world.begins().await;
    let report = async |facts| world.engine.sessions().facts(agent.uid, agent.opened.epoch, facts).await.unwrap();
    let previewed = async || {
        let asked = PreviewRequest { template: Some("os".into()), ..PreviewRequest::default() };
        world.engine.requests().preview("m1", asked).await.unwrap()
    };
    report(facts_at(1, "D1")).await;
    let seen = previewed().await;
    assert!(seen.may_destroy() && seen.actions[0].disks[0].id.serial == "D1", "{seen:?}");
    report(facts_at(2, "D1")).await;
    assert_eq!(previewed().await.digest, seen.digest, "a later look at the same disk changes nothing");
    let run = world.current("m1").await.unwrap().metadata.name;
    world.engine.requests().cancel(&run, world.ann(false)).await.unwrap();
    report(facts_at(3, "D2")).await;
    let request = async |digest: &str| {
        let parameters = BTreeMap::new();
        world.engine.requests().provision("m1", "os", parameters, world.ann(true), Some(digest)).await
    };
    let refused = request(&seen.digest).await.unwrap_err();
    assert!(refused.code == ErrorCode::Conflict && refused.message.contains("has changed"), "{refused}");
    let newer = previewed().await;
    assert_ne!(newer.digest, seen.digest);
    request(&newer.digest).await.unwrap();
}

#[tokio::test]
async fn a_port_keeps_the_neighbour_that_was_heard_last() {
    let world = World::new().await;
    let (_, _, agent) = world.begins().await;
    for (heard, kept) in [(json!({ "chassis": "sw1", "port": "7" }), Some("7")), (json!(null), Some("7"))] {
        let nic = json!({ "name": "eth0", "mac": "52:54:00:00:00:01", "carrier": true, "neighbour": heard });
        let facts = MachineFacts { nics: vec![serde_json::from_value(nic).unwrap()], ..facts_at(1, "D1") };
        world.engine.sessions().facts(agent.uid, agent.opened.epoch, facts).await.unwrap();
        let facts = world.machine().await.status.unwrap().facts.unwrap();
        assert_eq!(facts.nics[0].neighbour.as_ref().map(|neighbour| neighbour.port.as_str()), kept);
    }
}

#[tokio::test]
async fn a_machine_keeps_the_newest_changes_of_its_hardware() {
    let world = World::new().await;
    let (_, _, agent) = world.begins().await;
    let changes = async || world.machine().await.status.unwrap().fact_changes;
    for second in 1..3 {
        world.engine.sessions().facts(agent.uid, agent.opened.epoch, facts_at(second, "D1")).await.unwrap();
    }
    assert_eq!(changes().await, [], "the first facts, and a later look at the same disk");
    for n in 0..MAX_FACT_CHANGES {
        world.engine.sessions().facts(agent.uid, agent.opened.epoch, facts_at(3, &format!("R{n}"))).await.unwrap();
    }
    let kept = changes().await;
    let last = kept.last().unwrap();
    // A disk in place of another: one is gone, one is new.
    assert_eq!((kept.len(), last.fact.as_str(), last.before.as_str()), (MAX_FACT_CHANGES, "disks[R63]", ""));
    assert!(last.after.contains("serial R63"), "{last:?}");
}

#[tokio::test]
async fn an_idle_agent_checks_the_list_of_a_dry_run() {
    let world = World::new().await;
    let away = dry(&world, false).await.unwrap().machine_check;
    assert_eq!(away, Some(MachineCheck::NotMade("no agent of the machine is connected".into())));
    let spec = json!({"machines": ["m1"], "data": {"pw": "hunter2"}});
    world.apply(document("Secret", "my-db", spec)).await.unwrap();
    let mut with_secret = template("http://10.77.0.1:7480/images/os.zst");
    with_secret["spec"]["actions"][1]["cloudInit"]["userData"] = json!({"password": "{{ secrets.my-db.pw }}"});
    world.apply(with_secret).await.unwrap();
    let (name, _, mut agent) = world.begins().await;
    world.engine.requests().cancel(&name, world.ann(false)).await.unwrap();
    while agent.received().is_some() {}
    let refused = Problem::new(ErrorCode::NoDiskMatches, "no disk matches");
    let repeats = |secret: &str| {
        let mut problem = Problem::new(ErrorCode::SourceUnreachable, format!("the server refuses {secret}"));
        problem.causes = vec![format!("sent: {secret}")];
        problem
    };
    let cases = [
        (None, MachineCheck::Passed),
        (Some(refused.clone()), MachineCheck::Failed(refused)),
        (Some(repeats("hunter2")), MachineCheck::Failed(repeats("[secret]"))),
    ];
    for (said, shown) in cases {
        let asked = dry(&world, true);
        let answers = async {
            let message = tokio::time::timeout(Duration::from_secs(60), agent.opened.to_agent.recv()).await.unwrap();
            let Some(ToAgent::Check(list)) = message else { panic!("{message:?}") };
            assert!(list.force && list.actions.len() == 3, "{list:?}");
            let ActionKind::CloudInit(seed) = &list.actions[1].kind else { panic!("{list:?}") };
            assert!(seed.phone_home.is_none() && seed.meta_data.is_empty(), "nothing is made for a check");
            // Another machine has no say.
            world.engine.requests().checked(Uuid::from_u128(99), Uuid::from_u128(98), None);
            world.engine.requests().checked(agent.uid, list.workflow_uid, said);
        };
        let (list, ()) = tokio::join!(asked, answers);
        assert_eq!(list.unwrap().machine_check, Some(shown));
    }
}
