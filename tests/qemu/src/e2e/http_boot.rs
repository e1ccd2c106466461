//! c: firmware that boots from HTTP: a unified kernel image straight away, or iPXE where the coordinator has none; and a network of IPv6
//! alone.

use anyhow::{Context as _, ensure};
use landfall_lab::{CoordinatorOptions, CoordinatorProcess, DhcpMode, Extra, Firmware, Mark, Network, efi_order};
use serde_json::json;

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

/// By PXE and iPXE, then by HTTP alone: from the firmware's first packet to the phone-home not one is of IPv4.
pub(super) async fn over_ipv6(context: Context) -> anyhow::Result<()> {
    let uki = Some(context.artefacts.kernel.with_file_name("landfall.efi"));
    let options = CoordinatorOptions { uki, dhcp: DhcpMode::FullV6, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let (address, port) = (Network::ADDRESS_V6, CoordinatorProcess::HTTP_PORT);
    let url = format!("http://[{address}]:{port}/images/{}", scene.image().file_name());
    let image = json!({ "url": url, "digest": scene.image().digest });
    for (name, http) in [("pxe", false), ("http", true)] {
        // What is installed has no client of DHCPv6.
        let own = format!("fd77::b:{}/64", 1 + u8::from(http));
        let actions = json!([
            { "name": "write", "writeImage": { "image": image } },
            { "name": "seed", "cloudInit": {} },
            { "name": "address", "writeFile": { "path": "/etc/address6", "content": own } },
            { "name": "reboot", "reboot": {} },
        ]);
        scene.actions("install", actions).await?;
        let builder = scene.ordinary(name).firmware(Firmware::Uefi).with(Extra::Ipv6);
        let mut machine = scene.described(if http { builder.http_boot() } else { builder }).await?;
        let begin = scene.coordinator.log().mark();
        let (workflow, power_on) = scene.install(&mut machine).await.with_context(|| format!("by {name}"))?;
        machine.wait_serial(power_on, "mini: phoned home", BOOT).await?;
        require_installed(&machine, &workflow).with_context(|| format!("by {name}"))?;
        scene.logged(begin, &["service=dhcp", "answer=reply", &format!("client={name}"), machine.mac()])?;
        let uki = format!("/boot/uki/{}.efi", machine.mac().replace(':', "-"));
        let steps = if http { vec!["service=http", &uki] } else { vec!["service=http", "/boot/ipxe", machine.mac()] };
        scene.logged(begin, &steps)?;
        ensure!(
            scene.has_logged(begin, &["service=tftp", "snponly.efi"]) != http,
            "what was fetched by TFTP, by {name}"
        );
    }
    ensure!(!scene.has_logged(Mark::default(), &["10.77.0."]), "an address of IPv4 was used");

    // Any host of the link can name a machine's port; only the machine itself gets its token.
    let machine = scene.described(scene.ordinary("victim").firmware(Firmware::Uefi)).await?;
    scene.run(&machine, "install").await?;
    let outsider = scene.network.neighbour()?;
    let added = outsider.command("ip").args(["addr", "add", "fd77::99/64", "dev", "eth0", "nodad"]).status().await?;
    ensure!(added.success(), "the outsider has no address");
    let get = async |path: String| {
        let asks = "exec 3<>/dev/tcp/$0/$1; printf 'GET %s HTTP/1.0\r\n\r\n' \"$2\" >&3; cat <&3";
        let mut command = outsider.command("timeout");
        command.args(["30", "bash", "-c", asks, &address.to_string(), &port.to_string(), &path]);
        anyhow::Ok(String::from_utf8_lossy(&command.output().await?.stdout).into_owned())
    };
    let script = get(format!("/boot/ipxe?mac={}", machine.mac())).await?;
    ensure!(script.contains("was not leased") && !script.contains("landfall.token"), "the script: {script}");
    let uki = get(format!("/boot/uki/{}.efi", machine.mac().replace(':', "-"))).await?;
    ensure!(uki.starts_with("HTTP/1.0 404") && uki.contains("was not leased"), "the kernel image: {uki}");
    Ok(())
}
