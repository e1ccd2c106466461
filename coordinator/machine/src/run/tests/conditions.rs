//! Slow, silent and stuck: three conditions, each for its own reason.

use landfall_api::{ConditionStatus, Progress, Workflow};

use super::*;
use crate::run::conditions::{Heard, derive};

const LIMIT: Duration = Duration::from_secs(15);
const NETBOOT: Duration = Duration::from_secs(900);

fn of(state: &WorkflowStatus, heard: Option<i64>, now: i64) -> Vec<(String, bool, String)> {
    let tree = json!({"apiVersion": landfall_api::API_VERSION, "kind": "Workflow", "metadata": {"name": "run", "uid": RUN},
        "spec": {"machine": "m1", "template": "os"}, "status": state});
    let mut workflow: Workflow = serde_json::from_value(tree).unwrap();
    let heard = Some(Heard { last: heard.map(at), limit: LIMIT, netboot: NETBOOT, gave_up: false });
    assert!(derive(&mut workflow, heard, at(now)));
    assert!(!derive(&mut workflow, heard, at(now)), "nothing new: no write");
    let conditions = workflow.status.unwrap().conditions;
    conditions
        .into_iter()
        .map(|c| (c.kind.to_string(), c.status == ConditionStatus::True, c.reason.to_string()))
        .collect()
}

/// Which of the three hold, and why.
fn troubles(state: &WorkflowStatus, heard: Option<i64>, now: i64) -> Vec<String> {
    let three = |(kind, holds, reason): (String, bool, String)| {
        (holds && ["Slow", "Silent", "Stuck"].contains(&kind.as_str())).then(|| format!("{kind} {reason}"))
    };
    of(state, heard, now).into_iter().filter_map(three).collect()
}

fn writing() -> Story {
    let mut story = Story::new();
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    story.state.actions[0].progress =
        Some(Progress { raw_bytes: 50, raw_total: 100, bytes_per_second: 1, ..Progress::default() });
    story
}

#[test]
fn a_write_that_moves_in_time_is_none_of_them() {
    let story = writing();
    assert_eq!(troubles(&story.state, Some(story.now), story.now), [""; 0]);
}

#[test]
fn a_write_without_progress_under_a_live_agent_is_slow() {
    let mut story = writing();
    let later = story.now + 120;
    assert_eq!(troubles(&story.state, Some(later), later), ["Slow NoProgress"]);
    story.state.actions[0].moved_at = Some(at(later));
    assert_eq!(troubles(&story.state, Some(later), later), [""; 0]);
    story.state.actions[0].progress.as_mut().unwrap().raw_total = 100_000;
    assert_eq!(troubles(&story.state, Some(later), later), ["Slow BehindDeadline"]);
}

#[test]
fn a_silent_agents_pace_is_not_judged() {
    let story = writing();
    let later = story.now + 3000;
    assert_eq!(troubles(&story.state, Some(story.now), later), ["Silent NoHeartbeat"]);
    assert_eq!(troubles(&story.state, None, story.now), ["Silent NoSession"]);
}

#[test]
fn a_state_whose_deadline_is_near_or_past_is_stuck() {
    let mut story = writing();
    story.state.actions[0].progress = None;
    let deadline = story.state.deadline.unwrap().duration_since(at(0)).as_secs();
    assert_eq!(troubles(&story.state, Some(deadline - 1), deadline - 1), ["Stuck DeadlineNear"]);
    assert_eq!(troubles(&story.state, Some(deadline), deadline), ["Stuck DeadlinePassed"]);
}

#[test]
fn a_pause_and_a_hold_say_whom_they_wait_for() {
    let mut story = Story::of(list(json!([{"name": "look", "hold": {"message": "check the cables"}}])));
    story.then(connected(1, vec![]));
    story.then(report(1, 0, 1, EventBody::Started));
    let found = of(&story.state, Some(story.now), story.now);
    assert!(found.contains(&("Progressing".into(), false, "Holding".into())), "{found:?}");
    story.then(Event::Paused(person()));
    let found = of(&story.state, Some(story.now), story.now);
    assert!(found.contains(&("Paused".into(), true, "ByPerson".into())), "{found:?}");
    let waiting = of(&fresh(), None, 0);
    assert!(waiting.contains(&("Stuck".into(), false, "NoDeadline".into())), "{waiting:?}");
}

#[test]
fn a_machine_that_never_netboots_is_not_seen() {
    let story = Story::new();
    let tree = json!({"apiVersion": landfall_api::API_VERSION, "kind": "Workflow",
        "metadata": {"name": "run", "uid": RUN, "creationTimestamp": at(story.now)},
        "spec": {"machine": "m1", "template": "os"}, "status": story.state});
    let mut workflow: Workflow = serde_json::from_value(tree).unwrap();
    let mut look = |heard: Option<i64>, now: i64| {
        let heard = Heard { last: heard.map(at), limit: LIMIT, netboot: NETBOOT, gave_up: false };
        derive(&mut workflow, Some(heard), at(now));
        let conditions = &workflow.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|c| c.kind == "NotSeen");
        found.map(|c| (c.status == ConditionStatus::True, c.since, c.message.contains("power")))
    };
    assert_eq!(look(None, story.now + 899), None, "nothing is said of one that may still come");
    let since = at(story.now + 900);
    assert_eq!(look(None, story.now + 900), Some((true, since, true)));
    assert_eq!(look(None, story.now + 5000), Some((true, since, true)));
    assert_eq!(look(Some(story.now + 5010), story.now + 5010).map(|(holds, ..)| holds), Some(false));
}
