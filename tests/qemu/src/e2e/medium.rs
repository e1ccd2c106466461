//! c: a machine without a document boots the agent from a CD or a USB stick, with no boot service but an address from DHCP. A rule
//! approves it, and it is installed.

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_image::iso;
use landfall_lab::{CoordinatorOptions, Firmware, Machine, Medium, Network};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, BOOTED, Scene, require_installed};

const FOUND: &str = "found";

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
    scene.apply("EnrolmentRule", "all", json!({ "name": FOUND, "approve": true, "template": "install" })).await?;

    let medium = scene.context.dir.join("landfall.iso");
    let (config, program) = (scene.coordinator.config(), &scene.context.artefacts.coordinator);
    let line = tokio::process::Command::new(program).arg("--config").arg(config).arg("command-line").output().await?;
    ensure!(line.status.success(), "landfall-coordinator command-line: {}", String::from_utf8_lossy(&line.stderr));
    let line = String::from_utf8(line.stdout)?;
    let artefacts = scene.context.artefacts.clone();
    let file = medium.clone();
    let made = move || {
        let recipe = iso::Recipe {
            kernel: &artefacts.kernel,
            initramfs: &artefacts.initramfs,
            command_line: line.trim(),
            grub: std::path::Path::new("/usr/lib/grub"),
        };
        iso::build(&recipe, &file)
    };
    tokio::task::spawn_blocking(made).await??;
    let builder = scene.ordinary("m1").firmware(firmware).medium(&medium, kind);
    let mut machine: Machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let begin = scene.coordinator.log().mark();
    let power_on = machine.power_on().await?;
    let begun = |m: &landfall_api::Machine| m.status.as_ref().is_some_and(|status| status.workflow.is_some());
    let api = scene.coordinator.api();
    let found = api.wait_machine(FOUND, "the rule's workflow", scene.limit(BOOT), begun).await?;
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
