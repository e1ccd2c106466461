//! s, in the full set: a machine in another subnet gets its address by a relay, and netboots, enrols and is installed over the router. A person
//! who has not described it yet sees that it asked, and gives it an address of its own.

use anyhow::ensure;
use landfall_lab::{CoordinatorOptions, Dnsmasq, Firmware, Mark, Network};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, BOOTED, Scene, require_installed};

/// Outside of the subnet's range.
const RESERVED: &str = "10.78.0.50";
const SUBNET: &str = "[[dhcp.subnets]]\nrange = \"10.78.0.100-10.78.0.199\"\nrouter = \"10.78.0.1\"";

pub(super) async fn by_a_router(context: Context) -> anyhow::Result<()> {
    let network = Network::create()?;
    let far = network.behind_router()?;
    let _relay = Dnsmasq::relay(&far, &context.dir).await?;
    let options = CoordinatorOptions { more: SUBNET.into(), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, network, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios);
    let mut machine = builder.build(&far, &scene.context.dir, scene.context.accel)?;
    let asks = scene.coordinator.log().mark();
    machine.power_on().await?;
    scene.coordinator.wait_log(asks, &[machine.mac(), r#"answer="none""#], scene.limit(BOOT)).await?;
    let seen = scene.landfall(&["get", "sightings"]).await?;
    let its = seen.lines().find(|line| line.contains(machine.mac()));
    ensure!(its.is_some_and(|line| line.contains("no machine has this address; describe it")), "{seen}");
    machine.power_cut().await;
    let spec = machine.spec();
    let identity = json!({ "macs": [machine.mac()], "smbiosUuid": spec.uuid, "serial": spec.serial });
    let reservations = json!([{ "mac": machine.mac(), "address": RESERVED }]);
    scene.apply("Machine", "m1", json!({ "identity": identity, "reservations": reservations })).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    machine.wait_serial(power_on, &format!("eth0: address {RESERVED}/"), BOOT).await?;
    machine.wait_serial(power_on, "is reached over eth0", BOOT).await?;
    scene.logged(Mark::default(), &["service=dhcp", machine.mac()])?;
    require_installed(&machine, &workflow)
}
