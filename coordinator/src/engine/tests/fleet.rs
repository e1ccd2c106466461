//! Computers with disks that keep their receipts, whatever becomes of the coordinator's store.

use landfall_api::message::{ActionKind, WipeResult};
use landfall_api::{HealthTestResult, WipeLevel, WipeReport};

use super::faulty::faulty_world;
use super::*;

/// How far an agent gets before its power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Until {
    Intent,
    Written,
    Rebooted,
    Home,
}

/// One computer.
pub(super) struct Computer {
    pub(super) name: String,
    mac: String,
    pub(super) receipts: Vec<DiskReceipt>,
    boots: u32,
}

fn wiped(disk: DiskId) -> WipeReport {
    WipeReport {
        disk,
        asked: WipeLevel::Signatures,
        level: WipeLevel::Signatures,
        method: "signatures cleared".into(),
        started_at: Timestamp::UNIX_EPOCH,
        ended_at: Timestamp::UNIX_EPOCH,
        samples: 0,
        limits: Vec::new(),
        workflow: String::new(),
    }
}

/// An agent in its session.
pub(super) struct Session {
    pub(super) uid: Uuid,
    pub(super) opened: Opened,
    seq: BTreeMap<(u32, u32), u64>,
}

impl Session {
    /// Everything it has received so far.
    pub(super) fn received(&mut self) -> Vec<ToAgent> {
        std::iter::from_fn(|| self.opened.to_agent.try_recv().ok()).collect()
    }

    pub(super) fn assigned(&mut self) -> Option<Assignment> {
        self.received().into_iter().find_map(|message| match message {
            ToAgent::Assign(assignment) => Some(*assignment),
            _ => None,
        })
    }

    pub(super) async fn report(&mut self, world: &World, run: Uuid, of: (u32, u32), body: EventBody) {
        let record = record(run, of, next(&mut self.seq, of), body);
        world.engine.sessions().agent_events(self.uid, self.opened.epoch, vec![record]).await.unwrap();
    }

    pub(super) async fn power_off(self, world: &World) {
        world.engine.sessions().close_session(self.uid, self.opened.epoch, "the power went").await.unwrap();
    }
}

impl Computer {
    /// A computer and its document.
    pub(super) async fn described(world: &World, number: u8) -> Self {
        let computer = Self {
            name: format!("c{number}"),
            mac: format!("52:54:00:00:01:{number:02x}"),
            receipts: Vec::new(),
            boots: 0,
        };
        world.apply(computer.document()).await.unwrap();
        computer
    }

    /// A described one that netbooted into a workflow of `os`: it, the workflow's name and id, and the agent's session.
    pub(super) async fn begins(world: &World) -> (Self, String, Uuid, Session) {
        let mut computer = Self::described(world, 1).await;
        let run = computer.provision(world, false).await.unwrap().metadata;
        let session = computer.netboot(world).await.unwrap();
        (computer, run.name, run.uid.unwrap(), session)
    }

    pub(super) fn document(&self) -> serde_json::Value {
        machine(&self.name, &self.mac)
    }

    pub(super) fn disk(&self) -> DiskId {
        DiskId { serial: format!("S-{}", self.name), size_bytes: 1 << 32, ..DiskId::default() }
    }

    pub(super) async fn machine(&self, world: &World) -> Machine {
        world.store.machine(&self.name).await.unwrap().unwrap().into_inner()
    }

    pub(super) async fn condition(&self, world: &World, kind: &str) -> Option<(ConditionStatus, String)> {
        let status = self.machine(world).await.status.unwrap();
        status.conditions.into_iter().find(|c| c.kind == kind).map(|c| (c.status, c.reason.to_string()))
    }

    pub(super) async fn phase(&self, world: &World) -> MachinePhase {
        self.machine(world).await.status.unwrap().phase
    }

    pub(super) async fn provision(&self, world: &World, force: bool) -> Result<Workflow, Problem> {
        world
            .engine
            .requests()
            .provision(&self.name, "os", BTreeMap::new(), world.ann(force), None)
            .await
            .map(landfall_api::Shared::into_inner)
    }

    pub(super) fn hello(&self) -> Hello {
        Hello {
            software: "0.1.0".into(),
            protocol: landfall_proto::PROTOCOL,
            identity: Identity { macs: vec![self.mac.parse().unwrap()], ..Identity::default() },
            boot_id: format!("{}-{}", self.name, self.boots),
            disks: vec![self.disk()],
            receipts: self.receipts.clone(),
            ..Hello::default()
        }
    }

    pub(super) async fn connect(&self, world: &World, hello: Hello) -> Session {
        let uid = self.machine(world).await.metadata.uid.unwrap();
        let opened = world.open(uid, hello).await.unwrap();
        Session { uid, opened, seq: BTreeMap::new() }
    }

    /// Netboots: the agent's session, or nothing if it starts its own disk.
    pub(super) async fn netboot(&mut self, world: &World) -> Option<Session> {
        self.boots += 1;
        match world.engine.boot().boot_decision(self.mac.parse().unwrap(), None).await.unwrap() {
            Decision::RunAgent { .. } => Some(self.connect(world, self.hello()).await),
            Decision::BootDisk { .. } => None,
            other => panic!("{} is described, and received {other:?}", self.name),
        }
    }

    pub(super) fn mark(&self, world: &World, assignment: &Assignment, index: u32, state: ReceiptState) -> DiskReceipt {
        DiskReceipt {
            disk: self.disk(),
            receipt: Receipt {
                machine_uid: assignment.machine_uid,
                workflow_uid: assignment.workflow_uid,
                workflow_name: assignment.workflow_name.clone(),
                generation: assignment.generation,
                action_index: index,
                image_digest: None,
                state,
                written_at: world.engine.fleet().now(),
            },
        }
    }

    /// Does what it was assigned, as an agent would, and no further than `until`.
    pub(super) async fn work(&mut self, world: &World, session: &mut Session, assignment: &Assignment, until: Until) {
        let run = assignment.workflow_uid;
        let mut bearer = None;
        for (index, assigned) in assignment.actions.iter().enumerate().skip(assignment.start_index as usize) {
            let index = u32::try_from(index).unwrap();
            let attempt = if index == assignment.start_index { assignment.start_attempt } else { 1 };
            let at = (index, attempt);
            session.report(world, run, at, EventBody::Started).await;
            let result = match &assigned.kind {
                ActionKind::WriteImage(_) => {
                    let intent = self.mark(world, assignment, index, ReceiptState::Intent);
                    self.receipts = vec![intent.clone()];
                    session.report(world, run, at, EventBody::ReceiptWritten { receipt: intent }).await;
                    if until == Until::Intent {
                        return;
                    }
                    let done = self.mark(world, assignment, index, ReceiptState::Done);
                    self.receipts = vec![done.clone()];
                    session.report(world, run, at, EventBody::ReceiptWritten { receipt: done.clone() }).await;
                    written(done)
                }
                ActionKind::CloudInit(seed) => {
                    if until == Until::Written {
                        return;
                    }
                    bearer = seed.phone_home.as_ref().map(|unit| unit.bearer_token.expose().to_owned());
                    seeded()
                }
                ActionKind::Wipe(_) => {
                    let intent = self.mark(world, assignment, index, ReceiptState::Intent);
                    self.receipts = vec![intent.clone()];
                    session.report(world, run, at, EventBody::ReceiptWritten { receipt: intent }).await;
                    if until == Until::Intent {
                        return;
                    }
                    self.receipts.clear();
                    let report = wiped(self.disk());
                    session.report(world, run, at, EventBody::DiskWiped { report }).await;
                    ActionResult::Wipe(WipeResult { disks: vec![self.disk()] })
                }
                ActionKind::HealthTest(_) => ActionResult::HealthTest(HealthTestResult { parts: 1 }),
                ActionKind::PowerOff(_) => ActionResult::PowerOff,
                _ => ActionResult::Reboot,
            };
            session.report(world, run, at, EventBody::Finished { result }).await;
        }
        if let Some(bearer) = bearer.filter(|_| until == Until::Home) {
            world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default()).await.unwrap();
        }
    }

    /// Netboots into its run, does it up to there, and loses power.
    pub(super) async fn run(&mut self, world: &World, until: Until) {
        let mut session = self.netboot(world).await.expect("the agent is wanted");
        let assignment = session.assigned().expect("an assignment");
        self.work(world, &mut session, &assignment, until).await;
        session.power_off(world).await;
    }

    /// A whole install from nothing.
    pub(super) async fn install(&mut self, world: &World) {
        self.provision(world, false).await.unwrap();
        self.run(world, Until::Home).await;
        assert_eq!(self.phase(world).await, MachinePhase::Provisioned, "{}", self.name);
    }
}

#[tokio::test]
async fn a_fleet_that_falls_silent_is_noted_side_by_side() {
    let (faulty, world) = faulty_world().await;
    let mut agents = Vec::new();
    for n in 0..16 {
        let (name, serial, mac) = (format!("n{n}"), format!("S{n}"), format!("52:54:00:00:09:{n:02x}"));
        world.apply(machine(&name, &mac)).await.unwrap();
        let uid = world.store.machine(&name).await.unwrap().unwrap().metadata.uid.unwrap();
        let identity = Identity { macs: vec![mac.parse().unwrap()], ..Identity::default() };
        agents.push(world.open(uid, Hello { identity, ..hello(&name, &serial, vec![]) }).await.unwrap());
    }
    faulty.most_updates();
    world.later(20);
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(faulty.most_updates(), 16, "one after another they would be as many commits");
}
