//! What becomes of a pool's machines, whatever happens to them.

mod world;

use landfall_api::{ConditionType as Type, PoolSpec, Purpose, Reason, WorkflowPhase};
use proptest::prelude::*;

use self::world::{World, ann, now, well};
use super::*;
use crate::derive;
use crate::life::{is_open, waits};

#[test]
fn a_pool_claims_installs_and_is_ready() {
    let mut world = World::new(4, 3);
    assert_eq!(world.settle(well), 2, "the first show whether the template works");
    assert_eq!(
        (world.counts(), world.members(), world.reason()),
        ((3, 0, 0), vec!["m1", "m2", "m3"], Reason::Complete)
    );
    assert!(world.wiped.is_empty());
    world.pool.spec.replicas = 6;
    world.settle(well);
    assert_eq!((world.counts(), world.reason()), ((4, 0, 0), Reason::TooFewMachines));
}

#[test]
fn a_deleted_workflow_has_nothing_installed_anew() {
    let mut world = World::new(2, 2);
    world.settle(well);
    world.machines.get_mut("m1").unwrap().1 = None;
    assert_eq!((world.plan().steps, world.counts()), (Vec::new(), (2, 0, 0)));
    // Before it was noted what the workflow had installed.
    let claim = world.claim("m1").unwrap();
    let (installed, before) = (claim.installed.take(), claim.before.take());
    assert_eq!(world.plan().steps, []);
    let claim = world.claim("m1").unwrap();
    (claim.installed, claim.before) = (installed, before);
    world.pool.spec.template = "b".into();
    world.settle(well);
    assert_eq!(world.counts(), (2, 0, 0), "a person wants another template");
}

#[test]
fn what_a_person_installed_after_the_claim_stays() {
    for adopts in [true, false] {
        let mut world = World::new(1, 1);
        world.look();
        assert_eq!(world.members(), ["m1"]);
        // Its workflow could not be requested yet, and a person is faster.
        let installed = Reason::Installed;
        let status = world.machines.get_mut("m1").unwrap().0.status.as_mut().unwrap();
        derive::set(&mut status.conditions, Type::Provisioned, true, installed, "", (now(), 1));
        status.adopted = adopts.then(ann);
        world.settle(well);
        assert_eq!((world.members().len(), world.runs, world.carries("m1")), (0, 0, true));
    }
}

#[test]
fn a_failed_machine_that_is_released_is_cleared() {
    let mut world = World::new(1, 1);
    world.settle(|_| WorkflowPhase::Failed);
    world.pool.spec.replicas = 0;
    world.release("m1");
    world.settle(|_| WorkflowPhase::Failed);
    assert_eq!((world.members(), world.runs), (vec!["m1"], 2), "its clearing failed");
    world.release("m1");
    world.settle(well);
    assert_eq!((world.members().len(), world.free(), world.runs), (0, vec!["m1".to_owned()], 3));
}

#[test]
fn a_machine_that_begins_while_leaving_is_installed_once() {
    let mut world = World::new(3, 3);
    world.pool.spec.max_failures = 5;
    world.look();
    world.look();
    world.pool.spec.replicas = 2;
    world.look();
    // Its agent was faster than the cancel.
    world.end("m1", WorkflowPhase::Succeeded);
    world.settle(well);
    world.pool.spec.replicas = 3;
    world.settle(well);
    assert_eq!(world.counts(), (3, 0, 0));
    assert!(world.runs <= 5, "{}", world.runs);
}

#[test]
fn a_half_written_machine_is_not_ready_again() {
    let mut world = World::new(1, 1);
    world.settle(well);
    world.pool.spec.template = "b".into();
    world.look();
    world.look();
    world.end("m1", WorkflowPhase::Failed);
    world.look();
    // A person retries it, and takes the template back before it begins.
    world.begin("m1", Purpose::Provision, "b");
    world.pool.spec.template = "a".into();
    let runs = world.runs;
    world.settle(well);
    assert_eq!((world.counts(), world.runs), ((1, 0, 0), runs + 1));
}

#[test]
fn a_receipt_of_another_workflow_is_not_the_pools() {
    let mut world = World::new(1, 1);
    world.begin("m1", Purpose::Provision, "a");
    // Cancelled while its agent was cut off: what the agent did is not known yet.
    let run = world.machines["m1"].1.as_ref().unwrap().metadata.uid;
    world.end("m1", WorkflowPhase::Cancelled);
    world.look();
    world.look();
    // The agent is back with the receipt, and refuses the pool's workflow.
    world.end("m1", WorkflowPhase::Failed);
    let (machine, workflow) = world.machines.get_mut("m1").unwrap();
    assert!(workflow.as_ref().is_some_and(|workflow| workflow.metadata.uid != run));
    machine.status.as_mut().unwrap().receipts[0].receipt.workflow_uid = run.unwrap();
    world.pool.spec.template = "b".into();
    world.settle(well);
    assert_eq!((world.members().len(), world.wiped.len(), world.runs), (0, 0, 2));
}

#[test]
fn a_deleted_pool_leaves_no_workflow_that_waits() {
    let mut world = World::new(1, 1);
    world.settle(well);
    world.pool.spec.template = "b".into();
    world.look();
    world.look();
    world.pool.spec.template = "c".into();
    for _ in 0..2 {
        let (machine, workflow) = &world.machines["m1"];
        let step = orphaned(machine, workflow.as_ref(), now());
        assert_eq!(step, Some(Step::Cancel("m1".into())));
        assert!(workflow.as_ref().is_some_and(waits));
    }
    world.look();
    assert!(!world.machines["m1"].1.as_ref().is_some_and(is_open), "first it is cancelled");
    assert_eq!(world.claim("m1").unwrap().wanted.template, "b", "then something else is wanted");
}

#[test]
fn a_failed_machine_that_a_person_adopts_is_let_go() {
    let mut world = World::new(1, 1);
    world.settle(|_| WorkflowPhase::Failed);
    world.machines.get_mut("m1").unwrap().0.status.as_mut().unwrap().adopted = Some(ann());
    world.pool.spec.template = "b".into();
    world.settle(well);
    assert_eq!((world.members().len(), world.runs), (0, 1));
}

#[test]
fn a_file_that_comes_between_stops_what_a_person_wanted() {
    let mut world = World::new(1, 1);
    world.settle(well);
    world.pool.spec.template = "b".into();
    assert_eq!(world.plan().steps, [Step::Renew("m1".into())]);
    world.look();
    world.pool.status.as_mut().unwrap().requested = None;
    assert_eq!((world.plan().steps, world.reason()), (Vec::new(), Reason::NeedsPerson));
}

#[test]
fn a_template_that_is_taken_back_wipes_nothing() {
    let mut world = World::new(2, 2);
    world.settle(well);
    world.wiped.clear();
    let runs = world.runs;
    for waits in [false, true] {
        world.pool.spec.template = "b".into();
        world.look();
        if waits {
            world.look();
            assert_eq!(world.machines["m1"].1.as_ref().map(|run| run.spec.template.as_str()), Some("b"));
        }
        world.pool.spec.template = "a".into();
        for _ in 0..4 {
            world.look();
        }
        assert_eq!((world.counts(), world.plan().steps.len()), ((2, 0, 0), 0), "{waits}");
    }
    assert_eq!(world.runs, runs + 1, "only what was cancelled before it began");
    // What has begun is not undone.
    world.pool.spec.template = "b".into();
    world.look();
    world.look();
    world.end("m1", WorkflowPhase::Failed);
    world.pool.spec.template = "a".into();
    world.settle(well);
    assert_eq!((world.counts(), world.runs), ((2, 0, 0), runs + 3));
}

#[test]
fn machines_that_were_to_leave_stay_if_wanted_again() {
    let mut world = World::new(3, 3);
    world.settle(well);
    let runs = world.runs;
    world.pool.spec.replicas = 1;
    world.look();
    world.pool.spec.replicas = 2;
    world.settle(well);
    assert_eq!((world.counts(), world.runs), ((2, 0, 0), runs + 1), "one was cleared");
}

#[test]
fn an_earlier_workflow_is_not_taken_for_the_pools() {
    let mut world = World::new(1, 1);
    world.begin("m1", Purpose::Provision, "a");
    assert!(world.free().is_empty());
    world.end("m1", WorkflowPhase::Cancelled);
    world.settle(well);
    assert_eq!((world.counts(), world.runs), ((1, 0, 0), 2));
}

#[test]
fn fewer_replicas_release_machines_and_wipe_them() {
    let mut world = World::new(3, 3);
    world.settle(well);
    world.pool.spec.replicas = 1;
    world.settle(well);
    assert_eq!((world.counts(), world.members()), ((1, 0, 0), vec!["m3"]));
    assert_eq!(world.free(), ["m1", "m2"], "cleared");
    world.pool.spec.replicas = 3;
    world.settle(well);
    assert_eq!(world.counts(), (3, 0, 0), "claimed again");
}

#[test]
fn machines_that_wait_are_released_without_a_wipe() {
    let mut world = World::new(3, 3);
    world.pool.spec.max_failures = 5;
    world.look();
    world.look();
    assert!(world.machines.values().all(|(_, workflow)| workflow.as_ref().is_some_and(waits)));
    world.pool.spec.replicas = 1;
    for _ in 0..3 {
        world.look();
    }
    assert_eq!((world.members(), world.free().len(), world.runs), (vec!["m3"], 2, 3));
}

#[test]
fn one_failed_machine_is_replaced_and_two_stop_the_pool() {
    let fails = |bad: &'static [&'static str]| {
        move |name: &str| if bad.contains(&name) { WorkflowPhase::Failed } else { WorkflowPhase::Succeeded }
    };
    let mut world = World::new(5, 3);
    world.settle(fails(&["m2"]));
    assert_eq!((world.counts(), world.members()), ((3, 0, 1), vec!["m1", "m2", "m3", "m4"]));
    assert_eq!(world.reason(), Reason::Complete);
    let mut world = World::new(5, 3);
    world.settle(fails(&["m1", "m2", "m4"]));
    assert_eq!((world.counts(), world.reason()), ((0, 0, 2), Reason::TooManyFailures));
    assert_eq!(world.runs, 2, "no other machine was begun");
    // Another template is another chance for them.
    world.pool.spec.template = "b".into();
    world.settle(well);
    assert_eq!((world.counts(), world.reason()), ((3, 0, 0), Reason::Complete));
}

#[test]
fn another_template_installs_machines_anew_one_by_one() {
    let mut world = World::new(3, 3);
    world.settle(well);
    for (most, at_once) in [(1, 1), (2, 2)] {
        world.pool.spec.max_unavailable = most;
        world.pool.spec.template = format!("b{most}");
        assert_eq!(world.settle(well), at_once);
        assert_eq!(world.counts(), (3, 0, 0));
    }
    // With fewer replicas at the same time, the machine that leaves is not installed before.
    (world.pool.spec.template, world.pool.spec.replicas, world.runs) = ("c".into(), 2, 0);
    world.settle(well);
    assert_eq!((world.counts(), world.runs), ((2, 0, 0), 3));
    world.pool.spec.replicas = 3;
    world.settle(well);
    world.pool.spec.template = "bad".into();
    world.settle(|_| WorkflowPhase::Failed);
    assert_eq!(world.counts(), (0, 1, 2), "the third stays as it was");
}

#[test]
fn waiting_workflows_of_an_older_template_are_replaced() {
    let mut world = World::new(2, 2);
    world.look();
    world.look();
    world.pool.spec.template = "b".into();
    for _ in 0..3 {
        world.look();
    }
    let templates: Vec<_> =
        world.machines.values().map(|(_, workflow)| workflow.as_ref().unwrap().spec.template.as_str()).collect();
    assert_eq!((templates, world.runs), (vec!["b", "b"], 4));
}

#[test]
fn without_a_person_no_installed_machine_is_touched() {
    let mut world = World::new(3, 2);
    world.pool.status.as_mut().unwrap().requested = None;
    world.settle(well);
    assert_eq!(world.counts(), (2, 0, 0), "blank machines are installed");
    for change in [|spec: &mut PoolSpec| spec.template = "b".into(), |spec: &mut PoolSpec| spec.replicas = 0] {
        change(&mut world.pool.spec);
        world.settle(well);
        assert_eq!(world.reason(), Reason::NeedsPerson);
    }
    assert!(world.wiped.is_empty());
    // A person releases them.
    for name in ["m1", "m2"] {
        world.release(name);
    }
    world.settle(well);
    assert_eq!((world.members().len(), world.free().len(), world.reason()), (0, 3, Reason::Complete));
}

#[test]
fn a_paused_pool_begins_nothing() {
    let mut world = World::new(3, 2);
    world.settle(well);
    world.pool.spec = PoolSpec { paused: true, replicas: 3, template: "b".into(), ..world.pool.spec.clone() };
    assert_eq!((world.plan().steps, world.reason()), (Vec::new(), Reason::Paused));
    world.release("m1");
    world.settle(well);
    assert_eq!(world.members(), ["m2"], "what a person released leaves");
}

#[test]
fn a_released_machine_is_replaced_by_another() {
    let mut world = World::new(4, 3);
    world.settle(well);
    world.machines.get_mut("m2").unwrap().0.spec.maintenance = true;
    world.release("m2");
    world.look();
    assert!(world.carries("m2") && world.runs == 3, "a person works on it");
    world.machines.get_mut("m2").unwrap().0.spec.maintenance = false;
    world.settle(well);
    assert_eq!(world.members(), ["m1", "m3", "m4"]);
    // A clearing that failed is not tried again without end.
    world.release("m1");
    world.settle(|name| if name == "m1" { WorkflowPhase::Failed } else { WorkflowPhase::Succeeded });
    assert_eq!((world.members(), world.counts()), (vec!["m1", "m2", "m3", "m4"], (3, 0, 0)));
}

#[test]
fn machines_of_a_deleted_pool_stay_as_they_are() {
    let mut world = World::new(2, 2);
    world.settle(well);
    world.release("m2");
    let next = |name: &str| {
        let (machine, workflow) = &world.machines[name];
        orphaned(machine, workflow.as_ref(), now())
    };
    assert_eq!(next("m1"), Some(Step::Free("m1".into())));
    assert_eq!(next("m2"), Some(Step::Clear("m2".into())));
}

/// Something that happens to a pool.
#[derive(Debug, Clone)]
enum Change {
    Replicas(u32),
    Template(bool),
    Paused(bool),
    Person(bool),
    Release(usize),
    Maintenance(usize, bool),
    Look,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0u32..6).prop_map(Change::Replicas),
        any::<bool>().prop_map(Change::Template),
        any::<bool>().prop_map(Change::Paused),
        any::<bool>().prop_map(Change::Person),
        (1usize..6).prop_map(Change::Release),
        (1usize..6, any::<bool>()).prop_map(|(n, on)| Change::Maintenance(n, on)),
        Just(Change::Look),
    ]
}

proptest! {
    #[test]
    fn a_pool_settles_and_wipes_for_persons_alone(
        changes in proptest::collection::vec((change(), 0u8..8), 1..25)
    ) {
        let mut world = World::new(5, 3);
        for (change, fails) in changes {
            match change {
                Change::Replicas(n) => world.pool.spec.replicas = n,
                Change::Template(b) => world.pool.spec.template = if b { "b" } else { "a" }.into(),
                Change::Paused(paused) => world.pool.spec.paused = paused,
                Change::Person(is) => world.pool.status.as_mut().unwrap().requested = is.then(ann),
                Change::Release(n) => world.release(&format!("m{n}")),
                Change::Maintenance(n, on) => world.machines.get_mut(&format!("m{n}")).unwrap().0.spec.maintenance = on,
                Change::Look => { world.look(); continue }
            }
            world.wiped.clear();
            let bad = format!("m{fails}");
            world.settle(|name| if name == bad { WorkflowPhase::Failed } else { WorkflowPhase::Succeeded });
            let (ready, outdated, failed) = world.counts();
            let status = world.pool.status.as_ref().unwrap();
            prop_assert!(status.requested.is_some() || world.wiped.is_empty(), "{:?}", world.wiped);
            if world.pool.spec.paused {
                prop_assert!(world.wiped.is_empty());
            } else if status.requested.is_some() && failed == 0 {
                prop_assert!(ready + outdated <= world.pool.spec.replicas, "{status:?}");
            }
        }
    }
}
