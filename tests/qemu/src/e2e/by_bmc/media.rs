//! From virtual media: the boot medium is given to the BMC as its virtual CD.

use anyhow::ensure;
use landfall_api::{BootWay, WorkflowPhase};
use landfall_lab::{Firmware, Mark, Network, Redfish};
use reqwest::Method;
use serde_json::{Value, json};

use super::documents::{account, attempts, build, describe, ended};
use super::{Bmc, Context, SWITCHED};
use crate::e2e::medium::medium_of;
use crate::e2e::scene::{BOOTED, INSTALL, Scene, require_installed};

/// No boot service of the network has a part in it.
pub(in crate::e2e) async fn starts_a_machine(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let mut scene = Scene::start(context).await?;
    let medium = medium_of(&scene).await?;
    let config = std::fs::read_to_string(scene.coordinator.config())?;
    let with = config.replacen("[boot]\n", &format!("[boot]\niso = {}\n", json!(medium)), 1);
    std::fs::write(scene.coordinator.config(), with)?;
    scene.coordinator.restart().await?;
    scene.template(&scene.image_url()).await?;
    let (machine, m1) = build(&scene, firmware)?;
    let redfish = Redfish::start(vec![machine], &scene.network, &scene.context.dir).await?;

    account(&scene, &format!("http://{}", Network::ADDRESS), (Redfish::USERNAME, Redfish::PASSWORD)).await?;
    let address = format!("redfish+{}", redfish.url(0));
    describe(&scene, &m1, json!({ "address": address, "ways": ["virtualMedia"] })).await?;
    let api = scene.coordinator.api();
    let workflow = api.provision("m1", "install", false).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    m1.serial.wait_for(Mark::default(), BOOTED, scene.limit(INSTALL)).await?;
    require_installed(&*redfish.systems().machine(0).await, &workflow)?;
    for loader in [&["service=tftp"][..], &["service=http", "/boot/ipxe"]] {
        ensure!(!scene.has_logged(Mark::default(), loader), "the firmware asked the network: {loader:?}");
    }
    let ejected = |machine: &_| ended(machine) && medium_in(machine).is_none();
    let machine = api.wait_machine("m1", "the end of the attempt", SWITCHED, ejected).await?;
    let found = attempts(&machine);
    let one = found.len() == 1 && found[0].way == BootWay::VirtualMedia && found[0].failure.is_none();
    ensure!(one, "it was started in another way: {found:?}");
    let bmc = Bmc { scene: &scene, redfish: &redfish, index: 0 };
    let drive = bmc.ask(Method::GET, "/VirtualMedia/Cd", Value::Null).await?;
    ensure!(drive["Inserted"] == false, "the medium is in the drive still: {drive}");
    Ok(())
}

fn medium_in(machine: &landfall_api::Machine) -> Option<&str> {
    Some(&machine.status.as_ref()?.bmc.as_ref()?.medium.as_ref()?.url)
}
