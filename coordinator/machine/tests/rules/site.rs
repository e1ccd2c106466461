//! A coordinator around the machine under test: a store that keeps what was stored, a process that may end between any two
//! effects, two clocks.

use std::{collections::VecDeque, time::Duration};

use jiff::{SignedDuration, Timestamp};
use landfall_api::{
    API_VERSION, Action, ActionStatus, Authority, Kind, Machine, MachineSpec, Metadata, Workflow, WorkflowSpec,
    WorkflowStatus, message::EventRecord,
};
use landfall_machine::{
    Effect, Epoch, Horizon, Input, Limits, MachineState, Now, Refusal, Session, Steady, Tell, Which, has_begun,
    is_open, life::take_up, step,
};
use serde_json::json;
use uuid::Uuid;

/// How long an agent may act unheard, seconds.
pub(crate) const LEASE: u64 = 60;
/// The uid of the machine.
pub(crate) const MACHINE: Uuid = Uuid::from_u128(1);

/// What an agent is sent, and when by true time.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) at: u64,
    pub(crate) what: Word,
}

#[derive(Debug, Clone)]
pub(crate) enum Word {
    Assign { workflow: Uuid, starts: Vec<(u32, u32)> },
    Tell(Tell),
}

/// What outlives the process.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) machine: Machine,
    pub(crate) workflows: Vec<Workflow>,
    pub(crate) log: Vec<EventRecord>,
}

pub(crate) struct Site {
    /// True time, seconds.
    pub(crate) now: u64,
    /// How far the wall's clock is off, seconds.
    pub(crate) off: i64,
    started: (u64, i64),
    beat: Option<Timestamp>,
    pub(crate) stored: Stored,
    pub(crate) session: Option<Session>,
    /// Where the newest session's messages go, by epoch.
    pub(crate) line: Option<(u64, VecDeque<Sent>)>,
    /// Messages to sessions that were replaced.
    pub(crate) older_lines: Vec<(u64, VecDeque<Sent>)>,
    settling: Vec<(u64, Epoch)>,
    /// After so many effects the process ends.
    pub(crate) crash_after: Option<usize>,
    pub(crate) turns: bool,
    next: u128,
}

fn wall(now: u64, off: i64) -> Timestamp {
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
        Self {
            now: 1000,
            off: 0,
            started: (1000, 0),
            beat: Some(wall(1000, 0)),
            stored: Stored { machine, workflows: Vec::new(), log: Vec::new() },
            session: None,
            line: None,
            older_lines: Vec::new(),
            settling: Vec::new(),
            crash_after: None,
            turns: true,
            next: 100,
        }
    }

    pub(crate) fn wall(&self) -> Timestamp {
        wall(self.now, self.off)
    }

    pub(crate) fn moment(&self) -> Now {
        Now { wall: self.wall(), steady: Steady::after_start(Duration::from_secs(self.now - self.started.0)) }
    }

    fn limits(&self) -> Limits {
        Limits {
            lease: Duration::from_secs(LEASE),
            heartbeat: Duration::from_secs(5),
            phone_home_deadline: Duration::from_secs(900),
            oldest_protocol: 1,
            horizon: Horizon {
                as_of: self.beat,
                started: wall(self.started.0, self.started.1),
                lease: Duration::from_secs(LEASE),
            },
        }
    }

    pub(crate) fn newest(&self) -> Option<&Workflow> {
        let name = self.stored.machine.status.as_ref()?.workflow.as_ref()?;
        self.stored.workflows.iter().find(|workflow| workflow.metadata.name == *name)
    }

    /// Hands in one input as the engine does; false if the process ended on the way.
    pub(crate) fn hand(&mut self, of: Option<Uuid>, input: impl Fn(Which) -> Input) -> Result<bool, Refusal> {
        self.hand_in(of, &input)
    }

    fn hand_in(&mut self, of: Option<Uuid>, input: &dyn Fn(Which) -> Input) -> Result<bool, Refusal> {
        let newest = self.newest().cloned();
        let is_newest = of.is_none() || newest.as_ref().is_some_and(|w| w.metadata.uid == of);
        let older = self.stored.workflows.iter().find(|w| w.metadata.uid == of && !is_newest).cloned();
        let which = if is_newest { Which::Newest } else { Which::Older };
        let state = MachineState { machine: self.stored.machine.clone(), newest, older, session: self.session.clone() };
        let (state, effects) = step(&self.limits(), state, input(which), self.moment());
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
                Effect::Alarm { .. } | Effect::LeaveQueue | Effect::MarkDeleted | Effect::Remove => {}
                Effect::Fence { epoch, reason } => {
                    let tell = Word::Tell(Tell::Fenced { epoch, reason });
                    let at = self.now;
                    if let Some((_, line)) = &mut self.line {
                        line.push_back(Sent { at, what: tell });
                    }
                }
                Effect::Open(epoch) => {
                    let old = self.line.replace((epoch.get(), VecDeque::new()));
                    self.older_lines.extend(old);
                }
                Effect::Send(tell) => self.send(Word::Tell(tell)),
                Effect::Assign { of, starts } => {
                    let holder = self.stored.machine.status.as_ref().and_then(|s| s.session.as_ref());
                    assert!(holder.is_some_and(|holder| holder.leased), "an assignment whose lease is not stored");
                    let workflow = state.workflow(of).and_then(|w| w.metadata.uid).unwrap();
                    let starts = starts.iter().map(|start| (start.index, start.attempt)).collect();
                    self.send(Word::Assign { workflow, starts });
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
        let at = self.now;
        if let Some((_, line)) = &mut self.line {
            line.push_back(Sent { at, what });
        }
    }

    fn store(&mut self, workflow: &Workflow) {
        let stored = self.stored.workflows.iter_mut().find(|w| w.metadata.name == workflow.metadata.name).unwrap();
        *stored = workflow.clone();
    }

    /// The process ends and starts again, `away` seconds later; what the log holds beyond the statuses is replayed.
    pub(crate) fn restart(&mut self, away: u64) {
        self.now += away;
        self.session = None;
        self.line = None;
        self.older_lines.clear();
        self.settling.clear();
        self.crash_after = None;
        self.started = (self.now, self.off);
        let _refused = self.hand(None, |_| Input::Started);
        let Some(newest) = self.newest().filter(|w| is_open(w) && has_begun(w)).cloned() else { return };
        let applied = newest.status.as_ref().map_or(0, |status| status.applied);
        let beyond: Vec<(u64, EventRecord)> = (1u64..)
            .zip(self.stored.log.clone())
            .filter(|(position, record)| *position > applied && Some(record.workflow_uid) == newest.metadata.uid)
            .collect();
        let _refused = self.hand(None, |_| Input::Replayed(beyond.clone()));
    }

    /// The store is put back from a copy.
    pub(crate) fn restore(&mut self, copy: Stored) {
        self.stored = copy;
        self.beat = None;
        self.restart(30);
        self.beat = Some(self.wall());
    }

    /// Everything that time does, as the ticker does it.
    pub(crate) fn tick(&mut self) {
        let due: Vec<Epoch> = self.settling.iter().filter(|(at, _)| *at <= self.now).map(|(_, epoch)| *epoch).collect();
        self.settling.retain(|(at, _)| *at > self.now);
        for epoch in due {
            let _refused = self.hand(None, |_| Input::Settled { epoch });
        }
        let _refused = self.hand(None, |_| Input::Tick);
        self.beat = Some(self.wall());
    }

    pub(crate) fn set_clock(&mut self, by: i64) {
        self.off += by;
        let _refused = self.hand(None, |_| Input::ClockSet(SignedDuration::from_secs(by)));
    }

    /// A person asks for an install, with `--force` or without; the workflow's uid if there is one now.
    pub(crate) fn provision(&mut self, force: bool) -> Option<Uuid> {
        let by = person(self.wall(), force);
        self.hand(None, |_| Input::MakeWay(force.then(|| by.clone()))).ok()?;
        if landfall_machine::is_held(&self.stored.machine).is_some() && !force {
            return None;
        }
        self.next += 1;
        let (uid, name) = (Uuid::from_u128(self.next), format!("w{}", self.next));
        let digest = format!("sha256:{}", "0a".repeat(32));
        let list = json!([
            {"name": "write", "retry": {"maxAttempts": 2}, "writeImage": {"image": {"url": "http://h/i", "digest": digest}}},
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
        self.stored.workflows.push(workflow);
        let _refused = self.hand(None, |_| Input::Launched);
        Some(uid)
    }

    /// The last moment's epoch of the newest session, if its stream is up.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.session.as_ref().filter(|session| session.is_connected()).map(|session| session.epoch().get())
    }
}
