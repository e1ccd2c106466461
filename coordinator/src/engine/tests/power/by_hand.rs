//! What a person asks of the power.

use super::super::faulty::Faulty;
use super::*;

#[tokio::test]
async fn a_person_switches_a_machine_that_no_workflow_needs() {
    let sim =
        BmcSim::start(Quirks { off_is_error: true, power_lag: Duration::from_secs(2), ..Quirks::default() }).await;
    let world = world(&sim, PASSWORD).await;
    world.apply(machine("m2", "52:54:00:00:00:02")).await.unwrap();
    let (stop, keeper) = keeps(&world);
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
    let (stop, keeper) = keeps(&world);
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
async fn a_person_learns_which_machine_to_switch_on() {
    let world = World::new().await;
    let mut by_hand = machine("m1", MAC);
    by_hand["spec"]["power"] = json!({"manual": {"message": "rack r7, slot 3"}});
    world.apply(by_hand).await.unwrap();
    let prompt = "switch it on, or restart it if it is on (rack r7, slot 3)";
    let request = PowerRequest { action: PowerAction::On, force: false };
    let refused = world.engine.power().request("m1", request).await.unwrap_err();
    assert!(refused.code == ErrorCode::NotFound && refused.message.ends_with(prompt), "{refused}");
    let waits = async |world: &World| {
        let run = world.current("m1").await.unwrap();
        run.status.unwrap().conditions.into_iter().find(|c| c.kind == "Progressing").unwrap().message
    };
    world.provision(false).await.unwrap();
    assert_eq!(waits(&world).await, format!("waits for m1 to netboot: {prompt}"));
    // The coordinator does it itself.
    let sim = BmcSim::start(Quirks::default()).await;
    let world = self::world(&sim, PASSWORD).await;
    world.provision(false).await.unwrap();
    assert_eq!(waits(&world).await, "waits for m1 to netboot");
}

#[tokio::test]
async fn a_machine_that_is_switched_off_is_switched_on_again() {
    // The coordinator cannot write any more, or is stopped, between the two.
    for (is_stopped, lag) in [(false, 2), (true, 2), (true, 60)] {
        let sim = BmcSim::start(Quirks { power_lag: Duration::from_secs(lag), ..Quirks::default() }).await;
        sim.change(|state| state.computer.is_on = true);
        let faulty = Arc::new(Faulty::default());
        let world = World::over(faulty.store(), Arc::new(AtomicI64::new(1_000_000))).await;
        world.apply(secret(PASSWORD)).await.unwrap();
        world.apply(with_bmc("m1", MAC, &sim)).await.unwrap();
        let (stop, keeper) = keeps(&world);
        sim.until("a session", |state| state.accounts.opened == 1).await;
        let engine = world.engine.clone();
        let request = PowerRequest { action: PowerAction::Cycle, force: false };
        let asked = tokio::spawn(async move { engine.power().request("m1", request).await });
        sim.until("a cut", |state| state.computer.cuts == 1).await;
        if is_stopped {
            stop.cancel();
        } else {
            faulty.refuse(|document| matches!(document, Document::Machine(_)));
        }
        let is_reset = |request: &&String| request.ends_with("ComputerSystem.Reset");
        if lag == 60 {
            let refused = tokio::time::timeout(Duration::from_secs(30), asked).await.unwrap().unwrap().unwrap_err();
            assert!(refused.to_string().contains("is not switched on again"), "{refused}");
        } else {
            sim.until("off and on", |state| state.requests.iter().filter(is_reset).count() == 2).await;
            drop(asked.await);
        }
        faulty.mend();
        stop.cancel();
        keeper.await.unwrap();
    }
}
