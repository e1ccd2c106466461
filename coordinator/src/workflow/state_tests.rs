//! Claims about the state machine: single stories, and whatever may arrive in whatever order.

use std::{collections::HashSet, time::Duration};

use jiff::Timestamp;
use landfall_api::{
    Action, ActionState, ActionStatus, Authority, DiskId, DiskReceipt, ErrorCode, Problem, Receipt, ReceiptState,
    WorkflowPhase, WorkflowStatus,
};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use super::{ActionResult, Context, Effect, Event, EventBody, EventRecord, step};

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

fn fresh() -> WorkflowStatus {
    let action = |action| ActionStatus {
        action,
        state: ActionState::Pending,
        attempt: 0,
        failures: 0,
        started_at: None,
        ended_at: None,
        problem: None,
        progress: None,
    };
    WorkflowStatus {
        phase: WorkflowPhase::Pending,
        conditions: vec![],
        actions: actions().into_iter().map(action).collect(),
        machine_generation: 1,
        expected_receipts: vec![],
        problem: None,
        started_at: None,
        rebooted_at: None,
        phoned_home_at: None,
        ended_at: None,
        deadline: None,
        epoch: 0,
        applied: 0,
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
    Event::AgentConnected { epoch, receipts, still_running: false }
}

fn report(epoch: u64, action_index: u32, attempt: u32, body: EventBody) -> Event {
    let record = EventRecord { workflow_uid: RUN, action_index, attempt, seq: 1, time: Timestamp::UNIX_EPOCH, body };
    Event::Agent { epoch, position: 1, record: Box::new(record) }
}

fn finished(index: u32) -> EventBody {
    let result = match index {
        0 => ActionResult::WriteImage {
            receipt: Some(receipt(ReceiptState::Done)),
            written: true,
            stored_bytes: 1,
            raw_bytes: 1,
            written_bytes: 7,
            elapsed_ms: 1,
        },
        1 => ActionResult::CloudInit { root_device: "/dev/vda1".into() },
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
        Self { state: fresh(), now: 0 }
    }
    fn then(&mut self, event: Event) -> Vec<Effect> {
        self.now += 1;
        let (state, effects) = step(&CONTEXT, &self.state, event, at(self.now));
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

fn assign(start_index: u32, start_attempt: u32) -> Vec<Effect> {
    vec![Effect::Assign { start_index, start_attempt }]
}

#[test]
fn a_run_goes_from_pending_to_succeeded_by_phone_home() {
    let mut story = Story::new();
    assert_eq!(story.then(connected(1, vec![])), assign(0, 1));
    let mut story = Story::installed();
    assert_eq!(story.state.phase, WorkflowPhase::Rebooting);
    assert_eq!(story.state.deadline, Some(at(story.now + 900)));
    // Netbooted again before it phoned home.
    assert_eq!(story.then(connected(2, vec![])), [Effect::Idle { boot_disk: true }]);
    story.then(Event::PhonedHome);
    assert_eq!(story.state.phase, WorkflowPhase::Succeeded);
}

#[test]
fn what_a_write_came_to_is_shown_whatever_became_of_its_last_progress() {
    let story = Story::installed();
    let progress = story.state.actions[0].progress.as_ref().expect("a finished write has a last progress");
    assert_eq!((progress.written_bytes, progress.stage.as_str()), (7, "done"));
}

#[test]
fn a_done_receipt_found_after_a_power_cut_counts_as_success_and_nothing_is_written_again() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Done)])), assign(1, 1));
    assert_eq!(story.state.actions[0].state, ActionState::Succeeded);
}

#[test]
fn an_intent_receipt_means_the_same_action_again_under_the_next_attempt() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    assert_eq!(story.then(connected(2, vec![receipt(ReceiptState::Intent)])), assign(0, 2));
    assert_eq!(story.state.actions[0].failures, 0, "an interruption uses up no retry");
    assert_eq!(story.state.expected_receipts, [receipt(ReceiptState::Intent)]);
}

#[test]
fn a_disk_that_lost_its_done_receipt_stops_the_run_instead_of_being_written_again() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    let effects = story.then(connected(2, vec![]));
    assert!(matches!(effects[..], [Effect::StopAgent { .. }]));
    assert_eq!(story.state.problem.unwrap().code, ErrorCode::ReceiptMismatch);
}

#[test]
fn a_late_phone_home_is_noted_and_leaves_the_failed_run_failed() {
    let mut story = Story::installed();
    story.now += 901;
    story.then(Event::Tick);
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    assert_eq!(story.state.problem.as_ref().unwrap().code, ErrorCode::NoPhoneHome);
    assert_eq!(story.then(connected(2, vec![])), [Effect::Idle { boot_disk: false }], "never a retry");
    story.then(Event::PhonedHome);
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    assert!(story.state.phoned_home_at.is_some());
}

#[test]
fn without_phone_home_the_reboot_is_the_end() {
    let mut story = Story::new();
    story.state.actions[1].action =
        serde_json::from_value(json!({"name": "seed", "cloudInit": {"phoneHome": {"enabled": false}}})).unwrap();
    story.then(connected(1, vec![]));
    for index in 0..3 {
        story.then(report(1, index, 1, finished(index)));
    }
    assert_eq!(story.state.phase, WorkflowPhase::Succeeded);
}

#[test]
fn failures_are_retried_as_often_as_the_policy_says() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    for attempt in 1..=3 {
        assert_eq!(story.state.phase, WorkflowPhase::Running);
        story.then(report(1, 0, attempt, EventBody::Started));
        story.then(report(1, 0, attempt, failed(true)));
    }
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
    assert_eq!(story.state.actions[1].state, ActionState::Skipped);

    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, failed(false)));
    assert_eq!(story.state.phase, WorkflowPhase::Failed, "what is not retryable is not retried");
}

#[test]
fn a_failure_after_the_commit_is_never_retried() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    story.then(report(1, 0, 1, failed(true)));
    assert_eq!(story.state.phase, WorkflowPhase::Failed);
}

#[test]
fn an_agent_that_still_works_gets_its_lease_renewed_and_no_second_start() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    let event = Event::AgentConnected { epoch: 2, receipts: vec![], still_running: true };
    assert_eq!(story.then(event), [Effect::RenewLease]);
    story.then(report(2, 0, 1, finished(0)));
    assert_eq!(story.state.actions[0].state, ActionState::Succeeded);
}

#[test]
fn an_action_that_never_ends_stops_at_its_deadline_and_says_what_it_waited_for() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.now += 5 * 3600;
    story.then(Event::Tick);
    let problem = story.state.problem.unwrap();
    assert_eq!(problem.code, ErrorCode::Timeout);
    assert!(problem.message.contains("attempt 1 of action \"write\""), "{problem}");
}

#[test]
fn an_agent_whose_lease_ran_out_is_given_its_list_again_and_it_counts_as_no_failure() {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    assert_eq!(story.then(report(1, 0, 1, lease_expired())), assign(0, 2));
    assert_eq!(story.state.actions[0].failures, 0);
    // After the commit it is the next action that goes on.
    story.then(report(1, 0, 2, EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }));
    assert_eq!(story.then(report(1, 0, 2, lease_expired())), assign(1, 1));
}

#[test]
fn an_action_that_is_interrupted_without_end_gives_up() {
    let mut story = Story::new();
    for epoch in 1..100 {
        story.then(connected(epoch, vec![]));
    }
    assert_eq!(story.state.problem.unwrap().code, ErrorCode::LimitReached);
}

fn any_event() -> impl Strategy<Value = (i64, Event)> {
    let receipts =
        prop_oneof![Just(vec![]), Just(vec![receipt(ReceiptState::Intent)]), Just(vec![receipt(ReceiptState::Done)]),];
    let body = |index: u32| {
        prop_oneof![
            3 => Just(EventBody::Started),
            3 => Just(finished(index)),
            1 => any::<bool>().prop_map(failed),
            1 => Just(lease_expired()),
            1 => Just(EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Intent) }),
            1 => Just(EventBody::ReceiptWritten { receipt: receipt(ReceiptState::Done) }),
        ]
    };
    let event = prop_oneof![
        3 => (1..6u64, receipts, any::<bool>()).prop_map(|(epoch, receipts, still_running)| {
            Event::AgentConnected { epoch, receipts, still_running }
        }),
        8 => (1..6u64, 0..3u32, 1..4u32).prop_flat_map(move |(epoch, index, attempt)| {
            body(index).prop_map(move |body| report(epoch, index, attempt, body))
        }),
        1 => Just(Event::PhonedHome),
        1 => Just(Event::Cancelled(person())),
        1 => Just(Event::Tick),
    ];
    (prop_oneof![9 => 0..10i64, 1 => 0..20_000i64], event)
}

fn frozen(state: &WorkflowStatus) -> WorkflowStatus {
    WorkflowStatus { phoned_home_at: None, applied: 0, ..state.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_arrives_in_whatever_order(events in prop::collection::vec(any_event(), 1..60)) {
        let (mut state, mut now) = (fresh(), 0);
        let (mut started, mut done) = (HashSet::new(), false);
        for (later, event) in events {
            now += later;
            let (after, effects) = step(&CONTEXT, &state, event.clone(), at(now));
            // Sent twice, it counts once: nothing is ordered again, nothing goes back.
            let (twice, again) = step(&CONTEXT, &after, event, at(now));
            prop_assert!(!again.iter().any(|e| matches!(e, Effect::Assign { .. })), "a repeat ordered a start");
            prop_assert_eq!(twice.phase, after.phase);
            if state.phase.is_terminal() {
                prop_assert_eq!(frozen(&state), frozen(&after), "a terminal state changed");
            }
            done |= state.expected_receipts.iter().any(|r| r.receipt.state == ReceiptState::Done)
                || state.actions[0].state == ActionState::Succeeded;
            for effect in effects {
                if let Effect::Assign { start_index, start_attempt } = effect {
                    prop_assert!(started.insert((start_index, start_attempt)), "started twice under one number");
                    prop_assert!(!done || start_index > 0, "a disk that was done is to be written again");
                    prop_assert!(after.actions[..start_index as usize].iter().all(|a| a.state == ActionState::Succeeded));
                }
            }
            let waits = matches!(after.phase, WorkflowPhase::Running | WorkflowPhase::Rebooting);
            prop_assert_eq!(waits, after.deadline.is_some(), "a state without a deadline");
            state = after;
        }
    }
}
