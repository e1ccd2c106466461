//! Whatever arrives in whatever order: duplicates, reordering, stale epochs, clock jumps, persons at any point.

use std::collections::HashSet;

use landfall_api::ActionState;
use proptest::prelude::*;

use super::{branches::done, *};
use crate::run::frontier::{frontier, is_write};

/// Two branches, a hold, a restart, a kexec; a pair of actions after a failure.
fn lists() -> Vec<WorkflowStatus> {
    let write = |name: &str, serial: &str| json!({"name": name, "writeImage": {"disk": {"serial": serial}, "image": {"url": "http://h/i", "digestWaived": true}}});
    let branched = |mut action: serde_json::Value, branch: &str| {
        action["branch"] = branch.into();
        action
    };
    let with_after = |mut state: WorkflowStatus| {
        let after: Vec<Action> = serde_json::from_value(json!([
            {"name": "look", "hold": {"message": "m"}}, {"name": "off", "powerOff": {}}]))
        .unwrap();
        state.on_failure = after.into_iter().map(ActionStatus::pending).collect();
        state
    };
    let line = list(json!([write("w", "D0"), {"name": "s", "cloudInit": {}}, {"name": "h", "hold": {"message": "m"}},
        {"name": "r", "reboot": {}}]));
    let tree = list(json!([
        branched(write("a", "D0"), "a"), branched(write("b", "D1"), "b"),
        branched(json!({"name": "h", "hold": {"message": "m"}}), "a"), {"name": "r", "reboot": {}}]));
    let handed_on = WorkflowStatus { takes_over: vec![Uuid::from_u128(6)], ..line.clone() };
    let jump = list(json!([write("w", "D0"), {"name": "s", "cloudInit": {}}, {"name": "k", "kexec": {}}]));
    vec![with_after(line.clone()), with_after(tree.clone()), line, tree, handed_on, with_after(jump.clone()), jump]
}

/// Indices of writes in every list above, each with its disk.
const WRITES: [(u32, &str); 2] = [(0, "D0"), (1, "D1")];

fn mark(index: u32, serial: &str, state: ReceiptState) -> DiskReceipt {
    let mut mark = done(index, serial);
    mark.receipt.state = state;
    mark
}

fn any_receipts() -> impl Strategy<Value = Vec<DiskReceipt>> {
    prop::collection::vec((0..2usize, any::<bool>(), prop::option::weighted(0.1, Just(6u128))), 0..3).prop_map(
        |marks| {
            marks
                .into_iter()
                .map(|(n, finished, other)| {
                    let state = if finished { ReceiptState::Done } else { ReceiptState::Intent };
                    let mut mark = mark(WRITES[n].0, WRITES[n].1, state);
                    if let Some(uid) = other {
                        mark.receipt.workflow_uid = Uuid::from_u128(uid);
                    }
                    mark
                })
                .collect()
        },
    )
}

fn any_body() -> impl Strategy<Value = EventBody> {
    prop_oneof![
        4 => Just(EventBody::Started),
        4 => Just(EventBody::Finished { result: ActionResult::Hold }),
        1 => any::<bool>().prop_map(failed),
        1 => Just(lease_expired()),
        2 => (0..2usize, any::<bool>()).prop_map(|(n, finished)| {
            let state = if finished { ReceiptState::Done } else { ReceiptState::Intent };
            EventBody::ReceiptWritten { receipt: mark(WRITES[n].0, WRITES[n].1, state) }
        }),
    ]
}

fn any_event() -> impl Strategy<Value = (i64, Event)> {
    let event = prop_oneof![
        3 => (1..6u64, any_receipts(), any::<bool>(), prop::sample::select(vec![1u32, 2, 3, 3, 3, 3, 4])).prop_map(
            |(epoch, receipts, still_running, protocol)| Event::AgentConnected { epoch, receipts, still_running, protocol }
        ),
        12 => (1..6u64, 0..6u32, 1..4u32, any_body())
            .prop_map(|(epoch, index, attempt, body)| report(epoch, index, attempt, body)),
        1 => Just(Event::PhonedHome),
        1 => Just(Event::Cancelled(person())),
        2 => Just(Event::Paused(person())),
        2 => Just(Event::Resumed),
        2 => Just(Event::Tick),
    ];
    // Clocks go back as well.
    (prop_oneof![9 => 0..10i64, 1 => 0..20_000i64, 1 => -20_000..0i64], event)
}

fn frozen(state: &WorkflowStatus) -> WorkflowStatus {
    WorkflowStatus { phoned_home_at: None, applied: 0, ..state.clone() }
}

/// What a person says twice is said twice: the second resume lets a hold go, the second cancel cuts short what follows.
fn is_persons(event: &Event) -> bool {
    matches!(event, Event::Resumed | Event::Cancelled(_))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn whatever_arrives_in_whatever_order(
        which in 0..lists().len(),
        events in prop::collection::vec(any_event(), 1..80),
    ) {
        let first = lists().swap_remove(which);
        let (mut state, mut now) = (first.clone(), 100_000);
        let (mut started, mut done, mut lists_of_epoch) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut replay = Vec::new();
        for (later, event) in events {
            now += later;
            replay.push((now, event.clone()));
            let (after, effects) = step(&CONTEXT, state.clone(), &event, at(now));
            if !is_persons(&event) {
                // Sent twice, it counts once: nothing is ordered again, nothing goes back.
                let (twice, again) = step(&CONTEXT, after.clone(), &event, at(now));
                prop_assert!(!again.iter().any(|e| matches!(e, Effect::Assign { .. })), "a repeat ordered a start");
                prop_assert_eq!(twice.phase, after.phase);
            }
            if state.phase.is_terminal() {
                prop_assert_eq!(frozen(&state), frozen(&after), "a terminal state changed");
            }
            for (index, action) in state.actions.iter().enumerate() {
                if action.state == ActionState::Succeeded {
                    prop_assert_eq!(after.actions[index].state, ActionState::Succeeded, "what was done is done");
                }
            }
            let own = |r: &&DiskReceipt| r.receipt.workflow_uid == RUN || state.takes_over.contains(&r.receipt.workflow_uid);
            // A receipt of an action that writes nothing means nothing.
            let writes = |r: &&DiskReceipt| state.actions.get(r.receipt.action_index as usize).is_some_and(is_write);
            let marked = state.expected_receipts.iter().filter(own).filter(writes);
            done.extend(marked.filter(|r| r.receipt.state == ReceiptState::Done).map(|r| r.receipt.action_index));
            done.extend((0u32..).zip(&state.actions).filter(|(_, a)| a.state == ActionState::Succeeded).map(|(n, _)| n));
            for effect in &effects {
                let Effect::Assign { starts } = effect else { continue };
                prop_assert!(!starts.is_empty());
                prop_assert!(after.paused.is_none(), "a paused run was handed out");
                prop_assert!(after.phase == WorkflowPhase::Running);
                let at: Vec<u32> = frontier(&after).into_iter().map(|n| n as u32).collect();
                prop_assert_eq!(starts.iter().map(|s| s.index).collect::<Vec<_>>(), at, "not where the run stands");
                for start in starts {
                    prop_assert!(started.insert((start.index, start.attempt)), "started twice under one number");
                    prop_assert!(!done.contains(&start.index), "what was done is to be done again");
                }
                prop_assert_eq!(after.held_under, after.epoch, "handed to another session than the newest");
                lists_of_epoch.insert(after.epoch);
            }
            prop_assert!(after.epoch >= state.epoch, "an older session took over");
            let waits = match after.phase {
                // A person powers the machine on; a person resumes, within a bound.
                WorkflowPhase::Pending => after.paused.is_some(),
                WorkflowPhase::Running | WorkflowPhase::Rebooting => true,
                _ => false,
            };
            prop_assert_eq!(waits, after.deadline.is_some(), "a state without a deadline, or an end with one");
            prop_assert_eq!(after.phase.is_terminal(), after.ended_at.is_some());
            if let WorkflowPhase::Failed | WorkflowPhase::Cancelled = after.phase {
                prop_assert!(after.problem.is_some(), "an end without a reason");
            }
            if state.ending.is_some() && after.phase.is_terminal() {
                prop_assert_eq!((Some(after.phase), &after.problem), (state.ending, &state.problem), "another reason");
            }
            state = after;
        }
        // The same story again is the same to the letter.
        let again = replay.into_iter().fold(first, |state, (now, event)| step(&CONTEXT, state, &event, at(now)).0);
        prop_assert_eq!(again, state);
    }

    /// An agent that obeys, whatever else happens, brings every run to its end, and writes no disk twice.
    #[test]
    fn time_alone_ends_every_run_that_has_begun(
        which in 0..lists().len(),
        events in prop::collection::vec(any_event(), 0..40),
    ) {
        let mut state = lists().swap_remove(which);
        let mut now = 100_000;
        for (later, event) in events {
            now += later;
            state = step(&CONTEXT, state, &event, at(now)).0;
        }
        for _ in 0..8 {
            let Some(deadline) = state.deadline else { break };
            state = step(&CONTEXT, state, &Event::Tick, deadline).0;
        }
        prop_assert!(state.phase.is_terminal() || state.phase == WorkflowPhase::Pending, "{:?}", state.phase);
    }
}
