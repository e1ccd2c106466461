//! A store that refuses a write for a moment: no machine is forgotten over it.

use super::faulty::faulty_world;
use super::fleet::{Computer, Until};
use super::*;
use landfall_api::MachineStatus;
use landfall_machine::derive;

fn is_machine(document: &Document) -> bool {
    document.kind() == Kind::Machine
}

fn is_run(document: &Document) -> bool {
    document.kind() == Kind::Workflow
}

#[tokio::test]
async fn an_unreferenced_workflow_is_removed() {
    let (faulty, world) = faulty_world().await;
    let mut computer = Computer::described(&world, 1).await;
    faulty.refuse(is_machine);
    assert_eq!(computer.provision(&world, false).await.unwrap_err().code, ErrorCode::StoreUnavailable);
    faulty.mend();
    assert!(world.store.workflows().await.unwrap().is_empty(), "an unreferenced workflow");
    assert!(world.engine.fleet().index().active().is_empty());
    computer.install(&world).await;
}

#[tokio::test]
async fn the_next_apply_indexes_an_unindexed_machine() {
    let world = World::new().await;
    let mut document = Document::from_value(machine("m2", "52:54:00:00:00:02")).unwrap();
    if let Document::Machine(machine) = &mut document {
        machine.status = Some(MachineStatus::default());
        derive::wanted(machine, (world.engine.fleet().now(), 1));
        derive::phase(machine);
    }
    world.store.documents().create(document).await.unwrap();
    let asks = async || world.engine.boot().boot_decision("52:54:00:00:00:02".parse().unwrap(), None).await.unwrap();
    assert_eq!(asks().await, Decision::Unknown, "as after a request that was cut off");
    assert_eq!(world.apply(machine("m2", "52:54:00:00:00:02")).await.unwrap().1, ApplyOutcome::Unchanged);
    assert_eq!(asks().await, Decision::BootDisk { machine: "m2".into(), receipt: None });
}

#[tokio::test]
async fn an_agent_that_missed_its_assignment_is_disconnected() {
    let (faulty, world) = faulty_world().await;
    let mut computer = Computer::described(&world, 1).await;
    let run = computer.provision(&world, false).await.unwrap().metadata.name;
    world.engine.requests().pause(&run, world.ann(false)).await.unwrap();
    let mut session = computer.netboot(&world).await.unwrap();
    session.received();
    faulty.refuse(|document| match document {
        Document::Workflow(run) => run.status.as_ref().unwrap().phase == WorkflowPhase::Running,
        _ => false,
    });
    world.engine.requests().resume(&run, world.ann(false)).await.unwrap_err();
    let received = tokio::time::timeout(Duration::from_secs(60), session.opened.to_agent.recv()).await.unwrap();
    assert!(received.is_none(), "it waits for ever: {received:?}");
    faulty.mend();
    session.power_off(&world).await;
    let mut session = computer.connect(&world, computer.hello()).await;
    let assignment = session.assigned().expect("its run");
    computer.work(&world, &mut session, &assignment, Until::Home).await;
}

#[tokio::test]
async fn an_agent_that_did_not_settle_is_cut_off() {
    let (faulty, world) = faulty_world().await;
    let (computer, _, _, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    let back = Hello { last_epoch: session.opened.epoch, ..computer.hello() };
    let mut session = computer.connect(&world, back).await;
    assert!(session.received().is_empty(), "it is asked what it still has first");
    faulty.refuse(is_run);
    world.engine.upkeep().steps().settle(session.uid, session.opened.epoch).await.unwrap_err();
    let received = tokio::time::timeout(Duration::from_secs(60), session.opened.to_agent.recv()).await.unwrap();
    assert!(received.is_none(), "it waits for ever: {received:?}");
}

#[tokio::test]
async fn a_heartbeat_that_cannot_be_stored_ends_no_session() {
    let (faulty, world) = faulty_world().await;
    let (computer, _, _, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    faulty.refuse(is_machine);
    world.later(60);
    world.engine.sessions().heartbeat(session.uid, session.opened.epoch, vitals(40 << 20)).await.unwrap();
    assert!(matches!(session.received()[..], [ToAgent::LeaseRenewal { .. }]), "its lease is renewed");
    faulty.mend();
    world.later(1);
    world.engine.sessions().heartbeat(session.uid, session.opened.epoch, vitals(40 << 20)).await.unwrap();
    let status = computer.machine(&world).await.status.unwrap();
    assert_eq!((status.agent_peak_rss_bytes, status.last_heard), (Some(40 << 20), Some(world.engine.fleet().now())));
}

#[tokio::test]
async fn an_agent_without_a_stored_lease_gets_no_list() {
    let (faulty, world) = faulty_world().await;
    for number in 1..3 {
        let mut busy = Computer::described(&world, number).await;
        busy.provision(&world, false).await.unwrap();
        busy.netboot(&world).await.unwrap().assigned().unwrap();
    }
    let mut computer = Computer::described(&world, 3).await;
    let run = computer.provision(&world, false).await.unwrap().metadata.name;
    let mut session = computer.netboot(&world).await.unwrap();
    assert!(
        matches!(session.received()[..], [ToAgent::Idle { boot_disk: false, ended: None }]),
        "it waits for its turn"
    );
    world.engine.fleet().index().admission.allow(3);
    faulty.refuse(is_machine);
    world.engine.upkeep().steps().admit().await.unwrap_err();
    assert!(session.opened.to_agent.recv().await.is_none(), "it was given a list, or waits for ever");
    faulty.mend();
    let mut session = computer.connect(&world, computer.hello()).await;
    session.assigned().expect("its list");
    let holder = computer.machine(&world).await.status.unwrap().session.unwrap();
    assert!(holder.leased, "a coordinator that starts again would give {run}'s machine away");
}

#[tokio::test]
async fn a_machine_that_others_change_without_end_gets_no_list() {
    let (faulty, world) = faulty_world().await;
    let mut computer = Computer::described(&world, 1).await;
    let run = computer.provision(&world, false).await.unwrap().metadata.name;
    world.engine.requests().pause(&run, world.ann(false)).await.unwrap();
    let mut session = computer.netboot(&world).await.unwrap();
    session.received();
    let mut turn = 0;
    faulty.contend(move |document| {
        turn += 1;
        document.metadata_mut().labels.insert("turn".into(), turn.to_string());
        is_machine(document)
    });
    let refused = world.engine.requests().resume(&run, world.ann(false)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::StoreUnavailable, "{refused}");
    assert!(session.assigned().is_none(), "it was given a list, and its machine's document does not say so");
    faulty.mend();
    session.power_off(&world).await;
    let mut session = computer.connect(&world, computer.hello()).await;
    session.assigned().expect("its list");
}
