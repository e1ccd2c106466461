//! The engine through whole installs, power cuts, two computers with one identity, restarts and restored stores.

mod beside;
mod bmc_account;
mod conditional;
mod confirm;
mod console;
mod control;
mod discovered;
mod doubt;
mod failures;
mod faulty;
mod fleet;
mod groups;
mod health;
mod inspect;
mod life;
mod mends;
mod outgrown;
mod pools;
mod power;
mod queue;
mod reconnect;
mod refused_writes;
mod rendering;
mod restore;
mod secrets;
mod time;
mod tools;
mod unreadable;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use jiff::Timestamp;
use landfall_api::message::{
    ActionRef, ActionResult, Assignment, Control, EnrollRequest, EventBody, Hello, Identity, LogLevel, LogLine,
    PhoneHomeReport, Proof, ToAgent, WriteImageResult,
};
use landfall_api::{
    ActionState, ApplyOutcome, Authority, ConditionStatus, DiskId, DiskReceipt, Document, ErrorCode, Kind, Machine,
    MachinePhase, Problem, Receipt, ReceiptState, Workflow, WorkflowPhase,
};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::tls::MachineCert;
use landfall_boot::policy::Decision;
use world::*;

#[tokio::test]
async fn a_whole_install_ends_provisioned() {
    let world = World::new().await;
    assert!(matches!(world.boot().await, Decision::BootDisk { .. }), "nothing to do: its own disk");
    let run = world.provision(false).await.unwrap();
    let (name, uid) = (run.metadata.name.clone(), run.metadata.uid.unwrap());
    assert_eq!(world.phase().await, MachinePhase::Provisioning);
    let enrolled = world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    let assignment = agent.assigned();
    assert_eq!((assignment.start_index, assignment.start_attempt, assignment.person_authorised), (0, 1, true));
    let seed = seed_of(&assignment.actions[1]);
    assert!(seed.meta_data.contains("m1"));
    let bearer = bearer_of(&assignment.actions[1]);
    let done = receipt(enrolled.machine_uid, uid, ReceiptState::Done);
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    agent.report(uid, 0, 1, EventBody::ReceiptWritten { receipt: done.clone() }).await.unwrap();
    agent.report(uid, 0, 1, EventBody::Finished { result: written(done.clone()) }).await.unwrap();
    agent.does(uid, 1, 1, seeded()).await;
    agent.does(uid, 2, 1, ActionResult::Reboot).await;
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Rebooting);
    assert!(matches!(world.boot().await, Decision::BootDisk { .. }), "rebooting: what was installed starts");
    let wrong = world.engine.sessions().phone_home(&format!("{uid}.00"), PhoneHomeReport::default()).await.unwrap_err();
    assert_eq!(wrong.code, ErrorCode::Unauthenticated);
    for _ in 0..2 {
        world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default()).await.unwrap();
    }
    assert_eq!(world.phase().await, MachinePhase::Provisioned);
    let (machine, run) = (world.machine().await, world.run(&name).await);
    assert_eq!(machine.status.as_ref().unwrap().receipts, [done]);
    for document in [Document::from(machine), Document::from(run)] {
        let text = serde_json::to_string(&document).unwrap();
        assert!(!text.contains(bearer.split_once('.').unwrap().1), "a secret in a document");
    }
}

#[tokio::test]
async fn a_power_cut_before_the_ack_installs_nothing_again() {
    let world = World::new().await;
    let (name, uid, first) = world.under_way().await;
    let done = receipt(first.uid, uid, ReceiptState::Done);
    drop(first);
    world.later(60);
    assert!(matches!(world.boot().await, Decision::RunAgent { .. }));
    let mut second = world.connect(hello("b2", "D1", vec![done])).await;
    assert_eq!(second.assigned().start_index, 1);
    second.does(uid, 1, 1, seeded()).await;
    second.does(uid, 2, 1, ActionResult::Reboot).await;
    let status = world.run(&name).await.status.unwrap();
    assert_eq!((status.phase, status.actions[0].attempt), (WorkflowPhase::Rebooting, 1));
}

#[tokio::test]
async fn a_write_continues_after_a_power_cut_as_next_attempt() {
    let world = World::new().await;
    let run = world.provision(false).await.unwrap();
    let uid = run.metadata.uid.unwrap();
    let enrolled = world.enroll(b"key").await.unwrap();
    let intent = receipt(enrolled.machine_uid, uid, ReceiptState::Intent);
    let mut first = world.connect(hello("b1", "D1", vec![])).await;
    first.assigned();
    first.report(uid, 0, 1, EventBody::ReceiptWritten { receipt: intent.clone() }).await.unwrap();
    world.later(60);
    let mut second = world.connect(hello("b2", "D1", vec![intent.clone()])).await;
    let assignment = second.assigned();
    assert_eq!((assignment.start_index, assignment.start_attempt), (0, 2));
    assert_eq!(assignment.expected_receipts, [intent]);
    assert!(assignment.actions[0].retry.max_attempts >= 4, "an interruption uses up no retry");
    // The first session is fenced: what it says late does not count.
    let late = first.report(uid, 0, 1, EventBody::Started).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::Fenced);
}

#[tokio::test]
async fn a_second_computer_with_one_identity_is_refused() {
    let world = World::new().await;
    let run = world.provision(false).await.unwrap();
    let uid = run.metadata.uid.unwrap();
    let enrolled = world.enroll(b"key-1").await.unwrap();
    world.enroll(b"key-2").await.unwrap();
    let mut first = world.connect(hello("b1", "D1", vec![])).await;
    first.assigned();
    let refused = world.open(first.uid, hello("b2", "OTHER", vec![])).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::AmbiguousIdentity);
    assert_eq!(refused.retry_after, Some(Duration::from_secs(600)), "until the first one's lease is over");
    assert_eq!(world.condition("IdentityAmbiguous").await.unwrap(), (ConditionStatus::True, "TwoComputers".into()));
    // Not even the same disks help while the first is heard.
    let clone = world.open(first.uid, hello("b3", "D1", vec![])).await.unwrap_err();
    assert!(clone.retry_after.unwrap() <= Duration::from_secs(15));
    first.does(uid, 0, 1, written(receipt(enrolled.machine_uid, uid, ReceiptState::Done))).await;
    first.does(uid, 1, 1, seeded()).await;
    first.does(uid, 2, 1, ActionResult::Reboot).await;
    assert_eq!(world.run(&run.metadata.name).await.status.unwrap().phase, WorkflowPhase::Rebooting);
}

#[tokio::test]
async fn only_an_expired_lease_gives_way() {
    let world = World::new().await;
    let (_, _, first) = world.begins().await;
    world.later(500);
    world.engine.sessions().heartbeat(first.uid, first.opened.epoch, vitals(1)).await.unwrap();
    world.later(500);
    assert!(world.open(first.uid, hello("b2", "OTHER", vec![])).await.is_err());
    world.later(101);
    let mut second = world.connect(hello("b2", "OTHER", vec![])).await;
    assert_eq!(second.assigned().start_attempt, 2);
    assert_eq!(world.condition("IdentityAmbiguous").await.unwrap().0, ConditionStatus::False);
}

#[tokio::test]
async fn a_token_belongs_to_its_first_key_and_expires() {
    let world = World::new().await;
    world.provision(false).await.unwrap();
    let Decision::RunAgent { token, .. } = world.boot().await else { panic!("the agent is wanted") };
    world.enroll_with(token.clone(), b"key").await.unwrap();
    world.enroll_with(token.clone(), b"key").await.unwrap();
    let second = world.enroll_with(token, b"other").await.unwrap_err();
    assert_eq!(second.code, ErrorCode::TokenRefused);
    assert_eq!(world.condition("IdentityAmbiguous").await.unwrap(), (ConditionStatus::True, "TokenReused".into()));
    let Decision::RunAgent { token, .. } = world.boot().await else { panic!("the agent is wanted") };
    world.later(601);
    assert_eq!(world.enroll_with(token, b"late").await.unwrap_err().code, ErrorCode::TokenRefused);
}

#[tokio::test]
async fn a_coordinator_restart_in_mid_workflow_starts_nothing_twice() {
    let (dir, clock, world) = described_on_disk().await;
    let (name, uid, agent) = world.under_way().await;
    let machine_uid = agent.uid;
    // The crash came between the log and the status: the log is ahead.
    let done = receipt(machine_uid, uid, ReceiptState::Done);
    let body = EventBody::Finished { result: written(done.clone()) };
    world.store.events().append(u64::MAX, vec![record(uid, (0, 1), 2, body)]).await.unwrap();
    drop(agent);
    drop(world);

    let world = sqlite_world(dir.path(), &clock).await;
    let status = world.run(&name).await.status.unwrap();
    assert_eq!(status.actions[0].state, ActionState::Succeeded, "replayed from the log");
    // Another computer must wait: the first may still be acting on its lease.
    let other = world.open(machine_uid, hello("b9", "OTHER", vec![])).await.unwrap_err();
    assert_eq!(other.retry_after, Some(Duration::from_secs(600)));
    // The agent itself comes back at once, still at work on the next action, and goes on.
    let running = Some(ActionRef { workflow_uid: uid, action_index: 1, attempt: 1 });
    let back = Hello { running, last_epoch: 1, ..hello("b1", "D1", vec![done]) };
    let mut agent = world.connect(back).await;
    assert!(matches!(agent.received(), Some(ToAgent::LeaseRenewal { .. })), "no second start");
    assert!(agent.opened.epoch > 1);
    agent.does(uid, 1, 1, seeded()).await;
    agent.does(uid, 2, 1, ActionResult::Reboot).await;
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Rebooting);
}

#[tokio::test]
async fn a_write_that_is_replayed_without_a_receipt_is_known() {
    let (dir, clock, world) = described_on_disk().await;
    let (_, uid, agent) = world.under_way().await;
    let ActionResult::WriteImage(done) = written(receipt(agent.uid, uid, ReceiptState::Done)) else { panic!() };
    let body = EventBody::Finished { result: ActionResult::WriteImage(WriteImageResult { receipt: None, ..done }) };
    world.store.events().append(u64::MAX, vec![record(uid, (0, 1), 2, body)]).await.unwrap();
    drop(agent);
    drop(world);
    let world = sqlite_world(dir.path(), &clock).await;
    assert_eq!(world.condition("NoReceipt").await, Some((ConditionStatus::True, "NoRoom".into())));
}

#[tokio::test]
async fn an_agent_between_two_actions_settles_before_instructions() {
    let world = World::new().await;
    let (_, uid, first) = world.under_way().await;
    let back = Hello { last_epoch: first.opened.epoch, ..hello("b1", "D1", vec![]) };
    let mut again = world.connect(back.clone()).await;
    assert!(again.received().is_none(), "nothing is ordered yet");
    // What it had not had acknowledged: the write had finished.
    *again.seq.lock().unwrap() = BTreeMap::from([((0, 1), 1)]);
    let body = EventBody::Finished { result: written(receipt(again.uid, uid, ReceiptState::Done)) };
    again.report(uid, 0, 1, body).await.unwrap();
    assert!(matches!(again.received(), Some(ToAgent::LeaseRenewal { .. })));
    assert!(again.received().is_none());
    // And one that has nothing to say and runs nothing is ordered to begin, under a new number.
    let mut third = world.connect(Hello { last_epoch: again.opened.epoch, ..back }).await;
    world.engine.upkeep().steps().settle(third.uid, third.opened.epoch).await.unwrap();
    let assignment = third.assigned();
    assert_eq!((assignment.start_index, assignment.start_attempt), (1, 2));
}

#[tokio::test]
async fn an_unknown_receipt_holds_the_machine_until_force() {
    let world = World::new().await;
    world.provision(false).await.unwrap();
    let enrolled = world.enroll(b"key").await.unwrap();
    let foreign = receipt(enrolled.machine_uid, Uuid::from_u128(99), ReceiptState::Done);
    let mut agent = world.connect(hello("b1", "D1", vec![foreign])).await;
    assert!(matches!(agent.received(), Some(ToAgent::Idle { boot_disk: true, .. })), "what is installed starts");
    assert_eq!(world.phase().await, MachinePhase::Held);
    assert!(matches!(world.boot().await, Decision::BootDisk { .. }), "held: what is installed starts");
    let run = world.machine().await.status.unwrap().workflow.unwrap();
    let person = Authority { person: "ann".into(), at: Timestamp::UNIX_EPOCH, force: false };
    world.engine.requests().cancel(&run, person).await.unwrap();
    assert!(matches!(agent.received(), Some(ToAgent::Idle { ended: Some(_), .. })), "it waited for this one");
    let held = world.provision(false).await.unwrap_err();
    assert_eq!(held.code, ErrorCode::ReceiptMismatch);
    assert!(held.hint.contains("--force"), "{held}");
    world.provision(true).await.unwrap();
    let assignment = agent.assigned();
    assert!(assignment.force && assignment.start_index == 0);
    assert_eq!(world.phase().await, MachinePhase::Provisioning);
}

#[tokio::test]
async fn a_late_phone_home_counts_after_a_cancel() {
    let world = World::new().await;
    let (name, _, mut agent) = world.begins().await;
    let bearer = bearer_of(&agent.assigned().actions[1]);
    let person = Authority { person: "ann".into(), at: Timestamp::UNIX_EPOCH, force: false };
    world.engine.requests().cancel(&name, person.clone()).await.unwrap();
    assert!(matches!(agent.received(), Some(ToAgent::Cancel { .. })));
    let twice = world.engine.requests().cancel(&name, person).await.unwrap_err();
    assert_eq!(twice.code, ErrorCode::WorkflowEnded);
    assert_eq!(world.phase().await, MachinePhase::Failed);
    world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default()).await.unwrap();
    assert_eq!(world.phase().await, MachinePhase::Provisioned);
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Cancelled);
}

#[tokio::test]
async fn the_tick_finds_missing_phone_homes_and_silent_agents() {
    let world = World::new().await;
    let (name, uid, agent) = world.begins().await;
    world.engine.sessions().heartbeat(agent.uid, agent.opened.epoch, vitals(40 << 20)).await.unwrap();
    assert_eq!(world.machine().await.status.unwrap().agent_peak_rss_bytes, Some(40 << 20), "noted at once");
    world.later(20);
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(world.condition("Connected").await.unwrap(), (ConditionStatus::False, "Silent".into()));
    agent.does(uid, 0, 1, written(receipt(agent.uid, uid, ReceiptState::Done))).await;
    agent.does(uid, 1, 1, seeded()).await;
    agent.does(uid, 2, 1, ActionResult::Reboot).await;
    world.later(901);
    world.engine.upkeep().tick().await.unwrap();
    let status = world.run(&name).await.status.unwrap();
    assert_eq!((status.phase, status.problem.unwrap().code), (WorkflowPhase::Failed, ErrorCode::NoPhoneHome));
    assert_eq!(world.phase().await, MachinePhase::Failed);
}

#[tokio::test]
async fn impossible_settings_are_refused_with_a_hint() {
    let world = World::new().await;
    let taken = world.apply(machine("m2", MAC)).await.unwrap_err();
    assert_eq!(taken.code, ErrorCode::AlreadyExists);
    assert!(taken.message.contains("m1"), "{taken}");
    let reserves = |name: &str, own: &str, mac: &str, address: &str| {
        let mut reserving = machine(name, own);
        reserving["spec"]["reservations"] = json!([{"mac": mac, "address": address}]);
        reserving
    };
    let [own, bmc] = ["52:54:00:00:00:71", "52:54:00:00:00:72"];
    world.apply(reserves("m3", own, bmc, "10.77.0.30")).await.unwrap();
    for (other, what) in [
        (reserves("m4", "52:54:00:00:00:74", MAC, "10.77.0.31"), "belongs to machine \"m1\""),
        (reserves("m4", "52:54:00:00:00:74", bmc, "10.77.0.31"), "belongs to machine \"m3\""),
        (reserves("m4", "52:54:00:00:00:74", "52:54:00:00:00:75", "10.77.0.30"), "is reserved by machine \"m3\""),
        (machine("m4", bmc), "belongs to machine \"m3\""),
    ] {
        let taken = world.apply(other).await.unwrap_err();
        assert!(taken.code == ErrorCode::AlreadyExists && taken.message.contains(what), "{taken}");
    }
    let boot = world.engine.boot();
    let (port, address) = (bmc.parse().unwrap(), "10.77.0.30".parse().unwrap());
    assert_eq!((boot.address_for(port), boot.reserved_for(address)), (Some(address), Some(port)));
    // Its document says so no more.
    world.apply(machine("m3", own)).await.unwrap();
    assert_eq!((boot.address_for(port), boot.reserved_for(address)), (None, None));
    assert_eq!(world.apply(machine("m1", MAC)).await.unwrap().1, ApplyOutcome::Unchanged);
    let gone = world.apply(template("http://10.77.0.1/gone")).await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::SourceUnreachable);
    let ann = Authority { person: "ann".into(), at: Timestamp::UNIX_EPOCH, force: false };
    let missing = world.engine.requests().provision("m7", "os", BTreeMap::new(), ann.clone(), None).await.unwrap_err();
    assert!(missing.code == ErrorCode::NotFound && missing.hint.contains("m1"), "{missing}");
    let unknown = BTreeMap::from([("nosuch".to_owned(), json!(1))]);
    let unknown = world.engine.requests().provision("m1", "os", unknown, ann, None).await.unwrap_err();
    assert!(unknown.code == ErrorCode::InvalidTemplate && unknown.to_string().contains("nosuch"), "{unknown}");
    let run = world.provision(false).await.unwrap();
    let busy = world.provision(false).await.unwrap_err();
    assert!(busy.code == ErrorCode::MachineBusy && busy.message.contains(&run.metadata.name), "{busy}");
    let of_run = world.engine.documents().delete(Kind::Workflow, &run.metadata.name, "ann").await.unwrap_err();
    assert_eq!(of_run.code, ErrorCode::MachineBusy);
}

#[tokio::test]
async fn an_event_of_another_machines_run_changes_nothing() {
    let world = World::new().await;
    world.apply(machine("m2", "52:54:00:00:00:02")).await.unwrap();
    let run = world.provision(false).await.unwrap();
    let other = world.store.machine("m2").await.unwrap().unwrap().metadata.uid.unwrap();
    let mut hello = hello("b2", "D2", vec![]);
    hello.identity.macs = vec!["52:54:00:00:00:02".parse().unwrap()];
    let opened = world.open(other, hello).await.unwrap();
    let lie = EventBody::Failed { problem: Problem::new(ErrorCode::Internal, "a lie"), retryable: false };
    let record = record(run.metadata.uid.unwrap(), (0, 1), 1, lie);
    world.engine.sessions().agent_events(other, opened.epoch, vec![record]).await.unwrap();
    assert_eq!(world.run(&run.metadata.name).await.status.unwrap().phase, WorkflowPhase::Pending);
}

/// A certificate of that machine, which has not ended.
fn certificate(uid: Uuid) -> MachineCert {
    MachineCert {
        name: "m1".to_owned(),
        uid,
        serial_hex: "0a".to_owned(),
        key_fingerprint: String::new(),
        not_after: Timestamp::MAX,
    }
}
