//! The wire as it was recorded (`tests/golden/wire/`): what this agent sends has those bytes, and what the coordinator sent
//! arrives as these values. The coordinator's half of the same files is beside its own conversions.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use landfall_api::{Digest, DiskId, DiskReceipt, DiskSelector, ErrorCode, Problem, Progress, Receipt, ReceiptState};
use landfall_golden as golden;
use landfall_proto::v1::{self, enroll_request::Proof, session_request::Message as Up};
use prost::Message as _;
use serde_json::Value;
use uuid::Uuid;

use super::{
    assignment, control, disk_id, duration, event_to_wire, heartbeat, identity, problem, receipt_to_wire,
    telemetry_to_wire, timestamp, versions,
};
use crate::{
    Action, ActionKind, ActionRef, ActionResult, Assignment, ClearDisks, CloudInit, Control, Event, EventKind,
    Identity, ImageAccess, ImageAuthorization, ImageProof, ImageSignature, Kexec, Loaded, LogLevel, PhoneHome,
    PhoneHomeReport, Retry, Secret, Start, Vitals, WriteImage, WriteImageResult, telemetry::Item,
};

fn moment() -> Timestamp {
    "2026-01-02T03:04:05.678901234Z".parse().unwrap()
}

fn digest(byte: u8) -> Digest {
    Digest::from_sha256([byte; 32])
}

fn disk() -> DiskId {
    DiskId {
        wwn: "eui.0025385b71b0a0d1".into(),
        serial: "S4EVNX0R".into(),
        path: "pci-0000:00:04.0-nvme-1".into(),
        name: "nvme0n1".into(),
        model: "Samsung SSD 980".into(),
        size_bytes: 500_107_862_016,
    }
}

fn receipt(state: ReceiptState, image_digest: Option<Digest>) -> DiskReceipt {
    let receipt = Receipt {
        machine_uid: Uuid::from_u128(1),
        workflow_uid: Uuid::from_u128(2),
        workflow_name: "web-1-0a1b2c3d".into(),
        generation: 4,
        action_index: 1,
        image_digest,
        state,
        written_at: moment(),
    };
    DiskReceipt { disk: disk(), receipt }
}

fn trouble() -> Problem {
    let mut problem = Problem::new(ErrorCode::DigestMismatch, "the image is not the one stated")
        .hint("build it again, or state its digest")
        .at("http://10.77.0.1:7480/images/os.zst");
    problem.causes = vec!["sha256 differs".into(), "the stream was whole".into()];
    problem.last_log_lines = vec!["info fetching".into(), "error wrong".into()];
    problem
}

fn own_identity() -> Identity {
    Identity {
        smbios_uuid: Some(Uuid::from_u128(0x4c4c_4544_0042_3510_8058_b4c0_4f4d_3332)),
        serial: "5BXM232".into(),
        macs: vec!["52:54:00:00:00:01".parse().unwrap(), "52:54:00:00:00:02".parse().unwrap()],
    }
}

fn sent(name: &str, message: &impl prost::Message) {
    golden::same_bytes(&format!("wire/agent/{name}.hex"), &message.encode_to_vec());
}

fn up(name: &str, message: Up) {
    sent(name, &v1::SessionRequest { message: Some(message) });
}

#[test]
fn enrolment_requests_have_the_recorded_bytes() {
    let request = |proof, facts_json: &str| v1::EnrollRequest {
        versions: Some(versions("0.1.0")),
        identity: Some(identity(&own_identity())),
        boot_id: "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11".into(),
        csr_der: vec![0x30, 0x82, 0x01, 0x02],
        facts_json: facts_json.into(),
        proof: Some(proof),
    };
    let token = "b00t.70k3n".to_owned();
    sent("enroll-boot-token", &request(Proof::BootToken(v1::BootToken { token }), ""));
    let fingerprint = "0123 4567 89ab cdef".to_owned();
    let facts = golden::text("wire/facts.json");
    sent("enroll-approval", &request(Proof::Approval(v1::Approval { fingerprint }), facts.trim_end()));
    sent("enroll-renewal", &request(Proof::Renewal(v1::Renewal {}), ""));
}

#[test]
fn session_messages_have_the_recorded_bytes() {
    let hello = v1::Hello {
        versions: Some(versions("0.1.0")),
        identity: Some(identity(&own_identity())),
        boot_id: "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11".into(),
        disks: vec![disk_id(&disk()), disk_id(&DiskId { serial: "S2".into(), size_bytes: 7, ..DiskId::default() })],
        receipts: vec![
            receipt_to_wire(&receipt(ReceiptState::Done, Some(digest(0x0a)))),
            receipt_to_wire(&receipt(ReceiptState::Intent, None)),
        ],
        last_epoch: 6,
        running: Some(v1::RunningAction { workflow_uid: Uuid::from_u128(2).to_string(), action_index: 1, attempt: 3 }),
        enrolled_boottime_ms: 12_345,
        holds: Uuid::from_u128(2).to_string(),
    };
    let first = v1::Hello {
        disks: vec![],
        receipts: vec![],
        last_epoch: 0,
        running: None,
        holds: String::new(),
        ..hello.clone()
    };
    up("hello-again", Up::Hello(hello));
    up("hello-first", Up::Hello(first));
    up("facts", Up::Facts(v1::Facts { json: golden::text("wire/facts.json").trim_end().to_owned() }));
    let vitals = Vitals { uptime: Duration::from_millis(98_765), peak_rss_bytes: 41 << 20 };
    up("heartbeat", Up::Heartbeat(heartbeat(vitals)));
    up("fence-ack", Up::FenceAck(v1::FenceAck { epoch: 7 }));
}

fn write_result(receipt: Option<DiskReceipt>) -> ActionResult {
    ActionResult::WriteImage(WriteImageResult {
        receipt,
        written: true,
        stored_bytes: 1_000_000,
        raw_bytes: 4_000_000,
        written_bytes: 3_000_000,
        elapsed: Duration::from_millis(61_250),
    })
}

#[test]
fn events_have_the_recorded_bytes() {
    let loaded = Loaded {
        root_device: "/dev/nvme0n1p2".into(),
        kernel: "/boot/vmlinuz-6.1".into(),
        initramfs: "/boot/initrd.img-6.1".into(),
        cmdline: "root=UUID=1234 ro quiet".into(),
    };
    let done = receipt(ReceiptState::Done, Some(digest(0x0a)));
    let finished = EventKind::Finished;
    let all = [
        ("started", EventKind::Started),
        ("failed", EventKind::Failed { problem: trouble(), retryable: true }),
        ("receipt-intent", EventKind::ReceiptWritten(receipt(ReceiptState::Intent, None))),
        ("receipt-done", EventKind::ReceiptWritten(done.clone())),
        ("finished-write-image", finished(write_result(Some(done)))),
        ("finished-write-image-no-receipt", finished(write_result(None))),
        ("finished-cloud-init", finished(ActionResult::CloudInit { root_device: "/dev/nvme0n1p2".into() })),
        ("finished-hold", finished(ActionResult::Hold)),
        ("finished-reboot", finished(ActionResult::Reboot)),
        ("finished-power-off", finished(ActionResult::PowerOff)),
        ("finished-clear-disks", finished(ActionResult::ClearDisks { disks: vec![disk()] })),
        ("finished-kexec", finished(ActionResult::Kexec(loaded))),
    ];
    for (seq, (name, kind)) in (1..).zip(all) {
        let action = ActionRef { workflow_uid: Uuid::from_u128(2), action_index: 1, attempt: 3 };
        up(&format!("event-{name}"), Up::Event(event_to_wire(Event { action, seq, time: moment(), kind })));
    }
}

#[test]
fn telemetry_has_the_recorded_bytes() {
    let action = ActionRef { workflow_uid: Uuid::from_u128(2), action_index: 1, attempt: 3 };
    let progress = Progress {
        stored_bytes: 1,
        stored_total: 2,
        raw_bytes: 3,
        raw_total: 4,
        written_bytes: 5,
        bytes_per_second: 6,
        stage: "write".into(),
        eta_seconds: 7,
        slowest: "fetch".into(),
    };
    sent("telemetry-progress", &telemetry_to_wire(Item::Progress(action, progress)));
    let levels =
        [("error", LogLevel::Error), ("warn", LogLevel::Warn), ("info", LogLevel::Info), ("debug", LogLevel::Debug)];
    for (name, level) in levels {
        let line = Item::Log(action, moment(), level, "wrote 3 MiB, naïvely".into());
        sent(&format!("telemetry-log-{name}"), &telemetry_to_wire(line));
    }
}

#[test]
fn the_phone_home_report_has_the_recorded_text() {
    let report = PhoneHomeReport {
        hostname: "web-1".into(),
        boot_id: "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11".into(),
        os_release: "Debian GNU/Linux 12 (bookworm)".into(),
        kernel: "6.1.0-18-amd64".into(),
        uptime_seconds: 31,
        machine_id: "0123456789abcdef0123456789abcdef".into(),
    };
    golden::same("wire/agent/phone-home.json", &format!("{}\n", serde_json::to_string(&report).unwrap()));
}

/// What the coordinator sent, as recorded.
fn told(name: &str) -> v1::session_response::Message {
    let bytes = golden::bytes(&format!("wire/coordinator/{name}.hex"));
    v1::SessionResponse::decode(&bytes[..]).unwrap().message.unwrap()
}

fn assigned(name: &str) -> Assignment {
    match told(name) {
        v1::session_response::Message::Assignment(wire) => assignment(wire).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn selector(field: &str, text: &str) -> DiskSelector {
    DiskSelector(BTreeMap::from([(field.to_owned(), Value::from(text))]))
}

fn action(name: &str, timeout: u64, attempts: u32, kind: ActionKind) -> Action {
    let (initial_backoff, max_backoff) = (Duration::from_secs(2), Duration::from_secs(60));
    let retry = Retry { max_attempts: attempts, initial_backoff, max_backoff };
    Action { name: name.into(), timeout: Duration::from_secs(timeout), retry, branch: None, kind }
}

fn image(url: &str, proof: ImageProof) -> WriteImage {
    WriteImage {
        disk: selector("serial", "S4EVNX0R"),
        urls: vec![url.into()],
        proof,
        format: None,
        access: ImageAccess::default(),
        keep: vec![],
        read_back: false,
    }
}

#[test]
fn a_recorded_assignment_of_every_action_arrives() {
    let mut write = image("http://10.77.0.1:7480/images/os.zst", ImageProof::Stored(digest(0x0a)));
    write.urls.push("https://mirror.example/os.zst".into());
    write.format = Some("zstd".into());
    let mut write = action("write", 1800, 5, ActionKind::WriteImage(write));
    write.retry.initial_backoff = Duration::from_secs(1);
    write.retry.max_backoff = Duration::from_secs(30);
    let seed = CloudInit {
        user_data: Secret::new("#cloud-config\n{}\n"),
        meta_data: "{\"instance-id\": \"i\"}\n".into(),
        network_config: "{\"version\": 2}\n".into(),
        phone_home: Some(PhoneHome {
            url: "https://10.77.0.1:7443/phone-home".into(),
            bearer_token: Secret::new("00000000-0000-0000-0000-000000000002.5ec2e7"),
            ca_pins: vec![digest(0xca).to_string().parse().unwrap()],
        }),
        disk: Some(selector("name", "vda")),
    };
    let quiet = CloudInit {
        user_data: Secret::new("#cloud-config\n"),
        meta_data: "{}\n".into(),
        network_config: String::new(),
        phone_home: None,
        disk: None,
    };
    let kexec = Kexec { cmdline: Some("root=/dev/vda2 ro".into()), disk: Some(selector("serial", "S4EVNX0R")) };
    let clear = ClearDisks { disks: vec![selector("name", "sdb"), selector("size", ">= 1TB")] };
    let expected = Assignment {
        epoch: 7,
        workflow_uid: Uuid::from_u128(2),
        workflow_name: "web-1-0a1b2c3d".into(),
        machine_uid: Uuid::from_u128(1),
        generation: 4,
        lease: Duration::from_secs(600),
        actions: vec![
            write,
            action("seed", 300, 1, ActionKind::CloudInit(seed)),
            action("seed-quietly", 300, 1, ActionKind::CloudInit(quiet)),
            action("look", 86_400, 1, ActionKind::Hold { message: "check the cables".into() }),
            action("clear", 300, 1, ActionKind::ClearDisks(clear)),
            action("clear-own", 300, 1, ActionKind::ClearDisks(ClearDisks { disks: vec![] })),
            action("restart", 300, 1, ActionKind::Reboot),
            action("off", 300, 1, ActionKind::PowerOff),
            action("jump", 300, 1, ActionKind::Kexec(kexec)),
            action("jump-own", 300, 1, ActionKind::Kexec(Kexec::default())),
        ],
        start_index: 1,
        start_attempt: 2,
        starts: vec![Start { index: 1, attempt: 2 }],
        earlier_runs: vec![Uuid::from_u128(3)],
        expected_receipts: vec![receipt(ReceiptState::Done, Some(digest(0x0a))), receipt(ReceiptState::Intent, None)],
        person_authorised: true,
        force: true,
    };
    assert_eq!(assigned("assignment"), expected);
}

#[test]
fn recorded_branches_arrive_with_their_starts() {
    let got = assigned("assignment-branches");
    let branches: Vec<_> = got.actions.iter().map(|action| action.branch.as_deref()).collect();
    assert_eq!(branches, [Some("a"), Some("b"), None]);
    assert_eq!(got.starts, [Start { index: 0, attempt: 1 }, Start { index: 1, attempt: 4 }]);
    assert!(!got.person_authorised && !got.force && got.earlier_runs.is_empty());
}

#[test]
fn every_recorded_proof_of_an_image_arrives() {
    let signature = || ImageSignature { url: "http://h/os.sig".into(), key: "RWQf6LRCGA9i53ml".into() };
    let pinned = format!("oci://r.example/os@{}", digest(0x0e));
    let with = |proof| image("http://h/os.img", proof);
    let basic = ImageAuthorization::Basic { username: "u".into(), password: Secret::new("p4ss") };
    let access = |authorization| ImageAccess {
        ca_certificates: vec!["-----BEGIN CERTIFICATE-----\n".into()],
        proxy: Some("http://p:3128".into()),
        authorization: Some(authorization),
    };
    let https = |authorization| WriteImage {
        access: access(authorization),
        ..image("https://h/os.img", ImageProof::Stored(digest(0x0a)))
    };
    let all = [
        ("digest", with(ImageProof::Stored(digest(0x0a)))),
        ("sha512", with(ImageProof::Stored(format!("sha512:{}", "0b".repeat(64)).parse().unwrap()))),
        ("raw-digest", with(ImageProof::Raw(digest(0x0c)))),
        ("sums", with(ImageProof::Sums { url: "http://h/SHA256SUMS".into(), signature: None })),
        ("signed-sums", with(ImageProof::Sums { url: "http://h/SHA256SUMS".into(), signature: Some(signature()) })),
        ("signature", with(ImageProof::Signed(signature()))),
        ("index", with(ImageProof::Index { url: "http://h/os.json".into(), digest: digest(0x0d) })),
        ("pinned", image(&pinned, ImageProof::Pinned)),
        ("waived", with(ImageProof::Waived)),
        ("keep", WriteImage { keep: vec!["data".into()], ..with(ImageProof::Stored(digest(0x0a))) }),
        ("read-back", WriteImage { read_back: true, ..with(ImageProof::Waived) }),
        ("basic", https(basic)),
        ("bearer", https(ImageAuthorization::Bearer(Secret::new("t0ken")))),
    ];
    for (name, expected) in all {
        let mut got = assigned(&format!("image-{name}"));
        assert_eq!(got.actions.remove(0).kind, ActionKind::WriteImage(expected), "{name}");
    }
}

#[test]
fn every_other_recorded_message_arrives() {
    use v1::session_response::Message as Down;
    let second = |n| Some(prost_types::Duration { seconds: n, nanos: 0 });
    let Down::Welcome(welcome) = told("welcome") else { panic!() };
    assert_eq!(welcome.epoch, 7);
    assert_eq!(timestamp("time", welcome.time).unwrap(), moment());
    assert_eq!(duration("beat", welcome.heartbeat_interval).unwrap(), Duration::from_secs(5));
    assert_eq!(welcome.versions.unwrap().protocol, 3);
    for (name, after) in [("refused", None), ("refused-for-now", second(10))] {
        let Down::Refused(refused) = told(name) else { panic!() };
        assert_eq!((problem(refused.problem.unwrap()), refused.retry_after), (trouble(), after));
    }
    let ack = v1::Ack { workflow_uid: Uuid::from_u128(2).to_string(), action_index: 1, attempt: 3, seq: 12 };
    assert_eq!(told("ack"), Down::Ack(ack));
    assert_eq!(told("lease-renewal"), Down::LeaseRenewal(v1::LeaseRenewal { epoch: 7, lease: second(600) }));
    let reason = "ann cancelled it".to_owned();
    assert_eq!(told("cancel"), Down::Cancel(v1::Cancel { workflow_uid: Uuid::from_u128(2).to_string(), reason }));
    assert_eq!(told("fenced"), Down::Fenced(v1::Fenced { epoch: 6, reason: "a newer session exists".into() }));
    for boot_disk in [true, false] {
        assert_eq!(told(&format!("idle-boot-disk-{boot_disk}")), Down::Idle(v1::Idle { boot_disk }));
    }
    let Down::RunControl(wire) = told("run-control") else { panic!() };
    assert_eq!(control(wire), Control { paused: true, released: vec![0, 3] });
    let accepted = golden::bytes("wire/coordinator/telemetry-response.hex");
    assert_eq!(v1::TelemetryResponse::decode(&accepted[..]).unwrap().accepted, 42);
}

#[test]
fn both_recorded_answers_to_enroll_arrive() {
    use v1::enroll_response::Outcome;
    let answer = |name: &str| {
        let bytes = golden::bytes(&format!("wire/coordinator/{name}.hex"));
        let answer = v1::EnrollResponse::decode(&bytes[..]).unwrap();
        assert_eq!(timestamp("time", answer.coordinator_time).unwrap(), moment());
        answer.outcome.unwrap()
    };
    let Outcome::Credentials(granted) = answer("enroll-granted") else { panic!() };
    assert_eq!((granted.machine_name.as_str(), granted.machine_uid), ("web-1", Uuid::from_u128(1).to_string()));
    assert_eq!(granted.certificate_chain_der, [vec![0x30, 1], vec![0x30, 2]]);
    let Outcome::Waiting(waiting) = answer("enroll-waiting") else { panic!() };
    assert_eq!(waiting.reason, "a person must approve this key");
    assert_eq!(duration("after", waiting.retry_after).unwrap(), Duration::from_secs(15));
}
