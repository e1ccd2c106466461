//! BMCs that are away, busy or dead, and how many machines are started beside them.

use super::*;

#[tokio::test]
async fn an_outage_of_the_bmc_costs_no_way() {
    let sim = BmcSim::start(Quirks { is_down: true, ..Quirks::default() }).await;
    let world = world(&sim, PASSWORD).await;
    world.provision(false).await.unwrap();
    let mut driver = driver(&world, "m1");
    for _ in 0..5 {
        driver.look().await.unwrap();
    }
    assert_eq!(world.condition("BMCReachable").await.unwrap(), (ConditionStatus::False, "Unreachable".into()));
    assert!(attempts(&world).await.is_empty());
    sim.change(|state| state.quirks.is_down = false);
    looks(&world, &mut driver, 5).await;
    assert_eq!(sim.seen().computer.starts.len(), 1);
}

#[tokio::test]
async fn a_boot_device_that_an_outage_took_is_set_again() {
    // Chassis Control, which is not answered any more.
    let sim = BmcSim::start_ipmi(Quirks { hangs_at: Some("0x00 0x02"), ..Quirks::default() }).await;
    let world = world(&sim, PASSWORD).await;
    world.provision(false).await.unwrap();
    let mut driver = driver(&world, "m1");
    driver.look().await.unwrap();
    assert_eq!(sim.seen().computer.target, "Pxe");
    assert_eq!(world.condition("BMCReachable").await.unwrap(), (ConditionStatus::False, "Unreachable".into()));
    sim.restart();
    looks(&world, &mut driver, 5).await;
    assert_eq!(attempts(&world).await, [(BootWay::PxeOnce, None)], "an outage costs no way");
    let starts = sim.seen().computer.starts;
    assert_eq!((starts.len(), starts[0].from.as_str()), (1, "Pxe"));
}

#[tokio::test]
async fn a_refused_shutdown_is_followed_by_a_cut() {
    let quirks = Quirks { refuses_shutdown: true, ..Quirks::default() };
    for sim in [BmcSim::start(quirks.clone()).await, BmcSim::start_ipmi(quirks).await] {
        sim.change(|state| state.computer.is_on = true);
        let world = world(&sim, PASSWORD).await;
        world.provision(false).await.unwrap();
        let mut driver = driver(&world, "m1");
        looks(&world, &mut driver, 100).await;
        let seen = sim.seen().computer;
        assert_eq!((seen.cuts, seen.starts.len()), (1, 1), "{}", sim.address());
        assert_eq!(seen.starts[0].from, "Pxe");
    }
}

#[tokio::test]
async fn a_busy_bmc_is_asked_again_and_costs_no_way() {
    let sim = BmcSim::start(Quirks { is_busy: true, no_sessions: true, ..Quirks::default() }).await;
    let world = world(&sim, PASSWORD).await;
    world.provision(false).await.unwrap();
    let mut driver = driver(&world, "m1");
    for _ in 0..5 {
        driver.look().await.unwrap();
    }
    assert_eq!(attempts(&world).await, [(BootWay::PxeOnce, None)]);
    sim.change(|state| state.quirks.is_busy = false);
    looks(&world, &mut driver, 5).await;
    assert_eq!(sim.seen().computer.starts[0].from, "Pxe");
}

#[tokio::test]
async fn dead_bmcs_take_no_place_from_others() {
    let (dead, works) =
        (BmcSim::start(Quirks { is_down: true, ..Quirks::default() }).await, BmcSim::start(Quirks::default()).await);
    let world = World::over_with(Store::memory(), Arc::new(AtomicI64::new(1_000_000)), 1).await.described().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    world.apply(with_bmc("m1", MAC, &dead)).await.unwrap();
    world.apply(with_bmc("m2", "52:54:00:00:00:02", &works)).await.unwrap();
    let mut drivers = [driver(&world, "m1"), driver(&world, "m2")];
    for name in ["m1", "m2"] {
        let by = world.ann(false);
        world.engine.requests().provision(name, "os", BTreeMap::new(), by, None).await.unwrap();
    }
    for _ in 0..6 {
        for driver in &mut drivers {
            driver.look().await.unwrap();
        }
    }
    assert_eq!(works.seen().computer.starts.len(), 1);
}

#[tokio::test]
async fn no_more_machines_start_than_may_be_installed() {
    let sims = [BmcSim::start(Quirks::default()).await, BmcSim::start(Quirks::default()).await];
    let world = World::over_with(Store::memory(), Arc::new(AtomicI64::new(1_000_000)), 1).await.described().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    let mut drivers = Vec::new();
    for (n, sim) in sims.iter().enumerate() {
        let name = format!("m{}", n + 1);
        world.apply(with_bmc(&name, &format!("52:54:00:00:00:0{}", n + 1), sim)).await.unwrap();
        let by = world.ann(false);
        world.engine.requests().provision(&name, "os", BTreeMap::new(), by, None).await.unwrap();
        drivers.push(driver(&world, &name));
    }
    let starts = || sims.iter().map(|sim| sim.seen().computer.starts.len()).collect::<Vec<_>>();
    for _ in 0..5 {
        for driver in &mut drivers {
            driver.look().await.unwrap();
        }
    }
    assert_eq!(starts(), [1, 0]);
    // The first does not come on any way: the second has its place then.
    world.later(100_000);
    for _ in 0..60 {
        drivers[0].look().await.unwrap();
        world.later(1000);
    }
    for _ in 0..5 {
        drivers[1].look().await.unwrap();
    }
    assert_eq!(starts()[1], 1, "{:?}", starts());
}

#[tokio::test]
async fn a_bmc_that_hangs_delays_no_other() {
    let hangs = BmcSim::start(Quirks { hangs: true, ..Quirks::default() }).await;
    let works = BmcSim::start(Quirks::default()).await;
    let world = world(&hangs, PASSWORD).await;
    world.apply(with_bmc("m2", "52:54:00:00:00:02", &works)).await.unwrap();
    for name in ["m1", "m2"] {
        let by = world.ann(false);
        world.engine.requests().provision(name, "os", BTreeMap::new(), by, None).await.unwrap();
    }
    let (stop, keeper) = keeps(&world);
    works.until("a start", |state| state.computer.starts.len() == 1).await;
    hangs.until("a request", |state| !state.requests.is_empty()).await;
    // The coordinator stops meanwhile: nothing waits for it.
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), keeper).await.unwrap().unwrap();
    assert!(works.seen().accounts.sessions.is_empty(), "its session is closed");
}

/// What a person does with a machine whose BMC hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Delete,
    /// Its document has no BMC any more.
    Detach,
    /// Its document has another BMC.
    Move,
}

#[tokio::test]
async fn a_hanging_bmc_holds_up_no_change_of_its_machine() {
    let changes = [Change::Delete, Change::Detach, Change::Move];
    let cases = changes
        .into_iter()
        .flat_map(|change| [BootWay::PxeOnce, BootWay::VirtualMedia].map(|way| hangs_while_changed(change, way)));
    // Side by side: each waits for a BMC's limit of time.
    futures::future::join_all(cases).await;
}

/// Waits until the machine's document says so of its BMC.
async fn reads(world: &World, reachable: Option<ConditionStatus>) {
    let mut changes = world.store.documents().watch(Some(Kind::Machine), 0).unwrap();
    let is_so = async || world.condition("BMCReachable").await.map(|(status, _)| status) == reachable;
    let until = async {
        while !is_so().await {
            changes.next().await.unwrap();
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(30), until).await;
    assert!(outcome.is_ok(), "30 s for {reachable:?}: {:#?}", world.machine().await.status);
}

async fn hangs_while_changed(change: Change, way: BootWay) {
    let case = format!("{change:?} {way}");
    let (hangs, other) = (BmcSim::start(Quirks::default()).await, BmcSim::start(Quirks::default()).await);
    let world = world_with_ways(&hangs, &[way]).await;
    let run = world.provision(false).await.unwrap();
    let (stop, keeper) = keeps(&world);
    hangs.until("a start", |state| state.computer.starts.len() == 1).await;
    let mut asked = 0;
    hangs.change(|state| {
        state.quirks.hangs = true;
        asked = state.requests.len();
    });
    // An eject is the first request that hangs, if a medium is in; else the next reading of the power.
    world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
    hangs.until("a request that hangs", |state| state.requests.len() > asked).await;

    let began = std::time::Instant::now();
    match change {
        Change::Delete => drop(world.engine.documents().delete(Kind::Machine, "m1", "ann").await.unwrap()),
        Change::Detach => drop(world.apply(machine("m1", MAC)).await.unwrap()),
        Change::Move => drop(world.apply(with_bmc("m1", MAC, &other)).await.unwrap()),
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{case}: {:?}", began.elapsed());
    match change {
        Change::Delete => assert!(world.store.machine("m1").await.unwrap().is_none(), "{case}"),
        Change::Detach => reads(&world, None).await,
        Change::Move => {
            reads(&world, Some(ConditionStatus::True)).await;
            world.engine.requests().provision("m1", "os", BTreeMap::new(), world.ann(false), None).await.unwrap();
            other.until("a start", |state| state.computer.starts.len() == 1).await;
        }
    }
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), keeper).await.expect(&case).unwrap();
}
