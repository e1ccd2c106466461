//! Claims about events that come together: made durable in one write, applied in one.

use super::{fleet::Computer, *};

/// What is the same in two worlds: neither uids nor times nor revisions.
fn visible(workflow: &Workflow) -> impl PartialEq + std::fmt::Debug + use<> {
    let status = workflow.status.clone().unwrap();
    let actions: Vec<_> = status.actions.iter().map(|a| (a.state, a.attempt, a.failures, a.progress.clone())).collect();
    let marks: Vec<_> = status.expected_receipts.iter().map(|r| (r.disk.clone(), r.receipt.state)).collect();
    let conditions: Vec<_> =
        status.conditions.iter().map(|c| (c.kind.to_string(), c.status, c.reason.to_string())).collect();
    (status.phase, actions, marks, conditions, status.applied)
}

#[tokio::test]
async fn batched_events_equal_single_events_in_one_write() {
    let mut seen = Vec::new();
    for together in [false, true] {
        let world = World::new().await;
        let (computer, name, uid, mut session) = Computer::begins(&world).await;
        let assignment = session.assigned().unwrap();
        let mark = |state| computer.mark(&world, &assignment, 0, state);
        let batch = vec![
            record(uid, (0, 1), 1, EventBody::Started),
            record(uid, (0, 1), 2, EventBody::ReceiptWritten { receipt: mark(ReceiptState::Intent) }),
            record(uid, (0, 1), 3, EventBody::ReceiptWritten { receipt: mark(ReceiptState::Done) }),
            record(uid, (0, 1), 4, EventBody::Finished { result: written(mark(ReceiptState::Done)) }),
            record(uid, (1, 1), 1, EventBody::Started),
            record(uid, (1, 1), 2, EventBody::Finished { result: seeded() }),
        ];
        let before = world.store.documents().list(Kind::Workflow).await.unwrap().1;
        let groups = if together { vec![batch] } else { batch.into_iter().map(|event| vec![event]).collect() };
        for group in groups {
            world.engine.sessions().agent_events(session.uid, session.opened.epoch, group).await.unwrap();
        }
        let after = world.run(&name).await;
        if together {
            let writes = world.store.documents().list(Kind::Workflow).await.unwrap().1 - before;
            assert!(writes <= 3, "the run once, its machine for the receipt and for the rest: {writes}");
        }
        seen.push(visible(&after));
    }
    assert!(seen[0] == seen[1], "{:#?}\n{:#?}", seen[0], seen[1]);
}

#[tokio::test]
async fn progress_and_stop_in_one_batch_release_the_machine() {
    let world = World::new().await;
    let (computer, name, uid, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    world.engine.requests().cancel(&name, world.ann(false)).await.unwrap();
    let leased = async || computer.machine(&world).await.status.unwrap().session.unwrap().leased;
    assert!(leased().await, "it may still act");
    let stopped = Problem::new(ErrorCode::Cancelled, "ordered to stop");
    let batch = vec![
        record(uid, (0, 1), 1, EventBody::Started),
        record(uid, (0, 1), 2, EventBody::Failed { problem: stopped, retryable: false }),
    ];
    world.engine.sessions().agent_events(session.uid, session.opened.epoch, batch).await.unwrap();
    assert!(!leased().await, "both were heard");
}
