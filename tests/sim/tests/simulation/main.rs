//! Both sides together under faults: the agent's session library and the coordinator's engine and gRPC service, over a
//! network, a clock, a store and random choices that a seed decides.
//!
//! Only the world around them is replaced. Partitions, late and lost bytes, a coordinator that crashes between any two
//! operations on its store (and keeps what was durable: a status that was to be written later is taken back), computers that lose their power or start their agent anew, and
//! sometimes a second computer of the same identity. TLS is left out: the certificate that the agent would show is
//! handed to the other end. All runs on one thread in paused time, so a seed is the same each time.
//!
//! Either one coordinator lives after another, each with the store to itself; one that is cut off from it lives on for a while beside the
//! next. Or three live at once over one database, of which each hears late what the others wrote; they hang, are cut off from the database
//! or from the machines, their clocks are set, and the database crashes.
//!
//! Not on `turmoil`: its network stands in for tokio's sockets, and what is needed here is a pair of streams under
//! tonic at both ends, a crash that keeps a store, and one that keeps a disk; those are this directory.
//!
//! `LANDFALL_SIM_SEEDS=5000` lives through more seeds, `LANDFALL_SIM_FIRST=17` from there on; `LANDFALL_SIM_SEED=17` through one, and prints what happened.

mod computer;
mod database;
mod disk;
mod flag;
mod lead;
mod net;
mod runner;
mod site;
mod store;
mod trouble;
mod truth;
mod up;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use landfall_api::WorkflowPhase;
use world::{Coordinators, Outcome};

/// In the everyday test.
const SEEDS: u64 = 300;
/// Of three coordinators.
const BESIDE_OTHERS: u64 = 50;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not \"{text}\"")))
}

/// Lives through seeds on every processor; what each came to, in the order of the seeds.
fn live_all(first: u64, seeds: u64, coordinators: Coordinators) -> Vec<(u64, Outcome)> {
    let (next, found) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= seeds {
                        return;
                    }
                    let seed = first.wrapping_add(place);
                    let outcome = world::live(seed, coordinators);
                    found.lock().unwrap().push((seed, outcome));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(seed, _)| *seed);
    found
}

/// Lives through as many seeds as the environment says, or `seeds`, and finds nothing that must not be. Answers how many, and what they
/// came to; or nothing where one seed was asked for.
fn nothing_is_violated(seeds: u64, coordinators: Coordinators) -> Option<(u64, Vec<Outcome>)> {
    if let Some(seed) = number("LANDFALL_SIM_SEED") {
        let outcome = world::live(seed, coordinators);
        println!("{}", outcome.trace);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        return None;
    }
    let (first, seeds) = (number("LANDFALL_SIM_FIRST").unwrap_or(1), number("LANDFALL_SIM_SEEDS").unwrap_or(seeds));
    let found = live_all(first, seeds, coordinators);
    let faulty: Vec<_> =
        found.iter().filter(|(_, o)| !o.violations.is_empty()).map(|(s, o)| (s, &o.violations)).collect();
    assert!(faulty.is_empty(), "replay with LANDFALL_SIM_SEED=…: {faulty:#?}");
    println!("{seeds} seeds from {first}");
    Some((seeds, found.into_iter().map(|(_, outcome)| outcome).collect()))
}

fn sum(found: &[Outcome], of: fn(&Outcome) -> u32) -> u32 {
    found.iter().map(of).sum()
}

fn ended(found: &[Outcome], phase: WorkflowPhase) -> usize {
    found.iter().flat_map(|outcome| &outcome.phases).filter(|of| **of == phase).count()
}

#[test]
fn crashes_lose_no_ack_and_install_no_disk_twice() {
    let Some((seeds, found)) = nothing_is_violated(SEEDS, Coordinators::One) else { return };
    let (crashes, taken_back) = (sum(&found, |o| o.crashes), sum(&found, |o| o.taken_back));
    let (takeovers, succeeded) = (sum(&found, |o| o.takeovers), ended(&found, WorkflowPhase::Succeeded));
    println!(
        "{succeeded} runs succeeded, {} failed, {} were cancelled; {} installs, {crashes} crashes, which took {taken_back} statuses \
        back; {takeovers} coordinators lost their store to the next one",
        ended(&found, WorkflowPhase::Failed),
        ended(&found, WorkflowPhase::Cancelled),
        sum(&found, |o| o.commits),
    );
    // A simulation without successes or without faults proves nothing.
    let enough = usize::try_from(seeds / 3).unwrap();
    assert!(
        succeeded >= enough && crashes as usize >= enough && (taken_back.min(takeovers)) as usize >= enough / 10,
        "{succeeded} successes, {crashes} crashes, {taken_back} statuses taken back and {takeovers} takeovers are too few"
    );
}

#[test]
fn three_coordinators_lose_no_ack_and_install_no_disk_twice() {
    let Some((seeds, found)) = nothing_is_violated(BESIDE_OTHERS, Coordinators::Three) else { return };
    let (crashes, succeeded) = (sum(&found, |o| o.crashes), ended(&found, WorkflowPhase::Succeeded));
    let (leads, moves) = (sum(&found, |o| o.leads), sum(&found, |o| o.moves));
    let fenced = sum(&found, |o| o.fenced);
    println!(
        "{succeeded} runs succeeded, {} failed, {} were cancelled; {} installs, {crashes} crashes; {leads} times another coordinator led, \
        {moves} times a machine went on at another one, {fenced} times what its former one was reported was refused",
        ended(&found, WorkflowPhase::Failed),
        ended(&found, WorkflowPhase::Cancelled),
        sum(&found, |o| o.commits),
    );
    let enough = usize::try_from(seeds / 3).unwrap();
    assert!(
        succeeded >= enough && crashes.min(leads).min(moves) as usize >= enough,
        "{succeeded} successes, {crashes} crashes, {leads} changes of the one that leads and {moves} moves are too few"
    );
}

#[test]
fn a_seed_is_the_same_each_time() {
    for (seed, coordinators) in [(3, Coordinators::One), (8, Coordinators::One), (3, Coordinators::Three)] {
        let (one, two) = (world::live(seed, coordinators).trace, world::live(seed, coordinators).trace);
        let differ = one.lines().zip(two.lines()).find(|(a, b)| a != b);
        assert!(one == two, "seed {seed} of {coordinators:?} differs at {differ:?}");
    }
}
