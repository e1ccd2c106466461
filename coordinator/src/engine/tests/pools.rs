//! Pools over computers that are installed, released and wiped.

use landfall_api::{Pool, PoolStatus};

use super::fleet::{Computer, Until};
use super::*;

async fn pool(world: &World, spec: serde_json::Value) -> Pool {
    let mut whole = json!({"template": "os", "matchLabels": {"rack": "r7"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let (Document::Pool(pool), _) = world.apply(document("Pool", "web", whole)).await.unwrap() else { panic!() };
    pool.into_inner()
}

async fn status(world: &World) -> PoolStatus {
    let found = world.store.documents().get(Kind::Pool, "web").await.unwrap().unwrap();
    let Document::Pool(pool) = found else { panic!() };
    pool.into_inner().status.unwrap()
}

fn reason(status: &PoolStatus) -> String {
    status.conditions[0].reason.to_string()
}

/// A world with so many machines of the rack `r7`, and one of another.
async fn rack(machines: u8) -> (World, Vec<Computer>) {
    let world = World::new().await;
    let mut computers = Vec::new();
    for number in 1..=machines {
        let computer = Computer::described(&world, number).await;
        let mut document = computer.document();
        document["metadata"]["labels"] = json!({"rack": "r7"});
        world.apply(document).await.unwrap();
        computers.push(computer);
    }
    (world, computers)
}

/// Looks so often that everything is done that needs no agent.
async fn look(world: &World) {
    for _ in 0..4 {
        world.later(6);
        world.engine.pools().tick().await.unwrap();
        world.engine.upkeep().tick().await.unwrap();
    }
}

/// Every computer that is wanted netboots and does its workflow.
async fn work(world: &World, computers: &mut [Computer]) {
    for computer in computers {
        let run = computer.machine(world).await.status.unwrap().workflow;
        let Some(run) = run else { continue };
        if !world.run(&run).await.status.unwrap().phase.is_terminal() {
            computer.run(world, Until::Home).await;
        }
    }
    look(world).await;
}

async fn members(world: &World, computers: &[Computer]) -> Vec<String> {
    let mut names = Vec::new();
    for computer in computers {
        let claim = computer.machine(world).await.status.unwrap().pool;
        names.extend(claim.map(|_| computer.name.clone()));
    }
    names
}

#[tokio::test]
async fn a_pool_claims_replaces_and_releases_machines() {
    let (world, mut computers) = rack(4).await;
    pool(&world, json!({"replicas": 3, "maxFailures": 2})).await;
    look(&world).await;
    assert_eq!(members(&world, &computers).await, ["c1", "c2", "c3"]);
    assert!(world.machine().await.status.unwrap().pool.is_none(), "it is of no rack");
    let run = computers[0].machine(&world).await.status.unwrap().workflow.unwrap();
    let run = world.run(&run).await;
    assert!(run.spec.authority.is_none(), "blank disks alone are written");
    assert_eq!(run.metadata.labels["landfall.dev/pool"], "web");
    work(&world, &mut computers).await;
    work(&world, &mut computers).await;
    assert_eq!((status(&world).await.ready, reason(&status(&world).await)), (3, "Complete".into()));

    world.engine.pools().release("c2", world.ann(false)).await.unwrap();
    look(&world).await;
    assert_eq!(computers[1].phase(&world).await, MachinePhase::Deprovisioning);
    let run = computers[1].machine(&world).await.status.unwrap().workflow.unwrap();
    assert_eq!(world.run(&run).await.spec.authority.unwrap().person, "ann");
    work(&world, &mut computers).await;
    work(&world, &mut computers).await;
    assert_eq!(members(&world, &computers).await, ["c1", "c3", "c4"]);
    assert_eq!(computers[1].phase(&world).await, MachinePhase::Available);

    pool(&world, json!({"replicas": 2, "maxFailures": 2, "release": {"powerOff": true}})).await;
    look(&world).await;
    let run = computers[3].machine(&world).await.status.unwrap().workflow.unwrap();
    let run = world.run(&run).await;
    let last = run.status.unwrap().actions.pop().unwrap();
    assert_eq!((run.spec.authority.unwrap().person.as_str(), last.action.spec.key()), ("ann", "powerOff"));
    work(&world, &mut computers).await;
    assert_eq!(members(&world, &computers).await, ["c1", "c3"]);
    assert_eq!(reason(&status(&world).await), "Complete");
}

#[tokio::test]
async fn a_person_takes_a_machine_out_before_installing_it() {
    let (world, computers) = rack(1).await;
    let free = world.engine.pools().release("c1", world.ann(false)).await.unwrap_err();
    assert!(free.message.contains("is in no pool"), "{free}");
    let missing = world.engine.pools().release("c9", world.ann(false)).await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::NotFound);
    pool(&world, json!({"replicas": 1})).await;
    look(&world).await;
    let run = computers[0].machine(&world).await.status.unwrap().workflow.unwrap();
    world.engine.requests().cancel(&run, world.ann(false)).await.unwrap();
    let refused = computers[0].provision(&world, true).await.unwrap_err();
    assert!(refused.code == ErrorCode::Conflict && refused.hint.contains("landfall release c1"), "{refused}");
    look(&world).await;
    assert_eq!(status(&world).await.failed, 1, "a person cancelled it: it is not begun again");
    world.engine.pools().release("c1", world.ann(false)).await.unwrap();
    pool(&world, json!({"replicas": 0})).await;
    look(&world).await;
    assert_eq!(members(&world, &computers).await, [""; 0]);
    computers[0].provision(&world, false).await.unwrap();
}

#[tokio::test]
async fn a_file_alone_has_no_installed_machine_wiped() {
    let (world, mut computers) = rack(1).await;
    let document = |template: &str| {
        let spec = json!({"replicas": 1, "template": template, "matchLabels": {"rack": "r7"}});
        Document::from_value(document("Pool", "web", spec)).unwrap()
    };
    let mut other = world.store.template("os").await.unwrap().unwrap().into_inner();
    (other.metadata.name, other.metadata.resource_version) = ("other".into(), 0);
    world.engine.documents().apply(Document::from(other), "ann", false).await.unwrap();
    world.engine.documents().apply_file(document("os"), "a file").await.unwrap();
    look(&world).await;
    work(&world, &mut computers).await;
    assert_eq!(status(&world).await.ready, 1);
    world.engine.documents().apply_file(document("other"), "a file").await.unwrap();
    look(&world).await;
    assert_eq!((status(&world).await.outdated, reason(&status(&world).await)), (1, "NeedsPerson".into()));
    // Who changes the number alone does not vouch for the file's template.
    let mut more = document("other");
    let Document::Pool(pool) = &mut more else { panic!() };
    pool.spec.replicas = 2;
    world.engine.documents().apply(more, "bob", false).await.unwrap();
    look(&world).await;
    assert_eq!((status(&world).await.requested, reason(&status(&world).await)), (None, "NeedsPerson".into()));
    world.engine.documents().apply_file(document("other"), "a file").await.unwrap();
    // The same document, by a person.
    let (_, outcome) = world.engine.documents().apply(document("other"), "ann", false).await.unwrap();
    assert_eq!(outcome, ApplyOutcome::Configured);
    look(&world).await;
    work(&world, &mut computers).await;
    assert_eq!((status(&world).await.ready, status(&world).await.requested.unwrap().person), (1, "ann".into()));
}

#[tokio::test]
async fn a_pool_goes_on_after_a_restart_of_the_coordinator() {
    let (world, mut computers) = rack(2).await;
    pool(&world, json!({"replicas": 2})).await;
    look(&world).await;
    let run = computers[0].machine(&world).await.status.unwrap().workflow;
    let world = World::over(world.store.clone(), world.clock.clone()).await;
    look(&world).await;
    assert_eq!(computers[0].machine(&world).await.status.unwrap().workflow, run, "not requested twice");
    work(&world, &mut computers).await;
    assert_eq!(status(&world).await.ready, 2);
    world.engine.documents().delete(Kind::Pool, "web", "ann").await.unwrap();
    look(&world).await;
    assert_eq!(members(&world, &computers).await, [""; 0]);
    assert_eq!(computers[0].phase(&world).await, MachinePhase::Provisioned, "it stays as it is");
}

#[tokio::test]
async fn a_pool_without_its_template_claims_nothing() {
    let (world, computers) = rack(1).await;
    pool(&world, json!({"replicas": 1, "template": "nowhere"})).await;
    look(&world).await;
    assert_eq!(reason(&status(&world).await), "NoTemplate");
    assert_eq!(members(&world, &computers).await, [""; 0]);
    let bad = json!({"replicas": 100_001, "template": "os", "maxUnavailable": 0, "when": {"memory": "> 1"},
        "release": {"fallback": ["zero"]}});
    let problem = world.apply(document("Pool", "x", bad)).await.unwrap_err().to_string();
    for field in ["replicas", "maxUnavailable", "when.memory", "release.fallback"] {
        assert!(problem.contains(field), "{field}: {problem}");
    }
}

#[tokio::test]
async fn a_person_faster_than_the_pool_keeps_the_machine() {
    let (world, computers) = rack(2).await;
    let run = computers[0].provision(&world, false).await.unwrap().metadata.name;
    world.engine.requests().cancel(&run, world.ann(false)).await.unwrap();
    let mut other = world.store.template("os").await.unwrap().unwrap().into_inner();
    (other.metadata.name, other.metadata.resource_version) = ("other".into(), 0);
    world.engine.documents().apply(Document::from(other), "ann", false).await.unwrap();
    pool(&world, json!({"replicas": 2, "template": "other"})).await;
    // Both are claimed, and nothing is requested yet.
    world.engine.pools().tick().await.unwrap();
    assert_eq!(members(&world, &computers).await.len(), 2);
    let refused = world.engine.requests().retry(&run, world.ann(false)).await.unwrap_err();
    assert!(refused.message.contains("of pool \"web\", which wants template other"), "{refused}");
    world.engine.requests().adopt("c2", world.ann(false)).await.unwrap();
    look(&world).await;
    assert_eq!(members(&world, &computers).await, ["c1"]);
    let status = computers[1].machine(&world).await.status.unwrap();
    assert!(status.workflow.is_none() && status.adopted.is_some(), "it stays as the person took it over");
}

#[tokio::test]
async fn a_pool_that_is_deleted_ends_what_has_not_begun() {
    let (world, mut computers) = rack(1).await;
    pool(&world, json!({"replicas": 1})).await;
    look(&world).await;
    work(&world, &mut computers).await;
    let mut other = world.store.template("os").await.unwrap().unwrap().into_inner();
    (other.metadata.name, other.metadata.resource_version) = ("other".into(), 0);
    world.engine.documents().apply(Document::from(other), "ann", false).await.unwrap();
    pool(&world, json!({"replicas": 1, "template": "other"})).await;
    look(&world).await;
    let run = computers[0].machine(&world).await.status.unwrap().workflow.unwrap();
    assert_eq!(world.run(&run).await.spec.template, "other");
    world.engine.documents().delete(Kind::Pool, "web", "ann").await.unwrap();
    look(&world).await;
    assert!(world.run(&run).await.status.unwrap().phase.is_terminal(), "it is not installed anew");
    assert_eq!(members(&world, &computers).await, [""; 0]);
    assert_eq!(computers[0].machine(&world).await.status.unwrap().receipts.len(), 1);
}

#[tokio::test]
async fn an_adopted_machine_is_of_no_pool() {
    let (world, mut computers) = rack(1).await;
    pool(&world, json!({"replicas": 1})).await;
    look(&world).await;
    work(&world, &mut computers).await;
    assert_eq!(status(&world).await.ready, 1);
    world.engine.requests().adopt("c1", world.ann(false)).await.unwrap();
    assert_eq!(members(&world, &computers).await, [""; 0]);
    let run = computers[0].machine(&world).await.status.unwrap().workflow;
    pool(&world, json!({"replicas": 0})).await;
    look(&world).await;
    assert_eq!(computers[0].machine(&world).await.status.unwrap().workflow, run, "nothing was requested");
}
