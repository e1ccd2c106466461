//! A coordinator around the machine under test: a store that keeps what was stored, a process that may end between any two
//! effects, two clocks.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use landfall_api::message::{DiskReport, EventRecord, Hello};
use landfall_api::{
    API_VERSION, Action, ActionStatus, Authority, DiskReceipt, Kind, Machine, MachineSpec, Metadata, Shared, Workflow,
    WorkflowSpec, WorkflowStatus,
};
use landfall_machine::life::take_up;
use landfall_machine::{
    BEAT_EVERY, Effect, Epoch, Horizon, Input, Limits, MachineState, Now, Refusal, Session, Steady, Tell, Which,
    derive, has_begun, is_held, is_open, step,
};
use serde_json::json;
use uuid::Uuid;

use super::judge::{self, Gap};

/// How long an agent may act unheard, seconds.
pub(crate) const LEASE: u64 = 60;
/// How often an agent tries to write a disk.
pub(crate) const MAX_ATTEMPTS: u32 = 2;
/// The uid of the machine.
pub(crate) const MACHINE: Uuid = Uuid::from_u128(1);

/// What an agent is sent.
#[derive(Debug, Clone)]
pub(crate) enum Word {
    /// `from`: by the agent's own clock, when its lease begins.
    Assign {
        workflow: Uuid,
        starts: Vec<(u32, u32)>,
        from: Option<Duration>,
    },
    Tell(Tell),
}

/// What outlives the process.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) machine: Shared<Machine>,
    pub(crate) workflows: Vec<Shared<Workflow>>,
    pub(crate) log: Vec<EventRecord>,
    /// When the coordinator last noted that it was there; absent if nothing says so.
    beat: Option<Timestamp>,
    /// When a person last decided what becomes of the machine, by true time.
    pub(crate) decided: u64,
}

pub(crate) struct Site {
    /// True time, seconds.
    pub(crate) now: u64,
    /// How far the wall's clock is off, seconds.
    off: i64,
    pub(crate) clock_was_set: bool,
    started: (u64, i64),
    /// The last beat before this start; absent if the store does not say.
    as_of: Option<Timestamp>,
    pub(crate) stored: Stored,
    /// What the store has no data for, since this start.
    pub(crate) gap: Option<Gap>,
    pub(crate) session: Option<Session>,
    /// Where the newest session's messages go, by epoch.
    pub(crate) line: Option<(u64, VecDeque<Word>)>,
    /// Messages to sessions that were replaced.
    pub(crate) older_lines: Vec<(u64, VecDeque<Word>)>,
    settling: Vec<(u64, Epoch)>,
    /// How often the process started: no connection outlives it.
    pub(crate) starts: u32,
    /// After so many effects the process ends.
    pub(crate) crash_after: Option<usize>,
    pub(crate) turns: bool,
    /// The machine's document was removed: the story is over.
    pub(crate) removed: bool,
    /// Workflows whose image leaves no room for a receipt.
    no_room: HashSet<Uuid>,
    next: u128,
}

/// What the wall's clock shows at a true time where nothing set it.
pub(crate) fn wall(now: u64, off: i64) -> Timestamp {
    Timestamp::from_second(2_000_000_000 + now as i64 + off).unwrap()
}

pub(crate) fn person(now: Timestamp, force: bool) -> Authority {
    Authority { person: "ann".into(), at: now, force }
}

impl Site {
    pub(crate) fn new() -> Self {
        let machine = Machine {
            api_version: API_VERSION.into(),
            kind: Kind::Machine,
            metadata: Metadata { name: "m".into(), uid: Some(MACHINE), generation: 1, ..Metadata::default() },
            spec: MachineSpec::default(),
            status: None,
        };
        let beat = Some(wall(1000, 0));
        Self {
            now: 1000,
            off: 0,
            clock_was_set: false,
            started: (1000, 0),
            as_of: beat,
            stored: Stored { machine: machine.into(), workflows: Vec::new(), log: Vec::new(), beat, decided: 0 },
            gap: None,
            session: None,
            line: None,
            older_lines: Vec::new(),
            settling: Vec::new(),
            starts: 0,
            crash_after: None,
            turns: true,
            removed: false,
            no_room: HashSet::new(),
            next: 100,
        }
    }

    pub(crate) fn wall(&self) -> Timestamp {
        wall(self.now, self.off)
    }

    fn moment(&self) -> Now {
        Now { wall: self.wall(), steady: Steady::after_start(Duration::from_secs(self.now - self.started.0)) }
    }

    fn limits(&self) -> Limits {
        Limits {
            lease: Duration::from_secs(LEASE),
            heartbeat: Duration::from_secs(5),
            phone_home_deadline: Duration::from_secs(900),
            netboot_deadline: Duration::from_secs(900),
            oldest_protocol: 1,
            horizon: Horizon {
                as_of: self.as_of,
                started: wall(self.started.0, self.started.1),
                lease: Duration::from_secs(LEASE),
            },
        }
    }

    pub(crate) fn workflow(&self, uid: Uuid) -> Option<&Shared<Workflow>> {
        self.stored.workflows.iter().find(|workflow| workflow.metadata.uid == Some(uid))
    }

    pub(crate) fn newest(&self) -> Option<&Shared<Workflow>> {
        let name = self.stored.machine.status.as_ref()?.workflow.as_ref()?;
        self.stored.workflows.iter().find(|workflow| workflow.metadata.name == *name)
    }

    pub(crate) fn leaves_room(&self, workflow: Uuid) -> bool {
        !self.no_room.contains(&workflow)
    }

    /// Hands in one input as the engine does; false if the process ended on the way.
    pub(crate) fn hand(&mut self, of: Option<Uuid>, input: impl Fn(Which) -> Input) -> Result<bool, Refusal> {
        self.hand_in(of, &input)
    }

    fn hand_in(&mut self, of: Option<Uuid>, input: &dyn Fn(Which) -> Input) -> Result<bool, Refusal> {
        let newest = self.newest().cloned();
        let is_newest = of.is_none() || newest.as_ref().is_some_and(|w| w.metadata.uid == of);
        let older = of.filter(|_| !is_newest).and_then(|of| self.workflow(of)).cloned();
        let which = if is_newest { Which::Newest } else { Which::Older };
        let began = newest.as_ref().is_some_and(|workflow| has_begun(workflow));
        let (machine, session) = (self.stored.machine.clone(), self.session.clone());
        let state = MachineState { machine, newest, older, session, coordinator: None };
        let (input, before) = (input(which), self.stored.machine.clone());
        let decides = matches!(input, Input::Adopt(_));
        let (state, effects) = step(&self.limits(), state, input, self.moment());
        judge::stays_held(&before, &state.machine, decides);
        let stores = |effect: &Effect| matches!(effect, Effect::StoreMachine | Effect::StoreWorkflow(_));
        let durable = effects.iter().take_while(|effect| stores(effect)).count();
        assert!(!effects.iter().skip(durable).any(stores), "something is sent before all is stored: {effects:?}");
        let mut refusal = None;
        for (n, effect) in effects.into_iter().enumerate() {
            if self.crash_after == Some(n) {
                self.restart(0);
                return Ok(false);
            }
            if n == durable {
                self.session.clone_from(&state.session);
            }
            match effect {
                Effect::StoreMachine => self.stored.machine = state.machine.clone(),
                Effect::StoreWorkflow(which) => self.store(state.workflow(which).unwrap()),
                Effect::Refuse(refused) => refusal = Some(refused),
                Effect::Alarm { .. } | Effect::LeaveQueue => {}
                Effect::MarkDeleted => self.stored.machine.metadata.deletion_timestamp = Some(self.wall()),
                Effect::Remove => self.removed = true,
                Effect::Fence { epoch, reason } => self.send(Word::Tell(Tell::Fenced { epoch, reason })),
                Effect::Open(epoch) => {
                    let old = self.line.replace((epoch.get(), VecDeque::new()));
                    self.older_lines.extend(old);
                }
                Effect::Send(tell) => self.send(Word::Tell(tell)),
                Effect::Assign { of, starts } => {
                    let holder = self.stored.machine.status.as_ref().and_then(|s| s.session.as_ref());
                    assert!(holder.is_some_and(|holder| holder.leased), "an assignment whose lease is not stored");
                    if !began {
                        judge::begins(self, &state);
                    }
                    let workflow = state.workflow(of).and_then(|w| w.metadata.uid).unwrap();
                    let starts = starts.iter().map(|start| (start.index, start.attempt)).collect();
                    let from = state.session.as_ref().and_then(Session::counts_from);
                    self.send(Word::Assign { workflow, starts, from });
                }
                Effect::Settle(epoch) => self.settling.push((self.now + 3, epoch)),
                Effect::AskTurn => {
                    let turns = self.turns;
                    self.session.clone_from(&state.session);
                    let crash = self.crash_after.take();
                    let stands = self.hand_in(None, &|_| Input::Turn(turns))?;
                    self.crash_after = crash;
                    return Ok(stands);
                }
            }
        }
        self.session = state.session;
        refusal.map_or(Ok(true), Err)
    }

    fn send(&mut self, what: Word) {
        if let Some((_, line)) = &mut self.line {
            line.push_back(what);
        }
    }

    fn store(&mut self, workflow: &Shared<Workflow>) {
        let stored = self.stored.workflows.iter_mut().find(|w| w.metadata.name == workflow.metadata.name).unwrap();
        *stored = workflow.clone();
    }

    /// An agent asks for a session: its epoch, if it gets one.
    pub(crate) fn hello(&mut self, hello: Hello) -> Option<u64> {
        let known = hello.receipts.iter().map(|r| self.workflow(r.receipt.workflow_uid).is_some()).collect();
        let named = hello.holds;
        let missed = judge::misses(self, &hello.boot_id, &hello.receipts);
        let input = Input::Hello { hello: Box::new(hello), address: String::new(), known };
        let stands = self.hand(named, |_| input.clone());
        if stands != Ok(true) {
            return None;
        }
        self.holds(missed);
        self.epoch()
    }

    /// An agent knows every disk; whether the machine took that in.
    pub(crate) fn disks(&mut self, epoch: u64, boot_id: &str, report: DiskReport) -> bool {
        let known = report.receipts.iter().map(|r| self.workflow(r.receipt.workflow_uid).is_some()).collect();
        let open = self.session.as_ref().is_some_and(|s| s.epoch() == Epoch::new(epoch) && s.is_scanning());
        let missed = judge::misses(self, boot_id, &report.receipts).filter(|_| open);
        let input = Input::Disks { epoch: Epoch::new(epoch), report: Box::new(report), known };
        let stands = self.hand(None, |_| input.clone()) == Ok(true);
        self.holds(missed.filter(|_| stands));
        stands
    }

    fn holds(&self, missed: Option<DiskReceipt>) {
        if let Some(missed) = missed {
            assert!(is_held(&self.stored.machine).is_some(), "rule 4: a newer receipt holds no machine: {missed:?}");
        }
    }

    /// An agent's events of one workflow, handed in so often; their positions in the log, if they are acknowledged.
    pub(crate) fn events(&mut self, epoch: Epoch, of: Uuid, batch: &[EventRecord], times: usize) -> Option<Vec<u64>> {
        if self.workflow(of).is_none() {
            return Some(Vec::new());
        }
        let mut events = Vec::new();
        for record in batch {
            let position = self.logs(record);
            if position == 0 {
                // The process may end with it.
                self.hand(None, |_| Input::EventsMissing(of)).ok().filter(|stands| *stands)?;
            }
            events.push((position, record.clone()));
        }
        for _ in 0..times {
            if self.hand(Some(of), |of| Input::Reported { epoch, of, events: events.clone() }) != Ok(true) {
                return None;
            }
        }
        Some(events.into_iter().map(|(position, _)| position).collect())
    }

    /// The position of an event in the log; 0 if an event before it is missing, and the log takes none after that.
    fn logs(&mut self, record: &EventRecord) -> u64 {
        let log = &mut self.stored.log;
        if let Some(found) = log.iter().position(|logged| logged.key() == record.key()) {
            return found as u64 + 1;
        }
        let attempt = |r: &EventRecord| (r.workflow_uid, r.action_index, r.attempt);
        if log.iter().filter(|logged| attempt(logged) == attempt(record)).count() as u64 + 1 != record.seq {
            return 0;
        }
        log.push(record.clone());
        log.len() as u64
    }

    /// The process ends and starts again, `away` seconds later; what the log holds beyond the statuses is replayed.
    pub(crate) fn restart(&mut self, away: u64) {
        self.now += away;
        self.as_of = self.stored.beat;
        self.gap = None;
        self.starts();
        self.beats();
    }

    fn starts(&mut self) {
        self.starts += 1;
        self.session = None;
        self.line = None;
        self.older_lines.clear();
        self.settling.clear();
        self.crash_after = None;
        self.started = (self.now, self.off);
        let _refused = self.hand(None, |_| Input::Started);
        let behind = self.newest().is_some_and(|newest| derive::is_behind(&self.stored.machine, newest));
        assert!(!behind, "the machine's document stays behind its workflow's");
        let Some(newest) = self.newest().filter(|w| is_open(w) && has_begun(w)).cloned() else { return };
        let applied = newest.status.as_ref().map_or(0, |status| status.applied);
        let beyond: Vec<(u64, EventRecord)> = (1u64..)
            .zip(self.stored.log.clone())
            .filter(|(position, record)| *position > applied && Some(record.workflow_uid) == newest.metadata.uid)
            .collect();
        let _refused = self.hand(None, |_| Input::Replayed(beyond.clone()));
    }

    /// The store is put back from a copy that was made at `copied`; `known`: with the note of when it was last written.
    /// Operators who put a copy back by other means than `restore` wait for a lease before they start it: it knows nothing of the
    /// leases since, and the coordinator does not know that.
    pub(crate) fn restore(&mut self, copy: Stored, copied: u64, known: bool) {
        self.as_of = copy.beat.filter(|_| known);
        if self.as_of.is_some() {
            self.now += LEASE;
        }
        self.gap = Some(Gap { from: copied, to: self.now });
        self.stored = Stored { beat: self.as_of, ..copy };
        self.starts();
        self.beats();
    }

    /// Notes that the coordinator is there. For as long as it may not know of a lease, the next start is to find that out too.
    fn beats(&mut self) {
        let limits = self.limits();
        let due = |beat: Timestamp| self.wall().duration_since(beat).unsigned_abs() >= BEAT_EVERY;
        if !limits.horizon.misses_leases(self.moment().steady) && self.stored.beat.is_none_or(due) {
            self.stored.beat = Some(self.wall());
        }
    }

    /// Everything that time does, as the ticker does it.
    pub(crate) fn tick(&mut self) {
        let due: Vec<Epoch> = self.settling.iter().filter(|(at, _)| *at <= self.now).map(|(_, epoch)| *epoch).collect();
        self.settling.retain(|(at, _)| *at > self.now);
        for epoch in due {
            let _refused = self.hand(None, |_| Input::Settled { epoch });
        }
        let _refused = self.hand(None, |_| Input::Tick);
        self.beats();
    }

    pub(crate) fn set_clock(&mut self, by: i64) {
        self.off += by;
        self.clock_was_set = true;
        let _refused = self.hand(None, |_| Input::ClockSet(SignedDuration::from_secs(by)));
    }

    /// A person takes the machine over as it is.
    pub(crate) fn adopt(&mut self) {
        let by = person(self.wall(), false);
        if self.hand(None, |_| Input::Adopt(by.clone())).is_ok() {
            self.stored.decided = self.now;
        }
    }

    /// A person asks for an install, with `--force` or without, of an image with room for a receipt or without.
    pub(crate) fn provision(&mut self, force: bool, room: bool) {
        let by = person(self.wall(), force);
        // A process that ends meanwhile answers nothing, and so takes up no workflow.
        let may = self.hand(None, |_| Input::MakeWay(force.then(|| by.clone()))) == Ok(true);
        if !may || is_held(&self.stored.machine).is_some() && !force {
            return;
        }
        if force {
            self.stored.decided = self.now;
        }
        self.next += 1;
        let (uid, name) = (Uuid::from_u128(self.next), format!("w{}", self.next));
        if !room {
            self.no_room.insert(uid);
        }
        let digest = format!("sha256:{}", "0a".repeat(32));
        let list = json!([
            {"name": "write", "retry": {"maxAttempts": MAX_ATTEMPTS},
                "writeImage": {"image": {"url": "http://h/i", "digest": digest}}},
            {"name": "seed", "cloudInit": {}},
            {"name": "restart", "reboot": {}},
        ]);
        let actions: Vec<Action> = serde_json::from_value(list).unwrap();
        let receipts = self.stored.machine.status.as_ref().map(|s| s.receipts.clone()).unwrap_or_default();
        let workflow = Workflow {
            api_version: API_VERSION.into(),
            kind: Kind::Workflow,
            metadata: Metadata { name, uid: Some(uid), generation: 1, ..Metadata::default() },
            spec: WorkflowSpec { machine: "m".into(), authority: Some(by), ..WorkflowSpec::default() },
            status: Some(WorkflowStatus {
                actions: actions.into_iter().map(ActionStatus::pending).collect(),
                expected_receipts: receipts,
                machine_generation: 1,
                ..WorkflowStatus::default()
            }),
        };
        let now = self.wall();
        take_up(&mut self.stored.machine, &workflow, now);
        self.stored.workflows.push(workflow.into());
        let _refused = self.hand(None, |_| Input::Launched);
    }

    /// The epoch of the newest session, if its stream is up.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.session.as_ref().filter(|session| session.is_connected()).map(|session| session.epoch().get())
    }
}
