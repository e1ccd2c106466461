//! Machines without a BMC, which are woken.

use super::*;

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
    let (stop, keeper) = keeps(&world);
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
