//! u: what UEFI starts after each policy of `efiBoot`, read from the firmware's own variables while the machine is off, and what
//! then really starts. Deprovisioning takes the entry away, and the machine is installed again.

use anyhow::ensure;
use landfall_api::WorkflowPhase;
use landfall_lab::efi_order::BootOrder;
use landfall_lab::{Firmware, Machine, efi_order};
use serde_json::{Value, json};

use super::Context;
use super::scene::{BOOT, BOOTED, INSTALL, Scene, require_installed};

/// How our entries and those of the network begin.
const OURS: &str = "Landfall";
const NETWORK: &str = "UEFI PXEv4";

pub(super) async fn by_each_policy(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Uefi).firmware_orders();
    let mut machine = scene.described(builder).await?;

    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let install = json!([{ "name": "write", "writeImage": { "image": image } }]);
    let found = after(&scene, &mut machine, "leave", install).await?;
    ensure!(!found.order.iter().any(|name| name.starts_with(OURS)) && found.next.is_none(), "{found:?}");

    efi_order::network_first(&machine.efi_variables()?)?;
    let found = after(&scene, &mut machine, "netFirst", json!([])).await?;
    ensure!(found.order[0].starts_with(NETWORK) && found.order[1].starts_with(OURS), "{found:?}");

    let found = after(&scene, &mut machine, "nextOnly", json!([])).await?;
    ensure!(!found.order.iter().any(|name| name.starts_with(OURS)), "{found:?}");
    ensure!(found.next.as_ref().is_some_and(|name| name.starts_with(OURS)), "{found:?}");
    started(&mut machine, &scene).await?;

    // The next start is the network's again.
    let found = after(&scene, &mut machine, "diskFirst", json!([])).await?;
    ensure!(found.order[0].starts_with(OURS) && found.next.is_none(), "{found:?}");
    started(&mut machine, &scene).await?;

    efi_order::network_first(&machine.efi_variables()?)?;
    let wiped = scene.landfall(&["deprovision", "m1", "--yes", "--disk", "transport=virtio"]).await?;
    machine.power_on().await?;
    machine.off_at_reboot().await?;
    machine.wait_off(BOOT).await?;
    let found = efi_order::read(&machine.efi_variables()?)?;
    ensure!(!found.order.iter().any(|name| name.starts_with(OURS)), "after {wiped}: {found:?}");

    scene.template(&scene.image_url()).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)
}

/// The boot order after a workflow of these actions, `efiBoot` and `powerOff`.
async fn after(scene: &Scene, machine: &mut Machine, policy: &str, actions: Value) -> anyhow::Result<BootOrder> {
    let mut actions = actions.as_array().cloned().unwrap_or_default();
    let disk = json!({ "transport": "virtio" });
    actions.push(json!({ "name": "order", "efiBoot": { "policy": policy, "disk": disk } }));
    actions.push(json!({ "name": "off", "powerOff": {} }));
    let template = policy.to_lowercase();
    scene.actions(&template, Value::Array(actions)).await?;
    let workflow = scene.run(machine, &template).await?;
    machine.power_on().await?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    Ok(efi_order::read(&machine.efi_variables()?)?)
}

/// Requires that the disk starts without a word from the coordinator.
async fn started(machine: &mut Machine, scene: &Scene) -> anyhow::Result<()> {
    let asked = scene.coordinator.log().mark();
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    machine.power_cut().await;
    ensure!(!scene.has_logged(asked, &["service=http", "/boot/"]), "the network was asked first");
    Ok(())
}
