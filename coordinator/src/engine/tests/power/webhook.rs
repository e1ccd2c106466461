//! A machine behind a web server that stands in for a BMC.

use super::*;

#[tokio::test]
async fn a_machine_is_started_by_a_webhook_for_its_workflow() {
    let sim = BmcSim::start_webhook(Quirks { lockout_after: Some(2), ..Quirks::default() }).await;
    sim.change(|state| state.computer.is_on = true);
    let world = World::new().await;
    world.apply(secret("wrong")).await.unwrap();
    let mut machine = with_bmc("m1", MAC, &sim);
    machine["spec"]["bmc"]["webhook"] = json!({
        "on": {"path": "/outlets/{{ machine.name }}/on"},
        "off": {"path": "/outlets/{{ machine.name }}/off"},
        "status": {"path": "/outlets/{{ machine.name }}", "at": "/state", "on": "on", "off": "off"},
        "netboot": {"path": "/outlets/{{ machine.name }}/boot", "method": "PUT"},
    });
    world.apply(machine).await.unwrap();
    let mut driver = driver(&world, "m1");
    looks(&world, &mut driver, 3).await;
    assert_eq!(world.condition("BMCAuthenticated").await.unwrap(), (ConditionStatus::False, "AccountRefused".into()));
    looks(&world, &mut self::driver(&world, "m1"), 3).await;
    assert_eq!(sim.seen().accounts.failed, 1, "a refused account is not tried again");
    world.apply(secret(PASSWORD)).await.unwrap();
    world.provision(false).await.unwrap();
    looks(&world, &mut driver, 80).await;
    assert_eq!(world.condition("PowerKnown").await, Some((ConditionStatus::True, "Reported".into())));
    let seen = sim.seen().computer;
    assert_eq!((seen.cuts, seen.starts.len(), seen.starts[0].from.as_str()), (1, 1, "Pxe"));
    world.enroll(b"key").await.unwrap();
    let _agent = world.connect(hello("b1", "D1", vec![])).await;
    looks(&world, &mut driver, 3).await;
    assert_eq!(attempts(&world).await, [(BootWay::PxeOnce, None)]);
}
