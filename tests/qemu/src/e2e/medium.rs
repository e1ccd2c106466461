//! c: a machine without a document boots the agent from a CD or a USB stick, with no boot service but an address from DHCP. A rule
//! over its facts approves it, and it is installed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_image::iso;
use landfall_lab::{CoordinatorOptions, DhcpMode, Firmware, Machine, Mark, Medium, Network};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, BOOTED, Scene, command_line, require_installed};

pub(super) async fn installs(context: Context, firmware: Firmware, kind: Medium) -> anyhow::Result<()> {
    let more = "discovery = true\n[discovery]\nsubnets = [\"10.77.0.0/24\"]\n".to_owned();
    let options = CoordinatorOptions { more, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    // The medium stays in: on UEFI the list says what the firmware starts next, on BIOS the machine is turned off.
    let mut actions =
        vec![json!({ "name": "write", "writeImage": { "image": image } }), json!({ "name": "seed", "cloudInit": {} })];
    let success = match firmware {
        Firmware::Uefi => {
            actions.push(json!({ "name": "next", "efiBoot": { "policy": "nextOnly" } }));
            actions.push(json!({ "name": "reboot", "reboot": {} }));
            "phoneHome"
        }
        Firmware::Bios => {
            actions.push(json!({ "name": "off", "powerOff": {} }));
            "reboot"
        }
    };
    scene.apply("Template", "install", json!({ "actions": actions, "successOn": success })).await?;
    let mode = if firmware == Firmware::Uefi { "uefi" } else { "bios" };
    let other = json!({ "firmware.mode": mode, "smbios.serial": "another" });
    let own = json!({ "firmware.mode": mode, "memoryBytes": ">= 128MiB", "disks.transport": "virtio", "nics.driver": "virtio_net" });
    for (rule, priority, when, name) in
        [("other", 10, other, "other"), ("own", 0, own, "found-{{ facts.firmware.mode }}")]
    {
        let spec = json!({ "priority": priority, "when": when, "name": name, "approve": true, "template": "install" });
        scene.apply("EnrolmentRule", rule, spec).await?;
    }

    let medium = medium_of(&scene).await?;
    let builder = scene.ordinary("m1").firmware(firmware).medium(&medium, kind);
    let mut machine: Machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let begin = scene.coordinator.log().mark();
    let power_on = machine.power_on().await?;
    let begun = |m: &landfall_api::Machine| m.status.as_ref().is_some_and(|status| status.workflow.is_some());
    let api = scene.coordinator.api();
    let found = format!("found-{mode}");
    let found = api.wait_machine(&found, "the rule's workflow", scene.limit(BOOT), begun).await?;
    let workflow = found.status.and_then(|status| status.workflow).context("a machine without a workflow")?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)?;
    ensure!(!scene.has_logged(begin, &["service=tftp"]), "a file was fetched by TFTP");
    ensure!(!scene.has_logged(begin, &["service=http", "/boot/"]), "a boot file was fetched by HTTP");
    if firmware == Firmware::Uefi {
        machine.wait_serial(power_on, BOOTED, BOOT).await?;
    }
    Ok(())
}

/// A described machine needs no approval: the agent of a medium asks for its token, and waits until there is work. The medium has the
/// coordinator's key alone: the DHCP server says where it is.
pub(super) async fn waits_for_a_workflow(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let line = command_line(&scene).await?;
    let (address, rest) = line.split_once(' ').context("the command line has one word")?;
    ensure!(address == "landfall.coordinator=https://10.77.0.1:7443", "the command line begins with {address}");
    let medium = medium_with(&scene, rest.to_owned()).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios).medium(&medium, Medium::Cd);
    let mut machine = scene.described(builder).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let actions = json!([{ "name": "write", "writeImage": { "image": image } }, { "name": "off", "powerOff": {} }]);
    scene.apply("Template", "install", json!({ "actions": actions, "successOn": "reboot" })).await?;
    let power_on = machine.power_on().await?;
    let named = "DHCP server 10.77.0.1 names the coordinator https://10.77.0.1:7443";
    for said in [named, "m1 has nothing to run"] {
        machine.wait_serial(power_on, said, scene.limit(BOOT)).await?;
    }
    let workflow = scene.provision(&machine).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)
}

/// No host of the network gives addresses: the medium has the machine's own, as the kernel's `ip=` does.
pub(super) async fn with_a_static_address(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start_on(context, Network::create()?, DhcpMode::Off).await?;
    let ip = format!("ip=10.77.0.60::{}:255.255.255.0::eth0:none:{}", Network::ADDRESS, Network::ADDRESS);
    let medium = medium_with(&scene, format!("{ip} {}", command_line(&scene).await?)).await?;
    let mut machine =
        scene.described(scene.ordinary("m1").firmware(Firmware::Bios).medium(&medium, Medium::Cd)).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let actions = json!([{ "name": "write", "writeImage": { "image": image } }, { "name": "off", "powerOff": {} }]);
    scene.apply("Template", "install", json!({ "actions": actions, "successOn": "reboot" })).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, ": address 10.77.0.60/24", BOOT).await?;
    ensure!(!scene.has_logged(Mark::default(), &["service=dhcp"]), "the coordinator answered by DHCP");
    require_installed(&machine, &workflow)
}

/// A boot medium of this coordinator.
pub(super) async fn medium_of(scene: &Scene) -> anyhow::Result<PathBuf> {
    medium_with(scene, command_line(scene).await?).await
}

async fn medium_with(scene: &Scene, line: String) -> anyhow::Result<PathBuf> {
    let medium = scene.context.dir.join("landfall.iso");
    let (artefacts, file) = (scene.context.artefacts.clone(), medium.clone());
    let made = move || {
        let recipe = iso::Recipe {
            kernel: &artefacts.kernel,
            initramfs: &artefacts.initramfs,
            command_line: &line,
            grub: Path::new("/usr/lib/grub"),
        };
        iso::build(&recipe, &file)
    };
    tokio::task::spawn_blocking(made).await??;
    Ok(medium)
}
