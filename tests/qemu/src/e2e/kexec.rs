//! q: after an install the machine jumps into the installed system's own kernel. No firmware runs in between.

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_lab::{Firmware, printable};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, BOOTED, INSTALL, Scene, require_installed};

/// The agent runs and has a workflow.
const ENROLLED: &str = "enrolled as m1";
/// The agent's last line.
const JUMP: &str = "starting the installed system's kernel, without the firmware";
/// What firmware and boot loaders write on the serial console: SeaBIOS and OVMF, iPXE, GRUB.
const FIRMWARE: [&str; 4] = ["SeaBIOS", "BdsDxe", "iPXE", "GRUB"];

pub(super) async fn past_the_firmware(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(firmware)).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "seed", "cloudInit": {} },
        { "name": "jump", "kexec": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    machine.wait_serial(power_on, ENROLLED, INSTALL).await?;
    // From here on a reset by the guest ends QEMU, and with it every wait below.
    machine.off_at_reboot().await?;
    let enrolled = scene.coordinator.log().mark();
    machine.wait_serial(power_on, JUMP, INSTALL).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    ensure!(machine.is_on(), "the machine was reset");
    require_installed(&machine, &workflow)?;
    let phoned = workflow.status.as_ref().is_some_and(|s| s.phoned_home_at.is_some());
    ensure!(phoned, "it succeeded without a phone-home");

    let lines: Vec<String> = machine.serial().lines_since(power_on).iter().map(|line| printable(&line.text)).collect();
    let jump = lines.iter().position(|line| line.contains(JUMP)).context("the agent's last line is gone")?;
    let (before, after) = lines.split_at(jump);
    let speaks = |line: &&String| FIRMWARE.iter().any(|word| line.contains(word));
    ensure!(
        before.iter().any(|line| speaks(&line)),
        "this firmware is silent on the console, so its silence shows nothing"
    );
    if let Some(line) = after.iter().find(speaks) {
        anyhow::bail!("firmware ran after the jump: {line}");
    }
    ensure!(!scene.has_logged(enrolled, &["/boot/ipxe", machine.mac()]), "the machine netbooted again");
    // The workflow's events name what was loaded.
    let events = scene.landfall(&["events", &format!("workflow/{}", workflow.metadata.name)]).await?;
    for word in ["/boot/vmlinuz", "/boot/initrd.img", "root=UUID=", "console=ttyS0"] {
        ensure!(events.contains(word), "the workflow's events do not contain {word}: {events}");
    }
    Ok(())
}
