//! Over Redfish, by a BMC that stops in the middle, and comes back.

use anyhow::ensure;
use landfall_api::{BootWay, WorkflowPhase};
use landfall_bmcsim::Quirks;
use landfall_lab::{Firmware, Mark, Simulated};

use super::documents::{attempts, behind_a_simulator, ended, is};
use super::{Context, SWITCHED};
use crate::e2e::scene::{BOOTED, INSTALL, Scene, require_installed};

/// It hangs where it is to switch on, and cuts connections from power-on to phone-home. It comes back without sessions and
/// boot device.
pub(in crate::e2e) async fn end_well(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    scene.template(&scene.image_url()).await?;
    let quirks = Quirks { hangs_at: Some(Simulated::RESET), ..Quirks::default() };
    let (simulated, m1) = behind_a_simulator(&scene, quirks, Firmware::Bios).await?;
    let api = scene.coordinator.api();
    let workflow = api.provision("m1", "install", false).await?;
    let dead = |m: &_| is(m, "BMCReachable", "Unreachable") && is(m, "PowerKnown", "Unreachable");
    let alive = |m: &_| is(m, "BMCReachable", "Answers") && is(m, "PowerKnown", "Reported");

    let machine = api.wait_machine("m1", "the first outage", SWITCHED, dead).await?;
    let found = attempts(&machine);
    let before = found.len() == 1 && found[0].boot_set_at.is_some() && found[0].on_at.is_none();
    ensure!(before, "it did not die between boot device and power-on: {found:?}");
    simulated.bmc().restart();

    simulated.wait("the start", SWITCHED, |seen| !seen.computer.starts.is_empty()).await?;
    let starts = || simulated.bmc().seen().computer.starts;
    ensure!(starts()[0].from == "Pxe", "the boot device was not set again: {:?}", starts());
    let machine =
        api.wait_machine("m1", "power-on", SWITCHED, |m| attempts(m).iter().any(|a| a.on_at.is_some())).await?;
    ensure!(alive(&machine), "a BMC that is back is not said to be");
    simulated.bmc().change(|state| state.quirks.is_down = true);
    api.wait_machine("m1", "the second outage", SWITCHED, dead).await?;
    let came = |m: &landfall_api::Machine| m.status.as_ref().is_some_and(|status| status.epoch > 0);
    let machine = api.wait_machine("m1", "the agent", scene.limit(INSTALL), came).await?;
    ensure!(dead(&machine), "a BMC that is down is said to answer");
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    ensure!(dead(&api.machine("m1").await?), "a BMC that is down is said to answer");
    simulated.bmc().restart();

    m1.serial.wait_for(Mark::default(), BOOTED, scene.limit(INSTALL)).await?;
    require_installed(&*simulated.systems().machine(0).await, &workflow)?;
    let back = |machine: &_| alive(machine) && ended(machine);
    let found = attempts(&api.wait_machine("m1", "the end of the attempt", SWITCHED, back).await?);
    let one = found.len() == 1 && found[0].way == BootWay::PxeOnce && found[0].failure.is_none();
    ensure!(one, "an outage cost a way: {found:?}");
    ensure!(starts().len() == 1, "it was started again: {:?}", starts());
    Ok(())
}
