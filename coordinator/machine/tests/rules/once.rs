//! Stories that once failed, as small as they could be made. What went wrong stands above each.

use super::Story;
use super::happens::Happens;
use super::happens::Happens::*;

fn holds(happens: impl IntoIterator<Item = Happens>) {
    Story::new().over(happens.into_iter().collect()).unwrap();
}

/// The list was given anew while what the agent had to say of the first attempt was still unsent: its late failure counted
/// as the end of the second.
#[test]
fn a_late_failure_does_not_end_a_newer_attempt() {
    let other = [Connects(0), Hears(0), Passes(60), Connects(1), Passes(60), Connects(0)];
    holds(other.into_iter().chain([Cancels, Sends(0, 1), Hears(0), Deletes]));
    let crash = [Connects(0), Crashes(2), Hears(0), Connects(0), Passes(60), Connects(0), Hears(0)];
    holds(crash.into_iter().chain([Deletes, Sends(0, 2)]));
}

/// The system that one computer installed phoned home while another held the lease, and the lease was let go.
#[test]
fn a_phone_home_ends_no_other_computers_lease() {
    let installs = [Connects(0), Hears(0), Disconnects(0, false)].into_iter().chain((0..7).map(|_| Works(0)));
    holds(installs.chain([Passes(60), Connects(1), Hears(1), PhonesHome(0), Deletes]));
}

/// The process ended between the new epoch and the welcome. The agent, which had gone on to its second attempt alone, was
/// given a second attempt at once, and what it then said of its own one was taken for that.
#[test]
fn an_agent_speaks_before_it_is_given_its_list_again() {
    let alone = [Connects(0), Hears(0), Works(0), Crashes(2), Connects(0), Fails(0), Passes(60)];
    let again =
        [Connects(0), Hears(0), Works(0), Works(0), Sends(0, 1), Works(0), Hears(0), Works(0), Works(0), Works(0)];
    holds(alone.into_iter().chain(again));
}
