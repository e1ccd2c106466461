//! The wire as it was recorded (`tests/golden/wire/`): each message has those bytes when it is sent, and those bytes arrive as
//! the same message.

mod bmc_account;
mod calls;
mod health;
mod older;
mod phone_home;
mod secure_boot;
mod worker;

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use jiff::Timestamp;
use landfall_api::message::{
    Ack, ActionKind, ActionRef, ActionResult, AssignedAction, Assignment, CloudInit, CloudInitResult, Control,
    DiskReport, Ended, EnrollAnswer, EnrollOutcome, EnrollRequest, EventBody, EventRecord, Hello, Identity,
    KexecResult, LogLevel, LogLine, MachineCredentials, PhoneHomeUnit, Proof, Refusal, Retry, Start, Telemetry,
    ToAgent, ToCoordinator, ToolsLayer, UnreadableDisk, Vitals, Welcome, WipeResult, WriteImage, WriteImageResult,
};
use landfall_api::{
    BootPolicy, Digest, DiskId, DiskReceipt, DiskSelector, EfiBootResult, EfiBootSpec, ErrorCode, FirmwareSpec,
    HoldSpec, Ignition, IgnitionResult, ImageAccess, ImageAuthorization, ImageFormat, ImageProof, ImageSource,
    IndexSpec, InstallBootloaderResult, InstallBootloaderSpec, KexecSpec, LoaderSpec, PowerOffSpec, Problem, Progress,
    RebootSpec, Receipt, ReceiptState, SecretText, SignatureSpec, SumsSpec, Unpack, UnpackResult, UnpackSource,
    WipeLevel, WipeReport, WipeSpec,
};
use landfall_golden as golden;
use landfall_proto::{ConvertError, v1};
use prost::Message;
use serde_json::Value;
use uuid::Uuid;

/// The message has the recorded bytes, and these arrive as the message.
#[track_caller]
fn both_ways<T, W>(file: &str, message: T)
where
    T: Clone + Debug + PartialEq + TryFrom<W, Error = ConvertError>,
    W: Message + Default + TryFrom<T>,
    W::Error: Debug,
{
    let name = format!("wire/{file}.hex");
    golden::same_bytes(&name, &W::try_from(message.clone()).unwrap().encode_to_vec());
    let wire = W::decode(&golden::bytes(&name)[..]).unwrap();
    assert_eq!(T::try_from(wire).unwrap(), message, "{file}");
}

#[track_caller]
fn up(name: &str, message: ToCoordinator) {
    both_ways::<_, v1::SessionRequest>(&format!("agent/{name}"), message);
}

#[track_caller]
fn down(name: &str, message: ToAgent) {
    both_ways::<_, v1::SessionResponse>(&format!("coordinator/{name}"), message);
}

fn moment() -> Timestamp {
    "2026-01-02T03:04:05.678901234Z".parse().unwrap()
}

fn digest(byte: u8) -> Digest {
    Digest::from_sha256([byte; 32])
}

fn attempt() -> ActionRef {
    ActionRef { workflow_uid: Uuid::from_u128(2), action_index: 1, attempt: 3 }
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

fn identity() -> Identity {
    Identity {
        smbios_uuid: Some(Uuid::from_u128(0x4c4c_4544_0042_3510_8058_b4c0_4f4d_3332)),
        serial: "5BXM232".into(),
        macs: vec!["52:54:00:00:00:01".parse().unwrap(), "52:54:00:00:00:02".parse().unwrap()],
    }
}

#[test]
fn enrolment_requests() {
    let facts = || serde_json::from_str(&golden::text("wire/facts.json")).unwrap();
    let token = Proof::BootToken(SecretText::new("b00t.70k3n"));
    let approval = Proof::Approval { fingerprint: "0123 4567 89ab cdef".into() };
    for (name, proof, facts) in
        [("boot-token", token, None), ("approval", approval, Some(facts())), ("renewal", Proof::Renewal, None)]
    {
        let request = EnrollRequest {
            software: "0.1.0".into(),
            protocol: 3,
            identity: identity(),
            boot_id: "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11".into(),
            csr_der: vec![0x30, 0x82, 0x01, 0x02],
            facts,
            proof,
        };
        both_ways::<_, v1::EnrollRequest>(&format!("agent/enroll-{name}"), request);
    }
}

#[test]
fn answers_to_enroll() {
    let granted = MachineCredentials {
        machine_name: "web-1".into(),
        machine_uid: Uuid::from_u128(1),
        certificate_chain_der: vec![vec![0x30, 1], vec![0x30, 2]],
    };
    let waiting = EnrollOutcome::Waiting {
        reason: "a person must approve this key".into(),
        retry_after: Duration::from_secs(15),
    };
    for (name, outcome) in [("granted", EnrollOutcome::Granted(granted)), ("waiting", waiting)] {
        let answer = EnrollAnswer { coordinator_time: moment(), outcome };
        both_ways::<_, v1::EnrollResponse>(&format!("coordinator/enroll-{name}"), answer);
    }
}

#[test]
fn messages_of_the_agent() {
    let again = Hello {
        software: "0.1.0".into(),
        protocol: 3,
        identity: identity(),
        boot_id: "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11".into(),
        disks: vec![disk(), DiskId { serial: "S2".into(), size_bytes: 7, ..DiskId::default() }],
        receipts: vec![receipt(ReceiptState::Done, Some(digest(0x0a))), receipt(ReceiptState::Intent, None)],
        unreadable: vec![],
        scanning: false,
        last_epoch: 6,
        running: Some(attempt()),
        enrolled_boottime_ms: 12_345,
        holds: Some(Uuid::from_u128(2)),
        boottime: Duration::ZERO,
    };
    let first = Hello { disks: vec![], receipts: vec![], last_epoch: 0, running: None, holds: None, ..again.clone() };
    up("hello-again", ToCoordinator::Hello(again));
    up("hello-first", ToCoordinator::Hello(first.clone()));
    let scanning = Hello { scanning: true, receipts: vec![], ..first.clone() };
    up("hello-scanning", ToCoordinator::Hello(scanning));
    let unread = UnreadableDisk { disk: disk(), reason: "no answer for 10 s".into() };
    let receipts = vec![receipt(ReceiptState::Done, Some(digest(0x0a)))];
    let disks = DiskReport { generation: 2, disks: vec![disk()], receipts, unreadable: vec![unread] };
    up("disk-report", ToCoordinator::Disks(disks));
    up("facts", ToCoordinator::Facts(serde_json::from_str(&golden::text("wire/facts.json")).unwrap()));
    let uptime = Duration::from_millis(98_765);
    up("heartbeat", ToCoordinator::Heartbeat(Vitals { uptime, peak_rss_bytes: 41 << 20 }));
    up("fence-ack", ToCoordinator::FenceAck { epoch: 7 });
}

fn wrote(receipt: Option<DiskReceipt>) -> ActionResult {
    ActionResult::WriteImage(WriteImageResult {
        receipt,
        written: true,
        stored_bytes: 1_000_000,
        raw_bytes: 4_000_000,
        written_bytes: 3_000_000,
        elapsed_ms: 61_250,
    })
}

#[test]
fn events_on_the_wire_and_in_the_store() {
    let loaded = KexecResult {
        root_device: "/dev/nvme0n1p2".into(),
        kernel: "/boot/vmlinuz-6.1".into(),
        initramfs: "/boot/initrd.img-6.1".into(),
        cmdline: "root=UUID=1234 ro quiet".into(),
    };
    let done = receipt(ReceiptState::Done, Some(digest(0x0a)));
    let finished = |result| EventBody::Finished { result };
    let seeded = ActionResult::CloudInit(CloudInitResult { root_device: "/dev/nvme0n1p2".into() });
    let unpacked = UnpackResult { root_device: "/dev/nvme0n1p2".into(), entries: 3, bytes: 4096 };
    let configured = IgnitionResult { device: "/dev/nvme0n1p3".into(), path: "/ignition/config.ign".into() };
    let ordered = EfiBootResult { policy: BootPolicy::DiskFirst, disks: vec![disk()] };
    let started = InstallBootloaderResult {
        root_device: "/dev/mapper/vg0-root".into(),
        platforms: "i386-pc on /dev/sda, /dev/sdb; x86_64-efi in /boot/efi".into(),
    };
    let wiped = WipeReport {
        disk: disk(),
        asked: WipeLevel::Secure,
        level: WipeLevel::Zero,
        method: "zeroes".into(),
        started_at: Timestamp::new(1_700_000_000, 5).unwrap(),
        ended_at: Timestamp::new(1_700_000_900, 0).unwrap(),
        samples: 33,
        limits: vec!["its ATA security is frozen".into()],
        workflow: String::new(),
    };
    let all = [
        ("started", EventBody::Started),
        ("failed", EventBody::Failed { problem: trouble(), retryable: true }),
        ("receipt-intent", EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Intent, None) }),
        ("receipt-done", EventBody::ReceiptWritten { receipt: done.clone() }),
        ("finished-write-image", finished(wrote(Some(done)))),
        ("finished-write-image-no-receipt", finished(wrote(None))),
        ("finished-cloud-init", finished(seeded)),
        ("finished-hold", finished(ActionResult::Hold)),
        ("finished-reboot", finished(ActionResult::Reboot)),
        ("finished-power-off", finished(ActionResult::PowerOff)),
        ("finished-wipe", finished(ActionResult::Wipe(WipeResult { disks: vec![disk()] }))),
        ("finished-kexec", finished(ActionResult::Kexec(loaded))),
        ("finished-unpack", finished(ActionResult::Unpack(unpacked))),
        ("finished-install-bootloader", finished(ActionResult::InstallBootloader(started))),
        ("disk-wiped", EventBody::DiskWiped { report: wiped }),
        ("finished-ignition", finished(ActionResult::Ignition(configured))),
        ("finished-efi-boot", finished(ActionResult::EfiBoot(ordered))),
    ];
    let all = all.into_iter().chain(worker::results(disk()).map(|(name, result)| (name, finished(result))));
    let later = worker::later_results(disk()).map(|(name, result)| (name, finished(result)));
    let all = all.chain(calls::events()).chain(later).chain(health::events()).chain(secure_boot::events());
    for (seq, (name, body)) in (1..).zip(all.chain(bmc_account::events())) {
        let event = EventRecord::of(attempt(), seq, moment(), body);
        up(&format!("event-{name}"), ToCoordinator::Event(event.clone()));
        let stored = serde_json::to_string(&event).unwrap();
        golden::same(&format!("events/{name}.json"), &format!("{stored}\n"));
        assert_eq!(serde_json::from_str::<EventRecord>(&stored).unwrap(), event);
    }
}

#[test]
fn telemetry() {
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
    let progress = Telemetry::Progress { action: attempt(), progress };
    both_ways::<_, v1::TelemetryRequest>("agent/telemetry-progress", progress);
    for level in [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug] {
        let message = "wrote 3 MiB, naïvely".to_owned();
        let line = LogLine { time: moment(), level, action_index: 1, attempt: 3, message };
        let line = Telemetry::Log { workflow_uid: Uuid::from_u128(2), line };
        both_ways::<_, v1::TelemetryRequest>(&format!("agent/telemetry-log-{level}"), line);
    }
    let accepted = v1::TelemetryResponse { accepted: 42 };
    golden::same_bytes("wire/coordinator/telemetry-response.hex", &accepted.encode_to_vec());
}

#[test]
fn messages_of_the_coordinator() {
    let welcome = Welcome {
        epoch: 7,
        time: moment(),
        heartbeat_interval: Duration::from_secs(5),
        software: "0.1.0".into(),
        protocol: 3,
        others: vec!["https://10.77.0.2:7443".into()],
    };
    down("welcome", ToAgent::Welcome(Box::new(welcome)));
    for (name, after) in [("refused", None), ("refused-for-now", Some(10))] {
        let refusal = Refusal { problem: trouble(), retry_after: after.map(Duration::from_secs) };
        down(name, ToAgent::Refused(Box::new(refusal)));
    }
    let workflow_uid = Uuid::from_u128(2);
    down("ack", ToAgent::Ack(Ack { action: attempt(), seq: 12 }));
    down("lease-renewal", ToAgent::LeaseRenewal { epoch: 7, lease: Duration::from_secs(600), counts_from: None });
    down("cancel", ToAgent::Cancel { workflow_uid, reason: "ann cancelled it".into() });
    down("fenced", ToAgent::Fenced { epoch: 6, reason: "a newer session exists".into() });
    let control = Control { paused: true, released: vec![0, 3] };
    down("run-control", ToAgent::Control { workflow_uid, control });
    for boot_disk in [true, false] {
        down(&format!("idle-boot-disk-{boot_disk}"), ToAgent::Idle { boot_disk, ended: None });
    }
    for (name, problem) in [("succeeded", None), ("failed", Some("the disk is full".to_owned()))] {
        let ended = Some(Ended { workflow_uid, problem });
        down(&format!("idle-workflow-{name}"), ToAgent::Idle { boot_disk: false, ended });
    }
}

fn selector(field: &str, text: &str) -> DiskSelector {
    DiskSelector(BTreeMap::from([(field.to_owned(), Value::from(text))]))
}

fn action(name: &str, timeout: u64, attempts: u32, kind: ActionKind) -> AssignedAction {
    let (initial_backoff, max_backoff) = (Duration::from_secs(2), Duration::from_secs(60));
    let retry = Retry { max_attempts: attempts, initial_backoff, max_backoff };
    AssignedAction { name: name.into(), timeout: Duration::from_secs(timeout), retry, branch: None, when: None, kind }
}

fn image(url: &str, proof: ImageProof) -> WriteImage {
    let image =
        ImageSource { urls: vec![url.into()], proof, format: None, no_table: false, access: ImageAccess::default() };
    WriteImage { disk: selector("serial", "S4EVNX0R"), image, keep: vec![], read_back: false }
}

fn assignment(actions: Vec<AssignedAction>) -> Assignment {
    Assignment {
        epoch: 7,
        workflow_uid: Uuid::from_u128(2),
        workflow_name: "web-1-0a1b2c3d".into(),
        machine_uid: Uuid::from_u128(1),
        generation: 4,
        lease: Duration::from_secs(600),
        counts_from: None,
        actions,
        start_index: 0,
        start_attempt: 1,
        starts: vec![Start { index: 0, attempt: 1 }],
        earlier_runs: vec![],
        expected_receipts: vec![],
        results: Vec::new(),
        person_authorised: false,
        force: false,
        tools: None,
        precheck: true,
    }
}

#[track_caller]
fn assigned(name: &str, assignment: Assignment) {
    down(name, ToAgent::Assign(Box::new(assignment)));
}

#[test]
fn an_assignment_of_every_action() {
    let mut write = image("http://10.77.0.1:7480/images/os.zst", ImageProof::Stored(digest(0x0a)));
    write.image.urls.push("https://mirror.example/os.zst".into());
    write.image.format = Some(ImageFormat::Zstd);
    let mut write = action("write", 1800, 5, ActionKind::WriteImage(write));
    write.retry.initial_backoff = Duration::from_secs(1);
    write.retry.max_backoff = Duration::from_secs(30);
    let unit = PhoneHomeUnit {
        url: "https://10.77.0.1:7443/phone-home".into(),
        other_urls: vec!["https://10.77.0.2:7443/phone-home".into()],
        bearer_token: SecretText::new("00000000-0000-0000-0000-000000000002.5ec2e7"),
        ca_pins: vec![digest(0xca).into()],
    };
    let seed = CloudInit {
        user_data: SecretText::new("#cloud-config\n{}\n"),
        vendor_data: SecretText::new("#!/bin/sh\n"),
        meta_data: "{\"instance-id\": \"i\"}\n".into(),
        network_config: SecretText::new("{\"version\": 2}\n"),
        phone_home: Some(unit),
        disk: Some(selector("name", "vda")),
    };
    let quiet =
        CloudInit { user_data: SecretText::new("#cloud-config\n"), meta_data: "{}\n".into(), ..CloudInit::default() };
    let kexec = KexecSpec { cmdline: Some("root=/dev/vda2 ro".into()), disk: Some(selector("serial", "S4EVNX0R")) };
    let wipe = WipeSpec {
        disks: vec![selector("name", "sdb"), selector("size", ">= 1TB")],
        level: WipeLevel::Cryptographic,
        fallback: vec![WipeLevel::Secure, WipeLevel::Zero],
    };
    let actions = vec![
        write,
        action("seed", 300, 1, ActionKind::CloudInit(seed)),
        action("seed-quietly", 300, 1, ActionKind::CloudInit(quiet)),
        action("look", 86_400, 1, ActionKind::Hold(HoldSpec { message: "check the cables".into() })),
        action("wipe", 300, 1, ActionKind::Wipe(wipe)),
        action("wipe-own", 300, 1, ActionKind::Wipe(WipeSpec::default())),
        action("restart", 300, 1, ActionKind::Reboot(RebootSpec {})),
        action("off", 300, 1, ActionKind::PowerOff(PowerOffSpec {})),
        action("jump", 300, 1, ActionKind::Kexec(kexec)),
        action("jump-own", 300, 1, ActionKind::Kexec(KexecSpec::default())),
    ];
    let whole = Assignment {
        start_index: 1,
        start_attempt: 2,
        starts: vec![Start { index: 1, attempt: 2 }],
        earlier_runs: vec![Uuid::from_u128(3)],
        expected_receipts: vec![receipt(ReceiptState::Done, Some(digest(0x0a))), receipt(ReceiptState::Intent, None)],
        results: Vec::new(),
        person_authorised: true,
        force: true,
        precheck: false,
        ..assignment(actions)
    };
    assigned("assignment", whole);
}

#[test]
fn a_check_and_its_answers() {
    let list = assignment(vec![action("off", 300, 1, ActionKind::PowerOff(PowerOffSpec {}))]);
    down("check", ToAgent::Check(Box::new(list)));
    let list_uid = Uuid::from_u128(2);
    up("checked", ToCoordinator::Checked { list_uid, problem: None });
    let problem = Problem::new(ErrorCode::NoDiskMatches, "no disk matches").at("vdb");
    up("checked-problem", ToCoordinator::Checked { list_uid, problem: Some(Box::new(problem)) });
}

#[test]
fn branches_with_their_starts() {
    let hold = |name: &str, branch: &str| {
        let kind = ActionKind::Hold(HoldSpec { message: "wait".into() });
        AssignedAction { branch: Some(branch.into()), ..action(name, 86_400, 1, kind) }
    };
    let last = action("restart", 300, 1, ActionKind::Reboot(RebootSpec {}));
    let starts = vec![Start { index: 0, attempt: 1 }, Start { index: 1, attempt: 4 }];
    let branches = assignment(vec![hold("one", "a"), hold("two", "b"), last]);
    let unpack = Unpack {
        source: UnpackSource::Archive { url: "http://10.77.0.1:7480/images/app.tar.zst".into(), digest: digest(0x0f) },
        access: ImageAccess::default(),
        path: "/opt/app".into(),
        disk: None,
    };
    let at = |host| format!("http://10.77.0.{host}:7480/boot/tools");
    let layer = ToolsLayer { url: at(1), other_urls: vec![at(2)], digest: digest(0x10), size_bytes: 14_045_184 };
    let boot = InstallBootloaderSpec {
        loader: LoaderSpec::Grub,
        firmware: FirmwareSpec::Both,
        kernel_arguments: vec!["console=ttyS0,115200".into()],
        disk: None,
    };
    let systemd = InstallBootloaderSpec { loader: LoaderSpec::SystemdBoot, ..InstallBootloaderSpec::default() };
    for (name, spec) in [("assignment-install-bootloader", boot), ("assignment-install-systemd-boot", systemd)] {
        assigned(name, assignment(vec![action("boot", 1800, 1, ActionKind::InstallBootloader(spec))]));
    }
    let config = SecretText::new("{\"ignition\": {\"version\": \"3.4.0\"}}");
    let configure = Ignition { config, disk: Some(selector("name", "vda")) };
    let configure = action("configure", 300, 1, ActionKind::Ignition(configure));
    assigned("assignment-ignition", assignment(vec![configure]));
    let order = EfiBootSpec { policy: BootPolicy::NextOnly, disk: Some(selector("name", "vda")) };
    assigned("assignment-efi-boot", assignment(vec![action("order", 300, 1, ActionKind::EfiBoot(order))]));
    let actions = vec![action("app", 3600, 3, ActionKind::Unpack(unpack))];
    assigned("assignment-tools", Assignment { tools: Some(layer), ..assignment(actions) });
    assigned("assignment-branches", Assignment { starts, ..branches });
}

#[test]
fn every_proof_of_an_image() {
    let signature = || SignatureSpec { url: "http://h/os.sig".into(), key: "RWQf6LRCGA9i53ml".into() };
    let sums = |signature| ImageProof::Sums(SumsSpec { url: "http://h/SHA256SUMS".into(), signature });
    let pinned = format!("oci://r.example/os@{}", digest(0x0e));
    let with = |proof| image("http://h/os.img", proof);
    let stored = || ImageProof::Stored(digest(0x0a));
    let https = |authorization| {
        let mut write = image("https://h/os.img", stored());
        write.image.access = ImageAccess {
            ca_certificates: vec!["-----BEGIN CERTIFICATE-----\n".into()],
            proxy: Some("http://p:3128".into()),
            authorization: Some(authorization),
        };
        write
    };
    let basic = ImageAuthorization::Basic { username: "u".into(), password: SecretText::new("p4ss") };
    let index = IndexSpec { url: "http://h/os.json".into(), digest: digest(0x0d) };
    let all = [
        ("digest", with(stored())),
        ("sha512", with(ImageProof::Stored(Digest::from_sha512([0x0b; 64])))),
        ("raw-digest", with(ImageProof::Raw(digest(0x0c)))),
        ("sums", with(sums(None))),
        ("signed-sums", with(sums(Some(signature())))),
        ("signature", with(ImageProof::Signed(signature()))),
        ("index", with(ImageProof::Index(index))),
        ("pinned", image(&pinned, ImageProof::Pinned)),
        ("waived", with(ImageProof::Waived)),
        ("keep", WriteImage { keep: vec!["data".into()], ..with(stored()) }),
        ("read-back", WriteImage { read_back: true, ..with(ImageProof::Waived) }),
        ("no-table", {
            let write = with(stored());
            WriteImage { image: ImageSource { no_table: true, ..write.image }, ..write }
        }),
        ("basic", https(basic)),
        ("bearer", https(ImageAuthorization::Bearer(SecretText::new("t0ken")))),
    ];
    for (name, write) in all {
        // The template's default: three attempts in an hour each.
        let write = action("write", 3600, 3, ActionKind::WriteImage(write));
        assigned(&format!("image-{name}"), assignment(vec![write]));
    }
}
