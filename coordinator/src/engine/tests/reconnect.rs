//! Claims about an agent that comes back: what it was promised, what it was ordered to stop, and what it is asked.

use super::{fleet::Computer, *};

#[tokio::test]
async fn a_cancelled_workflows_agent_keeps_its_lease_over_a_reconnect() {
    let world = World::new().await;
    let (computer, name, run, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    session.report(&world, run, (0, 1), EventBody::Started).await;
    world.engine.requests().cancel(&name, world.ann(false)).await.unwrap();
    let running = Some(ActionRef { workflow_uid: run, action_index: 0, attempt: 1 });
    let back = Hello { running, holds: Some(run), last_epoch: session.opened.epoch, ..computer.hello() };
    session.opened = computer.connect(&world, back).await.opened;
    assert!(matches!(session.received()[..], [ToAgent::Cancel { .. }, ..]), "it is ordered again");
    world.engine.sessions().heartbeat(session.uid, session.opened.epoch, vitals(1)).await.unwrap();
    assert!(
        !session.received().iter().any(|received| matches!(received, ToAgent::LeaseRenewal { .. })),
        "it is to stop"
    );
    let other = Hello { boot_id: "other".into(), disks: vec![disk("OTHER")], ..computer.hello() };
    let refused = world.open(session.uid, other).await.unwrap_err();
    assert_eq!(refused.retry_after, Some(Duration::from_secs(600)), "it may still be writing");
    world.engine.documents().delete(Kind::Machine, &computer.name, "ann").await.unwrap();
    assert_eq!(computer.phase(&world).await, MachinePhase::Deleting, "it may still be writing");
    let stopped = Problem::new(ErrorCode::Cancelled, "cancelled by ann");
    session.report(&world, run, (0, 1), EventBody::Failed { problem: stopped, retryable: false }).await;
    assert!(world.store.machine(&computer.name).await.unwrap().is_none(), "it said that it has stopped");
}

#[tokio::test]
async fn reports_of_an_older_workflow_do_not_settle_the_newest() {
    let world = World::new().await;
    let (computer, old, old_uid, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    session.report(&world, old_uid, (0, 1), EventBody::Started).await;
    world.engine.requests().cancel(&old, world.ann(false)).await.unwrap();
    let new = computer.provision(&world, false).await.unwrap().metadata;
    session.assigned().unwrap();
    let back = Hello { last_epoch: session.opened.epoch, ..computer.hello() };
    session.opened = computer.connect(&world, back).await.opened;
    let stopped = Problem::new(ErrorCode::Cancelled, "cancelled by ann");
    session.report(&world, old_uid, (0, 1), EventBody::Failed { problem: stopped, retryable: false }).await;
    assert!(session.received().is_empty(), "nothing is known of its newest run yet");
    world.engine.upkeep().steps().settle(session.uid, session.opened.epoch).await.unwrap();
    assert_eq!(session.assigned().expect("it had nothing to say").workflow_uid, new.uid.unwrap());
}

#[tokio::test]
async fn after_a_restart_an_ended_workflow_gets_no_lease() {
    let world = World::new().await;
    let (computer, name, run, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    session.report(&world, run, (0, 1), EventBody::Started).await;
    world.engine.requests().cancel(&name, world.ann(false)).await.unwrap();
    let world = World::over(world.store.clone(), world.clock.clone()).await;
    let running = Some(ActionRef { workflow_uid: run, action_index: 0, attempt: 1 });
    let back = Hello { running, holds: Some(run), last_epoch: session.opened.epoch, ..computer.hello() };
    session.opened = computer.connect(&world, back).await.opened;
    session.received();
    world.engine.sessions().heartbeat(session.uid, session.opened.epoch, vitals(1)).await.unwrap();
    assert!(session.received().is_empty(), "it is to stop");
    world.engine.documents().delete(Kind::Machine, &computer.name, "ann").await.unwrap();
    assert_eq!(computer.phase(&world).await, MachinePhase::Deleting, "it may still be writing");
    let stopped = Problem::new(ErrorCode::Cancelled, "cancelled by ann");
    session.report(&world, run, (0, 1), EventBody::Failed { problem: stopped, retryable: false }).await;
    assert!(world.store.machine(&computer.name).await.unwrap().is_none(), "it said that it has stopped");
}
