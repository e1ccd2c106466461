//! The tools layer: whose list needs it, and what its agent is sent.

use landfall_api::{Digest, message::ToolsLayer};

use super::*;

fn with_unpack() -> serde_json::Value {
    let mut tree = template("http://10.77.0.1:7480/images/os.zst");
    let archive = json!({"url": "http://10.77.0.1:7480/images/a.tar", "digest": Digest::from_sha256([1; 32])});
    tree["spec"]["actions"][1] = json!({"name": "app", "unpack": archive});
    tree
}

fn layer(byte: u8) -> ToolsLayer {
    let url = "http://10.77.0.1:7480/boot/tools".into();
    ToolsLayer { url, digest: Digest::from_sha256([byte; 32]), size_bytes: 1 << 20 }
}

impl World {
    fn serves(&self, tools: Option<ToolsLayer>) {
        self.engine.reload(Settings { tools, ..(*self.engine.fleet().settings()).clone() });
    }
}

#[tokio::test]
async fn without_a_layer_a_list_that_needs_it_is_refused() {
    let world = World::new().await;
    world.apply(with_unpack()).await.unwrap();
    let refused = world.provision(false).await.unwrap_err();
    assert_eq!((refused.code, refused.subject.as_str()), (ErrorCode::NoToolsLayer, "app.unpack"), "{refused}");
    assert!(refused.hint.contains("boot.tools") && world.store.workflows().await.unwrap().is_empty(), "{refused}");
    world.serves(Some(layer(7)));
    world.provision(false).await.unwrap();
}

#[tokio::test]
async fn an_agent_is_sent_the_layer_that_is_served_then() {
    let world = World::new().await;
    world.serves(Some(layer(7)));
    world.apply(with_unpack()).await.unwrap();
    world.provision(false).await.unwrap();
    // Replaced while the machine was on its way.
    world.serves(Some(layer(8)));
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    assert_eq!(agent.assigned().tools, Some(layer(8)));
}

#[tokio::test]
async fn a_list_that_needs_no_layer_names_none() {
    let world = World::new().await;
    world.serves(Some(layer(7)));
    world.provision(false).await.unwrap();
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    assert_eq!(agent.assigned().tools, None);
}
