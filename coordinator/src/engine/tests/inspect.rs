//! A machine that is looked at again on demand.

use landfall_api::MachineFacts;
use landfall_api::message::ToAgent;
use landfall_proto::revision::INSPECT;

use super::*;

#[tokio::test]
async fn an_inspection_answers_what_changed() {
    let world = World::new().await;
    let inspect = || world.engine.inspections().inspect("m1");
    assert_eq!(world.engine.inspections().inspect("m9").await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(inspect().await.unwrap_err().code, ErrorCode::SourceUnreachable);
    world.provision(false).await.unwrap();
    world.enroll(b"key").await.unwrap();
    let old = Hello { protocol: INSPECT - 1, ..hello("b1", "D1", vec![]) };
    drop(world.connect(old).await);
    assert_eq!(inspect().await.unwrap_err().code, ErrorCode::VersionSkew);
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    let report = async |memory_bytes| {
        let facts = MachineFacts { memory_bytes, ..MachineFacts::default() };
        world.engine.sessions().facts(agent.uid, agent.opened.epoch, facts).await.unwrap();
    };
    report(1).await;
    for (memory, changes) in [(1, 0), (2, 1)] {
        let looks = async {
            let uid = loop {
                if let ToAgent::Inspect(uid) = agent.opened.to_agent.recv().await.unwrap() {
                    break uid;
                }
            };
            // Another machine has no say, and another look answers nothing.
            world.engine.inspections().ended(Uuid::from_u128(99), uid);
            world.engine.inspections().ended(agent.uid, Uuid::from_u128(98));
            report(memory).await;
            world.engine.inspections().ended(agent.uid, uid);
        };
        let (inspection, ()) = tokio::join!(inspect(), looks);
        assert_eq!(inspection.unwrap().changes.len(), changes);
    }
}
