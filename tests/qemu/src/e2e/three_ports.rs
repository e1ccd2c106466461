//! s: of three ports one has no carrier, one is on USB and gets its address from a network that leads nowhere, and one is good. The machine
//! starts from a CD, so that no port is the firmware's.

use std::sync::Arc;

use anyhow::ensure;
use landfall_api::WorkflowPhase;
use landfall_lab::{Card, Dnsmasq, Firmware, Mark, Medium, Plug};
use serde_json::json;

use super::Context;
use super::medium::medium_of;
use super::scene::{BOOT, Scene, require_installed};

pub(super) async fn one_good(context: Context) -> anyhow::Result<()> {
    // That for VMs has no driver for a port on USB.
    let mut artefacts = (*context.artefacts).clone();
    (artefacts.kernel, artefacts.initramfs) = artefacts.boot_image(true)?;
    let scene = Scene::start(Context { artefacts: Arc::new(artefacts), ..context }).await?;
    let island = scene.network.island()?;
    let dnsmasq = Dnsmasq::start(&island, &scene.context.dir).await?;
    let medium = medium_of(&scene).await?;
    let builder =
        scene.ordinary("m1").firmware(Firmware::Bios).memory_mib(1024).medium(&medium, Medium::Cd).without_nics();
    let builder = builder.port(Plug::Nothing, None).port(Plug::Island, Some(Card::Usb)).nic();
    let mut machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let macs = machine.spec().nics.iter().map(|nic| nic.mac.clone()).collect::<Vec<_>>();
    scene.describe(&machine, &macs.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let actions = json!([{ "name": "write", "writeImage": { "image": image } }, { "name": "off", "powerOff": {} }]);
    scene.apply("Template", "install", json!({ "actions": actions, "successOn": "reboot" })).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)?;

    let [dark, usb, good] = [0, 1, 2].map(|nth: usize| format!(": port {}", macs[nth]));
    // The kernel's name of a port, which each of its lines begins with.
    let lines = machine.serial().lines_since(power_on);
    let said = |what: &str| lines.iter().find(|line| line.text.contains(what)).map(|line| line.text.as_str());
    let name = |port: &str| said(port).and_then(|line| line.split(port).next()?.rsplit(' ').next());
    ensure!(said(&format!("{usb} on USB, which is tried 3 s after")).is_some(), "the port on USB is not named as one");
    let (Some(dark), Some(usb), Some(good)) = (name(&dark), name(&usb), name(&good)) else {
        anyhow::bail!("not every port of {macs:?} is on the console");
    };
    machine.wait_serial(power_on, &format!("is reached over {good} "), BOOT).await?;
    ensure!(said(&format!("{dark}: carrier")).is_none(), "{dark} has a carrier");
    ensure!(said(&format!("{usb}: address 10.77.0.1")).is_some(), "{usb} got no address from its dead end");
    let given = dnsmasq.log().lines_since(Mark::default());
    ensure!(
        given.iter().any(|line| line.text.contains("DHCPACK") && line.text.contains(&macs[1])),
        "dnsmasq gave none"
    );
    Ok(())
}
