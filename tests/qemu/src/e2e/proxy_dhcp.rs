//! c: ProxyDHCP beside the network's own DHCP server.

use anyhow::ensure;
use landfall_lab::{CoordinatorProcess, DhcpMode, Dnsmasq, Firmware, Mark, Network};

use super::Context;
use super::install::loader;
use super::pair::Pair;
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

/// Each of two coordinators answers each of the firmware's questions once, and the machine is installed once.
pub(super) async fn two_coordinators(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let network = Network::create()?;
    let site = network.third()?;
    let dnsmasq = Dnsmasq::start(&site, &context.dir).await?;
    let Pair { scene, other, _neighbour, _database } = Pair::start(context, network, DhcpMode::Proxy).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(firmware)).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, _) = scene.install(&mut machine).await?;
    require_installed(&machine, &workflow)?;

    let offers = |coordinator: &CoordinatorProcess| {
        let all = coordinator.log().lines_since(Mark::default());
        let words = [r#"service="dhcp""#, r#"kind="discover""#, r#"answer="offer""#, machine.mac()];
        all.iter().filter(|line| words.iter().all(|word| line.text.contains(word))).count()
    };
    let (here, there) = (offers(&scene.coordinator), offers(&other));
    ensure!(here >= 1 && here == there, "{here} offers of one coordinator, and {there} of the other");
    let questions = dnsmasq.log().lines_since(Mark::default());
    let questions = questions.iter().filter(|line| line.text.contains("DHCPDISCOVER")).count();
    ensure!(here <= questions, "{here} offers of each to {questions} questions");
    Ok(())
}
