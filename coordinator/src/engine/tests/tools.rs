//! The tools layer: whose list needs it, and what its agent is sent.

use landfall_api::{CpuFacts, Digest, MachineFacts, message::ToolsLayer};

use super::*;
use crate::tools_layer::ToolsLayers;

fn with_unpack() -> serde_json::Value {
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    let archive = json!({"url": "http://10.77.0.1:7480/images/a.tar", "digest": Digest::from_sha256([1; 32])});
    tree["spec"]["actions"][1] = json!({"name": "app", "unpack": archive});
    tree
}

fn layer(byte: u8) -> ToolsLayer {
    let url = "http://10.77.0.1:7480/boot/tools".into();
    ToolsLayer { url, other_urls: Vec::new(), digest: Digest::from_sha256([byte; 32]), size_bytes: 1 << 20 }
}

fn serve(world: &World, tools: ToolsLayers) {
    world.engine.reload(Settings { tools, ..(*world.engine.fleet().settings()).clone() });
}

fn serves(world: &World, x86_64: Option<ToolsLayer>) {
    serve(world, ToolsLayers { x86_64, arm64: None });
}

#[tokio::test]
async fn without_a_layer_a_list_that_needs_it_is_refused() {
    let world = World::new().await;
    world.apply(with_unpack()).await.unwrap();
    let refused = world.provision(false).await.unwrap_err();
    assert_eq!((refused.code, refused.subject.as_str()), (ErrorCode::NoToolsLayer, "app.unpack"), "{refused}");
    assert!(refused.hint.contains("boot.tools") && world.store.workflows().await.unwrap().is_empty(), "{refused}");
    serves(&world, Some(layer(7)));
    world.provision(false).await.unwrap();
}

#[tokio::test]
async fn an_agent_is_sent_the_layer_that_is_served_then() {
    let world = World::new().await;
    serves(&world, Some(layer(7)));
    world.apply(with_unpack()).await.unwrap();
    world.provision(false).await.unwrap();
    // Replaced while the machine was on its way.
    serves(&world, Some(layer(8)));
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    assert_eq!(agent.assigned().tools, Some(layer(8)));
}

#[tokio::test]
async fn a_list_that_needs_no_layer_names_none() {
    let world = World::new().await;
    serves(&world, Some(layer(7)));
    let (_, _, mut agent) = world.begins().await;
    assert_eq!(agent.assigned().tools, None);
}

/// A run of `write`, `app` (unpack) and `off`, with that list for its failure, on a machine whose agent has been sent it.
async fn begun(world: &World, on_failure: serde_json::Value) -> (String, Uuid, Agent<'_>) {
    serves(world, Some(layer(7)));
    let mut tree = with_unpack();
    tree["spec"]["actions"][2] = json!({"name": "off", "powerOff": {}});
    tree["spec"]["onFailure"] = on_failure;
    world.apply(tree).await.unwrap();
    let (name, uid, mut agent) = world.begins().await;
    assert_eq!(agent.assigned().tools, Some(layer(7)));
    (name, uid, agent)
}

async fn writes(agent: &Agent<'_>, run: Uuid) {
    let done = receipt(agent.uid, run, ReceiptState::Done);
    agent.report(run, 0, 1, EventBody::Started).await.unwrap();
    agent.report(run, 0, 1, EventBody::ReceiptWritten { receipt: done.clone() }).await.unwrap();
    agent.report(run, 0, 1, EventBody::Finished { result: written(done) }).await.unwrap();
}

async fn fails(agent: &Agent<'_>, run: Uuid, index: u32) {
    agent.report(run, index, 1, EventBody::Started).await.unwrap();
    let problem = Problem::new(ErrorCode::Internal, "no");
    agent.report(run, index, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
}

#[tokio::test]
async fn the_list_for_a_failure_needs_no_layer() {
    let world = World::new().await;
    let (_, uid, mut agent) = begun(&world, json!([{"name": "off-at-last", "powerOff": {}}])).await;
    serves(&world, None);
    fails(&agent, uid, 0).await;
    assert!(matches!(agent.received(), Some(ToAgent::Cancel { .. })));
    let after = agent.assigned();
    assert_eq!((after.start_index, after.tools), (3, None));
}

#[tokio::test]
async fn a_retry_needs_the_layer_only_for_what_is_left() {
    let world = World::new().await;
    let (name, uid, mut agent) = begun(&world, json!([])).await;
    writes(&agent, uid).await;
    let unpacked = landfall_api::UnpackResult { root_device: "vda1".into(), entries: 1, bytes: 1 };
    agent.does(uid, 1, 1, ActionResult::Unpack(unpacked)).await;
    fails(&agent, uid, 2).await;
    while agent.received().is_some() {}
    serves(&world, None);
    let retried = world.engine.requests().retry(&name, world.ann(false)).await.unwrap();
    let again = agent.assigned();
    assert_eq!((again.workflow_uid, again.start_index), (retried.metadata.uid.unwrap(), 2));
    assert_eq!(again.tools, None);
}

#[tokio::test]
async fn a_retry_that_needs_a_missing_layer_is_refused() {
    let world = World::new().await;
    let (name, uid, mut agent) = begun(&world, json!([])).await;
    writes(&agent, uid).await;
    fails(&agent, uid, 1).await;
    while agent.received().is_some() {}
    serves(&world, None);
    let refused = world.engine.requests().retry(&name, world.ann(false)).await.unwrap_err();
    assert_eq!((refused.code, refused.subject.as_str()), (ErrorCode::NoToolsLayer, "app.unpack"), "{refused}");
    serves(&world, Some(layer(8)));
    world.engine.requests().retry(&name, world.ann(false)).await.unwrap();
}

#[tokio::test]
async fn a_machine_gets_the_layer_of_its_processor() {
    let world = World::new().await;
    serves(&world, Some(layer(7)));
    world.apply(with_unpack()).await.unwrap();
    let uid = world.machine().await.metadata.uid.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    while agent.received().is_some() {}
    let cpu = CpuFacts { architecture: "aarch64".into(), ..CpuFacts::default() };
    let facts = MachineFacts { cpu, ..MachineFacts::default() };
    world.engine.sessions().facts(uid, agent.opened.epoch, facts).await.unwrap();
    let refused = world.provision(false).await.unwrap_err();
    assert_eq!((refused.code, refused.subject.as_str()), (ErrorCode::NoToolsLayer, "app.unpack"), "{refused}");
    assert!(refused.hint.contains("boot.arm64.tools"), "{refused}");
    serve(&world, ToolsLayers { x86_64: Some(layer(7)), arm64: Some(layer(9)) });
    world.provision(false).await.unwrap();
    assert_eq!(agent.assigned().tools, Some(layer(9)));
}
