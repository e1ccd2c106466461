//! s, in the full set: a machine in another subnet gets its address by a relay, and netboots, enrols and is installed over the router.

use landfall_lab::{CoordinatorOptions, Dnsmasq, Firmware, Mark, Network};

use super::Context;
use super::scene::{BOOT, BOOTED, Scene, require_installed};

const SUBNET: &str = "[[dhcp.subnets]]\nrange = \"10.78.0.100-10.78.0.199\"\nrouter = \"10.78.0.1\"";

pub(super) async fn by_a_router(context: Context) -> anyhow::Result<()> {
    let network = Network::create()?;
    let far = network.behind_router()?;
    let _relay = Dnsmasq::relay(&far, &context.dir).await?;
    let options = CoordinatorOptions { more: SUBNET.into(), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, network, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios);
    let mut machine = builder.build(&far, &scene.context.dir, scene.context.accel)?;
    scene.describe(&machine, &[machine.mac()]).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    machine.wait_serial(power_on, "eth0: address 10.78.0.1", BOOT).await?;
    machine.wait_serial(power_on, "is reached over eth0", BOOT).await?;
    scene.logged(Mark::default(), &["service=dhcp", machine.mac()])?;
    require_installed(&machine, &workflow)
}
