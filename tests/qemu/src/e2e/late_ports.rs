//! s, in the full set: the network goes dead under a write, and another port, which is plugged in meanwhile, carries it to its end.

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_lab::{Extra, Firmware, plug_nic};
use serde_json::json;

use super::Context;
use super::interrupted::attempts;
use super::paused::Paused;
use super::scene::{BOOT, INSTALL, Scene, require_installed};

/// What becomes of the first port.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Its cable is pulled.
    Cable,
    /// It keeps its carrier, as where a switch fails further away: only the coordinator's silence shows it.
    Silence,
}

pub(super) async fn take_over(context: Context, fault: Fault) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let Paused { mut server, url, waits } = Paused::midway(&scene).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios).with(Extra::PortSlot);
    let mut machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let second = machine.spec().port_slot.clone().context("a machine without a slot")?;
    scene.describe(&machine, &[machine.mac(), &second]).await?;
    let image = json!({ "url": url, "digest": scene.image().digest });
    let actions = json!([{ "name": "write", "writeImage": { "image": image } }, { "name": "off", "powerOff": {} }]);
    scene.actions("install", actions).await?;
    let mark = server.mark();
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    server.wait(mark, &waits, scene.limit(INSTALL)).await?;
    scene.wait_began(&machine, &workflow).await?;
    machine.wait_serial(power_on, "is reached over eth0", BOOT).await?;

    let cut = machine.serial().mark();
    match fault {
        Fault::Cable => {
            let qmp = machine.qmp().context("the machine is off")?;
            qmp.command("set_link", json!({ "name": "net0", "up": false })).await?;
            machine.wait_serial(cut, "eth0: carrier lost", BOOT).await?;
        }
        Fault::Silence => scene.network.set_link(machine.tap(0), false)?,
    }
    plug_nic(&mut machine, &scene.network).await?;
    machine.wait_serial(cut, "is reached over eth1", BOOT).await?;
    server.set([]).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    require_installed(&machine, &workflow)?;
    ensure!(attempts(&workflow)? == 1, "the dead network cost the write an attempt");
    Ok(())
}
