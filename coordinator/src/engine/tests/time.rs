//! A clock that jumps back, and what age and number drop.

use super::*;

#[tokio::test]
async fn a_clock_set_back_by_a_day_fires_nothing_early() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicI64::new(10_000_000));
    let world = sqlite_world(dir.path(), &clock).await.described().await;
    let (name, uid, mut agent) = world.begins().await;
    let bearer = bearer_of(&agent.assigned().actions[1]);
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();

    world.set_clock(-24 * 3600);
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(world.condition("Connected").await.unwrap().0, ConditionStatus::True, "silent, a moment after it spoke");
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Running);
    let done = receipt(agent.uid, uid, ReceiptState::Done);
    agent.report(uid, 0, 1, EventBody::Finished { result: written(done) }).await.unwrap();
    agent.does(uid, 1, 1, seeded()).await;
    agent.does(uid, 2, 1, ActionResult::Reboot).await;
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Rebooting, "its deadline is ahead of it");
    // Silence is still noticed, by the clock as it is now.
    let silent_after = 16;
    world.later(silent_after);
    world.engine.upkeep().tick().await.unwrap();
    let events = world.store.events().list(uid, 0, 100).await.unwrap();
    assert_eq!(events.len(), 6);

    drop(agent);
    drop(world);
    let world = sqlite_world(dir.path(), &clock).await;
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Rebooting);
    assert_eq!(world.store.events().list(uid, 0, 100).await.unwrap(), events);
    world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default()).await.unwrap();
    assert_eq!(world.phase().await, MachinePhase::Provisioned);
}

#[tokio::test]
async fn retention_removes_events_of_the_oldest_ended_workflow_first() {
    let world = World::new().await;
    let authority = || Authority { person: "ann".into(), at: Timestamp::UNIX_EPOCH, force: false };
    let mut runs = Vec::new();
    for n in 0..3 {
        let run = world.provision(false).await.unwrap();
        let uid = run.metadata.uid.unwrap();
        let records = [1, 2].map(|seq| record(uid, (0, 1), seq, EventBody::Started));
        world.store.events().append(u64::MAX, records.to_vec()).await.unwrap();
        if n < 2 {
            world.engine.requests().cancel(&run.metadata.name, authority()).await.unwrap();
        }
        runs.push(uid);
    }
    // Of a workflow that is not known: a crash came between its document's end and its events'.
    let orphan = Uuid::new_v4();
    world.store.events().append(u64::MAX, vec![record(orphan, (0, 1), 1, EventBody::Started)]).await.unwrap();
    let left = async || {
        let mut left = Vec::new();
        for uid in runs.iter().chain([&orphan]) {
            left.push(world.store.events().list(*uid, 0, 9).await.unwrap().len());
        }
        left
    };
    world.engine.upkeep().removals().retain_events(6).await.unwrap();
    assert_eq!(left().await, [2, 2, 2, 0]);
    world.engine.upkeep().removals().retain_events(4).await.unwrap();
    assert_eq!(left().await, [0, 2, 2, 0]);
    world.engine.upkeep().removals().retain_events(0).await.unwrap();
    assert_eq!(left().await, [0, 0, 2, 0]);
}

#[tokio::test]
async fn a_clock_set_forward_by_a_day_fails_no_workflow() {
    let world = World::new().await;
    let (name, _, agent) = world.under_way().await;
    let before = world.run(&name).await.status.unwrap();
    let day = jiff::SignedDuration::from_hours(24);
    world.set_clock(24 * 3600);
    world.engine.upkeep().clock_set(day).await.unwrap();
    world.engine.upkeep().tick().await.unwrap();
    let after = world.run(&name).await.status.unwrap();
    assert_eq!(after.phase, WorkflowPhase::Running);
    let later = |at: Option<Timestamp>| at.map(|at| at + day);
    assert_eq!((after.deadline, after.end_by), (later(before.deadline), later(before.end_by)));
    assert_eq!(world.condition("Connected").await.unwrap().0, ConditionStatus::True, "silent for no time");
    let other = world.open(agent.uid, hello("b2", "OTHER", vec![])).await.unwrap_err();
    assert_eq!(other.retry_after, Some(Duration::from_secs(600)), "its lease is what it was");
    world.later(24 * 3600);
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Failed, "a day that passed");
}
