//! Over IPMI, by a BMC that others have written: OpenIPMI's simulator.

use anyhow::{Context as _, ensure};
use landfall_api::{BootWay, PowerState, WorkflowPhase};
use landfall_lab::{Firmware, Ipmi, Mark, Network};
use serde_json::json;

use super::documents::{account, attempts, build, describe, ended, is};
use super::{Context, SWITCHED};
use crate::e2e::scene::{BOOTED, INSTALL, Scene, require_installed};

/// From power-off to phone-home, and off again by hand.
pub(in crate::e2e) async fn installs(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    scene.template(&scene.image_url()).await?;
    let (machine, m1) = build(&scene, firmware)?;
    let ipmi = Ipmi::start(&scene.context.program, machine, &scene.network, &scene.context.dir).await?;
    account(&scene, &Network::ADDRESS.to_string(), (Ipmi::USERNAME, Ipmi::PASSWORD)).await?;
    describe(&scene, &m1, json!({ "address": Ipmi::address() })).await?;
    let api = scene.coordinator.api();
    let machine = api.wait_machine("m1", "its power", SWITCHED, |m| is(m, "PowerKnown", "Reported")).await?;
    let power = machine.status.and_then(|status| status.bmc).and_then(|bmc| bmc.power);
    ensure!(power == Some(PowerState::Off), "a machine that is off reads {power:?}");

    let workflow = api.provision("m1", "install", false).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    m1.serial.wait_for(Mark::default(), BOOTED, scene.limit(INSTALL)).await?;
    require_installed(&*ipmi.systems().machine(0).await, &workflow)?;
    let found = attempts(&api.wait_machine("m1", "the end of the attempt", SWITCHED, ended).await?);
    let one = found.len() == 1 && found[0].way == BootWay::PxeOnce && found[0].failure.is_none();
    ensure!(one, "it was started in another way: {found:?}");

    let pid = ipmi.systems().machine(0).await.pid().context("a machine that is on has no QEMU")?;
    let said = scene.landfall(&["power", "off", "m1"]).await?;
    ipmi.systems().wait_power(0, false, SWITCHED).await?;
    ensure!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "QEMU outlived the end of its power");
    ensure!(said.contains("off"), "a machine that was switched off is said to be: {said}");
    Ok(())
}
