//! Machines whose documents say where their BMC is, and nothing of how they are recognised.

use landfall_boot::policy::Decision;

use super::*;

/// A machine that is described by its BMC alone.
fn by_bmc(name: &str, sim: &BmcSim) -> serde_json::Value {
    let mut machine = with_bmc(name, MAC, sim);
    machine["spec"].as_object_mut().unwrap().remove("identity");
    machine
}

async fn known(world: &World, machine: &str) -> Option<(ConditionStatus, String)> {
    let machine = world.store.machine(machine).await.unwrap().unwrap();
    let conditions = &machine.status.as_ref().unwrap().conditions;
    conditions.iter().find(|c| c.kind == "IdentityKnown").map(|c| (c.status, c.reason.to_string()))
}

fn reason(of: &Option<(ConditionStatus, String)>) -> Option<(ConditionStatus, &str)> {
    of.as_ref().map(|(status, reason)| (*status, reason.as_str()))
}

#[tokio::test]
async fn a_machine_is_recognised_by_what_its_bmc_lists() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = World::new().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    world.apply(by_bmc("m1", &sim)).await.unwrap();
    assert!(matches!(world.boot().await, Decision::Unknown), "its BMC has not been read");
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    assert_eq!(reason(&known(&world, "m1").await), Some((ConditionStatus::True, "Reported")));
    let taken = world.apply(machine("m2", MAC)).await.unwrap_err();
    assert!(taken.to_string().contains("belongs to machine \"m1\""), "{taken}");
    world.provision(false).await.unwrap();
    looks(&world, &mut driver, 5).await;
    assert_eq!(sim.seen().computer.starts.len(), 1);
    assert!(matches!(world.boot().await, Decision::RunAgent { .. }));
    world.enroll(b"key").await.unwrap();
    world.connect(hello("b1", "D1", vec![])).await.assigned();

    let restarted = World::over(world.store.clone(), world.clock.clone()).await;
    assert!(matches!(restarted.boot().await, Decision::RunAgent { .. }), "the store has it");
    // A person states other ports: those count alone.
    world.apply(with_bmc("m1", "52:54:00:00:00:09", &sim)).await.unwrap();
    assert!(matches!(world.boot().await, Decision::Unknown));
    looks(&world, &mut self::driver(&world, "m1"), 3).await;
    assert_eq!(known(&world, "m1").await, None);
    world.apply(machine("m2", MAC)).await.unwrap();
}

#[tokio::test]
async fn a_port_of_another_machine_recognises_none() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = World::new().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    world.apply(by_bmc("m1", &sim)).await.unwrap();
    world.apply(machine("m2", MAC)).await.unwrap();
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    assert_eq!(reason(&known(&world, "m1").await), Some((ConditionStatus::False, "PortsOfOthers")));
    let run = world.provision(false).await.unwrap();
    looks(&world, &mut driver, 5).await;
    assert!(sim.seen().computer.starts.is_empty(), "it would not be recognised");
    let workflow = world.run(&run.metadata.name).await;
    let missing = workflow.status.unwrap().conditions.into_iter().find(|c| c.kind == "NotSeen").unwrap();
    assert!(missing.message.contains("its ports are not known"), "{}", missing.message);
    // The other document is corrected.
    world.apply(machine("m2", "52:54:00:00:00:02")).await.unwrap();
    looks(&world, &mut self::driver(&world, "m1"), 6).await;
    assert_eq!(reason(&known(&world, "m1").await), Some((ConditionStatus::True, "Reported")));
    assert_eq!(sim.seen().computer.starts.len(), 1);
}

#[tokio::test]
async fn ports_that_a_bmc_lists_late_or_no_more_count() {
    let sim = BmcSim::start(Quirks { no_ports: true, ..Quirks::default() }).await;
    let world = World::new().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    world.apply(by_bmc("m1", &sim)).await.unwrap();
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    assert_eq!(reason(&known(&world, "m1").await), Some((ConditionStatus::False, "NoPorts")));
    // Its computer was on meanwhile.
    sim.change(|state| state.quirks.no_ports = false);
    world.provision(false).await.unwrap();
    looks(&world, &mut driver, 5).await;
    assert_eq!(reason(&known(&world, "m1").await), Some((ConditionStatus::True, "Reported")));
    assert_eq!((sim.seen().computer.starts.len(), sim.seen().accounts.opened), (1, 1));
    // It says less while the computer starts, and when nothing waits for it.
    sim.change(|state| state.quirks.no_ports = true);
    looks(&world, &mut self::driver(&world, "m1"), 3).await;
    assert!(matches!(world.boot().await, Decision::RunAgent { .. }));
    let run = world.current("m1").await.unwrap();
    world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
    looks(&world, &mut self::driver(&world, "m1"), 3).await;
    assert!(matches!(world.boot().await, Decision::BootDisk { .. }));
}

#[tokio::test]
async fn ports_of_a_bmc_that_was_corrected_recognise_none() {
    let (wrong, right) = (BmcSim::start(Quirks::default()).await, BmcSim::start(Quirks::default()).await);
    let world = World::new().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    world.apply(by_bmc("m1", &wrong)).await.unwrap();
    let mut of_wrong = driver(&world, "m1");
    looks(&world, &mut of_wrong, 3).await;
    assert!(matches!(world.boot().await, Decision::BootDisk { .. }), "it is recognised");
    let mut late = driver(&world, "m1");
    world.apply(by_bmc("m1", &right)).await.unwrap();
    assert!(matches!(world.boot().await, Decision::Unknown));
    // A look at the first one that ends only now.
    late.look().await.unwrap();
    let bmc = world.machine().await.status.unwrap().bmc.unwrap();
    assert_eq!((bmc.address.unwrap().to_string(), bmc.system, bmc.power), (right.address().to_owned(), None, None));
    assert!(matches!(world.boot().await, Decision::Unknown));
}

#[tokio::test]
async fn a_learnt_port_does_not_come_back_by_itself() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = World::new().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    world.apply(by_bmc("m1", &sim)).await.unwrap();
    looks(&world, &mut driver(&world, "m1"), 3).await;
    world.apply(with_bmc("m1", "52:54:00:00:00:09", &sim)).await.unwrap();
    world.apply(machine("m2", MAC)).await.unwrap();
    world.apply(by_bmc("m1", &sim)).await.unwrap();
    let Decision::BootDisk { machine, .. } = world.boot().await else { panic!("m2 is described") };
    assert_eq!(machine, "m2");
}
