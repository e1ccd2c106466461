//! A world for the engine: a clock and a store that tests hold, and an agent by hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::message::{
    ActionKind, ActionResult, AssignedAction, Assignment, CloudInit, CloudInitResult, EnrollRequest, EventBody,
    EventRecord, Hello, Identity, Proof, ToAgent, Vitals, WriteImageResult,
};
use landfall_api::{
    ApplyOutcome, Authority, ConditionStatus, DiskId, DiskReceipt, Document, ErrorCode, MacAddr, Machine, MachinePhase,
    Pin, Problem, Receipt, ReceiptState, SecretText, Shared, Workflow,
};
use serde_json::json;
use uuid::Uuid;

use super::super::*;
use crate::config::DiscoveryConfig;
use landfall_boot::policy::Decision;

pub(super) const MAC: &str = "52:54:00:00:00:01";

pub(super) struct TestAuthority;

impl CertificateAuthority for TestAuthority {
    fn key_of_request(&self, csr_der: &[u8]) -> Result<String, Problem> {
        Ok(hex::encode(csr_der))
    }
    fn issue_machine(&self, _: &str, _: Uuid, csr_der: &[u8]) -> Result<IssuedCertificate, Problem> {
        Ok(IssuedCertificate {
            chain_der: vec![csr_der.to_vec()],
            serial_hex: hex::encode(csr_der),
            not_after: Timestamp::MAX,
        })
    }
    fn pins(&self) -> Vec<Pin> {
        vec![Pin::from_sha256([7; 32])]
    }
}

/// Every URL is there but those that say `gone`.
pub(super) struct TestSources;

#[async_trait]
impl SourceChecker for TestSources {
    async fn check(&self, wanted: &landfall_api::Download) -> Result<(), Problem> {
        if let Some(url) = wanted.urls.iter().find(|url| url.contains("gone")) {
            return Err(Problem::new(ErrorCode::SourceUnreachable, "answered 404").at(url));
        }
        Ok(())
    }
}

pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) store: Store,
    pub(super) clock: Arc<AtomicI64>,
    pub(super) steady: Arc<AtomicI64>,
}

/// Clocks that tests set.
struct TestClock {
    wall: Arc<AtomicI64>,
    steady: Arc<AtomicI64>,
    begun: tokio::time::Instant,
}

impl Timepiece for TestClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_second(self.wall.load(Ordering::SeqCst)).unwrap()
    }
    fn steady(&self) -> tokio::time::Instant {
        self.begun + Duration::from_secs(self.steady.load(Ordering::SeqCst).try_into().unwrap())
    }
}

impl World {
    pub(super) async fn over(store: Store, clock: Arc<AtomicI64>) -> Self {
        Self::over_with(store, clock, 2).await
    }

    pub(super) async fn over_with(store: Store, clock: Arc<AtomicI64>, parallel_installs: usize) -> Self {
        Self::with(store, clock, parallel_installs, DiscoveryConfig::default(), None).await
    }

    pub(super) async fn discovering(store: Store, clock: Arc<AtomicI64>, discovery: DiscoveryConfig) -> Self {
        Self::with(store, clock, 2, discovery, None).await
    }

    /// One of several coordinators, at this URL.
    pub(super) async fn beside(store: Store, clock: Arc<AtomicI64>, own: &str) -> Self {
        Self::with(store, clock, 2, DiscoveryConfig::default(), Some(own.into())).await
    }

    async fn with(
        store: Store, clock: Arc<AtomicI64>, parallel_installs: usize, discovery: DiscoveryConfig,
        own: Option<Arc<str>>,
    ) -> Self {
        let settings = Settings {
            lease: Duration::from_secs(600),
            heartbeat: Duration::from_secs(5),
            boot_token_ttl: Duration::from_secs(600),
            certificate_ttl: Duration::from_secs(12 * 3600),
            phone_home_deadline: Duration::from_secs(900),
            netboot_deadline: Duration::from_secs(900),
            advertise: std::net::Ipv4Addr::LOCALHOST.into(),
            phone_home_url: "https://10.77.0.1:7443/phone-home".into(),
            others: Vec::new(),
            boot_image_url: "http://10.77.0.1:7480/boot/initramfs".into(),
            medium_url: Some("http://10.77.0.1:7480/boot/landfall.iso".into()),
            arm64_medium_url: None,
            parallel_installs,
            power_on_interval: Duration::ZERO,
            discovery,
            tools: crate::tools_layer::ToolsLayers::default(),
            own,
        };
        let steady = Arc::new(AtomicI64::new(0));
        let now =
            Arc::new(TestClock { wall: clock.clone(), steady: steady.clone(), begun: tokio::time::Instant::now() });
        let engine =
            Engine::start(store.clone(), settings, now, Arc::new(TestAuthority), Arc::new(TestSources)).await.unwrap();
        Self { engine, store, clock, steady }
    }

    /// A machine `m1` and a template `os`.
    pub(super) async fn new() -> Self {
        let world = Self::over(Store::memory(), Arc::new(AtomicI64::new(1_000_000))).await;
        world.described().await
    }

    pub(super) async fn described(self) -> Self {
        self.apply(machine("m1", MAC)).await.unwrap();
        self.apply(template("http://10.77.0.1:7480/images/os.zst")).await.unwrap();
        self
    }

    pub(super) async fn apply(&self, document: serde_json::Value) -> Result<(Document, ApplyOutcome), Problem> {
        self.engine.documents().apply(Document::from_value(document)?, "ann", false).await
    }

    /// Time passes.
    pub(super) fn later(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
        self.steady.fetch_add(seconds, Ordering::SeqCst);
    }

    /// The wall's clock is set, and no time passes.
    pub(super) fn set_clock(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Ann, now.
    pub(super) fn ann(&self, force: bool) -> Authority {
        Authority { person: "ann".into(), at: self.engine.fleet().now(), force }
    }

    pub(super) async fn provision(&self, force: bool) -> Result<Workflow, Problem> {
        let authority = Authority { person: "ann".into(), at: Timestamp::UNIX_EPOCH, force };
        self.engine.requests().provision("m1", "os", BTreeMap::new(), authority, None).await.map(Shared::into_inner)
    }

    pub(super) async fn machine(&self) -> Machine {
        self.store.machine("m1").await.unwrap().unwrap().into_inner()
    }

    pub(super) async fn run(&self, name: &str) -> Workflow {
        self.store.workflow(name).await.unwrap().unwrap().into_inner()
    }

    /// The newest run of a machine.
    pub(super) async fn current(&self, machine: &str) -> Option<Workflow> {
        let machine = self.store.machine(machine).await.unwrap().unwrap();
        self.engine.fleet().current_workflow(&machine).await.unwrap().map(Shared::into_inner)
    }

    pub(super) async fn phase(&self) -> MachinePhase {
        self.machine().await.status.unwrap().phase
    }

    pub(super) async fn condition(&self, kind: &str) -> Option<(ConditionStatus, String)> {
        let status = self.machine().await.status.unwrap();
        status.conditions.into_iter().find(|c| c.kind == kind).map(|c| (c.status, c.reason.to_string()))
    }

    pub(super) async fn boot(&self) -> Decision {
        self.engine.boot().boot_decision(MAC.parse().unwrap(), None).await.unwrap()
    }

    pub(super) async fn enroll(&self, key: &[u8]) -> Result<Enrolled, Problem> {
        let Decision::RunAgent { token, .. } = self.boot().await else { panic!("the agent is wanted") };
        self.enroll_with(token, key).await
    }

    pub(super) async fn enroll_with(&self, token: String, key: &[u8]) -> Result<Enrolled, Problem> {
        let proof = Proof::BootToken(SecretText::new(token));
        match self.engine.enrolments().enroll(request(proof, key), Asker::default()).await? {
            Enrolment::Granted(enrolled) => Ok(enrolled),
            Enrolment::Waiting { reason, .. } => Err(Problem::new(ErrorCode::Unapproved, reason)),
        }
    }

    /// A workflow of `os` begins on `m1`: its name, its id, and the agent that came for it.
    pub(super) async fn begins(&self) -> (String, Uuid, Agent<'_>) {
        let run = self.provision(false).await.unwrap().metadata;
        self.enroll(b"key").await.unwrap();
        (run.name, run.uid.unwrap(), self.connect(hello("b1", "D1", vec![])).await)
    }

    /// The same, and the agent has reported the start of its write.
    pub(super) async fn under_way(&self) -> (String, Uuid, Agent<'_>) {
        let (name, uid, mut agent) = self.begins().await;
        agent.assigned();
        agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
        (name, uid, agent)
    }

    pub(super) async fn open(&self, uid: Uuid, hello: Hello) -> Result<Opened, landfall_machine::Refusal> {
        self.engine.sessions().open_session(uid, hello, ADDRESS.into()).await
    }

    pub(super) async fn connect(&self, hello: Hello) -> Agent<'_> {
        let uid = self.machine().await.metadata.uid.unwrap();
        let opened = self.open(uid, hello).await.unwrap();
        Agent { world: self, uid, opened, seq: Mutex::default() }
    }
}

/// The number of the next event of an action's attempt.
pub(super) fn next(seq: &mut BTreeMap<(u32, u32), u64>, of: (u32, u32)) -> u64 {
    let seq = seq.entry(of).or_default();
    *seq += 1;
    *seq
}

/// An agent by hand.
pub(super) struct Agent<'w> {
    pub(super) world: &'w World,
    pub(super) uid: Uuid,
    pub(super) opened: Opened,
    pub(super) seq: Mutex<BTreeMap<(u32, u32), u64>>,
}

impl Agent<'_> {
    pub(super) fn received(&mut self) -> Option<ToAgent> {
        self.opened.to_agent.try_recv().ok()
    }

    pub(super) fn assigned(&mut self) -> Assignment {
        match self.received() {
            Some(ToAgent::Assign(assignment)) => *assignment,
            other => panic!("an assignment was expected, not {other:?}"),
        }
    }

    pub(super) async fn report(
        &self, run: Uuid, action_index: u32, attempt: u32, body: EventBody,
    ) -> Result<(), Problem> {
        let of = (action_index, attempt);
        let record = record(run, of, next(&mut self.seq.lock().unwrap(), of), body);
        self.world.engine.sessions().agent_events(self.uid, self.opened.epoch, vec![record]).await
    }

    pub(super) async fn does(&self, run: Uuid, index: u32, attempt: u32, result: ActionResult) {
        self.report(run, index, attempt, EventBody::Started).await.unwrap();
        self.report(run, index, attempt, EventBody::Finished { result }).await.unwrap();
    }
}

pub(super) fn record(run: Uuid, (action_index, attempt): (u32, u32), seq: u64, body: EventBody) -> EventRecord {
    EventRecord { workflow_uid: run, action_index, attempt, seq, time: Timestamp::UNIX_EPOCH, body }
}

pub(super) fn document(kind: &str, name: &str, spec: serde_json::Value) -> serde_json::Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(super) fn machine(name: &str, mac: &str) -> serde_json::Value {
    document("Machine", name, json!({"identity": {"macs": [mac]}}))
}

pub(super) fn template(url: &str) -> serde_json::Value {
    document(
        "Template",
        "os",
        json!({"actions": [
            {"name": "write", "writeImage": {"image": {"url": url, "digest": format!("sha256:{}", "0a".repeat(32))}}},
            {"name": "seed", "cloudInit": {"hostname": "{{ machine.name }}"}},
            {"name": "restart", "reboot": {}},
        ]}),
    )
}

pub(super) fn identity() -> Identity {
    Identity { macs: vec![MAC.parse::<MacAddr>().unwrap()], ..Identity::default() }
}

/// Of a computer with [`identity`].
pub(super) fn request(proof: Proof, key: &[u8]) -> EnrollRequest {
    EnrollRequest {
        identity: identity(),
        boot_id: "boot".into(),
        csr_der: key.to_vec(),
        proof,
        facts: None,
        software: String::new(),
        protocol: 0,
    }
}

pub(super) fn vitals(peak_rss_bytes: u64) -> Vitals {
    Vitals { uptime: Duration::from_secs(77), peak_rss_bytes }
}

pub(super) fn disk(serial: &str) -> DiskId {
    DiskId { serial: serial.into(), path: "pci-0".into(), size_bytes: 1 << 32, ..DiskId::default() }
}

pub(super) fn hello(boot_id: &str, serial: &str, receipts: Vec<DiskReceipt>) -> Hello {
    Hello {
        software: "0.1.0".into(),
        protocol: landfall_proto::PROTOCOL,
        identity: identity(),
        boot_id: boot_id.into(),
        disks: vec![disk(serial)],
        receipts,
        ..Hello::default()
    }
}

pub(super) fn receipt(machine_uid: Uuid, workflow_uid: Uuid, state: ReceiptState) -> DiskReceipt {
    let receipt = Receipt {
        machine_uid,
        workflow_uid,
        workflow_name: "run".into(),
        generation: 1,
        action_index: 0,
        image_digest: None,
        state,
        written_at: Timestamp::UNIX_EPOCH,
    };
    DiskReceipt { disk: disk("D1"), receipt }
}

pub(super) fn written(receipt: DiskReceipt) -> ActionResult {
    ActionResult::WriteImage(WriteImageResult {
        receipt: Some(receipt),
        written: true,
        stored_bytes: 1,
        raw_bytes: 1,
        written_bytes: 1,
        elapsed_ms: 1,
    })
}

pub(super) fn seeded() -> ActionResult {
    ActionResult::CloudInit(CloudInitResult { root_device: "/dev/vda2".into() })
}

/// The address that agents come from.
pub(super) const ADDRESS: &str = "10.77.0.100";

/// The seed that an action puts on the disk.
pub(super) fn seed_of(action: &AssignedAction) -> CloudInit {
    match &action.kind {
        ActionKind::CloudInit(seed) => seed.clone(),
        other => panic!("a seed was expected, not {other:?}"),
    }
}

/// The token that an action's seed phones home with.
pub(super) fn bearer_of(action: &AssignedAction) -> String {
    seed_of(action).phone_home.unwrap().bearer_token.expose().to_owned()
}

pub(super) async fn sqlite_world(dir: &Path, clock: &Arc<AtomicI64>) -> World {
    World::over(Store::open(dir).unwrap(), clock.clone()).await
}

/// A described world whose store is in that directory.
pub(super) async fn described_on_disk() -> (tempfile::TempDir, Arc<AtomicI64>, World) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(1_000_000)));
    let world = sqlite_world(dir.path(), &clock).await.described().await;
    (dir, clock, world)
}
