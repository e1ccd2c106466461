//! What may happen, one by one and in the turns of events that the rules are about.

use proptest::prelude::*;

use Happens::*;

#[derive(Debug, Clone)]
pub(crate) enum Happens {
    Passes(u64),
    SetsClock(i64),
    Ticks,
    Connects(usize),
    Disconnects(usize, bool),
    Hears(usize),
    Works(usize),
    Fails(usize),
    Sends(usize, usize),
    Restarts(usize),
    /// A bus of the computer is being scanned from now on.
    Scans(usize),
    /// The scan has ended: the agent knows every disk.
    Finds(usize),
    /// The coordinator, for so long.
    CoordinatorRestarts(u64),
    /// In the next step, after so many effects.
    Crashes(usize),
    Copies,
    /// With the note of when the store was last written, or without.
    Restores(bool),
    Provisions {
        force: bool,
        /// The image leaves room for a receipt.
        room: bool,
    },
    Cancels,
    Pauses,
    Resumes,
    Adopts,
    Deletes,
    PhonesHome(usize),
    Turns(bool),
}

/// The first computer is there most of the time; the second claims its identity now and then.
fn who() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0usize), 1 => Just(1usize)]
}

fn provisions(force: f64) -> impl Strategy<Value = Happens> {
    (prop::bool::weighted(force), prop::bool::weighted(0.7)).prop_map(|(force, room)| Provisions { force, room })
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (0..8u64).prop_map(Passes),
        2 => (0..200u64).prop_map(Passes),
        1 => prop::sample::select(vec![-90_000i64, -4000, -100, 100, 4000, 90_000]).prop_map(SetsClock),
        4 => Just(Ticks),
        8 => who().prop_map(Connects),
        2 => (who(), any::<bool>()).prop_map(|(who, noticed)| Disconnects(who, noticed)),
        16 => who().prop_map(Hears),
        16 => who().prop_map(Works),
        2 => who().prop_map(Fails),
        12 => (who(), 1..3usize).prop_map(|(who, times)| Sends(who, times)),
        2 => who().prop_map(Restarts),
        1 => who().prop_map(Scans),
        6 => who().prop_map(Finds),
        1 => (0..300u64).prop_map(CoordinatorRestarts),
        2 => (0..4usize).prop_map(Crashes),
        1 => Just(Copies),
        1 => any::<bool>().prop_map(Restores),
        3 => provisions(0.2),
        1 => Just(Cancels),
        1 => Just(Pauses),
        1 => Just(Resumes),
        1 => Just(Adopts),
        2 => who().prop_map(PhonesHome),
        1 => any::<bool>().prop_map(Turns),
    ]
}

/// A computer netboots, takes its list and works on it, for so many steps, each of them reported or not.
fn installs() -> impl Strategy<Value = Vec<Happens>> {
    (who(), prop::collection::vec(any::<bool>(), 0..7), prop::bool::weighted(0.25)).prop_map(
        |(who, reported, scans)| {
            let steps = reported.into_iter().flat_map(|sent| [Some(Works(who)), sent.then_some(Sends(who, 1))]);
            let first = scans.then_some(Scans(who)).into_iter().chain([Connects(who)]);
            let known = scans.then_some(Finds(who)).into_iter().chain([Hears(who)]);
            first.chain(known).chain(steps.flatten()).collect()
        },
    )
}

/// Power is cut, and the machine netboots again.
fn power_cut() -> impl Strategy<Value = Vec<Happens>> {
    (who(), 0..20u64, 0..4usize, any::<bool>()).prop_map(|(who, away, steps, scans)| {
        let back = [Restarts(who), Passes(away)].into_iter().chain(scans.then_some(Scans(who)));
        back.chain([Connects(who), Finds(who), Hears(who)]).chain((0..steps).map(|_| Works(who))).collect()
    })
}

/// While an agent is cut off a person stops its workflow and asks for another, and another computer comes for it.
fn rival() -> impl Strategy<Value = Vec<Happens>> {
    let away = (any::<bool>(), prop::option::of(0..3usize), 0..40u64);
    (who(), away, provisions(0.5), any::<bool>()).prop_map(|(who, (noticed, crash, away), again, deletes)| {
        let other = 1 - who;
        let mut out = vec![Disconnects(who, noticed)];
        out.extend(crash.map(Crashes));
        out.extend([if deletes { Deletes } else { Cancels }, Passes(away), Ticks, again]);
        out.extend([Connects(other), Hears(other), Works(other)]);
        out
    })
}

/// An agent is asked to stop, and its write does not end; it is heard all the while, also by a coordinator that starts again.
fn wedged() -> impl Strategy<Value = Vec<Happens>> {
    let beats = prop::collection::vec(5..20u64, 1..8);
    (who(), beats, prop::option::of(0..10u64)).prop_map(|(who, beats, again)| {
        let beats = beats.into_iter().flat_map(|passed| [Passes(passed), Sends(who, 1), Hears(who)]);
        let again = again.into_iter().flat_map(|away| [CoordinatorRestarts(away), Connects(who), Hears(who)]);
        [Cancels, Hears(who)].into_iter().chain(again).chain(beats).collect()
    })
}

/// An agent that is not heard fails, tries again, and comes back after its workflow was stopped.
fn late() -> impl Strategy<Value = Vec<Happens>> {
    (who(), any::<bool>(), any::<bool>()).prop_map(|(who, stopped, again)| {
        let mut out = vec![Works(who), Fails(who), Works(who)];
        out.extend(stopped.then_some(Cancels));
        out.extend(again.then_some(Connects(who)));
        out.push(Sends(who, 1));
        out
    })
}

/// The store is put back, and a machine comes that has restarted meanwhile, or not.
fn put_back() -> impl Strategy<Value = Vec<Happens>> {
    (who(), any::<bool>(), any::<bool>(), 0..200u64, provisions(0.3), any::<bool>()).prop_map(
        |(who, known, restarted, passed, asked, asks)| {
            let mut out = vec![Passes(passed), Restores(known)];
            out.extend(restarted.then_some(Restarts(who)));
            out.extend(asks.then_some(asked));
            out.extend([Connects(who), Hears(who), Works(who), Works(who)]);
            out
        },
    )
}

/// A story: single things, and turns of events.
pub(crate) fn story(turns: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Happens>> {
    let turn = prop_oneof![
        30 => happens().prop_map(|what| vec![what]),
        5 => installs(),
        2 => power_cut(),
        1 => rival(),
        1 => wedged(),
        1 => late(),
        1 => Just(vec![Copies]),
        1 => put_back(),
    ];
    prop::collection::vec(turn, turns).prop_map(|turns| turns.concat())
}
