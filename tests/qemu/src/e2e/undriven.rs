//! s: a driver that the kernel's command line blocks, and one that the kernel refuses: the facts say which is which.

use anyhow::{Context as _, ensure};
use landfall_lab::{Card, CoordinatorOptions, Firmware, KERNEL_ARGS, Network, Plug};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, Scene};

/// The kernel refuses a module with a number that is none.
const MORE: &str = "modprobe.blacklist=virtio_rng e1000.debug=much";
/// Vendor and device, as QEMU's virtio-rng and e1000 have them, and why they have no driver.
const UNDRIVEN: [(&str, &str, &str); 2] = [
    ("1af4", "1005", "module virtio_rng is not loaded: the kernel's command line blocks it"),
    ("8086", "100e", "module e1000 is not loaded: Invalid argument"),
];

pub(super) async fn in_the_facts(context: Context) -> anyhow::Result<()> {
    let options = CoordinatorOptions { kernel_args: format!("{KERNEL_ARGS} {MORE}"), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios).port(Plug::Lab, Some(Card::E1000));
    let mut machine = scene.described(builder).await?;
    // Without work it would boot its own disk.
    let hold = json!([{ "name": "wait", "hold": { "message": "until its facts were read" } }]);
    scene.actions("look", hold).await?;
    scene.run(&machine, "look").await?;
    machine.power_on().await?;
    let has_facts = |m: &landfall_api::Machine| m.status.as_ref().is_some_and(|status| status.facts.is_some());
    let seen = scene.coordinator.api().wait_machine("m1", "its facts", scene.limit(BOOT), has_facts).await?;
    let facts = seen.status.and_then(|status| status.facts).context("a machine without facts")?;
    for (vendor, device, why) in UNDRIVEN {
        let found = facts.devices.iter().find(|one| (one.vendor.as_str(), one.device.as_str()) == (vendor, device));
        let found = found.with_context(|| format!("{vendor}:{device} is not among the devices"))?;
        ensure!(found.problem.contains(why) && !found.modalias.is_empty(), "{vendor}:{device} is undriven: {found:?}");
    }
    let driven = facts.devices.iter().filter(|one| one.modalias.is_empty());
    let puzzled: Vec<_> = driven.filter(|one| !one.problem.is_empty()).collect();
    ensure!(puzzled.is_empty(), "devices with a driver have a problem: {puzzled:?}");
    Ok(())
}
