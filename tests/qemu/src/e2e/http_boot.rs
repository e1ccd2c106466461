//! c: firmware that boots from HTTP: a unified kernel image straight away, or iPXE where the coordinator has none.

use anyhow::{Context as _, ensure};
use landfall_lab::{CoordinatorOptions, DhcpMode, Firmware, Network, efi_order};

use super::Context;
use super::scene::{BOOT, BOOTED, Scene, require_installed};

/// What OVMF writes when it begins.
const HTTP_BOOT: &str = ">>Start HTTP Boot";

/// What the firmware is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    Uki,
    Ipxe,
}

pub(super) async fn to_phone_home(context: Context, gives: Gives) -> anyhow::Result<()> {
    let uki = context.artefacts.kernel.with_file_name("landfall.efi");
    ensure!(uki.is_file(), "there is no {}; make it with landfall-image uki", uki.display());
    let options = CoordinatorOptions {
        uki: (gives == Gives::Uki).then_some(uki),
        dhcp: DhcpMode::Full,
        ..Scene::options(&context)?
    };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Uefi).http_boot().firmware_orders();
    let mut machine = scene.described(builder).await?;
    // The firmware makes its boot order when it is first on; then a person puts the network first, as in a server.
    let first = machine.power_on().await?;
    machine.wait_serial(first, HTTP_BOOT, BOOT).await?;
    machine.power_cut().await;
    efi_order::network_first(&machine.efi_variables()?)?;
    scene.template(&scene.image_url()).await?;
    let begin = scene.coordinator.log().mark();
    let (workflow, power_on) = scene.install(&mut machine).await?;

    ensure!(!scene.has_logged(begin, &["service=tftp"]), "a file was fetched by TFTP");
    let mac = machine.mac().replace(':', "-");
    match gives {
        Gives::Uki => {
            scene.logged(begin, &["service=http", &format!("/boot/uki/{mac}.efi")])?;
            ensure!(!scene.has_logged(begin, &["service=http", "/boot/ipxe"]), "a script of iPXE was fetched");
            ensure!(!scene.has_logged(begin, &["service=http", "/boot/kernel"]), "a kernel was fetched by itself");
        }
        Gives::Ipxe => {
            scene.logged(begin, &["service=http", "/boot/snponly.efi"])?;
            scene.logged(begin, &["service=http", "/boot/ipxe", machine.mac()])?;
        }
    }
    // Without work the firmware goes from the network to the installed disk, and tries nothing in between.
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    let lines = machine.serial().lines_since(power_on);
    let said: Vec<&str> =
        lines.iter().map(|line| line.text.as_str()).filter(|text| text.contains("BdsDxe: ")).collect();
    let started = said.iter().rposition(|text| text.contains("starting") && text.contains("Landfall"));
    let before = started.and_then(|at| at.checked_sub(2)).map(|at| said[at]).unwrap_or_default();
    ensure!(before.contains("HTTPv4"), "what came before the installed disk: {said:?}");
    require_installed(&machine, &workflow).context("after a boot from HTTP")
}
