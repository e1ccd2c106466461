//! A machine behind a web server that stands in for a BMC.

use super::*;

fn by_webhook(name: &str, mac: &str, sim: &BmcSim) -> serde_json::Value {
    let mut machine = with_bmc(name, mac, sim);
    machine["spec"]["bmc"]["webhook"] = json!({
        "on": {"path": "/outlets/m1/on"}, "off": {"path": "/outlets/m1/off"},
        "status": {"path": "/outlets/m1", "at": "/state", "on": "on", "off": "off"},
        "netboot": {"path": "/outlets/m1/boot", "method": "PUT"},
    });
    machine
}

#[tokio::test]
async fn machines_at_one_webhook_try_a_wrong_account_once() {
    let sim = BmcSim::start_webhook(Quirks { lockout_after: Some(2), ..Quirks::default() }).await;
    let world = World::new().await;
    world.apply(secret(PASSWORD)).await.unwrap();
    world.apply(by_webhook("m1", MAC, &sim)).await.unwrap();
    world.apply(by_webhook("m2", "52:54:00:00:00:02", &sim)).await.unwrap();
    let (mut first, mut second) = (driver(&world, "m1"), driver(&world, "m2"));
    for driver in [&mut first, &mut second] {
        looks(&world, driver, 3).await;
    }
    assert_eq!(world.condition("BMCAuthenticated").await.unwrap().0, ConditionStatus::True);
    // The password is changed at the server, and nowhere else.
    sim.change(|state| state.accounts.password = "another".into());
    for name in ["m1", "m2"] {
        world.engine.requests().provision(name, "os", BTreeMap::new(), world.ann(false), None).await.unwrap();
    }
    for driver in [&mut first, &mut second, &mut self::driver(&world, "m1"), &mut self::driver(&world, "m2")] {
        looks(&world, driver, 3).await;
    }
    assert_eq!((sim.seen().accounts.failed, sim.seen().accounts.is_locked), (1, false));
    // A Secret for BMCs alone is for no webhook: its calls are whatever the document says.
    let mut of_bmcs = secret("another");
    of_bmcs["spec"]["bmcs"] = json!(["127.0.0.0/8", "http://127.0.0.0/8"]);
    world.apply(of_bmcs).await.unwrap();
    looks(&world, &mut self::driver(&world, "m1"), 3).await;
    assert_eq!(world.condition("BMCAuthenticated").await.unwrap(), (ConditionStatus::False, "NoSecret".into()));
}

#[tokio::test]
async fn a_machine_is_started_by_a_webhook_for_its_workflow() {
    let sim = BmcSim::start_webhook(Quirks { lockout_after: Some(2), ..Quirks::default() }).await;
    sim.change(|state| state.computer.is_on = true);
    let world = World::new().await;
    world.apply(secret("wrong")).await.unwrap();
    world.apply(by_webhook("m1", MAC, &sim)).await.unwrap();
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    assert_eq!(world.condition("BMCAuthenticated").await.unwrap(), (ConditionStatus::False, "AccountRefused".into()));
    looks(&world, &mut self::driver(&world, "m1"), 3).await;
    assert_eq!(sim.seen().accounts.failed, 1, "a refused account is not tried again");
    world.apply(secret(PASSWORD)).await.unwrap();
    let run = world.provision(false).await.unwrap();
    looks(&world, &mut driver, 80).await;
    assert_eq!(world.condition("PowerKnown").await, Some((ConditionStatus::True, "Reported".into())));
    let seen = sim.seen().computer;
    assert_eq!((seen.cuts, seen.starts.len(), seen.starts[0].from.as_str()), (1, 1, "Pxe"));
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    agent.assigned();
    agent.report(run.metadata.uid.unwrap(), 0, 1, EventBody::Started).await.unwrap();
    looks(&world, &mut driver, 3).await;
    assert_eq!(attempts(&world).await, [(BootWay::PxeOnce, None)]);
    // Its network is lost, and one of its two outlets has no power: it goes on under its lease.
    world.engine.sessions().close_session(agent.uid, agent.opened.epoch, "the stream ended").await.unwrap();
    sim.change(|state| state.computer.is_on = false);
    looks(&world, &mut self::driver(&world, "m1"), 3).await;
    assert_eq!(attempts(&world).await.len(), 1, "an agent may be at work");
}
