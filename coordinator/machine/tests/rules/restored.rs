//! After a restore the store does not know of the leases that were given since its copy was made: an agent that holds none waits
//! for their end.

use super::Story;
use super::happens::Happens;
use super::happens::Happens::*;

fn after(happens: impl IntoIterator<Item = Happens>) -> Story {
    let mut story = Story::new();
    story.over(happens.into_iter().collect()).unwrap();
    story
}

impl Story {
    fn then(&mut self, happens: impl IntoIterator<Item = Happens>) {
        self.over(happens.into_iter().collect()).unwrap();
    }

    /// The leases that the store does not know end; the first computer is heard until then.
    fn waits_for_the_end(&mut self) {
        self.then([Passes(60), Sends(0, 1), Sends(0, 1), Ticks, Hears(0), Hears(0), Hears(0), Hears(0)]);
    }

    fn acts(&self, computer: usize) -> bool {
        self.computers[computer].acts_for(self.site.now).is_some()
    }
}

fn provisions() -> Happens {
    Provisions { force: true, room: true }
}

#[test]
fn an_agent_without_a_list_waits_for_unknown_leases() {
    let mut story = after([Copies, Connects(1), Hears(1), Restores(false), provisions(), Connects(0), Hears(0)]);
    assert!(!story.acts(0), "the other computer can write");
    story.then([Passes(59), CoordinatorRestarts(0), provisions(), Connects(0), Passes(15), Ticks, Hears(0), Hears(0)]);
    assert!(!story.acts(0), "the coordinator started anew, and knows as little");
    story.waits_for_the_end();
    assert!(story.acts(0));
}

#[test]
fn an_agent_with_its_list_goes_on_after_a_restore() {
    let begins = [Connects(0), Hears(0), Works(0), Copies, Restores(false), Connects(0), Hears(0)];
    let beats = [Passes(50), Sends(0, 1), Sends(0, 1), Hears(0), Hears(0), Hears(0), Passes(50)];
    assert!(after(begins.into_iter().chain(beats)).acts(0));
}

#[test]
fn a_machine_stays_until_unknown_leases_have_ended() {
    let mut story = after([Copies, Connects(1), Hears(1), Restores(false), Deletes, Passes(59), Ticks]);
    assert!(!story.site.removed);
    story.then([Passes(1), Ticks]);
    assert!(story.site.removed);
}

#[test]
fn resuming_gives_a_waiting_agent_no_list() {
    let paused = [Connects(0), Hears(0), Works(0), Pauses, Restarts(0), Passes(15), Connects(0), Copies];
    let lost = [Passes(15), Connects(1), Resumes, Hears(1), Hears(1)];
    let restored = [Restores(false), Connects(0), Resumes, Hears(0), Hears(0), Hears(0)];
    let mut story = after(paused.into_iter().chain(lost).chain(restored));
    assert!(story.acts(1) && !story.acts(0));
    story.waits_for_the_end();
    assert!(story.acts(0));
}

#[test]
fn a_late_report_gives_a_waiting_agent_no_list() {
    let lost = [Connects(0), Hears(0), Works(0), Copies, Passes(60), Connects(1), Hears(1)];
    let restored = [Restores(false), Connects(0), Sends(0, 1), Hears(0), Hears(0), Hears(0)];
    let story = after(lost.into_iter().chain(restored));
    assert!(story.acts(1) && !story.acts(0));
}

#[test]
fn an_agent_that_waited_gets_its_whole_list() {
    let fails = [Connects(0), Hears(0), Works(0), Fails(0), Sends(0, 1), Copies, Passes(60)];
    let mut story = after(fails.into_iter().chain([Restores(false), Connects(0), Hears(0)]));
    assert!(!story.acts(0));
    story.waits_for_the_end();
    assert!(story.acts(0), "an attempt that failed before does not mean that the agent still has its list");
}

/// The copy is young, and was put back by other means than `restore`: the agent's epoch gives it away.
#[test]
fn an_unknown_epoch_shows_an_old_copy() {
    let asked = [Copies, Connects(0), Restores(true), Connects(0), provisions(), Passes(15), Restarts(0), Connects(0)];
    let mut story = after(asked.into_iter().chain([Hears(0), Hears(0)]));
    assert!(!story.acts(0));
    story.then([Passes(45), Sends(0, 1), Ticks, Hears(0), Hears(0)]);
    assert!(story.acts(0));
}

/// As young, and the receipt of a workflow that has not begun in it gives it away.
#[test]
fn a_newer_receipt_shows_an_old_copy() {
    let lost = [Copies, Connects(0), Hears(0), Works(0), Works(0), Works(0), Restarts(0)];
    let asked = [Restores(true), Connects(0), provisions(), Passes(15), Restarts(0), Connects(0), Hears(0), Hears(0)];
    let mut story = after(lost.into_iter().chain(asked));
    assert!(!story.acts(0));
    story.waits_for_the_end();
    assert!(story.acts(0));
}

/// A computer that the store knows as connected all the time came first, and the receipt of the other was not judged.
#[test]
fn a_receipt_from_the_lost_time_holds_its_machine() {
    let lost = [Connects(1), Connects(1), Copies, Passes(19), Connects(0), Hears(0), Works(0), Works(0), Passes(102)];
    after(lost.into_iter().chain([Restores(false), Connects(1), Passes(15), Connects(0)]));
}

/// Another computer came after the one whose receipt held the machine, and the hold ended.
#[test]
fn another_computers_hello_ends_no_hold() {
    let held =
        [Copies, Connects(1), Hears(1), Works(1), Works(1), Restores(false), Connects(1), Passes(15), Connects(0)];
    let story = after(held);
    assert!(landfall_machine::is_held(&story.site.stored.machine).is_some());
}
