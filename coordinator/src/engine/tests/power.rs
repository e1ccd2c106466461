//! Machines that are switched on through a BMC, over HTTP: what the BMC sees is asserted at the BMC.

use landfall_api::{BootWay, PowerAction, PowerRequest, PowerState};
use landfall_bmcsim::{BmcSim, Eject, MediaAt, PASSWORD, Quirks, USERNAME};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::fleet::Settings;
use crate::engine::power::Driver;

fn with_bmc(name: &str, mac: &str, sim: &BmcSim) -> serde_json::Value {
    let mut machine = machine(name, mac);
    machine["spec"]["bmc"] = json!({"address": sim.address(), "credentials": "bmc"});
    machine
}

fn secret(password: &str) -> serde_json::Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Secret", "metadata": {"name": "bmc"},
        "spec": {"data": {"username": USERNAME, "password": password}, "bmcs": ["127.0.0.0/8", "http://127.0.0.0/8"]}})
}

/// A world whose machine `m1` has that BMC.
async fn world(sim: &BmcSim, password: &str) -> World {
    let world = World::new().await;
    world.apply(secret(password)).await.unwrap();
    world.apply(with_bmc("m1", MAC, sim)).await.unwrap();
    world
}

fn driver(world: &World, machine: &str) -> Driver {
    world.engine.power().driver(machine).unwrap()
}

/// Looks until nothing is left to be done now; time passes between the looks.
async fn looks(world: &World, driver: &mut Driver, most: usize) {
    for _ in 0..most {
        let again = driver.look().await.unwrap();
        if again >= Duration::from_secs(30) {
            return;
        }
        world.later(i64::try_from(again.as_secs()).unwrap());
    }
}

async fn attempts(world: &World) -> Vec<(BootWay, Option<String>)> {
    let bmc = world.machine().await.status.unwrap().bmc.unwrap();
    bmc.attempts.into_iter().map(|attempt| (attempt.way, attempt.failure)).collect()
}

#[tokio::test]
async fn a_machine_that_is_off_is_started_for_its_workflow() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = world(&sim, PASSWORD).await;
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    for (kind, reason) in
        [("BMCReachable", "Answers"), ("BMCAuthenticated", "AccountAccepted"), ("PowerKnown", "Reported")]
    {
        assert_eq!(world.condition(kind).await, Some((ConditionStatus::True, reason.into())));
    }
    assert!(sim.seen().computer.starts.is_empty(), "nothing waits for it");
    let run = world.provision(false).await.unwrap();
    looks(&world, &mut driver, 5).await;
    assert_eq!(sim.seen().computer.starts.len(), 1);
    assert_eq!(sim.seen().computer.starts[0].from, "Pxe");
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    agent.assigned();
    looks(&world, &mut driver, 3).await;
    let bmc = world.machine().await.status.unwrap().bmc.unwrap();
    assert_eq!((bmc.worked, bmc.power), (Some(BootWay::PxeOnce), Some(PowerState::On)));
    assert_eq!(bmc.system.unwrap().serial, "ACME-1");
    assert_eq!(attempts(&world).await, [(BootWay::PxeOnce, None)]);
    // While its agent is there nothing is done to its power.
    world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
    looks(&world, &mut driver, 3).await;
    assert_eq!((sim.seen().computer.cuts, sim.seen().accounts.opened), (0, 1));
}

#[tokio::test]
async fn a_machine_is_started_over_ipmi_for_its_workflow() {
    let sim = BmcSim::start_ipmi(Quirks { lockout_after: Some(1), ..Quirks::default() }).await;
    let world = world(&sim, "wrong").await;
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    assert_eq!(world.condition("BMCAuthenticated").await.unwrap(), (ConditionStatus::False, "AccountRefused".into()));
    world.apply(secret(PASSWORD)).await.unwrap();
    world.provision(false).await.unwrap();
    looks(&world, &mut driver, 5).await;
    assert_eq!(world.condition("PowerKnown").await.unwrap().0, ConditionStatus::True);
    let seen = sim.seen();
    assert_eq!((seen.accounts.failed, seen.accounts.opened), (0, 1));
    assert_eq!(seen.computer.starts.iter().map(|start| start.from.as_str()).collect::<Vec<_>>(), ["Pxe"]);
    world.enroll(b"key").await.unwrap();
    let _agent = world.connect(hello("b1", "D1", vec![])).await;
    looks(&world, &mut driver, 3).await;
    let bmc = world.machine().await.status.unwrap().bmc.unwrap();
    assert_eq!((bmc.worked, bmc.system.unwrap().serial), (Some(BootWay::PxeOnce), "ACME-1".into()));
}

#[tokio::test]
async fn a_wrong_account_is_shown_to_the_bmc_once() {
    let sim = BmcSim::start(Quirks { lockout_after: Some(3), ..Quirks::default() }).await;
    let world = world(&sim, "wrong").await;
    let other = "52:54:00:00:00:02";
    world.apply(with_bmc("m2", other, &sim)).await.unwrap();
    let (mut first, mut second) = (driver(&world, "m1"), driver(&world, "m2"));
    for _ in 0..5 {
        first.look().await.unwrap();
        second.look().await.unwrap();
    }
    assert_eq!(sim.seen().accounts.failed, 1, "two machines share the BMC");
    assert_eq!(world.condition("BMCAuthenticated").await.unwrap(), (ConditionStatus::False, "AccountRefused".into()));
    assert_eq!(world.condition("PowerKnown").await.unwrap().0, ConditionStatus::Unknown);
    // A coordinator that starts again knows it, whichever of the two it looks at first.
    let restarted = World::over(world.store.clone(), world.clock.clone()).await;
    let (mut first, mut second) = (driver(&restarted, "m1"), driver(&restarted, "m2"));
    second.look().await.unwrap();
    first.look().await.unwrap();
    assert_eq!(sim.seen().accounts.failed, 1);
    // Another version of the Secret is tried at once.
    restarted.apply(secret(PASSWORD)).await.unwrap();
    first.look().await.unwrap();
    assert_eq!(restarted.condition("PowerKnown").await.unwrap().0, ConditionStatus::True);
    assert_eq!(sim.seen().accounts.failed, 1);
}

#[tokio::test]
async fn a_secret_goes_only_to_bmcs_that_it_names() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = world(&sim, PASSWORD).await;
    let mut elsewhere = secret(PASSWORD);
    elsewhere["spec"]["bmcs"] = json!(["10.0.0.0/8", "*.example", "127.0.0.0/8"]);
    world.apply(elsewhere).await.unwrap();
    driver(&world, "m1").look().await.unwrap();
    assert_eq!(world.condition("BMCAuthenticated").await.unwrap(), (ConditionStatus::False, "NoSecret".into()));
    assert!(sim.seen().requests.is_empty());
}

/// A 200 OK whose boot device is silently reverted; then the firmware's own order is all that is left.
#[tokio::test]
async fn a_bmc_that_lies_is_seen_through() {
    let sim = BmcSim::start(Quirks { reverts_boot: true, ..Quirks::default() }).await;
    let world = world(&sim, PASSWORD).await;
    world.provision(false).await.unwrap();
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 400).await;
    let tried = attempts(&world).await;
    assert_eq!(tried.iter().map(|(way, _)| *way).collect::<Vec<_>>(), BootWay::ALL);
    assert!(tried[0].1.as_ref().unwrap().contains("did not keep it"), "{tried:?}");
    assert!(tried[5].1.as_ref().unwrap().contains("no agent was heard"), "{tried:?}");
    assert_eq!(sim.seen().computer.starts.len(), 1, "only the last way starts it");
    let conditions = world.current("m1").await.unwrap().status.unwrap().conditions;
    let missing = conditions.iter().find(|c| c.kind == "NotSeen").unwrap();
    assert!(missing.message.contains("pxeOnce: ") && missing.message.contains("ownOrder: "), "{}", missing.message);
    // Nothing more is done before a person looks.
    looks(&world, &mut driver, 400).await;
    assert_eq!(sim.seen().computer.starts.len(), 1);
}

#[tokio::test]
async fn an_ignored_one_time_device_becomes_a_lasting_one() {
    let sim = BmcSim::start(Quirks { ignores_once: true, ..Quirks::default() }).await;
    let world = world(&sim, PASSWORD).await;
    world.provision(false).await.unwrap();
    let mut driver = driver(&world, "m1");
    for _ in 0..400 {
        let again = driver.look().await.unwrap();
        world.later(i64::try_from(again.as_secs()).unwrap());
        let booted = sim.seen().computer.starts.last().is_some_and(|start| start.from == "Pxe");
        if booted {
            break;
        }
    }
    assert_eq!(sim.seen().computer.starts.iter().map(|start| start.from.as_str()).collect::<Vec<_>>(), ["Hdd", "Pxe"]);
    world.enroll(b"key").await.unwrap();
    let _agent = world.connect(hello("b1", "D1", vec![])).await;
    looks(&world, &mut driver, 5).await;
    assert_eq!(sim.seen().computer.enabled, "Disabled", "the installed system boots from its disk");
    assert_eq!(world.machine().await.status.unwrap().bmc.unwrap().worked, Some(BootWay::PxeContinuous));
}

/// A world whose machine `m1` has that BMC, and these ways alone.
async fn world_with_ways(sim: &BmcSim, ways: &[BootWay]) -> World {
    let world = world(sim, PASSWORD).await;
    let mut machine = with_bmc("m1", MAC, sim);
    machine["spec"]["bmc"]["ways"] = json!(ways);
    world.apply(machine).await.unwrap();
    world
}

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
async fn a_machine_that_does_not_come_has_its_bmcs_reasons() {
    let sim = BmcSim::start(Quirks { clock: Some("1970-01-02T00:00:00Z"), ..Quirks::default() }).await;
    let world = world_with_ways(&sim, &[BootWay::PxeOnce]).await;
    world.provision(false).await.unwrap();
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    sim.change(|state| {
        state.computer.progress = Some("MemoryInitializationStarted".into());
        let entry = |at: &str, severity: &str, what: &str| [at, severity, what].map(str::to_owned);
        state.computer.log = vec![
            entry("1970-01-01T00:00:00Z", "Critical", "of long ago"),
            entry("1970-01-01T23:59:00Z", "Critical", "DIMM A1 is defective"),
        ];
    });
    looks(&world, &mut driver, 400).await;
    let tried = attempts(&world).await;
    let why = tried[0].1.as_ref().unwrap();
    let says = "no agent was heard within 15 min of power-on; its BMC says: the firmware reached \
        MemoryInitializationStarted; Critical: DIMM A1 is defective";
    assert_eq!(why, says);
}

#[tokio::test]
async fn what_led_one_machine_is_tried_first_on_its_like() {
    let sims = [
        BmcSim::start(Quirks { ignores_once: true, ..Quirks::default() }).await,
        BmcSim::start(Quirks::default()).await,
    ];
    let world = world(&sims[0], PASSWORD).await;
    world.provision(false).await.unwrap();
    let mut first = driver(&world, "m1");
    while sims[0].seen().computer.starts.last().is_none_or(|start| start.from != "Pxe") {
        let again = first.look().await.unwrap();
        world.later(i64::try_from(again.as_secs()).unwrap());
    }
    world.enroll(b"key").await.unwrap();
    let _agent = world.connect(hello("b1", "D1", vec![])).await;
    looks(&world, &mut first, 5).await;
    world.apply(with_bmc("m2", "52:54:00:00:00:02", &sims[1])).await.unwrap();
    let mut second = driver(&world, "m2");
    world.engine.requests().provision("m2", "os", BTreeMap::new(), world.ann(false), None).await.unwrap();
    looks(&world, &mut second, 5).await;
    let bmc = world.store.machine("m2").await.unwrap().unwrap().status.as_ref().unwrap().bmc.clone().unwrap();
    assert_eq!(bmc.attempts[0].way, BootWay::PxeContinuous);
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

#[tokio::test]
async fn a_removed_bmc_keeps_no_medium() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = world_with_ways(&sim, &[BootWay::VirtualMedia]).await;
    world.provision(false).await.unwrap();
    let stop = CancellationToken::new();
    let (engine, token) = (world.engine.clone(), stop.clone());
    let keeper = tokio::spawn(async move { engine.power().run(token).await });
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
    let world = world_with_ways(&sim, &[BootWay::VirtualMedia]).await;
    world.provision(false).await.unwrap();
    let stop = CancellationToken::new();
    let (engine, token) = (world.engine.clone(), stop.clone());
    let keeper = tokio::spawn(async move { engine.power().run(token).await });
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
    let stop = CancellationToken::new();
    let (engine, token) = (world.engine.clone(), stop.clone());
    let keeper = tokio::spawn(async move { engine.power().run(token).await });
    works.until("a start", |state| state.computer.starts.len() == 1).await;
    hangs.until("a request", |state| !state.requests.is_empty()).await;
    // Taken from the document while it hangs, and the coordinator stops: nothing waits for it.
    world.apply(machine("m1", MAC)).await.unwrap();
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), keeper).await.unwrap().unwrap();
    assert!(works.seen().accounts.sessions.is_empty(), "its session is closed");
}

#[tokio::test]
async fn a_removed_bmc_leaves_no_conditions() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = world(&sim, PASSWORD).await;
    let stop = CancellationToken::new();
    let (engine, token) = (world.engine.clone(), stop.clone());
    let keeper = tokio::spawn(async move { engine.power().run(token).await });
    sim.until("a session", |state| state.accounts.opened == 1).await;
    world.apply(machine("m1", MAC)).await.unwrap();
    sim.until("the end of the session", |state| state.accounts.sessions.is_empty()).await;
    stop.cancel();
    keeper.await.unwrap();
    assert_eq!(world.condition("PowerKnown").await, None);
    assert_eq!(world.machine().await.status.unwrap().bmc, None);
}

#[tokio::test]
async fn a_person_switches_a_machine_that_no_workflow_needs() {
    let sim =
        BmcSim::start(Quirks { off_is_error: true, power_lag: Duration::from_secs(2), ..Quirks::default() }).await;
    let world = world(&sim, PASSWORD).await;
    world.apply(machine("m2", "52:54:00:00:00:02")).await.unwrap();
    let stop = CancellationToken::new();
    let (engine, token) = (world.engine.clone(), stop.clone());
    let keeper = tokio::spawn(async move { engine.power().run(token).await });
    sim.until("a session", |state| state.accounts.opened == 1).await;
    let ask = async |name: &'static str, action, force| {
        world.engine.power().request(name, PowerRequest { action, force }).await.map(|report| report.power)
    };
    for (action, power) in [
        (PowerAction::Status, PowerState::Off),
        (PowerAction::Off, PowerState::Off),
        (PowerAction::On, PowerState::On),
        (PowerAction::Cycle, PowerState::On),
        (PowerAction::Shutdown, PowerState::Off),
    ] {
        assert_eq!(ask("m1", action, false).await, Ok(Some(power)), "{action}");
    }
    let seen = sim.seen().computer;
    assert_eq!((seen.starts.len(), seen.cuts, seen.shutdowns), (2, 1, 1));
    assert_eq!(ask("m2", PowerAction::On, false).await.unwrap_err().code, ErrorCode::NotFound, "no BMC");
    // Its power is the workflow's now.
    world.engine.requests().provision("m1", "os", BTreeMap::new(), world.ann(false), None).await.unwrap();
    assert_eq!(ask("m1", PowerAction::Off, false).await.unwrap_err().code, ErrorCode::MachineBusy);
    sim.until("a start for the workflow", |state| state.computer.starts.len() == 3).await;
    assert!(ask("m1", PowerAction::Status, false).await.is_ok());
    sim.change(|state| state.quirks.is_down = true);
    let refused = ask("m1", PowerAction::Status, false).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::SourceUnreachable, "{refused}");
    stop.cancel();
    keeper.await.unwrap();
}

#[tokio::test]
async fn a_machine_without_a_bmc_is_woken_for_its_workflow() {
    let port = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let world = World::new().await;
    let mut woken = machine("m1", MAC);
    let listens_at = port.local_addr().unwrap().port();
    woken["spec"]["power"] = json!({"wakeOnLan": {"address": "127.0.0.1", "port": listens_at}});
    world.apply(woken).await.unwrap();
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    let mut packet = [0; 128];
    assert!(port.try_recv(&mut packet).is_err(), "nothing waits for it");
    world.provision(false).await.unwrap();
    looks(&world, &mut driver, 3).await;
    let read = tokio::time::timeout(Duration::from_secs(10), port.recv(&mut packet)).await.unwrap().unwrap();
    assert_eq!((read, packet[6..12].to_vec()), (102, vec![0x52, 0x54, 0, 0, 0, 1]));
    world.enroll(b"key").await.unwrap();
    let _agent = world.connect(hello("b1", "D1", vec![])).await;
    looks(&world, &mut driver, 3).await;
    assert_eq!(attempts(&world).await, [(BootWay::OwnOrder, None)]);
    assert_eq!(world.condition("BMCReachable").await, None, "there is none");
    let stop = CancellationToken::new();
    let (engine, token) = (world.engine.clone(), stop.clone());
    let keeper = tokio::spawn(async move { engine.power().run(token).await });
    let ask = async |action| {
        let asked = world.engine.power().request("m1", PowerRequest { action, force: true });
        tokio::time::timeout(Duration::from_secs(10), asked).await.unwrap()
    };
    while ask(PowerAction::Status).await.is_err() {
        // Its task has not begun.
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(PowerAction::On).await.unwrap().power, None);
    let refused = ask(PowerAction::Off).await.unwrap_err();
    assert!(refused.to_string().contains("Wake-on-LAN does not support to switch a machine off"), "{refused}");
    stop.cancel();
    keeper.await.unwrap();
}

#[tokio::test]
async fn machines_are_switched_on_apart_and_none_stays_off() {
    let sims = [BmcSim::start(Quirks::default()).await, BmcSim::start(Quirks::default()).await];
    let world = World::new().await;
    let settings = world.engine.fleet().settings();
    let hour = Duration::from_secs(3600);
    world.engine.fleet().reload(Settings { power_on_interval: hour, ..Settings::clone(&settings) });
    world.apply(secret(PASSWORD)).await.unwrap();
    for (name, mac, sim) in [("m1", MAC, &sims[0]), ("m2", "52:54:00:00:00:02", &sims[1])] {
        world.apply(with_bmc(name, mac, sim)).await.unwrap();
    }
    sims[1].change(|state| state.computer.is_on = true);
    let stop = CancellationToken::new();
    let (engine, token) = (world.engine.clone(), stop.clone());
    let keeper = tokio::spawn(async move { engine.power().run(token).await });
    for sim in &sims {
        sim.until("a session", |state| state.accounts.opened == 1).await;
    }
    let ask = async |name: &'static str, action| {
        world.engine.power().request(name, PowerRequest { action, force: false }).await.map(|report| report.power)
    };
    assert_eq!(ask("m1", PowerAction::On).await, Ok(Some(PowerState::On)));
    // It has power already: no turn is needed.
    assert_eq!(ask("m2", PowerAction::On).await, Ok(Some(PowerState::On)));
    let refused = ask("m2", PowerAction::Cycle).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::MachineBusy, "{refused}");
    assert!(sims[1].seen().computer.is_on, "what could not be switched on again was not switched off");
    // Nor is one that waits for its workflow.
    world.engine.requests().provision("m2", "os", BTreeMap::new(), world.ann(false), None).await.unwrap();
    sims[1].until("a boot device", |state| state.computer.target == "Pxe").await;
    assert!(sims[1].seen().computer.starts.is_empty());
    world.engine.fleet().reload(Settings { power_on_interval: Duration::ZERO, ..Settings::clone(&settings) });
    sims[1].until("a start", |state| state.computer.starts.len() == 1).await;
    stop.cancel();
    keeper.await.unwrap();
}

#[tokio::test]
async fn what_a_bmc_failed_at_is_forgotten_without_it() {
    let sim = BmcSim::start(Quirks { reverts_boot: true, ..Quirks::default() }).await;
    let world = world_with_ways(&sim, &[BootWay::PxeOnce, BootWay::OwnOrder]).await;
    world.provision(false).await.unwrap();
    let mut by_bmc = driver(&world, "m1");
    looks(&world, &mut by_bmc, 400).await;
    assert_eq!(attempts(&world).await.len(), 2, "both have failed");
    let port = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut woken = machine("m1", MAC);
    let listens_at = port.local_addr().unwrap().port();
    woken["spec"]["power"] = json!({"wakeOnLan": {"address": "127.0.0.1", "port": listens_at}});
    world.apply(woken).await.unwrap();
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    tokio::time::timeout(Duration::from_secs(10), port.recv(&mut [0; 128])).await.unwrap().unwrap();
    assert_eq!(world.condition("BMCReachable").await, None);
    let bmc = world.machine().await.status.unwrap().bmc.unwrap();
    assert_eq!((bmc.power, bmc.attempts.len()), (None, 1));
}

#[tokio::test]
async fn a_lease_ends_once_the_power_reads_off() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = world(&sim, PASSWORD).await;
    let run = world.provision(false).await.unwrap();
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    agent.assigned();
    agent.report(run.metadata.uid.unwrap(), 0, 1, EventBody::Started).await.unwrap();
    let (uid, epoch) = (agent.uid, agent.opened.epoch);
    let leased = async || world.machine().await.status.unwrap().session.unwrap().leased;
    assert!(leased().await);
    // Heard just now: the BMC is wrong, whatever it reads.
    let off = |seconds| landfall_machine::Input::ReadsOff(Duration::from_secs(seconds));
    world.engine.upkeep().steps().hand_in("m1", off(10)).await.unwrap();
    assert!(leased().await, "an agent that is heard has power");
    world.engine.sessions().close_session(uid, epoch, "the stream ended").await.unwrap();
    world.later(20);
    world.engine.upkeep().steps().hand_in("m1", off(10)).await.unwrap();
    assert!(!leased().await);
    // Another computer may take its place at once, though the lease was for ten minutes.
    let mut other = world.connect(hello("b2", "D2", vec![])).await;
    assert!(matches!(other.received(), Some(ToAgent::Assign(_))));
}
