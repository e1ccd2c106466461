//! c: an arm64 machine. Its agent cannot be built where these tests run, so a script stands in for it: what is shown is the way there.

use anyhow::{Context as _, ensure};
use landfall_lab::{Board, CoordinatorOptions, DiskBus, Firmware, Machine, Mark, Medium, Network};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, Scene};

/// Firmware of arm64 boots the unified kernel image of its processor from HTTP, and the medium from a CD; the drivers find disks and port.
pub(super) async fn by_http_and_cd(context: Context) -> anyhow::Result<()> {
    let images = context.artefacts.arm64.clone().context("no --arm64 was given; scripts/test makes it")?;
    let more = format!("[boot.arm64]\nuki = \"{}\"\n", images.join("landfall.efi").display());
    let options = CoordinatorOptions { more, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    scene.actions("off", json!([{ "name": "off", "powerOff": {} }])).await?;
    let builder = scene.ordinary("arm").disk(1 << 30, DiskBus::Nvme).board(Board::Virt).firmware(Firmware::Uefi);
    let mut machine = scene.described(builder.http_boot()).await?;
    scene.run(&machine, "off").await?;
    let begin = scene.coordinator.log().mark();
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, "stand-in: disks", BOOT).await?;
    machine.wait_off(BOOT).await?;
    let mac = machine.mac();
    scene.logged(begin, &["service=http", &format!("/boot/uki-arm64/{}.efi", mac.replace(':', "-"))])?;
    ensure!(!scene.has_logged(begin, &["service=tftp"]), "a file was fetched by TFTP");
    let line = said(&machine, power_on, "aarch64 ")?;
    for words in
        ["landfall.coordinator=https://10.77.0.1:7443", "landfall.ca=sha256:", "landfall.token=", "console=ttyAMA0"]
    {
        ensure!(line.contains(words), "the kernel's command line lacks {words}: {line}");
    }
    let (port, disks) = (said(&machine, power_on, "port ")?, said(&machine, power_on, "disks ")?);
    ensure!(port == mac && disks.contains("nvme0n1") && disks.contains("vda"), "port {port}, disks {disks}");

    // The same boot image on a medium.
    let builder = scene.ordinary("arm-cd").disk(1 << 30, DiskBus::Nvme).board(Board::Virt).firmware(Firmware::Uefi);
    let builder = builder.medium(&images.join("landfall.iso"), Medium::Cd);
    let mut machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, "stand-in: disks", BOOT).await?;
    machine.wait_off(BOOT).await?;
    let line = said(&machine, power_on, "aarch64 ")?;
    ensure!(line.contains("landfall.medium=1"), "the kernel's command line: {line}");
    Ok(())
}

/// The rest of the line of the stand-in that begins so.
fn said(machine: &Machine, power_on: Mark, what: &str) -> anyhow::Result<String> {
    let start = format!("stand-in: {what}");
    let lines = machine.serial().lines_since(power_on);
    let line = lines.iter().find_map(|line| line.text.trim().strip_prefix(&start).map(str::to_owned));
    line.with_context(|| format!("no line begins with \"{start}\""))
}
