//! Machines that are switched on through a BMC, over HTTP: what the BMC sees is asserted at the BMC.

mod by_hand;
mod identity;
mod media;
mod outages;
mod wake;
mod webhook;

use landfall_api::{BootWay, PowerAction, PowerRequest, PowerState};
use landfall_bmcsim::{BmcSim, Eject, MediaAt, PASSWORD, Quirks, USERNAME};
use tokio::task::JoinHandle;
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
        "spec": {"data": {"username": USERNAME, "password": password}, "bmcs": ["127.0.0.0/8", "http://127.0.0.0/8", "webhook+http://127.0.0.0/8"]}})
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

/// A world whose machine `m1` has that BMC, and these ways alone.
async fn world_with_ways(sim: &BmcSim, ways: &[BootWay]) -> World {
    let world = world(sim, PASSWORD).await;
    let mut machine = with_bmc("m1", MAC, sim);
    machine["spec"]["bmc"]["ways"] = json!(ways);
    world.apply(machine).await.unwrap();
    world
}

/// Keeps the machines' power in a task of its own, until it is stopped.
fn keeps(world: &World) -> (CancellationToken, JoinHandle<()>) {
    let (engine, stop) = (world.engine.clone(), CancellationToken::new());
    let token = stop.clone();
    (stop, tokio::spawn(async move { engine.power().run(token).await }))
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
async fn a_removed_bmc_leaves_no_conditions() {
    let sim = BmcSim::start(Quirks::default()).await;
    let world = world(&sim, PASSWORD).await;
    let (stop, keeper) = keeps(&world);
    sim.until("a session", |state| state.accounts.opened == 1).await;
    world.apply(machine("m1", MAC)).await.unwrap();
    sim.until("the end of the session", |state| state.accounts.sessions.is_empty()).await;
    stop.cancel();
    keeper.await.unwrap();
    assert_eq!(world.condition("PowerKnown").await, None);
    assert_eq!(world.machine().await.status.unwrap().bmc, None);
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
