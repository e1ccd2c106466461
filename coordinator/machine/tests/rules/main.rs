//! Rules 4, 5, 6 and 11 of the design, over whatever two computers of one identity, a coordinator that ends and starts
//! again, restores, clocks that are set and lost or repeated messages can do in whatever order.
//!
//! `LANDFALL_CASES` asks for more stories than the default; `PROPTEST_RNG_SEED`, which `.cargo/config.toml` sets, for others.

mod comes_back;
mod computer;
mod happens;
mod judge;
mod once;
mod restored;
mod sent;
mod site;

use landfall_machine::{Input, Which};
use proptest::{prelude::*, strategy::ValueTree as _};

use computer::Computer;
use happens::{Happens, story};
use judge::Judge;
use site::{Site, Stored, person};

struct Story {
    site: Site,
    computers: [Computer; 2],
    copy: Option<(Stored, u64)>,
    judge: Judge,
    restored: bool,
}

impl Story {
    fn new() -> Self {
        let mut site = Site::new();
        site.provision(false, true);
        let computers = [Computer::new(0), Computer::new(1)];
        Self { site, computers, copy: None, judge: Judge::default(), restored: false }
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
            Happens::Fails(n) => computers[n].fails(site),
            Happens::Sends(n, times) => computers[n].sends(site, times),
            Happens::Restarts(n) => computers[n].restart(),
            Happens::Scans(n) => computers[n].scans(),
            Happens::Finds(n) => computers[n].finds(site),
            Happens::CoordinatorRestarts(away) => site.restart(away),
            Happens::Crashes(after) => site.crash_after = Some(after),
            Happens::Copies => self.copy = Some((site.stored.clone(), site.now)),
            Happens::Restores(known) => self.restores(known),
            Happens::Provisions { force, room } => site.provision(force, room),
            Happens::Cancels => self.person(|by| Input::Cancel(Which::Newest, by)),
            Happens::Pauses => self.person(|by| Input::Pause(Which::Newest, by)),
            Happens::Resumes => self.person(|by| Input::Resume(Which::Newest, by)),
            Happens::Adopts => site.adopt(),
            Happens::Deletes => self.person(Input::Delete),
            Happens::PhonesHome(n) => {
                if let (true, Some(of)) = (computers[n].installed, computers[n].system)
                    && site.workflow(of).is_some()
                {
                    let _refused = site.hand(Some(of), |which| Input::PhonedHome(vec![which]));
                }
            }
            Happens::Turns(turns) => site.turns = turns,
        }
    }

    fn restores(&mut self, known: bool) {
        let Some((copy, copied)) = self.copy.clone() else { return };
        self.site.restore(copy, copied, known);
        self.judge.forgets();
        self.restored = true;
        for computer in &mut self.computers {
            computer.acknowledged.clear();
            computer.is_forgotten();
        }
    }

    fn person(&mut self, input: impl Fn(landfall_api::Authority) -> Input) {
        let by = person(self.site.wall(), false);
        let _refused = self.site.hand(None, |_| input(by.clone()));
    }

    fn over(&mut self, story: Vec<Happens>) -> Result<(), TestCaseError> {
        for what in story {
            self.take(what);
            self.judge.check(&self.site, &self.computers)?;
            if self.site.removed {
                break;
            }
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "how many stories a person asks for is no input of the machine")]
fn cases() -> u32 {
    std::env::var("LANDFALL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(4000)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn one_writer_and_nothing_twice_whatever_happens(story in story(1..120)) {
        Story::new().over(story)?;
    }
}

#[test]
fn an_adoption_means_no_receipt_that_is_written_later() {
    let provisions = || Happens::Provisions { force: false, room: true };
    let mut story = Story::new();
    let before = [Happens::Cancels, Happens::Adopts, Happens::Copies, Happens::Passes(1), provisions()];
    let lost = [Happens::Connects(0), Happens::Hears(0), Happens::Works(0), Happens::Works(0), Happens::Restarts(0)];
    let after = [Happens::Restores(false), Happens::Connects(0), provisions()];
    story.over(before.into_iter().chain(lost).chain(after).collect()).unwrap();
    assert!(landfall_machine::is_held(&story.site.stored.machine).is_some());
}

/// The stories above reach what they are about: without this, a rule could hold because nothing ever happens.
#[test]
fn stories_install_machines() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut installed, mut restored, mut second, mut removed, mut bare) = (0, 0, 0, 0, 0);
    for _ in 0..500 {
        let happens = story(120..121).new_tree(&mut runner).unwrap().current();
        let mut story = Story::new();
        story.over(happens).unwrap();
        let commits = |n: usize| &story.computers[n].commits;
        installed += usize::from(!commits(0).is_empty());
        second += usize::from(!commits(1).is_empty());
        restored += usize::from(story.restored);
        removed += usize::from(story.site.removed);
        bare += usize::from(commits(0).iter().any(|of| !story.site.leaves_room(*of)));
    }
    let seen = [installed, restored, second, removed, bare];
    assert!(seen.iter().all(|seen| *seen > 10), "{seen:?}");
}
