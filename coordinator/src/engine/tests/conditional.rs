//! Conditions over results: handed on to the agent, and what is left out.

use landfall_api::{ActionOutcome, HttpResult};

use super::*;

fn list() -> serde_json::Value {
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    tree["spec"]["successOn"] = json!("reboot");
    tree["spec"]["actions"] = json!([
        {"name": "call", "http": {"url": "http://h/", "result": "text"}},
        {"name": "unnamed", "wait": {"for": "1s"}},
        {"name": "one", "when": "machine.name == 'm1' and results.call.status == 201", "wait": {"for": "1s"}},
        {"name": "two", "when": "results.one.succeeded or results.call.body == 'go'", "wait": {"for": "1s"}},
        {"name": "restart", "reboot": {}},
    ]);
    tree
}

#[tokio::test]
async fn results_reach_the_next_agent_and_skips_the_history() {
    let world = World::new().await;
    world.apply(list()).await.unwrap();
    let (name, uid, mut agent) = world.begins().await;
    let assignment = agent.assigned();
    let conditions: Vec<_> = assignment.actions.iter().map(|a| a.when.as_ref().map(ToString::to_string)).collect();
    assert_eq!(conditions[2].as_deref(), Some("results.call.status == 201"));
    assert_eq!(conditions[3].as_deref(), Some("results.one.succeeded or results.call.body == \"go\""));
    assert_eq!((conditions[0].as_ref(), assignment.results), (None, vec![]));
    let answer = HttpResult { status: 200, body: "go".into(), cut: false };
    agent.does(uid, 0, 1, ActionResult::Http(answer)).await;
    agent.does(uid, 1, 1, ActionResult::Wait(landfall_api::WaitResult { waited_ms: 1000 })).await;
    agent.report(uid, 2, 1, EventBody::Skipped).await.unwrap();
    // The machine restarts: the next agent is given what it needs to decide the rest.
    world.later(60);
    let mut agent = world.connect(hello("b2", "D1", vec![])).await;
    let assignment = agent.assigned();
    assert_eq!((assignment.start_index, assignment.start_attempt), (3, 2));
    let known: Vec<_> = assignment.results.iter().map(|known| (known.index, known.outcome.clone())).collect();
    let called = ActionOutcome { succeeded: true, status: Some(200), body: Some("go".into()) };
    assert_eq!(known, [(0, called), (2, ActionOutcome::left_out())]);
    assert!(
        matches!(assignment.actions[2].kind, landfall_api::message::ActionKind::Hold(_)),
        "later actions take it for nothing"
    );
    agent.does(uid, 3, 2, ActionResult::Wait(landfall_api::WaitResult { waited_ms: 1000 })).await;
    agent.does(uid, 4, 1, ActionResult::Reboot).await;
    let ended = world.run(&name).await;
    let status = ended.status.as_ref().unwrap();
    assert_eq!(status.phase, WorkflowPhase::Succeeded);
    assert!(status.actions[2].is_left_out() && status.actions[2].state == ActionState::Skipped);
}

#[tokio::test]
async fn an_unconditional_action_cannot_be_left_out() {
    let world = World::new().await;
    world.apply(list()).await.unwrap();
    let (name, uid, mut agent) = world.begins().await;
    drop(agent.assigned());
    agent.report(uid, 0, 1, EventBody::Skipped).await.unwrap();
    let problem = world.run(&name).await.status.clone().unwrap().problem.unwrap();
    assert_eq!(problem.code, ErrorCode::VersionSkew);
    assert!(problem.message.contains("left \"call\" out"), "{problem}");
}

#[tokio::test]
async fn a_begun_write_is_sent_without_its_condition() {
    let world = World::new().await;
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    let image = tree["spec"]["actions"][0]["writeImage"].clone();
    tree["spec"]["actions"] = json!([
        {"name": "call", "http": {"url": "http://h/"}},
        {"name": "write", "when": "results.call.status == 201", "writeImage": image},
        {"name": "restart", "reboot": {}},
    ]);
    world.apply(tree).await.unwrap();
    let (_, uid, mut agent) = world.begins().await;
    assert!(agent.assigned().actions[1].when.is_some());
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    let mut begun = receipt(agent.uid, uid, ReceiptState::Intent);
    drop(agent);
    // The answer was lost with the power, after the disk was begun. The next one may be another.
    world.later(60);
    begun.receipt.action_index = 1;
    let mut agent = world.connect(hello("b2", "D1", vec![begun])).await;
    let assignment = agent.assigned();
    assert_eq!((assignment.start_index, assignment.actions[1].when.is_none()), (0, true));
}
