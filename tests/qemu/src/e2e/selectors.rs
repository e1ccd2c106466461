//! h: a selector that matches two disks is refused, and neither is touched; nor is one if a later action would fail.

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, Problem, WorkflowPhase};
use landfall_lab::{DiskBus, Machine};
use serde_json::json;

use super::Context;
use super::scene::{DISK_BYTES, Scene};

pub(super) async fn two_disks(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let mut machine = scene.described(scene.ordinary("m1").disk(DISK_BYTES, DiskBus::Virtio)).await?;
    scene.template(&scene.image_url()).await?;
    let (workflow, _) = scene.begin(&mut machine).await?;
    let problem = failed(&scene, &workflow).await?;
    ensure!(problem.code == ErrorCode::AmbiguousDisk, "the reason is not the ambiguous disk: {problem}");
    let text = serde_json::to_string(&problem)?;
    for disk in &machine.spec().disks {
        ensure!(text.contains(&disk.serial), "the candidate {} is not listed: {problem}", disk.serial);
    }
    untouched(&machine)?;

    // The agent is still there. The first action could write its disk; the third action has none.
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let first = &machine.spec().disks[0].serial;
    let write = |name: &str, serial: &str| {
        let write = json!({ "disk": { "serial": serial }, "image": image });
        json!({ "name": name, "writeImage": write })
    };
    let off = json!({ "name": "off", "powerOff": {} });
    let list = json!([write("system", first), { "name": "seed", "cloudInit": {} }, write("data", "absent"), off]);
    scene.actions("both", list.clone()).await?;
    let (passes, printed) = scene.dry_run(&machine, "both").await?;
    ensure!(!passes && printed.contains("NoDiskMatches") && printed.contains("action data"), "{printed}");
    let fits = json!([write("system", first), { "name": "off", "powerOff": {} }]);
    scene.actions("fits", fits).await?;
    let (passes, printed) = scene.dry_run(&machine, "fits").await?;
    ensure!(passes && printed.contains("machineCheck: passed"), "{printed}");
    untouched(&machine)?;
    let workflow = scene.run(&machine, "both").await?;
    let problem = failed(&scene, &workflow).await?;
    ensure!(problem.code == ErrorCode::NoDiskMatches, "the reason is not the absent disk: {problem}");
    ensure!(problem.message.contains("nothing was written, because action data would fail"), "{problem}");
    untouched(&machine)?;

    scene.apply("Template", "unchecked", json!({ "actions": list, "precheck": "off" })).await?;
    let workflow = scene.run(&machine, "unchecked").await?;
    let problem = failed(&scene, &workflow).await?;
    ensure!(problem.code == ErrorCode::NoDiskMatches, "the reason is not the absent disk: {problem}");
    ensure!(machine.disk(0).has_boot_signature()?, "the first action did not run");
    ensure!(machine.disk(1).is_untouched()?, "disk 1 was touched");
    Ok(())
}

async fn failed(scene: &Scene, workflow: &str) -> anyhow::Result<Problem> {
    let workflow = scene.wait_end(workflow, WorkflowPhase::Failed).await?;
    workflow.status.and_then(|s| s.problem).context("the workflow failed without a reason")
}

fn untouched(machine: &Machine) -> anyhow::Result<()> {
    for index in 0..2 {
        ensure!(machine.disk(index).is_untouched()?, "disk {index} was touched");
    }
    Ok(())
}
