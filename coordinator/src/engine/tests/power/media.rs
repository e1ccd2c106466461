//! Virtual media: the boot medium is in the BMC's drive for as long as it is needed.

use super::*;

#[tokio::test]
async fn a_machine_starts_from_virtual_media_which_is_ejected() {
    for eject in [Eject::Done, Eject::Ignored] {
        let sim = BmcSim::start(Quirks { eject, ..Quirks::default() }).await;
        let world = world_with_ways(&sim, &[BootWay::VirtualMedia]).await;
        world.provision(false).await.unwrap();
        let mut driver = driver(&world, "m1");
        looks(&world, &mut driver, 10).await;
        let seen = sim.seen();
        assert_eq!(seen.drive.image.as_deref(), Some("http://10.77.0.1:7480/boot/landfall.iso"));
        assert_eq!(seen.computer.starts.iter().map(|start| start.from.as_str()).collect::<Vec<_>>(), ["Cd"]);
        world.enroll(b"key").await.unwrap();
        let _agent = world.connect(hello("b1", "D1", vec![])).await;
        looks(&world, &mut driver, 5).await;
        let bmc = world.machine().await.status.unwrap().bmc.unwrap();
        assert_eq!(bmc.worked, Some(BootWay::VirtualMedia));
        assert_eq!(sim.seen().drive.ejects, u32::from(eject == Eject::Done), "{eject:?}");
        // The one that may be started again is in a condition.
        let left = bmc.medium.and_then(|medium| medium.not_ejected);
        assert_eq!(left.is_some(), eject == Eject::Ignored, "{left:?}");
        let shown = world.condition("MediumLeft").await;
        assert_eq!(shown.is_some_and(|(truth, _)| truth == ConditionStatus::True), left.is_some());
        assert_eq!(sim.seen().computer.enabled, "Disabled");
        // A medium that cannot be ejected is no reason to doubt the BMC.
        assert_eq!(world.condition("BMCReachable").await.unwrap().0, ConditionStatus::True, "{eject:?}");
    }
}

#[tokio::test]
async fn an_arm64_machine_gets_no_medium_of_another_architecture() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = world_with_ways(&sim, &[BootWay::VirtualMedia]).await;
    let arm64 = |machine: &mut Machine| {
        let mut facts = landfall_api::MachineFacts::default();
        facts.cpu.architecture = "aarch64".into();
        machine.status.get_or_insert_default().facts = Some(facts.into());
    };
    world.engine.fleet().mutate_machine("m1", arm64).await.unwrap();
    sim.change(|state| state.computer.is_on = true);
    world.provision(false).await.unwrap();
    looks(&world, &mut driver(&world, "m1"), 5).await;
    let tried = attempts(&world).await;
    assert!(tried[0].1.as_ref().unwrap().contains("boot.arm64.iso"), "{tried:?}");
    let seen = sim.seen();
    assert_eq!((seen.drive.inserts, seen.computer.shutdowns), (0, 0), "a machine that runs is left alone");
}

#[tokio::test]
async fn a_bmc_that_cannot_eject_holds_up_nothing() {
    let sim = BmcSim::start(Quirks::default()).await;
    let works = BmcSim::start(Quirks::default()).await;
    let world = World::over_with(Store::memory(), Arc::new(AtomicI64::new(1_000_000)), 1).await.described().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    let mut first = with_bmc("m1", MAC, &sim);
    first["spec"]["bmc"]["ways"] = json!(["virtualMedia"]);
    world.apply(first).await.unwrap();
    world.apply(with_bmc("m2", "52:54:00:00:00:02", &works)).await.unwrap();
    let mut drivers = [driver(&world, "m1"), driver(&world, "m2")];
    let run = world.provision(false).await.unwrap();
    looks(&world, &mut drivers[0], 3).await;
    assert_eq!(sim.seen().computer.starts.len(), 1);
    // Its drives cannot be read any more: whether it has ejected the medium is not known.
    sim.change(|state| state.quirks.media_busy = true);
    world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
    world.later(1000);
    looks(&world, &mut drivers[0], 3).await;
    assert!(world.machine().await.status.unwrap().bmc.unwrap().medium.is_some(), "it is asked again");
    world.engine.requests().provision("m2", "os", BTreeMap::new(), world.ann(false), None).await.unwrap();
    looks(&world, &mut drivers[1], 3).await;
    assert_eq!(works.seen().computer.starts.len(), 1, "its place is another's");
    sim.change(|state| state.quirks.media_busy = false);
    looks(&world, &mut drivers[0], 3).await;
    assert_eq!((world.machine().await.status.unwrap().bmc.unwrap().medium, sim.seen().drive.ejects), (None, 1));
}

/// A machine that is starting from its medium.
async fn starting(sim: &BmcSim) -> World {
    let world = world_with_ways(sim, &[BootWay::VirtualMedia]).await;
    world.provision(false).await.unwrap();
    world
}

#[tokio::test]
async fn a_removed_bmc_keeps_no_medium() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = starting(&sim).await;
    let (stop, keeper) = keeps(&world);
    sim.until("a start", |state| state.computer.starts.len() == 1).await;
    world.apply(machine("m1", MAC)).await.unwrap();
    sim.until("the end of the session", |state| state.accounts.sessions.is_empty()).await;
    stop.cancel();
    keeper.await.unwrap();
    assert_eq!(sim.seen().drive.ejects, 1);
}

#[tokio::test]
async fn a_stopping_coordinator_leaves_the_medium() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = starting(&sim).await;
    let (stop, keeper) = keeps(&world);
    sim.until("a start", |state| state.computer.starts.len() == 1).await;
    stop.cancel();
    keeper.await.unwrap();
    assert_eq!((sim.seen().accounts.sessions.len(), sim.seen().drive.ejects), (0, 0));
}

#[tokio::test]
async fn a_medium_that_cannot_be_inserted_costs_only_its_way() {
    for quirks in [
        Quirks { media_at: MediaAt::Nowhere, ..Quirks::default() },
        Quirks { media_busy: true, is_busy: true, no_sessions: true, ..Quirks::default() },
    ] {
        let is_busy = quirks.is_busy;
        let sim = BmcSim::start(quirks).await;
        let world = world_with_ways(&sim, &[BootWay::VirtualMedia, BootWay::PxeOnce]).await;
        world.provision(false).await.unwrap();
        let mut driver = driver(&world, "m1");
        looks(&world, &mut driver, 400).await;
        let tried = attempts(&world).await;
        // One that answers with errors is given as long as the machine to netboot.
        assert_eq!(tried.len(), 2, "{tried:?}");
        let why = if is_busy { "503" } else { "does not support virtual media" };
        assert!(tried[0].1.as_ref().unwrap().contains(why), "{tried:?}");
        assert_eq!((sim.seen().computer.starts.len(), sim.seen().drive.inserts), (usize::from(!is_busy), 0));
    }
}
