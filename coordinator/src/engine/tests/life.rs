//! Claims about a machine's life beyond its installs.

use landfall_api::{WipeLevel, WipeSpec};

use super::fleet::{Computer, Until};
use super::*;
use crate::engine::Clearing;
use crate::engine::requests::Asker as By;

async fn change(world: &World, computer: &Computer, field: &str, value: serde_json::Value) -> Result<(), Problem> {
    let mut document = computer.document();
    document["spec"][field] = value;
    world.apply(document).await.map(drop)
}

#[tokio::test]
async fn a_delete_of_a_version_leaves_a_newer_document() {
    let world = World::new().await;
    world.apply(document("Secret", "s1", json!({"machines": ["m1"], "data": {"pw": "hunter2"}}))).await.unwrap();
    world.apply(document("EnrolmentRule", "r1", json!({"approve": true}))).await.unwrap();
    let run = world.provision(false).await.unwrap().metadata.name;
    world.engine.requests().cancel(&run, world.ann(false)).await.unwrap();
    let all = [
        (Kind::Secret, "s1"),
        (Kind::EnrolmentRule, "r1"),
        (Kind::Workflow, &run),
        (Kind::Template, "os"),
        (Kind::Machine, "m1"),
    ];
    for (kind, name) in all {
        let documents = world.store.documents();
        let mut newer = documents.get(kind, name).await.unwrap().unwrap();
        let read = newer.metadata().resource_version;
        newer.metadata_mut().labels.insert("rack".into(), "r7".into());
        let newer = documents.update(newer).await.unwrap().metadata().resource_version;
        let refused = world.engine.documents().delete_if(kind, name, "ann", Some(read)).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict, "{kind}: {refused}");
        assert!(documents.get(kind, name).await.unwrap().is_some(), "{kind}");
        if kind == Kind::Secret {
            let kept = world.store.secrets().get("secret/s1", world.engine.fleet().now()).await.unwrap();
            assert!(kept.is_some(), "its values are there");
        }
        world.engine.documents().delete_if(kind, name, "ann", Some(newer)).await.unwrap();
        assert!(documents.get(kind, name).await.unwrap().is_none(), "{kind}");
    }
}

#[tokio::test]
async fn a_watched_machine_always_boots_its_own_disk() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    let run = computer.provision(&world, false).await.unwrap();
    let busy = change(&world, &computer, "management", json!("external")).await.unwrap_err();
    assert_eq!(busy.code, ErrorCode::MachineBusy, "not while something runs on it");
    world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
    change(&world, &computer, "management", json!("external")).await.unwrap();
    assert_eq!(computer.condition(&world, "Managed").await.unwrap(), (ConditionStatus::False, "External".into()));
    for force in [false, true] {
        assert_eq!(computer.provision(&world, force).await.unwrap_err().code, ErrorCode::Unmanaged);
        let refused = world
            .engine
            .requests()
            .deprovision(&computer.name, WipeSpec::default(), world.ann(force), None)
            .await
            .unwrap_err();
        assert_eq!(refused.code, ErrorCode::Unmanaged);
    }
    assert!(computer.netboot(&world).await.is_none());
    // A person starts the agent by hand: it is seen, and sent away.
    let mut session = computer.connect(&world, computer.hello()).await;
    assert!(matches!(session.received()[..], [ToAgent::Idle { boot_disk: true, .. }]));
    assert_eq!(computer.condition(&world, "Connected").await.unwrap().0, ConditionStatus::True);
}

#[tokio::test]
async fn maintenance_stops_only_new_workflows() {
    let world = World::new().await;
    let (mut busy, mut waits) = (Computer::described(&world, 1).await, Computer::described(&world, 2).await);
    busy.provision(&world, false).await.unwrap();
    busy.run(&world, Until::Intent).await;
    waits.provision(&world, false).await.unwrap();
    for computer in [&busy, &waits] {
        change(&world, computer, "maintenance", json!(true)).await.unwrap();
        let (status, reason) = computer.condition(&world, "Maintenance").await.unwrap();
        assert_eq!((status, reason.as_str()), (ConditionStatus::True, "Requested"));
        let generation = computer.machine(&world).await.metadata.generation;
        let conditions = computer.machine(&world).await.status.unwrap().conditions;
        let observed = conditions.iter().find(|c| c.kind == "Maintenance").unwrap().observed_generation;
        assert_eq!(observed, generation, "it is said of the very spec that asks for it");
    }
    assert!(waits.netboot(&world).await.is_none(), "it boots its own disk");
    let mut session = waits.connect(&world, waits.hello()).await;
    assert!(matches!(session.received()[..], [ToAgent::Idle { boot_disk: true, .. }]));
    let mut resumed = busy.netboot(&world).await.expect("its install goes on");
    assert_eq!(resumed.assigned().unwrap().start_attempt, 2);
    change(&world, &waits, "maintenance", json!(false)).await.unwrap();
    assert!(session.assigned().is_some(), "an agent that is still there begins at once");
    let other = Computer::described(&world, 3).await;
    change(&world, &other, "maintenance", json!(true)).await.unwrap();
    assert_eq!(other.provision(&world, true).await.unwrap_err().code, ErrorCode::Maintenance);
}

#[tokio::test]
async fn an_adopted_machine_is_provisioned_without_a_workflow() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    let adopted = world.engine.requests().adopt(&computer.name, world.ann(true)).await.unwrap();
    let status = adopted.into_inner().status.unwrap();
    assert_eq!(status.phase, MachinePhase::Provisioned);
    let provisioned = status.conditions.iter().find(|c| c.kind == "Provisioned").unwrap();
    assert!(provisioned.reason == "Adopted" && provisioned.message.contains("ann"), "{provisioned:?}");
    let by = status.adopted.unwrap();
    assert!(by.person == "ann" && by.at == world.engine.fleet().now() && !by.force);
    assert!(computer.netboot(&world).await.is_none(), "never into an install by itself");
    let rule =
        world.engine.requests().provision_by(&computer.name, "os", BTreeMap::new(), By::Rule("all")).await.unwrap_err();
    assert_eq!(rule.code, ErrorCode::DiskNotBlank);
    let uid = computer.machine(&world).await.metadata.uid.unwrap();
    let elsewhere = DiskReceipt { disk: computer.disk(), ..receipt(uid, Uuid::from_u128(99), ReceiptState::Done) };
    computer.receipts = vec![elsewhere.clone()];
    let mut session = computer.connect(&world, computer.hello()).await;
    assert!(matches!(session.received()[..], [ToAgent::Idle { boot_disk: true, .. }]));
    assert_eq!(computer.phase(&world).await, MachinePhase::Provisioned);
    assert_eq!(computer.machine(&world).await.status.unwrap().receipts, std::slice::from_ref(&elsewhere));
    // A person may install it; what they replace is what the agent is ordered to expect.
    computer.provision(&world, false).await.unwrap();
    assert_eq!(session.assigned().unwrap().expected_receipts, [elsewhere]);
    assert_eq!(computer.machine(&world).await.status.unwrap().adopted, None);
    let busy = world.engine.requests().adopt(&computer.name, world.ann(false)).await.unwrap_err();
    assert_eq!(busy.code, ErrorCode::MachineBusy);
}

#[tokio::test]
async fn adopting_a_held_machine_ends_its_hold() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    let run = computer.provision(&world, false).await.unwrap().metadata.name;
    let uid = computer.machine(&world).await.metadata.uid.unwrap();
    computer.receipts =
        vec![DiskReceipt { disk: computer.disk(), ..receipt(uid, Uuid::from_u128(99), ReceiptState::Done) }];
    let session = computer.netboot(&world).await.unwrap();
    assert_eq!(computer.phase(&world).await, MachinePhase::Held);
    assert_eq!(computer.provision(&world, false).await.unwrap_err().code, ErrorCode::MachineBusy);
    world.engine.requests().adopt(&computer.name, world.ann(false)).await.unwrap();
    assert_eq!(computer.phase(&world).await, MachinePhase::Provisioned);
    let ended = world.run(&run).await;
    assert_eq!(ended.status.unwrap().phase, WorkflowPhase::Cancelled);
    assert_eq!(ended.spec.cancel.unwrap().person, "ann");
    session.power_off(&world).await;
    assert!(computer.netboot(&world).await.is_none());
}

#[tokio::test]
async fn a_deprovisioned_machine_is_available_and_carries_no_receipt() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    let nothing = world
        .engine
        .requests()
        .deprovision(&computer.name, WipeSpec::default(), world.ann(false), None)
        .await
        .unwrap_err();
    assert_eq!(nothing.code, ErrorCode::Conflict);
    computer.install(&world).await;
    let run =
        world.engine.requests().deprovision(&computer.name, WipeSpec::default(), world.ann(false), None).await.unwrap();
    assert_eq!(computer.phase(&world).await, MachinePhase::Deprovisioning);
    computer.run(&world, Until::Intent).await;
    assert_eq!(computer.condition(&world, "Provisioned").await.unwrap().1, "Deprovisioning");
    // Interrupted: its own mark is there, and it goes on.
    let mut session = computer.netboot(&world).await.unwrap();
    let assignment = session.assigned().unwrap();
    assert!(assignment.person_authorised && assignment.start_attempt == 2);
    assert_eq!(assignment.expected_receipts, computer.receipts);
    computer.work(&world, &mut session, &assignment, Until::Home).await;
    assert_eq!(world.run(&run.metadata.name).await.status.unwrap().phase, WorkflowPhase::Succeeded);
    assert_eq!(computer.phase(&world).await, MachinePhase::Available);
    let status = computer.machine(&world).await.status.unwrap();
    assert_eq!(status.receipts, []);
    let [report] = status.wiped.as_slice() else { panic!("{:?}", status.wiped) };
    assert_eq!((report.workflow.as_str(), &report.disk), (run.metadata.name.as_str(), &computer.disk()));
    session.power_off(&world).await;
    computer.install(&world).await;
    assert_eq!(computer.machine(&world).await.status.unwrap().wiped.len(), 1, "an install keeps what was wiped before");
}

#[tokio::test]
async fn a_machine_turned_off_after_clearing_is_available() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    computer.install(&world).await;
    let clearing = Clearing { power_off: true, ..Clearing::default() };
    let run = world.engine.requests().deprovision(&computer.name, clearing, world.ann(false), None).await.unwrap();
    computer.run(&world, Until::Home).await;
    let status = world.run(&run.metadata.name).await.status.unwrap();
    let kinds: Vec<_> = status.actions.iter().map(|action| action.action.spec.key()).collect();
    assert_eq!((status.phase, kinds), (WorkflowPhase::Succeeded, vec!["wipe", "powerOff"]));
    assert_eq!(computer.phase(&world).await, MachinePhase::Available);
}

#[tokio::test]
async fn a_disk_that_any_workflow_wiped_carries_no_receipt() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    computer.install(&world).await;
    let spec = json!({"successOn": "reboot", "actions": [{"name": "erase", "wipe": {}}, {"name": "go", "reboot": {}}]});
    world.apply(document("Template", "os", spec)).await.unwrap();
    computer.provision(&world, false).await.unwrap();
    computer.run(&world, Until::Intent).await;
    assert_eq!(computer.machine(&world).await.status.unwrap().receipts, computer.receipts, "it began");
    computer.run(&world, Until::Home).await;
    let status = computer.machine(&world).await.status.unwrap();
    assert!(status.receipts.is_empty() && status.wiped.len() == 1, "{:?}", status.receipts);
}

#[tokio::test]
async fn deprovisioning_refuses_levels_that_contradict_each_other() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    computer.install(&world).await;
    for (level, fallback, field) in [
        (WipeLevel::Signatures, vec![WipeLevel::Secure], "fallback"),
        (WipeLevel::Secure, vec![WipeLevel::Zero, WipeLevel::Discard], "fallback[1]"),
        (WipeLevel::Secure, vec![WipeLevel::Secure], "fallback[0]"),
    ] {
        let spec = WipeSpec { disks: Vec::new(), level, fallback };
        let refused =
            world.engine.requests().deprovision(&computer.name, spec, world.ann(false), None).await.unwrap_err();
        assert_eq!((refused.code, refused.subject.as_str()), (ErrorCode::InvalidDocument, field));
    }
}

#[tokio::test]
async fn a_lost_receipt_is_reported_and_needs_a_person() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    computer.install(&world).await;
    let known = computer.receipts.clone();
    // growpart keeps every entry of the table, the receipt's among them.
    let session = computer.connect(&world, Hello { boot_id: "grown".into(), ..computer.hello() }).await;
    assert!(computer.condition(&world, "NoReceipt").await.is_none_or(|(status, _)| status == ConditionStatus::False));
    session.power_off(&world).await;
    computer.receipts.clear();
    let session = computer.connect(&world, Hello { boot_id: "other".into(), ..computer.hello() }).await;
    assert_eq!(computer.condition(&world, "NoReceipt").await.unwrap(), (ConditionStatus::True, "Lost".into()));
    assert_eq!(computer.phase(&world).await, MachinePhase::Provisioned);
    session.power_off(&world).await;
    let rule =
        world.engine.requests().provision_by(&computer.name, "os", BTreeMap::new(), By::Rule("all")).await.unwrap_err();
    assert_eq!(rule.code, ErrorCode::DiskNotBlank);
    let run = computer.provision(&world, false).await.unwrap();
    assert_eq!(run.status.unwrap().expected_receipts, [], "nothing is expected where nothing is");
    world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
    // A disk that is merely pulled out has lost nothing.
    computer.receipts = known.clone();
    let session = computer.connect(&world, Hello { boot_id: "back".into(), ..computer.hello() }).await;
    assert_eq!(computer.condition(&world, "NoReceipt").await.unwrap().1, "Found");
    session.power_off(&world).await;
    let pulled = Hello { boot_id: "pulled".into(), disks: vec![], receipts: vec![], ..computer.hello() };
    computer.connect(&world, pulled).await;
    assert_eq!(computer.condition(&world, "NoReceipt").await.unwrap().0, ConditionStatus::False);
    assert_eq!(computer.machine(&world).await.status.unwrap().receipts, known);
}

#[tokio::test]
async fn a_rule_installs_a_machine_only_once() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    let run =
        world.engine.requests().provision_by(&computer.name, "os", BTreeMap::new(), By::Rule("all")).await.unwrap();
    assert_eq!(run.metadata.labels["landfall.dev/rule"], "all");
    let mut session = computer.netboot(&world).await.unwrap();
    let assignment = session.assigned().unwrap();
    assert!(!assignment.person_authorised && !assignment.force, "the agent writes a blank disk only");
    computer.work(&world, &mut session, &assignment, Until::Home).await;
    session.power_off(&world).await;
    world.engine.requests().deprovision(&computer.name, WipeSpec::default(), world.ann(false), None).await.unwrap();
    computer.run(&world, Until::Home).await;
    assert_eq!(computer.phase(&world).await, MachinePhase::Available);
    let again =
        world.engine.requests().provision_by(&computer.name, "os", BTreeMap::new(), By::Rule("all")).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::DiskNotBlank, "what a person cleared stays clear");
}

#[tokio::test]
async fn a_writing_machine_is_deleted_after_its_agent_stopped() {
    let world = World::new().await;
    let (mut computer, run, _, mut session) = Computer::begins(&world).await;
    let assignment = session.assigned().unwrap();
    computer.work(&world, &mut session, &assignment, Until::Intent).await;
    let marked = world.engine.documents().delete(Kind::Machine, &computer.name, "ann").await.unwrap();
    assert!(marked.metadata().deletion_timestamp.is_some());
    assert_eq!(marked.metadata().finalizers, ["landfall.dev/agent"]);
    assert_eq!(computer.phase(&world).await, MachinePhase::Deleting);
    let received = session.received();
    assert!(received.iter().any(|m| matches!(m, ToAgent::Cancel { .. })), "{received:?}");
    assert!(received.iter().any(|m| matches!(m, ToAgent::Fenced { .. })), "{received:?}");
    assert_eq!(world.run(&run).await.status.unwrap().phase, WorkflowPhase::Cancelled);
    // Its certificate opens no session any more, and nothing of it changes.
    let uid = computer.machine(&world).await.metadata.uid.unwrap();
    let other = Hello { running: None, boot_id: "other".into(), ..computer.hello() };
    let refused = world.open(uid, other).await.unwrap_err();
    assert!(refused.problem.code == ErrorCode::Revoked && refused.retry_after.is_none());
    assert_eq!(world.apply(computer.document()).await.map(|(_, outcome)| outcome).unwrap(), ApplyOutcome::Unchanged);
    assert_eq!(change(&world, &computer, "maintenance", json!(true)).await.unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(computer.provision(&world, true).await.unwrap_err().code, ErrorCode::Conflict);
    // A report that ends nothing lets nothing go; the acknowledged fence does.
    world.engine.upkeep().tick().await.unwrap();
    assert!(world.store.machine(&computer.name).await.unwrap().is_some());
    world.engine.sessions().fence_acknowledged(uid, session.opened.epoch).await.unwrap();
    assert!(world.store.machine(&computer.name).await.unwrap().is_none());
    assert_eq!(world.open(uid, computer.hello()).await.unwrap_err().problem.code, ErrorCode::NotFound);
    // The same address may be described anew, as another machine.
    world.apply(computer.document()).await.unwrap();
    assert_ne!(computer.machine(&world).await.metadata.uid.unwrap(), uid);
}

#[tokio::test]
async fn a_deleted_machine_is_removed_when_its_lease_ends() {
    let (dir, clock, world) = described_on_disk().await;
    let (computer, _, _, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    world.engine.documents().delete(Kind::Machine, &computer.name, "ann").await.unwrap();
    // Its heartbeats renew nothing.
    world.later(300);
    world.engine.sessions().heartbeat(session.uid, session.opened.epoch, vitals(1)).await.unwrap();
    assert!(!session.received().iter().any(|m| matches!(m, ToAgent::LeaseRenewal { .. })));
    drop((session, world));
    let world = sqlite_world(dir.path(), &clock).await;
    world.engine.upkeep().tick().await.unwrap();
    assert!(world.store.machine(&computer.name).await.unwrap().is_some(), "the worst is taken: heard just now");
    world.later(601);
    world.engine.upkeep().tick().await.unwrap();
    assert!(world.store.machine(&computer.name).await.unwrap().is_none());
}

#[tokio::test]
async fn an_idle_machine_is_detached_at_once() {
    let world = World::new().await;
    let (mut installed, idle) = (Computer::described(&world, 1).await, Computer::described(&world, 2).await);
    installed.install(&world).await;
    let (gone, stays) = world.engine.requests().detach(&installed.name, world.ann(false)).await.unwrap();
    assert!(gone.metadata().deletion_timestamp.is_none());
    assert!(stays.len() == 1 && stays[0].contains("keeps the system installed by workflow"), "{stays:?}");
    assert!(world.store.machine(&installed.name).await.unwrap().is_none());
    let mut session = idle.connect(&world, idle.hello()).await;
    world.engine.requests().detach(&idle.name, world.ann(false)).await.unwrap();
    assert!(session.received().iter().any(|m| matches!(m, ToAgent::Fenced { .. })));
    assert_eq!(world.engine.requests().detach("nosuch", world.ann(false)).await.unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn a_stopping_agent_keeps_its_lease_until_it_has_stopped() {
    let world = World::new().await;
    let (computer, name, uid, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    session.report(&world, uid, (0, 1), EventBody::Started).await;
    world.engine.requests().cancel(&name, world.ann(false)).await.unwrap();
    let another = || Hello {
        boot_id: "another".into(),
        disks: vec![DiskId { serial: "X".into(), size_bytes: 1, ..DiskId::default() }],
        ..computer.hello()
    };
    world.later(60);
    let refused = world.open(session.uid, another()).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::AmbiguousIdentity, "the first may still be writing");
    let stopped = EventBody::Failed { problem: Problem::new(ErrorCode::Cancelled, "stopped"), retryable: false };
    session.report(&world, uid, (0, 1), stopped).await;
    world.later(60);
    world.open(session.uid, another()).await.unwrap();
}

#[tokio::test]
async fn a_reapplied_machine_survives_the_deletion_of_the_old_one() {
    let (faulty, world) = super::faulty::faulty_world().await;
    let (computer, _, _, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    world.engine.documents().delete(Kind::Machine, &computer.name, "ann").await.unwrap();
    let anew = computer.document();
    faulty.then(move |document| {
        let gone = document.metadata().deletion_timestamp.is_some() && document.metadata().finalizers.is_empty();
        gone.then(|| Document::from_value(anew.clone()).unwrap())
    });
    let old = session.uid;
    world.engine.sessions().fence_acknowledged(old, session.opened.epoch).await.unwrap();
    let found = world.store.machine(&computer.name).await.unwrap().expect("the new one");
    assert!(found.metadata.uid != Some(old) && found.metadata.deletion_timestamp.is_none());
}
