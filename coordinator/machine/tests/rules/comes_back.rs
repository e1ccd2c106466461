//! An agent comes back, or another comes: what it holds, and what it is sent first.

use landfall_api::message::Hello;
use landfall_machine::Tell;

use super::Story;
use super::happens::Happens;
use super::happens::Happens::*;
use super::site::{Site, Word};

/// The kinds of words that the newest session was sent, and the workflow of its last list.
fn sent(happens: impl IntoIterator<Item = Happens>) -> (Vec<&'static str>, Option<u128>) {
    let mut story = Story::new();
    story.over(happens.into_iter().collect()).unwrap();
    let words = story.site.line.unwrap().1;
    let list = |word: &Word| match word {
        Word::Assign { workflow, .. } => Some(workflow.as_u128()),
        Word::Tell(_) => None,
    };
    let last = words.iter().filter_map(list).next_back();
    let kind = |word: &Word| match word {
        Word::Assign { .. } => "assign",
        Word::Tell(Tell::LeaseRenewal { .. }) => "renewal",
        Word::Tell(Tell::Control { .. }) => "control",
        Word::Tell(Tell::Cancel { .. }) => "cancel",
        Word::Tell(Tell::Fenced { .. }) => "fenced",
        Word::Tell(Tell::Idle { .. }) => "idle",
    };
    (words.iter().map(kind).collect(), last)
}

#[test]
fn an_agent_at_its_list_goes_on_at_once() {
    let (words, _) = sent([Connects(0), Hears(0), Works(0), Disconnects(0, true), Connects(0)]);
    assert_eq!(words, ["renewal"]);
}

#[test]
fn an_agent_at_an_older_list_is_given_the_newest() {
    let lost = [Connects(0), Hears(0), Works(0), Cancels, Provisions { force: false, room: true }];
    let back = [Disconnects(0, false), Connects(0), Passes(3), Ticks];
    let (words, list) = sent(lost.into_iter().chain(back));
    assert_eq!((words, list), (vec!["cancel", "assign"], Some(102)));
}

#[test]
fn a_replaced_agent_is_given_its_list_at_once() {
    let (words, _) = sent([Connects(0), Hears(0), Passes(60), Connects(1), Passes(60), Connects(0)]);
    assert_eq!(words, ["assign"]);
}

/// It did not hear that its workflow was stopped, and its machine must not go before its lease has ended.
#[test]
fn an_agent_that_comes_back_keeps_its_lease() {
    let stopped = [Connects(0), Hears(0), Works(0), Disconnects(0, true), Cancels, Connects(0), Deletes];
    let mut story = Story::new();
    story.over(stopped.into()).unwrap();
    assert!(!story.site.removed);
    story.over(vec![Passes(60), Ticks]).unwrap();
    assert!(story.site.removed);
}

#[test]
fn an_agent_of_a_protocol_too_old_gets_no_session() {
    let hello = |protocol| Hello { protocol, boot_id: "a".into(), ..Hello::default() };
    assert_eq!(Site::new().hello(hello(0)), None);
    assert_eq!(Site::new().hello(hello(1)), Some(1));
}

#[test]
fn nothing_is_assigned_before_the_disks_are_known() {
    let (words, _) = sent([Scans(0), Connects(0), Passes(3), Ticks]);
    assert_eq!(words, [""; 0], "not even to boot its own disk");
    let (words, _) = sent([Scans(0), Connects(0), Finds(0)]);
    assert_eq!(words, ["assign"]);
}

#[test]
fn an_agent_at_its_list_goes_on_during_a_scan() {
    let (words, _) = sent([Connects(0), Hears(0), Works(0), Disconnects(0, true), Scans(0), Connects(0)]);
    assert_eq!(words, ["renewal"]);
}

/// How often the first action of the newest workflow saw the machine restart.
fn restarts(happens: impl IntoIterator<Item = Happens>) -> u32 {
    let mut story = Story::new();
    story.over(happens.into_iter().collect()).unwrap();
    let status = story.site.newest().unwrap().status.clone().unwrap();
    status.actions[0].restarts.as_ref().map_or(0, |restarts| restarts.count)
}

#[test]
fn only_another_boot_in_mid_attempt_is_a_restart() {
    let begun = || [Connects(0), Hears(0), Works(0), Sends(0, 1)].into_iter();
    assert_eq!(restarts(begun().chain([Restarts(0), Passes(60), Connects(0)])), 1);
    assert_eq!(restarts(begun().chain([Disconnects(0, true), Connects(0)])), 0);
    assert_eq!(restarts(begun().chain([CoordinatorRestarts(0), Connects(0)])), 0);
    assert_eq!(restarts([Connects(0), Hears(0), Restarts(0), Passes(60), Connects(0)]), 0);
    let after = [CoordinatorRestarts(0), Restarts(0), Passes(60), Connects(0)];
    assert_eq!(restarts(begun().chain(after)), 1, "the status knows the boot");
}
