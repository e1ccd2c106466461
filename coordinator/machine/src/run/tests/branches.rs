//! Branches that run at once.

use landfall_api::ActionState;

use super::*;

/// Two disks at once, each with its seed, then the restart.
pub(super) fn two_disks() -> WorkflowStatus {
    let write = |name: &str, branch: &str, serial: &str| {
        json!({"name": name, "branch": branch,
            "writeImage": {"disk": {"serial": serial}, "image": {"url": "http://h/i", "digestWaived": true}}})
    };
    list(json!([
        write("root", "a", "D1"), write("data", "b", "D2"),
        {"name": "seed", "branch": "a", "cloudInit": {"disk": {"serial": "D1"}}},
        {"name": "restart", "reboot": {}},
    ]))
}

/// The `done` receipt of the action at `index`, on the disk of that serial.
pub(super) fn done(index: u32, serial: &str) -> DiskReceipt {
    let mut receipt = receipt(ReceiptState::Done);
    receipt.receipt.action_index = index;
    receipt.disk.serial = serial.into();
    receipt
}

fn starts(pairs: &[(u32, u32)]) -> Vec<Effect> {
    vec![Effect::Assign {
        starts: pairs.iter().map(|(index, attempt)| Start { index: *index, attempt: *attempt }).collect(),
    }]
}

#[test]
fn branches_begin_at_once_and_what_follows_waits_for_both() {
    let mut story = Story::of(two_disks());
    assert_eq!(story.then(connected(1, vec![])), starts(&[(0, 1), (1, 1)]));
    story.does(1, 0, 1);
    story.does(1, 2, 1);
    assert_eq!(story.state.actions[3].attempt, 0, "the other branch is not through");
    story.then(report(1, 3, 1, EventBody::Started));
    assert!(story.state.actions[3].started_at.is_none(), "and nothing that an agent says begins it");
    story.does(1, 1, 1);
    assert_eq!(story.state.actions[3].attempt, 1);
    story.does(1, 3, 1);
    assert_eq!(story.state.phase, WorkflowPhase::Rebooting);
}

#[test]
fn after_a_power_cut_each_branch_continues() {
    let mut story = Story::of(two_disks());
    story.then(connected(1, vec![]));
    story.does(1, 0, 1);
    story.then(report(1, 2, 1, EventBody::Started));
    story.then(report(1, 1, 1, EventBody::Started));
    assert_eq!(story.then(connected(2, vec![done(0, "D1")])), starts(&[(1, 2), (2, 2)]));
    // The other disk turns out to have been committed: only the first branch is left.
    let mut story = Story::of(two_disks());
    story.then(connected(1, vec![]));
    assert_eq!(story.then(connected(2, vec![done(1, "D2")])), starts(&[(0, 2)]));
    assert_eq!(story.state.actions[0].state, ActionState::Running, "a receipt of one branch says nothing of the other");
}

#[test]
fn only_a_branch_that_fails_for_good_fails_the_workflow() {
    let mut story = Story::of(two_disks());
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.then(report(1, 1, 1, EventBody::Started));
    assert_eq!(story.then(report(1, 0, 1, failed(true))), []);
    story.does(1, 1, 1);
    assert!(matches!(story.then(report(1, 0, 2, EventBody::Started))[..], []));
    assert!(matches!(story.then(report(1, 0, 2, failed(false)))[..], [Effect::StopAgent { .. }]));
    let states = [0, 1, 2, 3].map(|n| story.state.actions[n].state);
    use ActionState::{Failed, Skipped, Succeeded};
    assert_eq!(states, [Failed, Succeeded, Skipped, Skipped]);
}

#[test]
fn the_leases_of_all_branches_end_and_begin_together() {
    let mut story = Story::of(two_disks());
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.then(report(1, 1, 1, EventBody::Started));
    assert_eq!(story.then(report(1, 0, 1, lease_expired())), starts(&[(0, 2), (1, 2)]));
    assert_eq!(story.then(report(1, 1, 1, lease_expired())), [], "of the attempt before: it orders nothing twice");
}

#[test]
fn a_hold_in_one_branch_stops_only_that_one() {
    let mut story = Story::of(list(json!([
        {"name": "wait", "branch": "a", "hold": {"message": "m"}}, {"name": "seed", "branch": "b", "cloudInit": {}},
        {"name": "after", "branch": "a", "cloudInit": {}}])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.does(1, 1, 1);
    assert_eq!(story.state.actions[1].state, ActionState::Succeeded);
    story.then(Event::Resumed);
    assert_eq!(story.state.actions[2].attempt, 1);
}

#[test]
fn a_branch_that_is_overdue_is_the_one_named() {
    let mut story = Story::of(two_disks());
    story.then(connected(1, vec![]));
    story.does(1, 0, 1);
    story.then(report(1, 2, 1, EventBody::Started));
    story.now += 3600;
    story.then(Event::Tick);
    let problem = story.state.problem.unwrap();
    assert!(problem.message.contains("\"seed\""), "{problem}");
}
