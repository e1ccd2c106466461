//! t: a disk hangs from the agent's enrolment on, beside a healthy one that is written; the coordinator dies in between. The
//! install ends, the operator sees which disk hangs, and the machine restarts.

use anyhow::{Context as _, ensure};
use landfall_api::{ConditionStatus, ConditionType, Reason, WorkflowPhase};
use landfall_lab::DiskBus;
use serde_json::json;

use super::Context;
use super::paused::Paused;
use super::scene::{BOOT, DISK_BYTES, INSTALL, Scene, require_installed};

pub(super) async fn beside_a_healthy_one(context: Context) -> anyhow::Result<()> {
    let mut scene = Scene::start(context).await?;
    let Paused { mut server, url, waits } = Paused::midway(&scene).await?;
    let mut machine = scene.described(scene.ordinary("m1").disk(DISK_BYTES, DiskBus::Virtio)).await?;
    let healthy = &machine.spec().disks[0].serial;
    let image = json!({ "url": url, "digest": scene.image().digest });
    let actions = json!([
        { "name": "write", "writeImage": { "disk": { "serial": healthy }, "image": image } },
        { "name": "seed", "cloudInit": { "phoneHome": { "enabled": false } } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("beside", actions).await?;
    let workflow = scene.run(&machine, "beside").await?;
    let mark = server.mark();
    let power_on = machine.power_on().await?;
    machine.off_at_reboot().await?;
    machine.wait_serial(power_on, "enrolled as", BOOT).await?;
    machine.hang_disk(1).await?;

    server.wait(mark, &waits, scene.limit(INSTALL)).await?;
    let seen = scene.coordinator.api().machine(machine.name()).await?;
    let conditions = seen.status.context("a machine without a status")?.conditions;
    let known = conditions.iter().find(|c| c.kind == ConditionType::DisksKnown).context("no condition DisksKnown")?;
    ensure!(
        (known.status, &known.reason) == (ConditionStatus::False, &Reason::Unreadable) && known.message.contains("vdb"),
        "the hanging disk is not named: {known:?}"
    );
    scene.coordinator.sigkill().await;
    server.set([]).await?;
    scene.coordinator.restart().await?;

    machine.wait_off(INSTALL).await.context("the machine did not restart beside the hanging disk")?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)
}
