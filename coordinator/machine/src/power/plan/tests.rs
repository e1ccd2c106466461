//! The planner against a computer that follows its BMC, and against one that does as it likes.

use proptest::prelude::*;

use super::*;
use crate::power::{begin, cleared, end, gives, holds, note};

const NETBOOT: Duration = Duration::from_secs(900);
const RUN: Uuid = Uuid::from_u128(7);
const MEDIUM: &str = "http://192.0.2.1/boot/landfall.iso";

/// A computer, and what it answers to.
struct Computer {
    status: BmcStatus,
    power: Option<PowerState>,
    wanted: Wanted,
    connected: bool,
    leased: bool,
    last_heard: Option<Timestamp>,
    now: Timestamp,
    netboot: Duration,
    /// The way on which its agent comes.
    boots_by: Option<BootWay>,
    shuts_down: bool,
    set: Option<BootWay>,
    ways: &'static [BootWay],
    keeps_medium: bool,
    reads_power: bool,
    steps: Vec<Step>,
}

impl Computer {
    fn new(power: PowerState) -> Self {
        Self {
            status: BmcStatus::default(),
            power: Some(power),
            wanted: Wanted::Netboot(RUN),
            connected: false,
            leased: false,
            last_heard: None,
            now: Timestamp::UNIX_EPOCH,
            netboot: NETBOOT,
            boots_by: Some(BootWay::PxeOnce),
            shuts_down: true,
            set: None,
            ways: &BootWay::ALL,
            keeps_medium: false,
            reads_power: true,
            steps: Vec::new(),
        }
    }

    fn look(&self) -> Look<'static> {
        let Self { wanted, connected, leased, last_heard, power, ways, reads_power, netboot, now, .. } = *self;
        Look { wanted, connected, leased, last_heard, reads_power, power, ways, netboot, now }
    }

    /// One step, as the engine makes it.
    fn turn(&mut self) -> Step {
        let step = next(&self.status, &self.look());
        note(&mut self.status, &step, self.now);
        match step.clone() {
            Step::Begin(workflow, way) => begin(&mut self.status, workflow, way, self.now),
            Step::End(outcome) => end(&mut self.status, outcome, self.now),
            Step::Shutdown if self.shuts_down => self.power = Some(PowerState::Off),
            Step::Off => self.power = Some(PowerState::Off),
            Step::SetBoot(way) => {
                if way == BootWay::VirtualMedia {
                    gives(&mut self.status, MEDIUM);
                    holds(&mut self.status, "/drive");
                }
                self.set = Some(way);
            }
            Step::On => {
                self.power = self.reads_power.then_some(PowerState::On);
                let way = self.set.take().unwrap_or(BootWay::OwnOrder);
                if self.boots_by == Some(way) {
                    (self.connected, self.wanted) = (true, Wanted::Nothing);
                }
            }
            Step::ClearBoot => cleared(&mut self.status, self.keeps_medium.then(|| "it is stuck".to_owned())),
            Step::Wait => self.now += Duration::from_secs(5),
            _ => {}
        }
        if step != Step::Wait {
            self.steps.push(step.clone());
        }
        step
    }

    /// Until nothing is to be done any more; how long that took.
    fn runs(&mut self) -> Duration {
        let begun = self.now;
        for _ in 0..100_000 {
            if matches!(self.turn(), Step::Rest | Step::GiveUp) {
                return self.now.duration_since(begun).try_into().unwrap();
            }
        }
        panic!("no end: {:?}", self.steps.last());
    }

    fn made(&self, step: &Step) -> usize {
        self.steps.iter().filter(|made| *made == step).count()
    }
}

#[test]
fn a_computer_that_is_off_netboots_at_once() {
    let mut computer = Computer::new(PowerState::Off);
    computer.runs();
    let heard = Step::End(Outcome::Heard);
    let begin = Step::Begin(RUN, BootWay::PxeOnce);
    assert_eq!(computer.steps, [begin, Step::SetBoot(BootWay::PxeOnce), Step::On, heard, Step::Rest]);
    assert_eq!(computer.status.worked, Some(BootWay::PxeOnce));
}

#[test]
fn a_running_system_is_asked_before_its_power_is_cut() {
    for shuts_down in [true, false] {
        let mut computer = Computer { shuts_down, ..Computer::new(PowerState::On) };
        let took = computer.runs();
        assert_eq!((computer.made(&Step::Shutdown), computer.made(&Step::Off)), (1, usize::from(!shuts_down)));
        assert_eq!(took >= SHUTDOWN, !shuts_down, "{took:?}");
        assert!(computer.connected);
    }
}

#[test]
fn a_short_netboot_deadline_leaves_time_to_shut_down() {
    let netboot = Duration::from_secs(30);
    let mut computer = Computer { shuts_down: false, netboot, ..Computer::new(PowerState::On) };
    assert!((0..100).any(|_| computer.turn() == Step::Off), "{:?}", computer.steps);
    computer.power = Some(PowerState::On);
    assert_eq!(computer.turn(), Step::Wait, "the power is on its way");
    computer.power = Some(PowerState::Off);
    computer.runs();
    assert!(computer.connected, "{:?}", computer.steps);
    assert_eq!(computer.status.worked, Some(BootWay::PxeOnce));
}

#[test]
fn an_agent_that_has_come_and_gone_counts() {
    let mut computer = Computer { boots_by: None, ..Computer::new(PowerState::Off) };
    while computer.turn() != Step::On {}
    computer.now += Duration::from_secs(20);
    computer.last_heard = Some(computer.now);
    computer.wanted = Wanted::Nothing;
    computer.runs();
    assert_eq!(computer.status.worked, Some(BootWay::PxeOnce));
    // It is lost before its workflow has ended: its machine is left alone for a while.
    computer.wanted = Wanted::Netboot(RUN);
    computer.steps.clear();
    let began = computer.now;
    while !matches!(computer.turn(), Step::Begin(..)) {}
    assert!(computer.now.duration_since(began) >= LOST.try_into().unwrap(), "{:?}", computer.now.duration_since(began));
    // Without power it is not.
    let mut computer = Computer { power: Some(PowerState::Off), last_heard: Some(computer.now), ..computer };
    end(&mut computer.status, Outcome::Heard, computer.now);
    assert!(matches!(computer.turn(), Step::Begin(..)));
}

#[test]
fn an_agent_that_may_act_keeps_its_power() {
    for turns in [0, 1] {
        let mut computer = Computer { shuts_down: false, ..Computer::new(PowerState::On) };
        for _ in 0..turns {
            computer.turn();
        }
        computer.leased = true;
        for _ in 0..1000 {
            assert_eq!(computer.turn(), Step::Wait, "after {turns}");
        }
        // Its lease ends, or it has no power: nothing acts on it any more.
        computer.leased = false;
        assert_ne!(computer.turn(), Step::Wait);
    }
    let mut off = Computer { leased: true, ..Computer::new(PowerState::Off) };
    off.runs();
    assert!(off.connected);
}

#[test]
fn a_lasting_boot_device_is_taken_back_whatever_happens() {
    let mut computer = Computer { boots_by: None, ..Computer::new(PowerState::Off) };
    while computer.turn() != Step::SetBoot(BootWay::PxeContinuous) {}
    assert!(computer.status.every_start);
    computer.wanted = Wanted::Nothing;
    computer.runs();
    assert_eq!((computer.made(&Step::ClearBoot), computer.status.every_start), (1, false));
    // A cancelled attempt says nothing of its way.
    assert!(computer.status.attempts.iter().all(|attempt| attempt.way == BootWay::PxeOnce));
}

#[test]
fn a_medium_is_ejected_whatever_happens() {
    // It starts from the medium, or does not, or its workflow is cancelled; the BMC ejects it, or does not.
    for (boots_by, is_cancelled, keeps_medium, then) in [
        (Some(BootWay::VirtualMedia), false, false, Step::Rest),
        (Some(BootWay::VirtualMedia), false, true, Step::Rest),
        (None, false, false, Step::Begin(RUN, BootWay::OwnOrder)),
        (None, false, true, Step::Begin(RUN, BootWay::OwnOrder)),
        (None, true, false, Step::Rest),
    ] {
        let mut computer = Computer { boots_by, keeps_medium, ..Computer::new(PowerState::Off) };
        while computer.turn() != Step::SetBoot(BootWay::VirtualMedia) {}
        assert_eq!(computer.status.medium.as_ref().map(|medium| medium.url.as_str()), Some(MEDIUM));
        if is_cancelled {
            computer.wanted = Wanted::Nothing;
        }
        computer.steps.clear();
        computer.runs();
        assert_eq!(computer.made(&Step::ClearBoot), 1, "{:?}", computer.steps);
        let left = computer.status.medium.and_then(|medium| medium.not_ejected);
        assert_eq!(left.is_some(), keeps_medium);
        // Between the end of the attempt and whatever comes next.
        let ejected = computer.steps.iter().position(|step| *step == Step::ClearBoot).unwrap();
        assert!(matches!(computer.steps[ejected - 1], Step::End(_)), "{:?}", computer.steps);
        assert_eq!(computer.steps[ejected + 1], then, "{:?}", computer.steps);
    }
}

#[test]
fn the_medium_of_a_lost_agent_is_ejected_at_once() {
    let mut computer = Computer { boots_by: None, ..Computer::new(PowerState::Off) };
    while computer.turn() != Step::SetBoot(BootWay::VirtualMedia) {}
    while computer.turn() != Step::On {}
    computer.now += Duration::from_secs(20);
    (computer.last_heard, computer.leased) = (Some(computer.now), true);
    assert_eq!(computer.turn(), Step::End(Outcome::Heard));
    assert_eq!(computer.turn(), Step::ClearBoot);
    assert_eq!(computer.turn(), Step::Wait, "its power is left alone");
}

#[test]
fn a_machine_without_a_bmc_is_switched_on_alone() {
    let without = || {
        let new =
            Computer { power: None, reads_power: false, ways: &[BootWay::OwnOrder], ..Computer::new(PowerState::Off) };
        Computer { boots_by: Some(BootWay::OwnOrder), ..new }
    };
    let mut computer = without();
    computer.runs();
    let begin = Step::Begin(RUN, BootWay::OwnOrder);
    assert_eq!(computer.steps, [begin, Step::On, Step::End(Outcome::Heard), Step::Rest]);
    // An agent that may act keeps its machine.
    let mut computer = Computer { leased: true, ..without() };
    for _ in 0..100 {
        assert_eq!(computer.turn(), Step::Wait);
    }
    // One that does not come: a person has to look.
    let mut computer = Computer { boots_by: None, ..without() };
    computer.runs();
    assert_eq!((computer.steps.last(), computer.made(&Step::On)), (Some(&Step::GiveUp), 1));
    assert!(computer.status.attempts[0].failure.as_ref().unwrap().contains("restarted by hand"));
}

#[test]
fn only_the_stated_ways_are_tried_in_their_order() {
    const WAYS: &[BootWay] = &[BootWay::VirtualMedia, BootWay::PxeOnce];
    let mut computer = Computer { boots_by: None, ways: WAYS, ..Computer::new(PowerState::Off) };
    // What worked once and is not stated any more does not count.
    computer.status.worked = Some(BootWay::OwnOrder);
    computer.runs();
    assert_eq!(computer.status.attempts.iter().map(|attempt| attempt.way).collect::<Vec<_>>(), WAYS);
    assert!(tried(&computer.status, WAYS, RUN).1 && !tried(&computer.status, &BootWay::ALL, RUN).1);
}

#[test]
fn each_way_is_tried_once_then_a_person_looks() {
    let mut computer = Computer { boots_by: None, ..Computer::new(PowerState::Off) };
    computer.runs();
    let begun: Vec<_> =
        computer.steps.iter().filter_map(|s| if let Step::Begin(_, way) = s { Some(*way) } else { None }).collect();
    assert_eq!(begun, BootWay::ALL);
    assert_eq!(computer.steps.last(), Some(&Step::GiveUp));
    assert!(computer.status.attempts.iter().all(|a| a.failure.as_ref().is_some_and(|why| why.contains("15 min"))));
    // The next workflow begins anew.
    computer.wanted = Wanted::Netboot(Uuid::from_u128(8));
    computer.boots_by = Some(BootWay::PxeOnce);
    computer.runs();
    assert!(computer.connected && computer.status.attempts.len() == 1);
}

#[test]
fn what_worked_is_tried_first_until_it_fails() {
    let mut computer = Computer { boots_by: Some(BootWay::PxeContinuous), ..Computer::new(PowerState::Off) };
    computer.runs();
    assert_eq!(computer.status.worked, Some(BootWay::PxeContinuous));
    assert_eq!(computer.made(&Step::ClearBoot), 1, "what was set for every start is taken back once");
    (computer.wanted, computer.connected) = (Wanted::Netboot(Uuid::from_u128(8)), false);
    computer.steps.clear();
    computer.boots_by = Some(BootWay::PxeOnce);
    computer.runs();
    assert_eq!(computer.steps[0], Step::Begin(Uuid::from_u128(8), BootWay::PxeContinuous));
    assert_eq!(computer.status.worked, Some(BootWay::PxeOnce));
}

#[test]
fn what_the_other_mode_found_is_not_reversed_again() {
    let mut computer = Computer { boots_by: Some(BootWay::PxeOtherMode), ..Computer::new(PowerState::Off) };
    computer.runs();
    // The agent has said which mode it is in.
    assert_eq!(computer.status.worked, Some(BootWay::PxeOnce));
}

#[test]
fn a_power_that_does_not_follow_ends_the_attempt() {
    let mut computer = Computer { boots_by: None, ..Computer::new(PowerState::Off) };
    while computer.turn() != Step::On {}
    computer.power = Some(PowerState::Off);
    while !matches!(computer.turn(), Step::End(_)) {}
    let failure = computer.status.attempts[0].failure.clone().unwrap();
    assert!(failure.contains("still reads off"), "{failure}");
    computer.power = None;
    while !matches!(computer.turn(), Step::End(_)) {}
    let failure = computer.status.attempts[1].failure.clone().unwrap();
    assert!(failure.contains("did not say"), "{failure}");
}

#[test]
fn a_cancelled_workflow_switches_nothing_on() {
    let mut computer = Computer::new(PowerState::Off);
    while computer.turn() != Step::SetBoot(BootWay::PxeOnce) {}
    computer.wanted = Wanted::Nothing;
    computer.runs();
    assert_eq!(computer.made(&Step::On), 0);
    assert_eq!(computer.status.worked, None);
}

fn power() -> impl Strategy<Value = Option<PowerState>> {
    prop_oneof![Just(None), (0..4usize).prop_map(|n| Some(PowerState::ALL[n]))]
}

proptest! {
    /// Whatever the BMC reads: a machine whose agent is there is not switched, each way is tried once, and there is an end.
    #[test]
    fn whatever_is_read_the_planner_ends(
        readings in prop::collection::vec((power(), any::<bool>(), 0..400u32), 1..200),
    ) {
        let mut computer = Computer::new(PowerState::On);
        (computer.boots_by, computer.shuts_down) = (None, false);
        for (power, connected, seconds) in readings {
            computer.power = power;
            computer.connected = connected;
            computer.wanted = if connected { Wanted::Nothing } else { Wanted::Netboot(RUN) };
            computer.now += Duration::from_secs(seconds.into());
            computer.last_heard = if connected { Some(computer.now) } else { computer.last_heard };
            let step = computer.turn();
            let switches = matches!(step, Step::Shutdown | Step::Off | Step::SetBoot(_) | Step::On | Step::Begin(..));
            prop_assert!(!(connected && switches), "{step:?} of a machine whose agent is there");
        }
        (computer.connected, computer.wanted) = (false, Wanted::Netboot(RUN));
        let took = computer.runs();
        // Each way: a shutdown, a cut, and the time to netboot, twice where the power is not known.
        let most = LOST + (SHUTDOWN + SWITCH + NETBOOT * 2) * u32::try_from(BootWay::ALL.len()).unwrap();
        prop_assert!(took <= most, "{took:?}");
    }
}
