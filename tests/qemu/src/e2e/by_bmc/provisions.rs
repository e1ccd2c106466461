//! Over Redfish: switched on for its first install, and off and on again for the second.

use anyhow::{Context as _, ensure};
use landfall_api::{BootWay, WorkflowPhase};
use landfall_lab::{Firmware, Mark, Network, Redfish};
use serde_json::json;

use super::documents::{account, attempts, build, describe, ended, is};
use super::{Context, SWITCHED};
use crate::e2e::scene::{BOOTED, INSTALL, Scene, require_installed};

/// All that a person does is to request the workflow: the coordinator switches the machine on, and later off and on again.
pub(in crate::e2e) async fn provisions(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    scene.template(&scene.image_url()).await?;
    let (machine, m1) = build(&scene, firmware)?;
    let redfish = Redfish::start(vec![machine], &scene.network, &scene.context.dir).await?;

    // A password that is wrong at first.
    let plain = format!("http://{}", Network::ADDRESS);
    account(&scene, &plain, (Redfish::USERNAME, "wrong")).await?;
    describe(&scene, &m1, json!({ "address": format!("redfish+{}", redfish.url(0)) })).await?;
    let api = scene.coordinator.api();
    let workflow = api.provision("m1", "install", false).await?;
    let refused = |machine: &_| is(machine, "BMCAuthenticated", "AccountRefused");
    api.wait_machine("m1", "the refusal of the account", SWITCHED, refused).await?;
    account(&scene, &plain, (Redfish::USERNAME, Redfish::PASSWORD)).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    m1.serial.wait_for(Mark::default(), BOOTED, scene.limit(INSTALL)).await?;
    require_installed(&*redfish.systems().machine(0).await, &workflow)?;
    let machine = api.wait_machine("m1", "the end of the attempt", SWITCHED, ended).await?;
    let found = attempts(&machine);
    let one = found.len() == 1 && found[0].way == BootWay::PxeOnce && found[0].failure.is_none();
    ensure!(one, "it was started in another way: {found:?}");
    ensure!(is(&machine, "PowerKnown", "Reported"), "its power is not known");

    // It runs, and its system does not listen to the power button: its power is cut after a while.
    let pid = redfish.systems().machine(0).await.pid().context("a machine that is on has no QEMU")?;
    let again = api.provision("m1", "install", true).await?;
    let again = scene.wait_end(&again, WorkflowPhase::Succeeded).await?;
    require_installed(&*redfish.systems().machine(0).await, &again)?;
    ensure!(redfish.systems().machine(0).await.pid() != Some(pid), "it was not restarted");
    let found = attempts(&api.wait_machine("m1", "the end of the attempt", SWITCHED, ended).await?);
    let cut = found.len() == 1 && found[0].shutdown_at.is_some() && found[0].off_at.is_some();
    ensure!(cut, "its system was not asked before its power was cut: {found:?}");
    Ok(())
}
