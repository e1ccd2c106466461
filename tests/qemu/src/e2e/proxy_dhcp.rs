//! c: ProxyDHCP beside the network's own DHCP server.

use anyhow::ensure;
use landfall_lab::{DhcpMode, Dnsmasq, Firmware, Mark, Network};

use super::Context;
use super::install::loader;
use super::scene::{Scene, require_installed};

pub(super) async fn beside_dnsmasq(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let network = Network::create()?;
    let neighbour = network.neighbour()?;
    let dnsmasq = Dnsmasq::start(&neighbour, &context.dir).await?;
    let scene = Scene::start_on(context, network, DhcpMode::Proxy).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(firmware)).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, _) = scene.install(&mut machine).await?;

    let acked = |line: &str| line.contains("DHCPACK") && line.contains(machine.mac());
    let addresses = dnsmasq.log().lines_since(Mark::default());
    ensure!(addresses.iter().any(|line| acked(&line.text)), "dnsmasq gave the machine no address");
    scene.logged(Mark::default(), &["service=dhcp", machine.mac()])?;
    scene.logged(Mark::default(), &["service=tftp", loader(firmware)])?;
    require_installed(&machine, &workflow)
}
