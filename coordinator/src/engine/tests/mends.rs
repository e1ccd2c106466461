//! Defects that were found once, each with the claim that it stays mended.

use std::path::Path;

use super::{faulty::faulty_world, *};
use crate::{config::DiscoveryConfig, tls::MachineCert};

#[tokio::test]
async fn an_outage_longer_than_a_deadline_fails_no_run() {
    let world = World::new().await;
    let (name, uid, agent) = world.under_way().await;
    agent.does(uid, 0, 1, written(receipt(agent.uid, uid, ReceiptState::Done))).await;
    agent.does(uid, 1, 1, seeded()).await;
    agent.does(uid, 2, 1, ActionResult::Reboot).await;
    drop(agent);
    let (store, clock) = (world.store.clone(), world.clock.clone());
    drop(world);
    // The phone-home is due after 900 s.
    clock.fetch_add(1800, std::sync::atomic::Ordering::SeqCst);
    let world = World::over(store, clock).await;
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Rebooting, "its machine could not speak");
    world.later(901);
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Failed, "it had its time");
}

#[tokio::test]
async fn a_clock_set_back_leaves_no_deadline_years_ahead() {
    let world = World::new().await;
    let (name, ..) = world.under_way().await;
    let before = world.run(&name).await.status.unwrap().deadline.unwrap();
    let years = jiff::SignedDuration::from_hours(10 * 365 * 24);
    world.set_clock(-years.as_secs());
    world.engine.upkeep().clock_set(-years).await.unwrap();
    let after = world.run(&name).await.status.unwrap().deadline.unwrap();
    assert_eq!(after, before - years);
}

#[tokio::test]
async fn a_clock_set_back_during_a_restart_moves_deadlines_too() {
    let world = World::new().await;
    let (name, ..) = world.under_way().await;
    let before = world.run(&name).await.status.unwrap().deadline.unwrap();
    let (store, clock) = (world.store.clone(), world.clock.clone());
    drop(world);
    let years = jiff::SignedDuration::from_hours(10 * 365 * 24);
    clock.fetch_sub(years.as_secs(), std::sync::atomic::Ordering::SeqCst);
    let world = World::over(store, clock).await;
    assert_eq!(world.run(&name).await.status.unwrap().deadline.unwrap(), before - years);
}

#[tokio::test]
async fn an_end_reaches_both_documents_or_neither() {
    let (faulty, world) = faulty_world().await;
    let (name, uid, agent) = world.under_way().await;
    let begun = receipt(agent.uid, uid, ReceiptState::Intent);
    let problem = Problem::new(ErrorCode::BadFormat, "no image");
    faulty.refuse(|document| document.kind() == Kind::Machine);
    for body in [EventBody::ReceiptWritten { receipt: begun.clone() }, EventBody::Failed { problem, retryable: false }]
    {
        agent.report(uid, 0, 1, body).await.unwrap_err();
    }
    faulty.mend();
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Running);
    assert_eq!(world.condition("Progressing").await.unwrap().0, ConditionStatus::True);
    // The log has it.
    let (store, clock) = (world.store.clone(), world.clock.clone());
    drop(world);
    let world = World::over(store, clock).await;
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Failed);
    assert_eq!(world.condition("Progressing").await.unwrap(), (ConditionStatus::False, "Failed".into()));
    assert_eq!(world.machine().await.status.unwrap().receipts, [begun]);
}

#[tokio::test]
async fn the_next_workflow_knows_of_a_commit_after_a_cancel() {
    let world = World::new().await;
    let (name, uid, agent) = world.under_way().await;
    world.engine.requests().cancel(&name, world.ann(false)).await.unwrap();
    let done = receipt(agent.uid, uid, ReceiptState::Done);
    agent.report(uid, 0, 1, EventBody::ReceiptWritten { receipt: done.clone() }).await.unwrap();
    assert_eq!(world.machine().await.status.unwrap().receipts, std::slice::from_ref(&done));
    let next = world.provision(false).await.unwrap();
    assert_eq!(next.status.unwrap().expected_receipts, [done]);
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Cancelled);
}

#[tokio::test]
async fn only_a_person_clears_a_stolen_token() {
    let world = World::new().await;
    world.provision(false).await.unwrap();
    let Decision::RunAgent { token, .. } = world.boot().await else { panic!("the agent is wanted") };
    world.enroll_with(token.clone(), b"key").await.unwrap();
    world.enroll_with(token, b"other").await.unwrap_err();
    world.connect(hello("b1", "D1", vec![])).await.assigned();
    assert_eq!(world.condition("IdentityAmbiguous").await.unwrap(), (ConditionStatus::True, "TokenReused".into()));
    let run = world.machine().await.status.unwrap().workflow.unwrap();
    world.engine.requests().cancel(&run, world.ann(false)).await.unwrap();
    world.engine.requests().adopt("m1", world.ann(false)).await.unwrap();
    assert_eq!(world.condition("IdentityAmbiguous").await.unwrap(), (ConditionStatus::False, "Adopted".into()));
}

#[tokio::test]
async fn a_phone_home_proves_the_write_whose_report_was_lost() {
    let world = World::new().await;
    let (name, uid, mut agent) = world.begins().await;
    let bearer = bearer_of(&agent.assigned().actions[1]);
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    // The coordinator is away while the agent commits, seeds and restarts.
    world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default()).await.unwrap();
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Succeeded);
    assert!(matches!(world.boot().await, Decision::BootDisk { .. }), "it is installed");
}

#[tokio::test]
async fn an_early_phone_home_is_asked_to_come_again() {
    let world = World::new().await;
    let mut os = template("http://10.77.0.1:7480/images/os.zst");
    let actions = os["spec"]["actions"].as_array_mut().unwrap();
    actions.insert(2, json!({"name": "run", "exec": {"command": ["true"]}}));
    world.apply(os).await.unwrap();
    let (name, _, mut agent) = world.begins().await;
    let bearer = bearer_of(&agent.assigned().actions[1]);
    let refused = world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::MachineBusy);
    assert!(refused.message.contains("\"run\""), "{refused}");
    let status = world.run(&name).await.status.unwrap();
    assert_eq!(status.phase, WorkflowPhase::Running);
    assert_eq!(world.condition("Provisioned").await.unwrap().0, ConditionStatus::False);
    let progressing = status.conditions.iter().find(|c| c.kind == landfall_api::ConditionType::Progressing).unwrap();
    assert!(progressing.message.contains("netboots"), "{}", progressing.message);
}

#[tokio::test]
async fn an_epoch_beyond_reason_locks_no_agent_out() {
    let world = World::new().await;
    let uid = world.machine().await.metadata.uid.unwrap();
    let mad = Hello { last_epoch: u64::MAX - 1, ..hello("b1", "D1", vec![]) };
    let refused = world.open(uid, mad).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::InvalidDocument);
    assert_eq!(world.connect(hello("b2", "D1", vec![])).await.opened.epoch, 1);
}

#[tokio::test]
async fn two_documents_applied_at_once_never_share_an_address() {
    let world = World::over(Store::memory(), Arc::new(AtomicI64::new(1_000_000))).await;
    for n in 0..8 {
        let mac = format!("52:54:00:00:02:{n:02x}");
        let (a, b) = (machine(&format!("a{n}"), &mac), machine(&format!("b{n}"), &mac));
        let (a, b) = tokio::join!(world.apply(a), world.apply(b));
        assert!(a.is_ok() != b.is_ok(), "both, or none, have {mac}");
    }
}

#[tokio::test]
async fn runs_of_a_deleted_machine_go_after_a_day() {
    let world = World::new().await;
    let run = world.provision(false).await.unwrap().metadata.name;
    world.engine.requests().detach("m1", world.ann(false)).await.unwrap();
    world.engine.upkeep().removals().drop_runs_without_machine().await.unwrap();
    assert!(world.store.workflow(&run).await.unwrap().is_some(), "it can still be read");
    world.later(24 * 3600 + 1);
    world.engine.upkeep().removals().drop_runs_without_machine().await.unwrap();
    assert!(world.store.workflow(&run).await.unwrap().is_none());
}

#[tokio::test]
async fn a_discovered_computer_contradicts_no_described_machine() {
    let discovery = DiscoveryConfig {
        subnets: vec!["10.77.0.0/24".parse().unwrap()],
        max_machines: 10,
        ..DiscoveryConfig::default()
    };
    let world = World::discovering(Store::memory(), Arc::new(AtomicI64::new(1_000_000)), discovery).await;
    let world = world.described().await;
    world.provision(false).await.unwrap();
    // An unknown computer claims the serial number of the described one, whose document names its address alone.
    let claims =
        Identity { macs: vec!["52:54:00:00:09:09".parse().unwrap()], serial: "S1".into(), ..Identity::default() };
    let by = Asker { address: Some("10.77.0.9".parse().unwrap()), shown: None };
    let proof = Proof::Approval { fingerprint: hex::encode([9]) };
    let ask = EnrollRequest { identity: claims, ..request(proof, &[9]) };
    assert!(matches!(world.engine.enrolments().enroll(ask, by).await, Ok(Enrolment::Waiting { .. })));
    let own = Hello { identity: Identity { serial: "S1".into(), ..identity() }, ..hello("b1", "D1", vec![]) };
    world.connect(own).await.assigned();
}

#[tokio::test]
async fn a_result_of_another_kind_proves_no_write() {
    let world = World::new().await;
    let (name, uid, agent) = world.under_way().await;
    let body = EventBody::Finished { result: ActionResult::Reboot };
    agent.report(uid, 0, 1, body).await.unwrap();
    let status = world.run(&name).await.status.unwrap();
    assert_eq!((status.phase, status.actions[0].state), (WorkflowPhase::Failed, ActionState::Failed));
    let problem = status.problem.unwrap();
    assert!(problem.code == ErrorCode::VersionSkew && problem.message.contains("writeImage"), "{problem}");
}

/// The certificate that a machine shows.
pub(super) fn shown(enrolled: &Enrolled) -> MachineCert {
    MachineCert {
        name: enrolled.machine.clone(),
        uid: enrolled.machine_uid,
        key_fingerprint: hex::encode(b"key"),
        serial_hex: enrolled.serial_hex.clone(),
        not_after: Timestamp::MAX,
    }
}

#[tokio::test]
async fn a_machine_gets_certificates_at_a_pace() {
    let world = World::new().await;
    world.provision(false).await.unwrap();
    let enrolled = world.enroll(b"key").await.unwrap();
    tokio::time::pause();
    let renew = async || {
        let by = Asker { address: None, shown: Some(shown(&enrolled)) };
        world.engine.enrolments().enroll(request(Proof::Renewal, b"key"), by).await
    };
    for given in 1..20 {
        assert!(matches!(renew().await, Ok(Enrolment::Granted(_))), "{given}");
    }
    let refused = renew().await.unwrap_err();
    assert_eq!((refused.code, refused.subject.as_str()), (ErrorCode::LimitReached, "machine/m1"));
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    assert!(matches!(renew().await, Ok(Enrolment::Granted(_))));
    assert_eq!(renew().await.unwrap_err().code, ErrorCode::LimitReached);
}

#[tokio::test]
async fn a_renewal_is_for_the_same_computer() {
    let world = World::new().await;
    world.provision(false).await.unwrap();
    let enrolled = world.enroll(b"key").await.unwrap();
    let shown = shown(&enrolled);
    let renew = async |mac: &str| {
        let mut ask = request(Proof::Renewal, b"key");
        ask.identity.macs = vec![mac.parse().unwrap()];
        world.engine.enrolments().enroll(ask, Asker { address: None, shown: Some(shown.clone()) }).await
    };
    assert!(matches!(renew(MAC).await, Ok(Enrolment::Granted(_))));
    let refused = renew("52:54:00:00:00:99").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::AmbiguousIdentity);
    let alarm = world.condition("IdentityAmbiguous").await.unwrap();
    assert_eq!(alarm, (ConditionStatus::True, "IdentityMismatch".into()));
}

#[tokio::test]
async fn no_older_receipt_comes_back_by_a_crash() {
    let (dir, clock, world) = described_on_disk().await;
    let old = receipt(world.machine().await.metadata.uid.unwrap(), Uuid::from_u128(9), ReceiptState::Done);
    let run = world.provision(true).await.unwrap();
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![old.clone()])).await;
    agent.assigned();
    assert_eq!(world.machine().await.status.unwrap().receipts, [old]);
    let uid = run.metadata.uid.unwrap();
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    let begun = receipt(agent.uid, uid, ReceiptState::Intent);
    agent.report(uid, 0, 1, EventBody::ReceiptWritten { receipt: begun.clone() }).await.unwrap();
    // The image left no room for it.
    let ActionResult::WriteImage(result) = written(begun.clone()) else { panic!("a write") };
    let result = ActionResult::WriteImage(WriteImageResult { receipt: None, ..result });
    agent.report(uid, 0, 1, EventBody::Finished { result }).await.unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_of(dir.path(), copy.path());
    let known = world.machine().await.status.unwrap().receipts;
    let world = sqlite_world(copy.path(), &clock).await;
    assert_eq!(world.machine().await.status.unwrap().receipts, known);
    assert_eq!(known, [begun]);
}

/// What a crash leaves of a store.
fn copy_of(from: &Path, to: &Path) {
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test]
async fn receipts_survive_a_crash_before_they_are_written() {
    let (dir, clock, world) = described_on_disk().await;
    let (name, uid, agent) = world.under_way().await;
    let [begun, done] = [ReceiptState::Intent, ReceiptState::Done].map(|state| receipt(agent.uid, uid, state));
    for receipt in [begun, done.clone()] {
        agent.report(uid, 0, 1, EventBody::ReceiptWritten { receipt }).await.unwrap();
    }
    agent.report(uid, 0, 1, EventBody::Finished { result: written(done.clone()) }).await.unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_of(dir.path(), copy.path());
    let on_disk = Store::open(copy.path()).unwrap().machine("m1").await.unwrap().unwrap();
    assert!(on_disk.status.as_ref().unwrap().receipts.is_empty(), "the disk does not have it yet");
    let known = [world.condition("NoReceipt").await, world.condition("Provisioned").await];
    let world = sqlite_world(copy.path(), &clock).await;
    assert_eq!(world.machine().await.status.unwrap().receipts, [done]);
    assert_eq!([world.condition("NoReceipt").await, world.condition("Provisioned").await], known);
    assert!(known[0].is_some() && world.run(&name).await.status.unwrap().actions[0].is_over());
}

#[tokio::test]
async fn what_heartbeats_say_again_is_written_later() {
    let (dir, _clock, world) = described_on_disk().await;
    let (_, _, agent) = world.under_way().await;
    let on_disk = async || {
        let copy = tempfile::tempdir().unwrap();
        copy_of(dir.path(), copy.path());
        Store::open(copy.path()).unwrap().machine("m1").await.unwrap().unwrap().status.clone().unwrap()
    };
    let beat = |peak| world.engine.sessions().heartbeat(agent.uid, agent.opened.epoch, vitals(peak));
    // The first one after its hello says of its condition why it holds.
    beat(30 << 20).await.unwrap();
    beat(40 << 20).await.unwrap();
    assert_eq!(world.machine().await.status.unwrap().agent_peak_rss_bytes, Some(40 << 20));
    assert_eq!(on_disk().await.agent_peak_rss_bytes, Some(30 << 20));
    // That it is heard again is a change of its condition.
    world.later(20);
    world.engine.upkeep().tick().await.unwrap();
    beat(40 << 20).await.unwrap();
    let written = on_disk().await;
    assert_eq!((written.agent_peak_rss_bytes, written.last_heard), (Some(40 << 20), Some(world.engine.fleet().now())));
}
