//! c: firmware that boots from HTTP: a unified kernel image straight away, or iPXE where the coordinator has none.

use anyhow::{Context as _, ensure};
use landfall_lab::{CoordinatorOptions, DhcpMode, Firmware, Mark, Network};

use super::Context;
use super::scene::{Scene, require_installed};

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
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Uefi).http_boot()).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, _) = scene.install(&mut machine).await?;

    let begin = Mark::default();
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
    require_installed(&machine, &workflow).context("after a boot from HTTP")
}
