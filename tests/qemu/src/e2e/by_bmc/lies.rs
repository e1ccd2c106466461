//! Over Redfish, by a BMC that reports success for what it does not do.

use anyhow::{Context as _, bail, ensure};
use landfall_api::{BootWay, Machine, WorkflowPhase};
use landfall_bmcsim::Quirks;
use landfall_lab::{CoordinatorOptions, Firmware, Mark, Network, Simulated};

use super::documents::{attempts, behind_a_simulator};
use super::{Context, SWITCHED};
use crate::e2e::scene::{BOOTED, INSTALL, Scene, require_installed};

/// An agent that does not come is awaited for so long.
const NETBOOT: &str = "[limits]\nnetboot_deadline = \"90s\"\n";

/// What it says that is not so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::e2e) enum Lie {
    /// That a boot device for one start is set.
    BootDevice,
    /// That it switches on, the first time.
    PowerOn,
    /// That the next start is from the network: the device is set, and is not followed.
    Start,
}

/// The first way fails, the second one leads to an installed machine, and nothing is left of it.
pub(in crate::e2e) async fn is_found_out(context: Context, lie: Lie) -> anyhow::Result<()> {
    let options = CoordinatorOptions { more: NETBOOT.into(), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    scene.template(&scene.image_url()).await?;
    let honest = Quirks::default();
    let (quirks, said, switched_on, wanted) = match lie {
        Lie::BootDevice => (Quirks { reverts_once: true, ..honest }, "did not keep it", false, &["Pxe"][..]),
        Lie::PowerOn => (Quirks { stays_off: true, ..honest }, "still reads off", true, &["Pxe"][..]),
        Lie::Start => (Quirks { ignores_once: true, ..honest }, "no agent was heard", true, &["Hdd", "Pxe"][..]),
    };
    let (simulated, m1) = behind_a_simulator(&scene, quirks, Firmware::Bios).await?;
    let api = scene.coordinator.api();
    let workflow = api.provision("m1", "install", false).await?;
    if lie == Lie::PowerOn {
        let asked = |request: &String| request.ends_with(Simulated::RESET);
        // It has answered once the next request is there: they come one after another.
        simulated.wait("power-on", SWITCHED, |seen| seen.requests.iter().rev().skip(1).any(asked)).await?;
        simulated.bmc().change(|state| state.quirks.stays_off = false);
    }
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    m1.serial.wait_for(Mark::default(), BOOTED, scene.limit(INSTALL)).await?;
    require_installed(&*simulated.systems().machine(0).await, &workflow)?;

    let over = |machine: &Machine| {
        let bmc = machine.status.as_ref().and_then(|status| status.bmc.as_ref());
        bmc.is_some_and(|bmc| bmc.worked.is_some() && !bmc.every_start)
    };
    let found = attempts(&api.wait_machine("m1", "the end of the boot device", SWITCHED, over).await?);
    let [first, second] = &found[..] else { bail!("two ways were not what it took: {found:?}") };
    let why = first.failure.as_deref().context("the lie was not found out")?;
    let found_out = first.way == BootWay::PxeOnce && why.contains(said) && first.on_at.is_some() == switched_on;
    ensure!(found_out, "the first way did not fail for the lie: {first:?}");
    ensure!(second.way == BootWay::PxeContinuous && second.failure.is_none(), "the second way: {second:?}");
    let seen = simulated.bmc().seen().computer;
    let starts: Vec<_> = seen.starts.iter().map(|start| start.from.as_str()).collect();
    ensure!(starts == wanted, "it was started from {starts:?}, not from {wanted:?}");
    ensure!(seen.enabled != "Continuous", "every start still goes to the network");
    Ok(())
}
