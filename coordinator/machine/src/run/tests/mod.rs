//! Claims about the state machine: single stories, persons' requests, branches, conditions, and whatever may arrive in
//! whatever order.

mod branches;
mod conditional;
mod conditions;
mod failures;
mod persons;
mod properties;
mod restarts;
mod stories;

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::message::{CloudInitResult, WriteImageResult};
use landfall_api::{
    Action, ActionStatus, Authority, DiskId, DiskReceipt, ErrorCode, Problem, Receipt, ReceiptState, WorkflowPhase,
    WorkflowStatus,
};
use serde_json::json;
use uuid::Uuid;

use landfall_api::message::{ActionResult, EventBody, EventRecord};

use super::{Context, Effect, Event, Start, step};

/// The newest protocol revision that any action needs.
const PROTOCOL: u32 = landfall_api::ActionSpec::NEWEST_PROTOCOL;
const RUN: Uuid = Uuid::from_u128(7);
const CONTEXT: Context =
    Context { workflow_uid: RUN, lease: Duration::from_secs(600), phone_home_deadline: Duration::from_secs(900) };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn actions() -> Vec<Action> {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let list = json!([
        {"name": "write", "writeImage": {"image": {"url": "http://h/i", "digest": digest}}},
        {"name": "seed", "cloudInit": {}},
        {"name": "restart", "reboot": {}},
    ]);
    serde_json::from_value(list).unwrap()
}

fn list(actions: serde_json::Value) -> WorkflowStatus {
    let actions: Vec<Action> = serde_json::from_value(actions).unwrap();
    WorkflowStatus { actions: actions.into_iter().map(ActionStatus::pending).collect(), ..WorkflowStatus::default() }
}

fn fresh() -> WorkflowStatus {
    WorkflowStatus {
        actions: actions().into_iter().map(ActionStatus::pending).collect(),
        machine_generation: 1,
        ..WorkflowStatus::default()
    }
}

fn receipt(state: ReceiptState) -> DiskReceipt {
    DiskReceipt {
        disk: DiskId { serial: "D1".into(), size_bytes: 1 << 30, ..DiskId::default() },
        receipt: Receipt {
            machine_uid: Uuid::from_u128(1),
            workflow_uid: RUN,
            workflow_name: "run".into(),
            generation: 1,
            action_index: 0,
            image_digest: None,
            state,
            written_at: Timestamp::UNIX_EPOCH,
        },
    }
}

fn connected(epoch: u64, receipts: Vec<DiskReceipt>) -> Event {
    Event::AgentConnected { epoch, receipts, still_running: false, protocol: PROTOCOL }
}

fn report(epoch: u64, action_index: u32, attempt: u32, body: EventBody) -> Event {
    let record = EventRecord { workflow_uid: RUN, action_index, attempt, seq: 1, time: Timestamp::UNIX_EPOCH, body };
    Event::Agent { epoch, position: 1, record: Box::new(record) }
}

fn finished(index: u32) -> EventBody {
    let result = match index {
        0 => ActionResult::WriteImage(WriteImageResult {
            receipt: Some(receipt(ReceiptState::Done)),
            written: true,
            stored_bytes: 1,
            raw_bytes: 1,
            written_bytes: 7,
            elapsed_ms: 1,
        }),
        1 => ActionResult::CloudInit(CloudInitResult { root_device: "/dev/vda1".into() }),
        _ => ActionResult::Reboot,
    };
    EventBody::Finished { result }
}

fn failed(retryable: bool) -> EventBody {
    EventBody::Failed { problem: Problem::new(ErrorCode::Truncated, "short"), retryable }
}

fn lease_expired() -> EventBody {
    EventBody::Failed { problem: Problem::new(ErrorCode::LeaseExpired, "unheard"), retryable: true }
}

fn person() -> Authority {
    Authority { person: "ann".into(), at: at(0), force: false }
}

struct Story {
    state: WorkflowStatus,
    now: i64,
}

impl Story {
    fn new() -> Self {
        Self::of(fresh())
    }
    fn of(state: WorkflowStatus) -> Self {
        Self { state, now: 0 }
    }
    /// One action of a session, from its start to its end.
    fn does(&mut self, epoch: u64, index: u32, attempt: u32) -> Vec<Effect> {
        self.then(report(epoch, index, attempt, EventBody::Started));
        self.then(report(epoch, index, attempt, EventBody::Finished { result: ActionResult::Hold }))
    }
    fn then(&mut self, event: Event) -> Vec<Effect> {
        self.now += 1;
        let (state, effects) = step(&CONTEXT, self.state.clone(), &event, at(self.now));
        self.state = state;
        effects
    }
    /// Up to the reboot's report.
    fn installed() -> Self {
        let mut story = Self::new();
        story.then(connected(1, vec![]));
        for index in 0..3 {
            story.then(report(1, index, 1, EventBody::Started));
            story.then(report(1, index, 1, finished(index)));
        }
        story
    }
}

fn assign(index: u32, attempt: u32) -> Vec<Effect> {
    vec![Effect::Assign { starts: vec![Start { index, attempt }] }]
}
