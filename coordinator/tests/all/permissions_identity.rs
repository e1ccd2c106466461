//! Who may be a machine: replayed tokens, two computers with one identity, other machines' certificates and addresses,
//! revoked ones, approval, discovery and rules. Each refusal is in the audit log.
#![allow(clippy::disallowed_methods, reason = "these tests run a coordinator by the real clock")]

use std::{sync::Arc, time::Duration};

use super::permitted::{API, LIMIT, MAC_A, MAC_B, Site};
use http::Method;
use landfall_api::message::{Identity, Proof, Vitals};
use landfall_api::{ConditionStatus, DiskId, ErrorCode, MachineFacts, MachinePhase, Role, SecretText, WorkflowPhase};
use landfall_proto::v1;
use landfall_session::{
    AgentKey, EnrollError, Enrolled, Host, Instruction, Looking, Seen, Session, SessionConfig, SessionHandle,
    boot_time, enroll, enroll_with_facts,
};
use rcgen::KeyPair;
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

fn identity(macs: &[&str]) -> Identity {
    Identity { macs: macs.iter().map(|mac| mac.parse().unwrap()).collect(), ..Identity::default() }
}

async fn by_token(site: &Site, token: &str, macs: &[&str], key: &AgentKey) -> Result<Enrolled, EnrollError> {
    let proof = Proof::BootToken(SecretText::new(token));
    enroll(&site.target(), "0.1.0", &identity(macs), "boot", &proof, key).await
}

async fn by_approval(site: &Site, macs: &[&str], key: &AgentKey) -> Result<Enrolled, EnrollError> {
    let proof = Proof::Approval { fingerprint: key.fingerprint() };
    let mut facts = MachineFacts::default();
    facts.smbios.manufacturer = "Acme".into();
    enroll_with_facts(&site.target(), "0.1.0", &identity(macs), "boot", &proof, key, &facts).await
}

async fn is_ambiguous(site: &Site, machine: &str) -> Option<String> {
    let status = site.machine(machine).await.status.unwrap();
    let alarm = status.conditions.into_iter().find(|c| c.kind == "IdentityAmbiguous")?;
    (alarm.status == ConditionStatus::True).then_some(alarm.reason.to_string())
}

async fn assert_noted(site: &Site, action: &str, code: ErrorCode) {
    let entries = site.audit().await;
    assert!(entries.iter().any(|e| e.action == action && e.code == code.as_str()), "{action} {code}: {entries:#?}");
}

struct Computer(&'static str);

impl Host for Computer {
    fn look(&self) -> Looking<'_> {
        Seen::disks(vec![DiskId { serial: self.0.into(), size_bytes: 1 << 30, ..DiskId::default() }], vec![]).at_once()
    }
    fn vitals(&self) -> Vitals {
        Vitals { uptime: Duration::from_secs(1), peak_rss_bytes: 2 }
    }
}

fn start(
    site: &Site, enrolled: &Enrolled, disk: &'static str, mac: &str,
) -> (SessionHandle, mpsc::Receiver<Instruction>) {
    let config = SessionConfig {
        target: site.target(),
        credentials: enrolled.credentials.clone(),
        software: "0.1.0".into(),
        identity: identity(&[mac]),
        boot_id: format!("boot-{disk}"),
        enrolled_at: boot_time(),
    };
    Session::start(config, Arc::new(Computer(disk)))
}

async fn refusal(instructions: &mut mpsc::Receiver<Instruction>) -> ErrorCode {
    loop {
        match timeout(LIMIT, instructions.recv()).await.unwrap() {
            Some(Instruction::Refused { problem, .. }) => return problem.code,
            Some(_) => {}
            None => panic!("the session ended without a word"),
        }
    }
}

async fn assigned(instructions: &mut mpsc::Receiver<Instruction>) {
    while !matches!(timeout(LIMIT, instructions.recv()).await.unwrap().unwrap(), Instruction::Assign { .. }) {}
}

#[tokio::test]
async fn a_replayed_boot_token_raises_an_alarm() {
    let site = Site::new().await;
    let token = site.boot_token("a", MAC_A).await;
    let (first, second) = (AgentKey::generate().unwrap(), AgentKey::generate().unwrap());
    by_token(&site, &token, &[MAC_A], &first).await.unwrap();
    let refused = by_token(&site, &token, &[MAC_A], &second).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::TokenRefused);
    assert_eq!(is_ambiguous(&site, "a").await.as_deref(), Some("TokenReused"));
    assert_noted(&site, "Enroll", ErrorCode::TokenRefused).await;
    assert_noted(&site, "IdentityAlarm", ErrorCode::AmbiguousIdentity).await;
    by_token(&site, &token, &[MAC_A], &first).await.unwrap();
    assert_eq!(site.machine("a").await.status.unwrap().enrolment.certificates.len(), 2);
    // The token itself is nowhere.
    assert!(!serde_json::to_string(&site.audit().await).unwrap().contains(&token));
}

#[tokio::test]
async fn a_second_computer_with_one_identity_gets_no_session() {
    let site = Site::new().await;
    let keys = [AgentKey::generate().unwrap(), AgentKey::generate().unwrap()];
    let first = by_token(&site, &site.boot_token("a", MAC_A).await, &[MAC_A], &keys[0]).await.unwrap();
    let second = by_token(&site, &site.boot_token("a", MAC_A).await, &[MAC_A], &keys[1]).await.unwrap();
    let (_first, mut orders) = start(&site, &first, "one", MAC_A);
    assigned(&mut orders).await;
    let (_second, mut orders) = start(&site, &second, "other", MAC_A);
    assert_eq!(refusal(&mut orders).await, ErrorCode::AmbiguousIdentity);
    assert_eq!(is_ambiguous(&site, "a").await.as_deref(), Some("TwoComputers"));
    assert_noted(&site, "Session", ErrorCode::AmbiguousIdentity).await;
}

#[tokio::test]
async fn an_agent_with_anothers_address_is_refused() {
    let site = Site::new().await;
    let key = AgentKey::generate().unwrap();
    let token = site.boot_token("a", MAC_A).await;
    for macs in [&[MAC_B][..], &[MAC_A, MAC_B], &[]] {
        let refused = by_token(&site, &token, macs, &key).await.unwrap_err();
        assert_eq!(refused.problem.code, ErrorCode::AmbiguousIdentity, "{macs:?}");
    }
    assert_noted(&site, "Enroll", ErrorCode::AmbiguousIdentity).await;
    assert_eq!(is_ambiguous(&site, "a").await.as_deref(), Some("IdentityMismatch"));
    // By approval both of the machines it points to carry the alarm.
    let refused = by_approval(&site, &[MAC_A, MAC_B], &key).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::AmbiguousIdentity);
    assert_eq!(is_ambiguous(&site, "b").await.as_deref(), Some("IdentityMismatch"));
    // One that got in honestly and says another thing later.
    let enrolled = by_token(&site, &token, &[MAC_A], &key).await.unwrap();
    let (_handle, mut orders) = start(&site, &enrolled, "one", MAC_B);
    assert_eq!(refusal(&mut orders).await, ErrorCode::AmbiguousIdentity);
    assert_noted(&site, "Session", ErrorCode::AmbiguousIdentity).await;
}

#[tokio::test]
async fn parts_of_two_machines_in_one_computer_are_refused() {
    let site = Site::new().await;
    for (name, mac, n) in [("c", "52:54:00:00:00:0c", 12), ("d", "52:54:00:00:00:0d", 13)] {
        let mut document = super::permitted::machine(name, mac);
        document["spec"]["identity"]["smbiosUuid"] = json!(uuid::Uuid::from_u128(n << 64 | n));
        document["spec"]["identity"]["serial"] = json!(format!("SER-{name}"));
        site.apply(document).await;
    }
    let key = AgentKey::generate().unwrap();
    let whole = |mac: &str, n: u128, serial: &str| Identity {
        smbios_uuid: Some(uuid::Uuid::from_u128(n << 64 | n)),
        serial: serial.into(),
        macs: vec![mac.parse().unwrap()],
    };
    let (c, d) = ("52:54:00:00:00:0c", "52:54:00:00:00:0d");
    let proof = Proof::Approval { fingerprint: key.fingerprint() };
    for (said, wanted) in [
        (whole(c, 12, "SER-c"), ErrorCode::Unapproved),
        (whole(c, 13, "SER-c"), ErrorCode::AmbiguousIdentity),
        (whole(d, 12, "SER-c"), ErrorCode::AmbiguousIdentity),
        (whole(c, 12, "SER-d"), ErrorCode::AmbiguousIdentity),
        // Fillers say nothing, so they contradict what is described.
        (whole(c, 12, "Default string"), ErrorCode::AmbiguousIdentity),
        (whole(c, 0, "SER-c"), ErrorCode::AmbiguousIdentity),
        // Of a machine that is described by its address alone, with a part of one that is described better.
        (Identity { serial: "SER-c".into(), ..identity(&[MAC_A]) }, ErrorCode::AmbiguousIdentity),
        (whole(MAC_A, 12, ""), ErrorCode::AmbiguousIdentity),
        (Identity { serial: "SER-new".into(), ..identity(&[MAC_A]) }, ErrorCode::Unapproved),
    ] {
        let answer = enroll(&site.target(), "0.1.0", &said, "boot", &proof, &key).await.unwrap_err();
        assert_eq!(answer.problem.code, wanted, "{said:?}: {}", answer.problem);
    }
}

#[tokio::test]
async fn another_machines_certificate_opens_nothing_of_this_one() {
    let site = Site::new().await;
    let token = site.boot_token("b", MAC_B).await;
    let run = site.machine("b").await.status.unwrap().workflow.unwrap();
    let run = site.coordinator.store.workflow(&run).await.unwrap().unwrap().metadata.uid.unwrap();
    let other = site.machine_certificate("a").await;
    // Enroll, with a token of b.
    let key = KeyPair::generate().unwrap();
    let said = Some(v1::Identity { macs: vec![MAC_B.into()], ..v1::Identity::default() });
    let enroll = v1::EnrollRequest {
        identity: said.clone(),
        boot_id: "boot".into(),
        csr_der: super::permitted::csr(&key),
        proof: Some(v1::enroll_request::Proof::BootToken(v1::BootToken { token: token.clone() })),
        ..v1::EnrollRequest::default()
    };
    assert_eq!(site.call(2, &other, "Enroll", std::slice::from_ref(&enroll)).await.grpc, 7);
    // Enroll, as b by approval.
    let mut approval = enroll.clone();
    let fingerprint = site.coordinator.pki.key_fingerprint(&approval.csr_der).unwrap();
    approval.proof = Some(v1::enroll_request::Proof::Approval(v1::Approval { fingerprint }));
    assert_eq!(site.call(3, &other, "Enroll", &[approval]).await.grpc, 7);
    // Enroll, renewing for a key that is not the certificate's.
    let mut renewal = enroll;
    renewal.proof = Some(v1::enroll_request::Proof::Renewal(v1::Renewal {}));
    assert_eq!(site.call(4, &other, "Enroll", &[renewal]).await.grpc, 7);
    // Session, with b's identity.
    let hello = v1::Hello { identity: said, boot_id: "boot".into(), ..v1::Hello::default() };
    let hello = v1::SessionRequest { message: Some(v1::session_request::Message::Hello(hello)) };
    let answer = site.call(5, &other, "Session", &[hello]).await;
    assert!(String::from_utf8_lossy(&answer.body).contains("AmbiguousIdentity"), "{answer:?}");
    // Telemetry, of b's run.
    let line = v1::TelemetryRequest {
        workflow_uid: run.to_string(),
        attempt: 1,
        item: Some(v1::telemetry_request::Item::Log(v1::LogLine {
            time: Some(prost_types::Timestamp::default()),
            level: "info".into(),
            message: "x".into(),
        })),
        ..v1::TelemetryRequest::default()
    };
    assert_eq!(site.call(6, &other, "Telemetry", &[line]).await.grpc, 7);
    for host in 2..=6 {
        assert_eq!(site.audit_of(host).await.len(), 1, "127.0.0.{host}");
    }
    // b itself is where it was: its token is unused.
    by_token(&site, &token, &[MAC_B], &AgentKey::generate().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_revoked_machine_needs_a_new_token() {
    let site = Site::new().await;
    let admin = site.operator("ann", Role::Admin);
    let (old, key) = (site.boot_token("a", MAC_A).await, AgentKey::generate().unwrap());
    let enrolled = by_token(&site, &old, &[MAC_A], &key).await.unwrap();
    let (_handle, mut orders) = start(&site, &enrolled, "one", MAC_A);
    assigned(&mut orders).await;
    let unused = site.boot_token("a", MAC_A).await;
    let revoked = site.ask(2, &admin, Method::POST, &format!("{API}/machines/a/revoke"), "").await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
    assert_eq!(refusal(&mut orders).await, ErrorCode::Revoked);
    let (_again, mut orders) = start(&site, &enrolled, "one", MAC_A);
    assert_eq!(refusal(&mut orders).await, ErrorCode::Revoked);
    for token in [&old, &unused] {
        assert_eq!(by_token(&site, token, &[MAC_A], &key).await.unwrap_err().problem.code, ErrorCode::TokenRefused);
    }
    assert_noted(&site, "Session", ErrorCode::Revoked).await;
    assert_noted(&site, "Enroll", ErrorCode::TokenRefused).await;
    let anew = by_token(&site, &site.boot_token("a", MAC_A).await, &[MAC_A], &key).await.unwrap();
    let (_new, mut orders) = start(&site, &anew, "one", MAC_A);
    assigned(&mut orders).await;
}

#[tokio::test]
async fn a_session_renews_its_certificate_and_goes_on_with_it() {
    let site = Site::with("", Duration::from_secs(15)).await;
    let key = AgentKey::generate().unwrap();
    let enrolled = by_token(&site, &site.boot_token("a", MAC_A).await, &[MAC_A], &key).await.unwrap();
    let mut written = site.coordinator.store.audit().written();
    let (handle, mut orders) = start(&site, &enrolled, "one", MAC_A);
    assigned(&mut orders).await;
    let epoch = |connection: &landfall_session::Connection| match connection {
        landfall_session::Connection::Connected { epoch } => Some(*epoch),
        _ => None,
    };
    let mut connection = handle.connection();
    let renewed = async {
        while !site.audit().await.iter().any(|entry| entry.action == "RenewCertificate") {
            written.changed().await.unwrap();
        }
        // The next connection is made with the new certificate.
        connection.wait_for(|now| epoch(now).is_some_and(|epoch| epoch > 1)).await.unwrap();
    };
    timeout(LIMIT, renewed).await.unwrap();
    let good = site.machine("a").await.status.unwrap().enrolment.certificates;
    assert!(good.iter().any(|certificate| certificate.expires > jiff::Timestamp::now()), "{good:?}");
}

#[tokio::test]
async fn approval_admits_only_the_key_with_the_complete_fingerprint() {
    let site = Site::new().await;
    let operator = site.operator("ann", Role::Operator);
    let mut document = super::permitted::machine("a", MAC_A);
    document["spec"]["proof"] = json!("approval");
    site.apply(document).await;
    let (key, other) = (AgentKey::generate().unwrap(), AgentKey::generate().unwrap());
    let approve = format!("{API}/machines/a/approve");
    let body = |fingerprint: &str| json!({ "fingerprint": fingerprint }).to_string();
    let early = site.ask(2, &operator, Method::POST, &approve, &body(&key.readable_fingerprint())).await;
    assert_eq!(early.json()["code"], "Unapproved", "a key that has not asked");
    let waiting = by_approval(&site, &[MAC_A], &key).await.unwrap_err();
    assert_eq!(waiting.problem.code, ErrorCode::Unapproved);
    assert!(waiting.retryable && waiting.retry_after.is_some());
    let known = site.machine("a").await.status.unwrap().enrolment.waiting;
    assert_eq!(known[0].fingerprint, key.fingerprint());
    let mut near = key.readable_fingerprint();
    near.replace_range(78..79, if near.ends_with('0') { "1" } else { "0" });
    for wrong in [near, key.readable_fingerprint()[..39].to_owned(), other.fingerprint(), String::new()] {
        let answer = site.ask(3, &operator, Method::POST, &approve, &body(&wrong)).await;
        assert!([409, 422].contains(&answer.status), "{wrong}: {answer:?}");
    }
    assert!(by_approval(&site, &[MAC_A], &key).await.is_err(), "none of these let it in");
    assert_noted(&site, &format!("POST {approve}"), ErrorCode::Unapproved).await;
    let right = site.ask(4, &operator, Method::POST, &approve, &body(&key.readable_fingerprint())).await;
    assert_eq!(right.status, 200, "{right:?}");
    assert_eq!(by_approval(&site, &[MAC_A], &key).await.unwrap().machine_name, "a");
    let refused = by_approval(&site, &[MAC_A], &other).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::Unapproved);
}

#[tokio::test]
async fn a_machine_whose_proof_is_approval_gets_no_boot_token() {
    let site = Site::new().await;
    let token = site.boot_token("a", MAC_A).await;
    let mut document = super::permitted::machine("a", MAC_A);
    document["spec"]["proof"] = json!("approval");
    site.apply(document).await;
    let key = AgentKey::generate().unwrap();
    let refused = by_token(&site, &token, &[MAC_A], &key).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::TokenRefused, "one made before says nothing either");
    let decision = site.coordinator.engine.boot().boot_decision(MAC_A.parse().unwrap(), None).await.unwrap();
    assert!(matches!(decision, landfall_boot::policy::Decision::Approve { .. }), "{decision:?}");
}

#[tokio::test]
async fn discovery_depends_on_the_subnet_and_is_bounded() {
    let key = AgentKey::generate().unwrap();
    let unknown = "52:54:00:00:01:01";
    let site = Site::new().await;
    let waiting = by_approval(&site, &[unknown], &key).await.unwrap_err();
    assert_eq!(waiting.problem.code, ErrorCode::Unapproved);
    assert_eq!(site.coordinator.store.machines().await.unwrap().len(), 2, "discovery is off");

    let site =
        Site::with("[discovery]\nsubnets = [\"127.0.0.0/8\"]\nmax_machines = 3\n", Duration::from_secs(3600)).await;
    for _ in 0..2 {
        by_approval(&site, &[unknown], &key).await.unwrap_err();
    }
    let found = site.machine("mac-525400000101").await;
    let status = found.status.unwrap();
    assert_eq!(status.phase, MachinePhase::Discovered);
    assert_eq!(status.facts.unwrap().smbios.manufacturer, "Acme");
    assert_eq!((found.metadata.labels.len(), found.spec.identity.macs.len()), (0, 1));
    let mut full = 0;
    for n in 2..10 {
        let asked = by_approval(&site, &[&format!("52:54:00:00:02:0{n}")], &key).await.unwrap_err();
        full += usize::from(asked.problem.code == ErrorCode::LimitReached);
    }
    assert_eq!((site.coordinator.store.machines().await.unwrap().len(), full), (2 + 3, 6));
    assert_noted(&site, "EnrollByApproval", ErrorCode::LimitReached).await;
    // A person lets one in, and it is a machine like any other.
    site.coordinator.engine.enrolments().approve("mac-525400000101", &key.fingerprint(), "ann").await.unwrap();
    by_approval(&site, &[unknown], &key).await.unwrap();
    assert_eq!(site.machine("mac-525400000101").await.status.unwrap().phase, MachinePhase::Available);
}

#[tokio::test]
async fn a_rule_approves_a_machine_and_starts_one_workflow() {
    let site = Site::with("[discovery]\nsubnets = [\"127.0.0.0/8\"]\n", Duration::from_secs(3600)).await;
    let rule = |name: &str, priority: i32, spec: serde_json::Value| {
        let mut spec = spec;
        spec["priority"] = json!(priority);
        json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "EnrolmentRule", "metadata": {"name": name}, "spec": spec})
    };
    site.apply(rule("low", 1, json!({"labels": {"from": "low"}}))).await;
    site.apply(rule("other", 9, json!({"when": {"smbios.manufacturer": "glob Dell*"}, "labels": {"from": "dell"}})))
        .await;
    site.apply(rule("acme", 5, json!({
        "when": {"smbios.manufacturer": "in Acme, HPE"}, "labels": {"from": "acme"}, "approve": true, "template": "os",
        "name": "{{ facts.smbios.manufacturer }}-1",
    })))
    .await;
    let (key, mac) = (AgentKey::generate().unwrap(), "52:54:00:00:01:01");
    assert_eq!(by_approval(&site, &[mac], &key).await.unwrap().machine_name, "acme-1");
    let machine = site.machine("acme-1").await;
    assert_eq!(machine.metadata.labels["from"], "acme");
    let status = machine.status.unwrap();
    assert_eq!(status.enrolment.approved.unwrap().by, "rule/acme");
    let run = site.coordinator.store.workflow(&status.workflow.unwrap()).await.unwrap().unwrap();
    assert!(run.spec.authority.is_none(), "no person asked, so only a blank disk is written");
    // The run is over, however it ended; the rule changes; the machine enrols again, with this key and with another.
    let stopped = landfall_api::Authority { person: "ann".into(), at: jiff::Timestamp::now(), force: false };
    let ended = site.coordinator.engine.requests().cancel(&run.metadata.name, stopped).await.unwrap();
    assert_eq!(ended.status.as_ref().unwrap().phase, WorkflowPhase::Cancelled);
    site.apply(rule("acme", 6, json!({"approve": true, "template": "os"}))).await;
    by_approval(&site, &[mac], &key).await.unwrap();
    let other = AgentKey::generate().unwrap();
    let refused = by_approval(&site, &[mac], &other).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::Unapproved, "a rule lets in one key of a machine, and no second");
    assert_eq!(site.coordinator.store.workflows().await.unwrap().len(), 1);
    let noted = site.audit().await;
    for action in ["Discover", "ApplyRule", "ApproveByRule", "ProvisionByRule"] {
        assert_eq!(noted.iter().filter(|entry| entry.action == action).count(), 1, "{action}: {noted:#?}");
    }
}
