//! Claims about admission, through the engine.

use super::fleet::{Computer, Session, Until};
use super::*;

async fn world(limit: usize) -> World {
    World::over_with(Store::memory(), Arc::new(AtomicI64::new(1_000_000)), limit).await.described().await
}

/// So many computers, each asked for an install, and the names of the workflows.
async fn asked(world: &World, count: u8) -> (Vec<Computer>, Vec<String>) {
    let (mut fleet, mut runs) = (Vec::new(), Vec::new());
    for number in 0..count {
        let computer = Computer::described(world, number).await;
        runs.push(computer.provision(world, false).await.unwrap().metadata.name);
        fleet.push(computer);
    }
    (fleet, runs)
}

async fn admitted(world: &World, run: &str) -> (ConditionStatus, String, String) {
    let status = world.run(run).await.status.unwrap();
    let found = status.conditions.into_iter().find(|c| c.kind == "Admitted").unwrap();
    (found.status, found.reason.to_string(), found.message)
}

/// Waits for what the queue does by itself.
async fn assigned_soon(session: &mut Session) -> Assignment {
    let received = async {
        loop {
            match session.opened.to_agent.recv().await {
                Some(ToAgent::Assign(assignment)) => return *assignment,
                Some(_) => {}
                None => panic!("the session was cut"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), received).await.expect("an assignment")
}

#[tokio::test]
async fn installs_begin_in_the_order_of_their_requests() {
    let world = world(1).await;
    let (mut fleet, runs) = asked(&world, 3).await;
    let (_, reason, message) = admitted(&world, &runs[2]).await;
    assert!(reason == "Queued" && message.starts_with("place 2 in the queue"), "{message}");
    assert_eq!(world.run(&runs[2]).await.status.unwrap().phase, WorkflowPhase::Pending);
    let mut first = fleet[0].netboot(&world).await.unwrap();
    let assignment = first.assigned().unwrap();
    let mut third = fleet[2].netboot(&world).await.unwrap();
    let mut second = fleet[1].netboot(&world).await.unwrap();
    for waiting in [&mut second, &mut third] {
        assert!(
            matches!(waiting.received()[..], [ToAgent::Idle { boot_disk: false, ended: None }]),
            "it stays, and learns so"
        );
    }
    world.engine.upkeep().tick().await.unwrap();
    assert!(admitted(&world, &runs[1]).await.2.contains("place 1 in the queue: 1 installs run"));
    fleet[0].work(&world, &mut first, &assignment, Until::Home).await;
    let assignment = assigned_soon(&mut second).await;
    assert!(third.assigned().is_none(), "one at once");
    assert_eq!(admitted(&world, &runs[1]).await.1, "Started");
    // A failure is an end too.
    let failed = EventBody::Failed { problem: Problem::new(ErrorCode::DeviceIo, "gone"), retryable: false };
    second.report(&world, assignment.workflow_uid, (0, 1), EventBody::Started).await;
    second.report(&world, assignment.workflow_uid, (0, 1), failed).await;
    assigned_soon(&mut third).await;
}

#[tokio::test]
async fn a_cancelled_or_disconnected_workflow_leaves_the_queue() {
    let world = world(1).await;
    let (mut fleet, runs) = asked(&world, 4).await;
    let mut sessions = Vec::new();
    for computer in &mut fleet {
        sessions.push(computer.netboot(&world).await.unwrap());
    }
    let mut sessions = sessions.into_iter();
    let (mut first, second, third, mut fourth) =
        (sessions.next().unwrap(), sessions.next().unwrap(), sessions.next().unwrap(), sessions.next().unwrap());
    first.assigned().unwrap();
    world.engine.requests().cancel(&runs[1], world.ann(false)).await.unwrap();
    assert_eq!(admitted(&world, &runs[1]).await.1, "Ended");
    third.power_off(&world).await;
    world.engine.upkeep().tick().await.unwrap();
    assert!(admitted(&world, &runs[2]).await.2.starts_with("place 1"), "it keeps its place");
    world.engine.requests().cancel(&runs[0], world.ann(false)).await.unwrap();
    assigned_soon(&mut fourth).await;
    drop((first, second));
}

#[tokio::test]
async fn the_queue_outlives_a_restart_in_its_order() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(1_000_000)));
    let world = World::over_with(Store::open(dir.path()).unwrap(), clock.clone(), 1).await.described().await;
    // All asked for within one second: their names and times give no order.
    let (mut fleet, runs) = asked(&world, 4).await;
    let mut session = fleet[0].netboot(&world).await.unwrap();
    session.assigned().unwrap();
    drop((session, world));
    let world = World::over_with(Store::open(dir.path()).unwrap(), clock.clone(), 1).await;
    let mut third = fleet[2].netboot(&world).await.unwrap();
    let mut second = fleet[1].netboot(&world).await.unwrap();
    assert!(second.assigned().is_none() && third.assigned().is_none(), "the first still runs");
    world.engine.requests().cancel(&runs[0], world.ann(false)).await.unwrap();
    assigned_soon(&mut second).await;
    assert!(third.assigned().is_none());
}

#[tokio::test]
async fn a_paused_workflow_frees_its_place_in_the_queue() {
    let world = world(1).await;
    let (mut first, mut second) = (Computer::described(&world, 0).await, Computer::described(&world, 1).await);
    let mut third = Computer::described(&world, 2).await;
    let run = first.provision(&world, false).await.unwrap().metadata;
    for computer in [&second, &third] {
        computer.provision(&world, false).await.unwrap();
    }
    let mut working = first.netboot(&world).await.unwrap();
    let assignment = working.assigned().unwrap();
    let mut waiting = second.netboot(&world).await.unwrap();
    let uid = run.uid.unwrap();
    working.report(&world, uid, (0, 1), EventBody::Started).await;
    world.engine.requests().pause(&run.name, world.ann(false)).await.unwrap();
    world.engine.upkeep().tick().await.unwrap();
    assert!(waiting.assigned().is_none(), "the write goes on to its end");
    let done = first.mark(&world, &assignment, 0, ReceiptState::Done);
    working.report(&world, uid, (0, 1), EventBody::Finished { result: written(done) }).await;
    let other = assigned_soon(&mut waiting).await;
    world.engine.requests().resume(&run.name, world.ann(false)).await.unwrap();
    second.work(&world, &mut waiting, &other, Until::Home).await;
    let mut last = third.netboot(&world).await.unwrap();
    assert!(last.assigned().is_none(), "the first works again");
    world.engine.requests().cancel(&run.name, world.ann(false)).await.unwrap();
    assigned_soon(&mut last).await;
}

#[tokio::test]
async fn a_powerless_machine_keeps_its_place_until_its_lease_ends() {
    let world = world(1).await;
    let (mut gone, mut next) = (Computer::described(&world, 0).await, Computer::described(&world, 1).await);
    for computer in [&gone, &next] {
        computer.provision(&world, false).await.unwrap();
    }
    gone.run(&world, Until::Intent).await;
    let mut waiting = next.netboot(&world).await.unwrap();
    world.later(599);
    world.engine.upkeep().tick().await.unwrap();
    assert!(waiting.assigned().is_none(), "it may still be writing");
    world.later(10);
    world.engine.upkeep().tick().await.unwrap();
    assert!(waiting.assigned().is_some());
    // It comes back, and goes on beside the other: it was let in once.
    let mut back = gone.netboot(&world).await.unwrap();
    assert_eq!(back.assigned().unwrap().start_attempt, 2);
}
