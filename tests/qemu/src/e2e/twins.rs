//! j: two computers claim one identity. The second is refused, the first finishes.

use anyhow::ensure;
use landfall_api::WorkflowPhase;
use landfall_lab::{DiskBus, Firmware, Machine, NicSpec, Plug};
use serde_json::json;

use super::Context;
use super::paused::Paused;
use super::scene::{DISK_BYTES, INSTALL, Scene, require_installed};

pub(super) async fn one_identity(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let Paused { mut server, url, waits } = Paused::midway(&scene).await?;

    // One described machine with two ports; two computers with its UUID and serial number, one port of it each. (Two
    // equal MAC addresses on one switch would only test the switch.)
    let build =
        |builder: landfall_lab::MachineBuilder| builder.build(&scene.network, &scene.context.dir, scene.context.accel);
    let mut first = build(scene.ordinary("m1").firmware(Firmware::Bios))?;
    let own_port = Machine::builder("twin").spec().nics[0].mac.clone();
    let mut twin_spec = first.spec().clone();
    twin_spec.nics = vec![NicSpec { mac: own_port, plug: Plug::Lab, card: None }];
    let mut twin = build(
        Machine::builder("twin").firmware(Firmware::Bios).identity_of(&twin_spec).disk(DISK_BYTES, DiskBus::Nvme),
    )?;
    scene.describe(&first, &[first.mac(), twin.mac()]).await?;
    // The agent waits two minutes for a server that sends nothing, and a slow host takes longer to start the twin: there are
    // enough attempts for half an hour.
    let image = json!({ "url": url, "digest": scene.image().digest });
    let patient = json!({ "maxAttempts": 15, "initialBackoff": "1s", "maxBackoff": "1s" });
    let actions = json!([
        { "name": "write", "writeImage": { "image": image }, "retry": patient },
        { "name": "seed", "cloudInit": {} },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let workflow = scene.provision(&first).await?;
    let mark = server.mark();
    first.power_on().await?;
    server.wait(mark, &waits, scene.limit(INSTALL)).await?;

    let twin_on = twin.power_on().await?;
    // The refusal appears on the machine's own console and as a condition in the API.
    twin.wait_serial(twin_on, "AmbiguousIdentity", INSTALL).await?;
    let alarmed = |m: &landfall_api::Machine| {
        let conditions = m.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|c| c.kind == "IdentityAmbiguous" && c.status == landfall_api::ConditionStatus::True)
    };
    let api = scene.coordinator.api();
    api.wait_machine(first.name(), "condition IdentityAmbiguous", scene.limit(INSTALL), alarmed).await?;

    server.set([]).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&first, &workflow)?;
    ensure!(twin.disk(0).is_untouched()?, "the second machine's disk was touched");
    Ok(())
}
