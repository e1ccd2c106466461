//! One machine's trouble stays its own: a report too large for its run's document, a run that cannot be written.

use super::faulty::faulty_world;
use super::fleet::{Computer, Until};
use super::*;

fn disk_of_that_name(bytes: usize) -> DiskReceipt {
    let mut found = receipt(Uuid::nil(), Uuid::nil(), ReceiptState::Intent);
    found.disk.serial = "s".repeat(bytes);
    found
}

#[tokio::test]
async fn an_oversized_report_affects_only_its_own_workflow() {
    let (dir, clock, world) = described_on_disk().await;
    let mut fleet = Vec::new();
    for number in 0..3 {
        let mut computer = Computer::described(&world, number).await;
        let run = computer.provision(&world, false).await.unwrap();
        let mut session = computer.netboot(&world).await.unwrap_or_else(|| panic!("{}", computer.name));
        if number == 2 {
            // Two at once; the third waits.
            assert!(session.assigned().is_none());
            world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
            continue;
        }
        session.assigned().unwrap();
        session.report(&world, run.metadata.uid.unwrap(), (0, 1), EventBody::Started).await;
        fleet.push((computer, run.metadata.name, run.metadata.uid.unwrap()));
    }
    let (long, huge) = (fleet[0].2, fleet[1].2);
    // The log took them, and the process was killed before the statuses did.
    let mut problem = Problem::new(ErrorCode::DeviceIo, "the disk is gone");
    problem.causes = vec!["\u{1}".repeat(4096); 100];
    let failed = EventBody::Failed { problem, retryable: false };
    let mut marked = disk_of_that_name(2 << 20);
    marked.receipt.workflow_uid = huge;
    let marked = EventBody::ReceiptWritten { receipt: marked };
    world
        .store
        .events()
        .append(u64::MAX, vec![record(long, (0, 1), 2, failed), record(huge, (0, 1), 2, marked)])
        .await
        .unwrap();
    drop(world);

    let world = sqlite_world(dir.path(), &clock).await;
    let status = world.run(&fleet[0].1).await.status.unwrap();
    let problem = status.problem.unwrap();
    assert_eq!((status.phase, problem.code), (WorkflowPhase::Failed, ErrorCode::DeviceIo));
    assert_eq!((problem.message.as_str(), problem.causes.len()), ("the disk is gone", 0), "why, without the details");
    let status = world.run(&fleet[1].1).await.status.unwrap();
    let problem = status.problem.unwrap();
    assert_eq!((status.phase, problem.code), (WorkflowPhase::Failed, ErrorCode::LimitReached));
    assert_eq!(fleet[1].0.phase(&world).await, MachinePhase::Failed);
    // And nothing of it is read again.
    drop(world);
    let world = sqlite_world(dir.path(), &clock).await;
    fleet[0].0.provision(&world, false).await.unwrap();
    fleet[0].0.run(&world, Until::Home).await;
}

#[tokio::test]
async fn an_oversized_report_is_shortened_while_its_agent_works() {
    let world = World::new().await;
    let (name, uid, agent) = world.under_way().await;
    let mut problem = Problem::new(ErrorCode::DeviceIo, "the disk is gone");
    problem.last_log_lines = vec!["\u{1}".repeat(4096); 100];
    agent.report(uid, 0, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
    let status = world.run(&name).await.status.unwrap();
    assert_eq!((status.phase, status.problem.unwrap().code), (WorkflowPhase::Failed, ErrorCode::DeviceIo));
}

#[tokio::test]
async fn an_unwritable_workflow_does_not_delay_other_deadlines() {
    let (faulty, world) = faulty_world().await;
    let mut runs = Vec::new();
    for number in 0..2 {
        let mut computer = Computer::described(&world, number).await;
        runs.push(computer.provision(&world, false).await.unwrap().metadata.name);
        computer.run(&world, Until::Intent).await;
    }
    runs.sort();
    world.later(48 * 3600);
    let refused = runs[0].clone();
    faulty.refuse(move |document| document.metadata().name == refused);
    let problem = world.engine.upkeep().tick().await.unwrap_err();
    assert_eq!(problem.code, ErrorCode::StoreUnavailable, "it gets the answer all the same");
    let phase = async |run: &str| world.run(run).await.status.unwrap().phase;
    assert_eq!((phase(&runs[0]).await, phase(&runs[1]).await), (WorkflowPhase::Running, WorkflowPhase::Failed));
    faulty.mend();
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(phase(&runs[0]).await, WorkflowPhase::Failed);
}
