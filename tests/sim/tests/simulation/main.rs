//! Both sides together under faults: the agent's session library and the coordinator's engine and gRPC service, over a
//! network, a clock, a store and random choices that a seed decides.
//!
//! Only the world around them is replaced. Partitions, late and lost bytes, a coordinator that crashes between any two
//! operations on its store (and keeps what was durable: a status that was to be written later is taken back), computers that lose their power or start their agent anew, and
//! sometimes a second computer of the same identity. TLS is left out: the certificate that the agent would show is
//! handed to the other end. A coordinator that is cut off from its store lives on for a while beside the next one. All runs on one thread in paused time, so a seed is the same each time.
//!
//! Not on `turmoil`: its network stands in for tokio's sockets, and what is needed here is a pair of streams under
//! tonic at both ends, a crash that keeps a store, and one that keeps a disk; those are this directory.
//!
//! `LANDFALL_SIM_SEEDS=5000` lives through more seeds, `LANDFALL_SIM_FIRST=17` from there on; `LANDFALL_SIM_SEED=17` through one, and prints what happened.

mod computer;
mod disk;
mod flag;
mod net;
mod runner;
mod site;
mod store;
mod truth;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use landfall_api::WorkflowPhase;

/// In the everyday test.
const SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not \"{text}\"")))
}

#[test]
fn crashes_lose_no_ack_and_install_no_disk_twice() {
    if let Some(seed) = number("LANDFALL_SIM_SEED") {
        let outcome = world::live(seed);
        println!("{}", outcome.trace);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        return;
    }
    let (seeds, next, found) =
        (number("LANDFALL_SIM_SEEDS").unwrap_or(SEEDS), AtomicU64::new(0), Mutex::new(Vec::new()));
    let first = number("LANDFALL_SIM_FIRST").unwrap_or(1);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= seeds {
                        return;
                    }
                    let seed = first.wrapping_add(place);
                    let outcome = world::live(seed);
                    found.lock().unwrap().push((seed, outcome));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(seed, _)| *seed);
    let faulty: Vec<_> =
        found.iter().filter(|(_, o)| !o.violations.is_empty()).map(|(s, o)| (s, &o.violations)).collect();
    let ended = |phase| found.iter().flat_map(|(_, o)| &o.phases).filter(|p| **p == phase).count();
    let sum = |of: fn(&world::Outcome) -> u32| found.iter().map(|(_, outcome)| of(outcome)).sum::<u32>();
    let (crashes, commits, taken_back) = (sum(|o| o.crashes), sum(|o| o.commits), sum(|o| o.taken_back));
    let takeovers = sum(|o| o.takeovers);
    let (succeeded, failed, cancelled) =
        (ended(WorkflowPhase::Succeeded), ended(WorkflowPhase::Failed), ended(WorkflowPhase::Cancelled));
    println!(
        "{seeds} seeds from {first}: {succeeded} runs succeeded, {failed} failed, {cancelled} were cancelled; {commits} installs, {crashes} crashes, \
        which took {taken_back} statuses back; {takeovers} coordinators lost their store to the next one"
    );
    assert!(faulty.is_empty(), "replay with LANDFALL_SIM_SEED=…: {faulty:#?}");
    // A simulation without successes or without faults proves nothing.
    let enough = usize::try_from(seeds / 3).unwrap();
    assert!(
        succeeded >= enough && crashes as usize >= enough && (taken_back.min(takeovers)) as usize >= enough / 10,
        "{succeeded} successes, {crashes} crashes, {taken_back} statuses taken back and {takeovers} takeovers are too few"
    );
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in [3, 8] {
        let (one, two) = (world::live(seed).trace, world::live(seed).trace);
        let differ = one.lines().zip(two.lines()).find(|(a, b)| a != b);
        assert!(one == two, "seed {seed} differs at {differ:?}");
    }
}
