//! The wire as it was recorded (`tests/golden/wire/`): what this coordinator sends has those bytes, and what the agent sent
//! arrives as the values beside them. The agent's half of the same files is beside its own conversions.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{Action, Digest, DiskId, DiskReceipt, ErrorCode, Problem, Receipt, ReceiptState};
use landfall_golden as golden;
use landfall_machine::run::Start;
use landfall_proto::v1::{self, session_request::Message as Up};
use prost::Message as _;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Asker, Telemetry, enroll, enrolment, event, facts, hello, refused, response, telemetry, welcome};
use crate::engine::{
    AssignedAction, Assignment, Enrolled, Enrolment, Identity, PhoneHomeReport, PhoneHomeUnit, Proof, Refusal, Seed,
    ToAgent,
};

fn moment() -> Timestamp {
    "2026-01-02T03:04:05.678901234Z".parse().unwrap()
}

fn digest(byte: u8) -> Digest {
    Digest::from_sha256([byte; 32])
}

fn receipt(state: ReceiptState, image_digest: Option<Digest>) -> DiskReceipt {
    DiskReceipt {
        disk: DiskId {
            wwn: "eui.0025385b71b0a0d1".into(),
            serial: "S4EVNX0R".into(),
            path: "pci-0000:00:04.0-nvme-1".into(),
            name: "nvme0n1".into(),
            model: "Samsung SSD 980".into(),
            size_bytes: 500_107_862_016,
        },
        receipt: Receipt {
            machine_uid: Uuid::from_u128(1),
            workflow_uid: Uuid::from_u128(2),
            workflow_name: "web-1-0a1b2c3d".into(),
            generation: 4,
            action_index: 1,
            image_digest,
            state,
            written_at: moment(),
        },
    }
}

fn assignment(actions: Vec<AssignedAction>) -> Assignment {
    Assignment {
        epoch: 7,
        workflow_uid: Uuid::from_u128(2),
        workflow_name: "web-1-0a1b2c3d".into(),
        machine_uid: Uuid::from_u128(1),
        generation: 4,
        lease: Duration::from_secs(600),
        actions,
        start_index: 0,
        start_attempt: 1,
        starts: vec![Start { index: 0, attempt: 1 }],
        earlier_runs: vec![],
        expected_receipts: vec![],
        person_authorised: false,
        force: false,
    }
}

fn action(spec: Value, seed: Option<Seed>) -> AssignedAction {
    let action: Action = serde_json::from_value(spec).unwrap();
    AssignedAction { action, seed }
}

fn sent(name: &str, message: ToAgent) {
    golden::same_bytes(&format!("wire/coordinator/{name}.hex"), &response(message).encode_to_vec());
}

fn assigned(name: &str, assignment: Assignment) {
    sent(name, ToAgent::Assign(Box::new(assignment)));
}

#[test]
fn an_assignment_of_every_action_has_the_recorded_bytes() {
    let seed = Seed {
        user_data: "#cloud-config\n{}\n".into(),
        meta_data: "{\"instance-id\": \"i\"}\n".into(),
        network_config: "{\"version\": 2}\n".into(),
        phone_home: Some(PhoneHomeUnit {
            url: "https://10.77.0.1:7443/phone-home".into(),
            bearer: "00000000-0000-0000-0000-000000000002.5ec2e7".into(),
            ca_pins: vec![digest(0xca).to_string()],
        }),
    };
    let quiet = Seed {
        user_data: "#cloud-config\n".into(),
        meta_data: "{}\n".into(),
        network_config: String::new(),
        phone_home: None,
    };
    let image = json!({"url": "http://10.77.0.1:7480/images/os.zst", "mirrors": ["https://mirror.example/os.zst"],
        "digest": digest(0x0a), "format": "zstd"});
    let kexec = json!({"cmdline": "root=/dev/vda2 ro", "disk": {"serial": "S4EVNX0R"}});
    let actions = vec![
        action(
            json!({"name": "write", "timeout": "30m",
                "retry": {"maxAttempts": 5, "initialBackoff": "1s", "maxBackoff": "30s"},
                "writeImage": {"disk": {"serial": "S4EVNX0R"}, "image": image}}),
            None,
        ),
        action(json!({"name": "seed", "cloudInit": {"disk": {"name": "vda"}}}), Some(seed)),
        action(json!({"name": "seed-quietly", "cloudInit": {}}), Some(quiet)),
        action(json!({"name": "look", "hold": {"message": "check the cables"}}), None),
        action(json!({"name": "clear", "clearDisks": {"disks": [{"name": "sdb"}, {"size": ">= 1TB"}]}}), None),
        action(json!({"name": "clear-own", "clearDisks": {}}), None),
        action(json!({"name": "restart", "reboot": {}}), None),
        action(json!({"name": "off", "powerOff": {}}), None),
        action(json!({"name": "jump", "kexec": kexec}), None),
        action(json!({"name": "jump-own", "kexec": {}}), None),
    ];
    let whole = Assignment {
        start_index: 1,
        start_attempt: 2,
        starts: vec![Start { index: 1, attempt: 2 }],
        earlier_runs: vec![Uuid::from_u128(3)],
        expected_receipts: vec![receipt(ReceiptState::Done, Some(digest(0x0a))), receipt(ReceiptState::Intent, None)],
        person_authorised: true,
        force: true,
        ..assignment(actions)
    };
    assigned("assignment", whole);
    let hold =
        |name: &str, branch: Value| action(json!({"name": name, "branch": branch, "hold": {"message": "wait"}}), None);
    let last = action(json!({"name": "restart", "reboot": {}}), None);
    let starts = vec![Start { index: 0, attempt: 1 }, Start { index: 1, attempt: 4 }];
    let branches = vec![hold("one", json!("a")), hold("two", json!("b")), last];
    assigned("assignment-branches", Assignment { starts, ..assignment(branches) });
}

#[test]
fn every_proof_of_an_image_has_the_recorded_bytes() {
    let signature = json!({"url": "http://h/os.sig", "key": "RWQf6LRCGA9i53ml"});
    let plain = |field: &str, value: Value| json!({"image": {"url": "http://h/os.img", field: value}});
    let access = |who: Value| {
        json!({"image": {"url": "https://h/os.img", "digest": digest(0x0a), "access": {
        "caCertificates": ["-----BEGIN CERTIFICATE-----\n"], "proxy": "http://p:3128", "authorization": who}}})
    };
    let all = [
        ("digest", plain("digest", json!(digest(0x0a)))),
        ("sha512", plain("digest", json!(format!("sha512:{}", "0b".repeat(64))))),
        ("raw-digest", plain("rawDigest", json!(digest(0x0c)))),
        ("sums", plain("sums", json!({"url": "http://h/SHA256SUMS"}))),
        ("signed-sums", plain("sums", json!({"url": "http://h/SHA256SUMS", "signature": signature}))),
        ("signature", plain("signature", signature)),
        ("index", plain("index", json!({"url": "http://h/os.json", "digest": digest(0x0d)}))),
        ("pinned", json!({"image": {"url": format!("oci://r.example/os@{}", digest(0x0e))}})),
        ("waived", plain("digestWaived", json!(true))),
        ("keep", json!({"keep": ["data"], "image": {"url": "http://h/os.img", "digest": digest(0x0a)}})),
        ("read-back", json!({"verify": "readBack", "image": {"url": "http://h/os.img", "digestWaived": true}})),
        ("basic", access(json!({"username": "u", "password": "p4ss"}))),
        ("bearer", access(json!({"token": "t0ken"}))),
    ];
    for (name, mut spec) in all {
        spec["disk"] = json!({"serial": "S4EVNX0R"});
        let write = action(json!({"name": "write", "writeImage": spec}), None);
        assigned(&format!("image-{name}"), assignment(vec![write]));
    }
}

fn trouble() -> Problem {
    let mut problem = Problem::new(ErrorCode::DigestMismatch, "the image is not the one stated")
        .hint("build it again, or state its digest")
        .at("http://10.77.0.1:7480/images/os.zst");
    problem.causes = vec!["sha256 differs".into(), "the stream was whole".into()];
    problem.last_log_lines = vec!["info fetching".into(), "error wrong".into()];
    problem
}

#[test]
fn every_other_message_has_the_recorded_bytes() {
    let file = |name: &str| format!("wire/coordinator/{name}.hex");
    let mut first = welcome(7, moment(), Duration::from_secs(5));
    if let Some(v1::session_response::Message::Welcome(v1::Welcome { versions: Some(versions), .. })) =
        &mut first.message
    {
        assert_eq!(versions.software, env!("CARGO_PKG_VERSION"));
        versions.software = "0.1.0".into();
    }
    golden::same_bytes(&file("welcome"), &first.encode_to_vec());
    for (name, after) in [("refused", None), ("refused-for-now", Some(10))] {
        let refusal = Refusal { problem: trouble(), retry_after: after.map(Duration::from_secs) };
        golden::same_bytes(&file(name), &refused(refusal).encode_to_vec());
    }
    let workflow_uid = Uuid::from_u128(2);
    let ack = v1::Ack { workflow_uid: workflow_uid.to_string(), action_index: 1, attempt: 3, seq: 12 };
    let ack = v1::SessionResponse { message: Some(v1::session_response::Message::Ack(ack)) };
    golden::same_bytes(&file("ack"), &ack.encode_to_vec());
    sent("lease-renewal", ToAgent::LeaseRenewal { epoch: 7, lease: Duration::from_secs(600) });
    sent("cancel", ToAgent::Cancel { workflow_uid, reason: "ann cancelled it".into() });
    sent("fenced", ToAgent::Fenced { epoch: 6, reason: "a newer session exists".into() });
    sent("run-control", ToAgent::Control { workflow_uid, paused: true, released: vec![0, 3] });
    for boot_disk in [true, false] {
        sent(&format!("idle-boot-disk-{boot_disk}"), ToAgent::Idle { boot_disk });
    }
    let granted = Enrolled {
        machine: "web-1".into(),
        machine_uid: Uuid::from_u128(1),
        chain_der: vec![vec![0x30, 1], vec![0x30, 2]],
        serial_hex: "01".into(),
        expires: moment(),
        time: moment(),
    };
    let waiting =
        Enrolment::Waiting { reason: "a person must approve this key".into(), retry_after: Duration::from_secs(15) };
    for (name, answer) in [("enroll-granted", Enrolment::Granted(granted)), ("enroll-waiting", waiting)] {
        golden::same_bytes(&file(name), &enrolment(answer, moment()).encode_to_vec());
    }
    golden::same_bytes(&file("telemetry-response"), &v1::TelemetryResponse { accepted: 42 }.encode_to_vec());
}

/// What the agent sent, as recorded.
fn told(name: &str) -> Up {
    let bytes = golden::bytes(&format!("wire/agent/{name}.hex"));
    v1::SessionRequest::decode(&bytes[..]).unwrap().message.unwrap()
}

fn identity() -> Identity {
    Identity {
        smbios_uuid: Some(Uuid::from_u128(0x4c4c_4544_0042_3510_8058_b4c0_4f4d_3332)),
        serial: "5BXM232".into(),
        macs: vec!["52:54:00:00:00:01".parse().unwrap(), "52:54:00:00:00:02".parse().unwrap()],
    }
}

#[test]
fn recorded_enrolment_requests_arrive() {
    let token = Proof::BootToken("b00t.70k3n".into());
    let approval = Proof::Approval("0123 4567 89ab cdef".into());
    for (name, proof) in [("boot-token", token), ("approval", approval.clone()), ("renewal", Proof::Renewal)] {
        let bytes = golden::bytes(&format!("wire/agent/enroll-{name}.hex"));
        let got = enroll(v1::EnrollRequest::decode(&bytes[..]).unwrap(), Asker::default()).unwrap();
        assert_eq!((&got.proof, got.csr_der, got.identity), (&proof, vec![0x30, 0x82, 0x01, 0x02], identity()));
        assert_eq!(got.boot_id, "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11");
        let told = got.facts.map(|facts| serde_json::to_string(&facts).unwrap());
        assert_eq!(told, (proof == approval).then(|| golden::text("wire/facts.json").trim_end().to_owned()));
    }
}

#[test]
fn recorded_hellos_arrive() {
    for (name, again) in [("hello-again", true), ("hello-first", false)] {
        let Up::Hello(wire) = told(name) else { panic!() };
        let got = hello(wire, "10.77.0.100".into()).unwrap();
        assert_eq!((got.software.as_str(), got.protocol, got.address.as_str()), ("0.1.0", 3, "10.77.0.100"));
        assert_eq!((got.identity, got.boot_id.as_str()), (identity(), "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11"));
        assert_eq!(got.enrolled_boottime_ms, 12_345);
        let running = got.running.map(|r| (r.workflow_uid, r.action_index, r.attempt));
        let workflow = again.then_some(Uuid::from_u128(2));
        assert_eq!((got.holds, running), (workflow, workflow.map(|uid| (uid, 1, 3))));
        let known = [receipt(ReceiptState::Done, Some(digest(0x0a))), receipt(ReceiptState::Intent, None)];
        let second = DiskId { serial: "S2".into(), size_bytes: 7, ..DiskId::default() };
        if again {
            assert_eq!((got.last_epoch, &got.receipts[..]), (6, &known[..]));
            assert_eq!(got.disks, [known[0].disk.clone(), second]);
        } else {
            assert!(got.last_epoch == 0 && got.receipts.is_empty() && got.disks.is_empty());
        }
    }
}

#[test]
fn recorded_facts_heartbeats_and_fence_acks_arrive() {
    let Up::Facts(wire) = told("facts") else { panic!() };
    let json = serde_json::to_string(&facts(&wire).unwrap()).unwrap();
    assert_eq!(json, golden::text("wire/facts.json").trim_end());
    assert_eq!(told("heartbeat"), Up::Heartbeat(v1::Heartbeat { uptime_ms: 98_765, peak_rss_bytes: 41 << 20 }));
    assert_eq!(told("fence-ack"), Up::FenceAck(v1::FenceAck { epoch: 7 }));
}

/// As the event log stores them.
#[test]
fn recorded_events_arrive_and_are_stored_as_recorded() {
    for name in [
        "started",
        "failed",
        "receipt-intent",
        "receipt-done",
        "finished-write-image",
        "finished-write-image-no-receipt",
        "finished-cloud-init",
        "finished-hold",
        "finished-reboot",
        "finished-power-off",
        "finished-clear-disks",
        "finished-kexec",
    ] {
        let Up::Event(wire) = told(&format!("event-{name}")) else { panic!("{name}") };
        let record = event(wire).unwrap();
        let stored = serde_json::to_string(&record).unwrap();
        golden::same(&format!("events/{name}.json"), &format!("{stored}\n"));
        assert_eq!(serde_json::from_str::<crate::workflow::EventRecord>(&stored).unwrap(), record);
    }
}

#[test]
fn recorded_telemetry_arrives() {
    let told = |name: &str| {
        let bytes = golden::bytes(&format!("wire/agent/telemetry-{name}.hex"));
        telemetry(v1::TelemetryRequest::decode(&bytes[..]).unwrap()).unwrap()
    };
    let Telemetry::Progress { workflow_uid, action_index, attempt, progress } = told("progress") else { panic!() };
    assert_eq!((workflow_uid, action_index, attempt), (Uuid::from_u128(2), 1, 3));
    let numbers = [
        progress.stored_bytes,
        progress.stored_total,
        progress.raw_bytes,
        progress.raw_total,
        progress.written_bytes,
        progress.bytes_per_second,
        progress.eta_seconds,
    ];
    assert_eq!((numbers, &*progress.stage, &*progress.slowest), ([1, 2, 3, 4, 5, 6, 7], "write", "fetch"));
    for level in ["error", "warn", "info", "debug"] {
        let Telemetry::Log { workflow_uid, record } = told(&format!("log-{level}")) else { panic!() };
        assert_eq!((workflow_uid, record.action_index, record.attempt), (Uuid::from_u128(2), 1, 3));
        let line = (record.time, record.level.as_str(), record.message.as_str());
        assert_eq!(line, (moment(), level, "wrote 3 MiB, naïvely"));
    }
}

#[test]
fn a_recorded_phone_home_report_arrives() {
    let report: PhoneHomeReport = serde_json::from_str(&golden::text("wire/agent/phone-home.json")).unwrap();
    let expected = PhoneHomeReport {
        hostname: "web-1".into(),
        boot_id: "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11".into(),
        os_release: "Debian GNU/Linux 12 (bookworm)".into(),
        kernel: "6.1.0-18-amd64".into(),
        uptime_seconds: 31,
        machine_id: "0123456789abcdef0123456789abcdef".into(),
    };
    assert_eq!(report, expected);
}
