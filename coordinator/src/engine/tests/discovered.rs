//! Machines that no document describes, over time and restarts; and certificates that stay revoked.

use crate::engine::requests::Asker as By;
use jiff::Timestamp;
use std::sync::{Arc, atomic::AtomicI64};

use landfall_api::message::{EnrollRequest, Identity, Proof};
use landfall_api::{ApprovedKey, DurationSpec, ErrorCode, Machine};
use landfall_machine::identity;
use serde_json::json;

use super::faulty::Faulty;
use super::{super::*, world::*};
use crate::{config::DiscoveryConfig, tls::MachineCert};

/// Seconds for which a silent, unapproved machine is kept here.
const KEEP: u64 = 600;

fn discovery() -> DiscoveryConfig {
    DiscoveryConfig {
        subnets: vec!["10.77.0.0/24".parse().unwrap()],
        max_machines: 10,
        keep: DurationSpec::from_secs(KEEP),
    }
}

async fn world() -> World {
    World::discovering(Store::memory(), Arc::new(AtomicI64::new(1_000_000)), discovery()).await
}

/// A computer with that last octet in address and port asks to be let in.
async fn asks(world: &World, n: u8) -> Result<Enrolment, Problem> {
    asks_from(world, n, &format!("10.77.0.{n}")).await
}

async fn asks_from(world: &World, n: u8, address: &str) -> Result<Enrolment, Problem> {
    let mac = format!("52:54:00:00:01:{n:02x}").parse().unwrap();
    let identity = Identity { macs: vec![mac], ..Identity::default() };
    let by = Asker { address: Some(address.parse().unwrap()), shown: None };
    let proof = Proof::Approval { fingerprint: hex::encode([n]) };
    world.engine.enrolments().enroll(EnrollRequest { identity, ..request(proof, &[n]) }, by).await
}

async fn discovered(world: &World, n: u8) -> Option<Machine> {
    world.store.machine(&format!("mac-5254000001{n:02x}")).await.unwrap().map(landfall_api::Shared::into_inner)
}

#[tokio::test]
async fn an_idle_unknown_machine_is_forgotten_unless_described() {
    let world = world().await;
    for n in 1..=3 {
        assert!(matches!(asks(&world, n).await, Ok(Enrolment::Waiting { .. })));
    }
    assert!(matches!(asks_from(&world, 4, "192.0.2.1").await, Ok(Enrolment::Waiting { .. })));
    assert!(discovered(&world, 4).await.is_none(), "discovery is off for that subnet");
    world.later(500);
    asks(&world, 1).await.unwrap();
    let mut described = machine("mac-525400000102", "52:54:00:00:01:02");
    described["spec"]["identity"]["serial"] = "S2".into();
    world.apply(described).await.unwrap();
    world.later(200);
    world.engine.enrolments().forget_unapproved().await.unwrap();
    assert!(discovered(&world, 1).await.is_some(), "it asked a moment ago");
    assert!(discovered(&world, 2).await.is_some(), "a person took note of it");
    assert!(discovered(&world, 3).await.is_none());
    // Forgotten is not refused: it is discovered again, as another document.
    assert!(matches!(asks(&world, 3).await, Ok(Enrolment::Waiting { .. })));
    assert!(discovered(&world, 3).await.is_some());
    world.later(i64::try_from(KEEP).unwrap());
    world.engine.enrolments().forget_unapproved().await.unwrap();
    assert!(discovered(&world, 1).await.is_none() && discovered(&world, 2).await.is_some());
}

#[tokio::test]
async fn an_interrupted_start_by_a_rule_is_not_repeated() {
    let world = world().await.described().await;
    world.apply(document("EnrolmentRule", "all", json!({"template": "os"}))).await.unwrap();
    asks(&world, 1).await.unwrap();
    let mut machine = discovered(&world, 1).await.unwrap();
    // As the crash left it: what stands for the run is stored before the run is.
    machine.status.as_mut().unwrap().enrolment.rule.as_mut().unwrap().run = Some("being started".into());
    world.store.documents().update(landfall_api::Document::from(machine)).await.unwrap();
    let again = World::discovering(world.store.clone(), world.clock.clone(), discovery()).await;
    again.engine.enrolments().approve("mac-525400000101", &hex_fingerprint(1), "ann").await.unwrap_err();
    let mut machine = discovered(&again, 1).await.unwrap();
    machine.status.as_mut().unwrap().enrolment.approved =
        Some(ApprovedKey { fingerprint: hex::encode([1]), by: "ann".into(), at: Timestamp::UNIX_EPOCH });
    again.store.documents().update(landfall_api::Document::from(machine)).await.unwrap();
    assert!(matches!(asks(&again, 1).await, Ok(Enrolment::Granted(_))));
    assert!(again.store.workflows().await.unwrap().is_empty());
    let rule = discovered(&again, 1).await.unwrap().status.unwrap().enrolment.rule.unwrap();
    assert!(rule.run.unwrap().starts_with("not started: the coordinator ended"), "it is not going on for ever");
}

#[tokio::test]
async fn a_rules_unrecorded_workflow_is_recorded_at_the_next_start() {
    let world = world().await.described().await;
    world.apply(document("EnrolmentRule", "all", json!({"template": "os"}))).await.unwrap();
    asks(&world, 1).await.unwrap();
    let run = world
        .engine
        .requests()
        .provision_by("mac-525400000101", "os", Default::default(), By::Rule("all"))
        .await
        .unwrap();
    let mut machine = discovered(&world, 1).await.unwrap();
    machine.status.as_mut().unwrap().enrolment.rule.as_mut().unwrap().run = Some("being started".into());
    world.store.documents().update(landfall_api::Document::from(machine)).await.unwrap();
    let again = World::discovering(world.store.clone(), world.clock.clone(), discovery()).await;
    let rule = discovered(&again, 1).await.unwrap().status.unwrap().enrolment.rule.unwrap();
    assert_eq!(rule.run.as_ref(), Some(&run.metadata.name));
}

/// What a caller without any proof says of a computer, with the address of `m1`.
fn claims_m1(key: u8, serial: &str) -> (EnrollRequest, Asker) {
    let mut facts = landfall_api::MachineFacts::default();
    facts.smbios.serial = serial.into();
    let by = Asker { address: Some("10.77.0.66".parse().unwrap()), shown: None };
    let proof = Proof::Approval { fingerprint: hex::encode([key]) };
    (EnrollRequest { facts: Some(Box::new(facts)), ..request(proof, &[key]) }, by)
}

#[tokio::test]
async fn an_unauthenticated_host_cannot_change_a_machines_facts() {
    let world = World::new().await;
    let (_, _, agent) = world.begins().await;
    let mut own = landfall_api::MachineFacts::default();
    own.smbios.serial = "own".into();
    world.engine.sessions().facts(agent.uid, agent.opened.epoch, own.clone()).await.unwrap();
    // Its document says that its boot token lets it in: nothing waits.
    let (claim, by) = claims_m1(6, "forged");
    assert!(matches!(world.engine.enrolments().enroll(claim, by).await, Ok(Enrolment::Waiting { .. })));
    let status = world.machine().await.status.unwrap();
    assert!(status.enrolment.waiting.is_empty() && status.facts.as_deref() == Some(&own), "{status:?}");
    let mut described = machine("m1", MAC);
    described["spec"]["proof"] = "approval".into();
    world.apply(described).await.unwrap();
    let (claim, by) = claims_m1(6, "forged");
    assert!(matches!(world.engine.enrolments().enroll(claim, by).await, Ok(Enrolment::Waiting { .. })));
    let status = world.machine().await.status.unwrap();
    assert_eq!((status.enrolment.waiting.len(), status.facts.as_deref()), (1, Some(&own)));
}

#[tokio::test]
async fn an_alarm_of_an_unknown_computer_waits_for_the_machine() {
    let world = World::new().await;
    for (name, mac, serial) in [("m1", MAC, "own"), ("m2", "52:54:00:00:00:02", "other")] {
        let mut described = machine(name, mac);
        described["spec"]["identity"]["serial"] = serial.into();
        world.apply(described).await.unwrap();
    }
    let uid = world.machine().await.metadata.uid.unwrap();
    let step = world.engine.fleet().machines().lock(uid).await;
    let (claim, by) = claims_m1(6, "forged");
    let identity = Identity { serial: "other".into(), ..claim.identity.clone() };
    let enrolments = world.engine.enrolments();
    let mut asked = std::pin::pin!(enrolments.enroll(EnrollRequest { identity, ..claim }, by));
    assert!(futures::poll!(&mut asked).is_pending(), "a step of the machine is under way");
    drop(step);
    assert_eq!(asked.await.unwrap_err().code, ErrorCode::AmbiguousIdentity);
    assert_eq!(world.condition("IdentityAmbiguous").await.unwrap().1, "IdentityMismatch");
}

#[tokio::test]
async fn forged_identities_write_one_alarm_per_ten_seconds() {
    let world = World::new().await;
    let forge = async |n: u8| {
        let identity = Identity { serial: format!("forged-{n}"), ..identity() };
        let (claim, by) = claims_m1(n, "forged");
        let refused = world.engine.enrolments().enroll(EnrollRequest { identity, ..claim }, by).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::AmbiguousIdentity);
        world.machine().await.metadata.resource_version
    };
    let mut described = machine("m1", MAC);
    described["spec"]["identity"]["serial"] = "own".into();
    described["spec"]["proof"] = "approval".into();
    world.apply(described).await.unwrap();
    let first = forge(1).await;
    for n in 2..50 {
        assert_eq!(forge(n).await, first, "nothing is written");
    }
    assert_eq!(world.condition("IdentityAmbiguous").await.unwrap().1, "IdentityMismatch");
    world.later(10);
    assert!(forge(50).await > first);
}

#[tokio::test]
async fn a_rule_ignores_machines_that_a_person_described() {
    let world = world().await;
    for n in 1..=3 {
        asks(&world, n).await.unwrap();
    }
    world.apply(document("EnrolmentRule", "all", json!({"approve": true}))).await.unwrap();
    let mut described = machine("mac-525400000101", "52:54:00:00:01:01");
    described["spec"]["proof"] = "approval".into();
    world.apply(described).await.unwrap();
    assert!(matches!(asks(&world, 1).await, Ok(Enrolment::Waiting { .. })));
    assert!(matches!(asks_from(&world, 2, "192.0.2.1").await, Ok(Enrolment::Waiting { .. })), "not discovered there");
    assert!(matches!(asks(&world, 3).await, Ok(Enrolment::Granted(_))));
    for (n, approved) in [(1, false), (2, false), (3, true)] {
        assert_eq!(discovered(&world, n).await.unwrap().status.unwrap().enrolment.approved.is_some(), approved, "{n}");
    }
}

#[tokio::test]
async fn a_rule_approved_computer_locks_no_described_one_out() {
    let world = world().await;
    world.apply(document("EnrolmentRule", "all", json!({"approve": true}))).await.unwrap();
    let asks = async |key: u8, mac: &str| {
        let identity = Identity { macs: vec![mac.parse().unwrap()], serial: "S1".into(), ..Identity::default() };
        let by = Asker { address: Some("10.77.0.66".parse().unwrap()), shown: None };
        let proof = Proof::Approval { fingerprint: hex::encode([key]) };
        world.engine.enrolments().enroll(EnrollRequest { identity, ..request(proof, &[key]) }, by).await
    };
    assert!(matches!(asks(6, "52:54:00:00:01:66").await, Ok(Enrolment::Granted(_))));
    // By its address alone: that the serial number is its own is known to the computer only.
    let mut described = machine("m1", MAC);
    described["spec"]["proof"] = "approval".into();
    world.apply(described).await.unwrap();
    assert!(matches!(asks(1, MAC).await, Ok(Enrolment::Waiting { .. })));
    assert!(
        world
            .condition("IdentityAmbiguous")
            .await
            .is_none_or(|(status, ..)| status != landfall_api::ConditionStatus::True)
    );
    // Once a person has described the other one too, it is a person's contradiction.
    let mut other = machine("s1", "52:54:00:00:01:66");
    other["spec"]["identity"]["serial"] = "S1".into();
    other["spec"]["proof"] = "approval".into();
    world.apply(other).await.unwrap();
    assert_eq!(asks(1, MAC).await.unwrap_err().code, ErrorCode::AmbiguousIdentity);
}

/// Of a key that does not wait.
fn hex_fingerprint(n: u8) -> String {
    hex::encode([n; 32])
}

#[tokio::test]
async fn a_revocation_survives_a_restart_and_spares_newer_certificates() {
    let world = World::new().await;
    world.provision(false).await.unwrap();
    let before = world.enroll(b"before").await.unwrap();
    let shown = |enrolled: &Enrolled, not_after| MachineCert {
        name: "m1".into(),
        uid: enrolled.machine_uid,
        serial_hex: enrolled.serial_hex.clone(),
        key_fingerprint: String::new(),
        not_after,
    };
    let old = shown(&before, Timestamp::MAX);
    world.engine.certificates().check_certificate(&old).unwrap();
    world.engine.certificates().revoke_machine("m1").await.unwrap();
    let since = world.enroll(b"since").await.unwrap();
    let again = World::over(world.store.clone(), world.clock.clone()).await;
    for world in [&world, &again] {
        assert_eq!(world.engine.certificates().check_certificate(&old).unwrap_err().code, ErrorCode::Revoked);
        world.engine.certificates().check_certificate(&shown(&since, Timestamp::MAX)).unwrap();
        let ended = world.engine.certificates().check_certificate(&shown(&since, Timestamp::UNIX_EPOCH)).unwrap_err();
        assert_eq!(ended.code, ErrorCode::Unauthenticated);
    }
}

#[tokio::test]
async fn what_another_coordinator_stored_of_a_discovered_machine_stays() {
    let faulty = Arc::new(Faulty::default());
    let world = World::discovering(faulty.store(), Arc::new(AtomicI64::new(1_000_000)), discovery()).await;
    // Its key is approved there in the moment in which it asks here.
    asks(&world, 1).await.unwrap();
    world.later(60);
    let approved = ApprovedKey { fingerprint: hex::encode([1]), by: "ann".into(), at: Timestamp::UNIX_EPOCH };
    faulty.overtake(move |machine| identity::approve(machine, approved.clone(), None));
    assert!(matches!(asks(&world, 1).await, Ok(Enrolment::Waiting { .. })));
    let status = discovered(&world, 1).await.unwrap().status.unwrap();
    assert!(status.enrolment.waiting.is_empty(), "{status:?}");
    assert!(matches!(asks(&world, 1).await, Ok(Enrolment::Granted(_))));
    // It is described there in the moment in which it is forgotten here.
    asks(&world, 2).await.unwrap();
    world.later(i64::try_from(KEEP).unwrap());
    faulty.overtake(|machine| machine.spec.identity.serial = Some("S2".into()));
    world.engine.enrolments().forget_unapproved().await.unwrap();
    assert_eq!(discovered(&world, 2).await.unwrap().spec.identity.serial.as_deref(), Some("S2"));
}
