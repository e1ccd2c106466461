//! Rules 4, 5, 6 and 11 of the design, over whatever two computers of one identity, a coordinator that ends and starts
//! again, restores, clocks that are set and lost or repeated messages can do in whatever order.
//!
//! `LANDFALL_CASES` asks for more stories than the default.

mod computer;
mod site;

use std::collections::{HashMap, HashSet};

use landfall_api::{ReceiptState, WorkflowPhase, WorkflowStatus};
use landfall_machine::{Input, life::wants_agent};
use proptest::{prelude::*, strategy::ValueTree as _};
use uuid::Uuid;

use computer::Computer;
use site::{Site, Stored, person};

#[derive(Debug, Clone)]
enum Happens {
    Passes(u64),
    SetsClock(i64),
    Ticks,
    Connects(usize),
    Disconnects(usize, bool),
    Hears(usize),
    Works(usize),
    Sends(usize, usize),
    Restarts(usize),
    /// The coordinator, for so long.
    CoordinatorRestarts(u64),
    /// In the next step, after so many effects.
    Crashes(usize),
    Copies,
    Restores,
    Provisions(bool),
    Cancels,
    Pauses,
    Resumes,
    Adopts,
    PhonesHome(usize),
    Turns(bool),
}

fn happens() -> impl Strategy<Value = Happens> {
    use Happens::*;
    // The first computer is there most of the time; the second claims its identity now and then.
    let who = || prop_oneof![3 => Just(0usize), 1 => Just(1usize)];
    prop_oneof![
        6 => (0..8u64).prop_map(Passes),
        2 => (0..200u64).prop_map(Passes),
        1 => prop::sample::select(vec![-90_000i64, -4000, -100, 100, 4000, 90_000]).prop_map(SetsClock),
        4 => Just(Ticks),
        8 => who().prop_map(Connects),
        2 => (who(), any::<bool>()).prop_map(|(who, noticed)| Disconnects(who, noticed)),
        16 => who().prop_map(Hears),
        16 => who().prop_map(Works),
        12 => (who(), 1..3usize).prop_map(|(who, times)| Sends(who, times)),
        2 => who().prop_map(Restarts),
        1 => (0..300u64).prop_map(CoordinatorRestarts),
        2 => (0..4usize).prop_map(Crashes),
        1 => Just(Copies),
        1 => Just(Restores),
        3 => prop::bool::weighted(0.2).prop_map(Provisions),
        1 => Just(Cancels),
        1 => Just(Pauses),
        1 => Just(Resumes),
        1 => Just(Adopts),
        2 => who().prop_map(PhonesHome),
        1 => any::<bool>().prop_map(Turns),
    ]
}

struct Story {
    site: Site,
    computers: [Computer; 2],
    copy: Option<Stored>,
    /// Terminal states as they were first seen.
    ended: HashMap<Uuid, WorkflowStatus>,
    restored: bool,
}

impl Story {
    fn new() -> Self {
        let mut site = Site::new();
        site.provision(false);
        let computers = [Computer::new(0), Computer::new(1)];
        Self { site, computers, copy: None, ended: HashMap::new(), restored: false }
    }

    fn take(&mut self, what: Happens) {
        let Self { site, computers, .. } = self;
        match what {
            Happens::Passes(seconds) => site.now += seconds,
            Happens::SetsClock(by) => site.set_clock(by),
            Happens::Ticks => site.tick(),
            Happens::Connects(n) => computers[n].connect(site),
            Happens::Disconnects(n, noticed) => computers[n].disconnect(site, noticed),
            Happens::Hears(n) => computers[n].hears(site),
            Happens::Works(n) => computers[n].works(site),
            Happens::Sends(n, times) => computers[n].sends(site, times),
            Happens::Restarts(n) => computers[n].restart(),
            Happens::CoordinatorRestarts(away) => site.restart(away),
            Happens::Crashes(after) => site.crash_after = Some(after),
            Happens::Copies => self.copy = Some(site.stored.clone()),
            Happens::Restores => {
                if let Some(copy) = self.copy.clone() {
                    site.restore(copy);
                    self.restored = true;
                    self.ended.clear();
                    for computer in computers {
                        computer.acknowledged.clear();
                    }
                }
            }
            Happens::Provisions(force) => drop(site.provision(force)),
            Happens::Cancels => self.person(|by| Input::Cancel(landfall_machine::Which::Newest, by)),
            Happens::Pauses => self.person(|by| Input::Pause(landfall_machine::Which::Newest, by)),
            Happens::Resumes => self.person(|by| Input::Resume(landfall_machine::Which::Newest, by)),
            Happens::Adopts => self.person(Input::Adopt),
            Happens::PhonesHome(n) => {
                if let (true, Some((of, ReceiptState::Done))) = (computers[n].installed, computers[n].disk)
                    && site.stored.workflows.iter().any(|w| w.metadata.uid == Some(of))
                {
                    let _refused = site.hand(Some(of), |which| Input::PhonedHome(vec![which]));
                }
            }
            Happens::Turns(turns) => site.turns = turns,
        }
    }

    fn person(&mut self, input: impl Fn(landfall_api::Authority) -> Input) {
        let by = person(self.site.wall(), false);
        let _refused = self.site.hand(None, |_| input(by.clone()));
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let acting = self.computers.iter().filter(|computer| computer.can_act(self.site.now)).count();
        prop_assert!(acting <= 1, "rule 5: two computers can write at once");
        for computer in &self.computers {
            let distinct: HashSet<_> = computer.commits.iter().collect();
            prop_assert_eq!(distinct.len(), computer.commits.len(), "rule 4: one request wrote one disk twice");
        }
        for workflow in &self.site.stored.workflows {
            let (Some(uid), Some(status)) = (workflow.metadata.uid, &workflow.status) else { continue };
            if status.phase.is_terminal() {
                let now = frozen(status);
                let first = self.ended.entry(uid).or_insert_with(|| now.clone());
                prop_assert_eq!(&*first, &now, "rule 5: a terminal state changed");
            }
        }
        if let Some(newest) = self.site.newest() {
            let (uid, status) = (newest.metadata.uid, newest.status.clone().unwrap_or_default());
            for (of, position) in self.computers.iter().flat_map(|computer| &computer.acknowledged) {
                let read = Some(*of) != uid || status.phase.is_terminal() || status.applied >= *position;
                prop_assert!(read, "rule 6: an acknowledged event has no effect");
            }
            if matches!(status.phase, WorkflowPhase::Rebooting | WorkflowPhase::Succeeded) {
                let agent = wants_agent(&self.site.stored.machine, Some(newest));
                prop_assert!(!agent, "rule 11: an installed machine does not boot its disk");
            }
        }
        Ok(())
    }
}

fn frozen(status: &WorkflowStatus) -> WorkflowStatus {
    WorkflowStatus { phoned_home_at: None, applied: 0, conditions: Vec::new(), ..status.clone() }
}

#[expect(clippy::disallowed_methods, reason = "how many stories a person asks for is no input of the machine")]
fn cases() -> u32 {
    std::env::var("LANDFALL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000)
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: cases(),
        rng_seed: proptest::test_runner::RngSeed::Fixed(0x1a2d_fa11),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn one_writer_and_nothing_twice_whatever_happens(story in prop::collection::vec(happens(), 1..160)) {
        let mut told = Story::new();
        for what in story {
            told.take(what);
            told.check()?;
        }
    }
}

/// The stories above reach what they are about: without this, a rule could hold because nothing ever happens.
#[test]
fn stories_install_machines() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut installed, mut restored, mut second) = (0, 0, 0);
    for _ in 0..500 {
        let story = prop::collection::vec(happens(), 160).new_tree(&mut runner).unwrap().current();
        let mut told = Story::new();
        for what in story {
            told.take(what);
        }
        installed += usize::from(!told.computers[0].commits.is_empty());
        second += usize::from(!told.computers[1].commits.is_empty());
        restored += usize::from(told.restored);
    }
    assert!(installed > 50 && second > 3 && restored > 50, "{installed} {second} {restored}");
}
