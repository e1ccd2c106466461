//! o: a pool of three among four machines. One whose disk is not blank is left as it is, and another is claimed in its place; fewer replicas
//! release the newest and wipe it; one that a person releases is wiped, and replaced.

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, MachineStatus};
use landfall_lab::{Firmware, Machine, Mark};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, BOOTED, INSTALL, RECEIPT_AT, Scene};

/// What is on the disk of the second machine.
const DATA: &[u8] = &[0xA5; 64 << 10];

pub(super) async fn of_three(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let mut machines = Vec::new();
    for name in ["m1", "m2", "m3", "m4"] {
        let machine = scene.described(scene.ordinary(name).firmware(Firmware::Bios)).await?;
        label(&scene, &machine).await?;
        machines.push(machine);
    }
    let [mut first, mut used, mut third, mut fourth]: [Machine; 4] =
        machines.try_into().ok().context("four machines were described")?;
    used.disk(0).write(0, DATA)?;
    scene.template(&scene.image_url()).await?;
    pool(&scene, 3).await?;

    for machine in [&mut first, &mut used, &mut third] {
        claimed(&scene, machine, true).await?;
        machine.power_on().await?;
    }
    // Nothing is known of its disk before its agent has looked: the pool claims it, and its agent refuses.
    claimed(&scene, &fourth, true).await?;
    fourth.power_on().await?;
    ready(&scene).await?;
    let status = scene.coordinator.api().machine("m2").await?.status.context("m2 has no status")?;
    let workflow = scene.coordinator.api().workflow(&status.workflow.context("m2 had no workflow")?).await?;
    let problem = workflow.status.and_then(|status| status.problem).context("the workflow of m2 did not fail")?;
    ensure!(problem.code == ErrorCode::DiskNotBlank && workflow.spec.authority.is_none(), "{problem}");
    ensure!(used.disk(0).read(0, DATA.len())? == DATA, "the pool had a disk written that was not blank");
    let shown = scene.landfall(&["describe", "pool", "web"]).await?;
    ensure!(shown.contains("m2    failed") || shown.contains("m2      failed"), "{shown}");
    let refused =
        scene.coordinator.api().provision("m1", "install", false).await.err().context("m1 is not the pool's")?;
    ensure!(refused.to_string().contains("landfall release m1"), "{refused}");

    // The newest leaves.
    pool(&scene, 2).await?;
    cleared(&scene, &mut fourth).await?;
    ready(&scene).await?;

    let words = ["release", "m1", "--yes"];
    let (printed, shown) = scene.landfall_prints(&words).await?;
    ensure!(
        printed.contains("machine/m1 released") && shown.contains("This destroys data on machine m1"),
        "{printed}{shown}"
    );
    claimed(&scene, &fourth, true).await?;
    let console = fourth.power_on().await?;
    cleared(&scene, &mut first).await?;
    fourth.wait_serial(console, BOOTED, INSTALL).await?;
    ready(&scene).await?;
    for (machine, of_the_pool) in [(&first, false), (&third, true), (&fourth, true)] {
        claimed(&scene, machine, of_the_pool).await?;
    }
    Ok(())
}

/// So many machines of the rack are to run the template; those that leave are turned off.
async fn pool(scene: &Scene, replicas: u32) -> anyhow::Result<()> {
    let spec = json!({
        "replicas": replicas, "maxFailures": 2, "template": "install", "matchLabels": { "rack": "r7" }, "release": { "powerOff": true },
    });
    scene.apply("Pool", "web", spec).await
}

/// Puts the machine into the rack.
async fn label(scene: &Scene, machine: &Machine) -> anyhow::Result<()> {
    let spec = machine.spec();
    let identity = json!({ "macs": [machine.mac()], "smbiosUuid": spec.uuid, "serial": spec.serial });
    let metadata = json!({ "name": spec.name, "labels": { "rack": "r7" } });
    let document = json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": metadata, "spec": { "identity": identity },
    });
    scene.coordinator.api().apply(&document).await?;
    Ok(())
}

/// Waits as a person does.
async fn ready(scene: &Scene) -> anyhow::Result<()> {
    let words = ["wait", "pool/web", "--for=condition=Ready", "--timeout", "1h"];
    let (_waits, log) = scene.landfall_follows(&words, "wait")?;
    log.wait_for(Mark::default(), "pool/web condition met", scene.limit(INSTALL)).await?;
    Ok(())
}

/// Waits until the pool has the machine, or has it no more.
async fn claimed(scene: &Scene, machine: &Machine, wanted: bool) -> anyhow::Result<()> {
    let has = |status: &MachineStatus| status.pool.is_some() == wanted && (!wanted || status.workflow.is_some());
    let seen = |found: &landfall_api::Machine| found.status.as_ref().is_some_and(has);
    let what = if wanted { "a workflow of the pool" } else { "no pool" };
    scene.coordinator.api().wait_machine(machine.name(), what, scene.limit(INSTALL), seen).await?;
    Ok(())
}

/// Restarts an installed machine, which the pool released: its agent wipes it and turns it off.
async fn cleared(scene: &Scene, machine: &mut Machine) -> anyhow::Result<()> {
    let leaves = |found: &landfall_api::Machine| {
        let claim = found.status.as_ref().and_then(|status| status.pool.as_ref());
        claim.is_some_and(|claim| claim.released.is_some())
    };
    scene.coordinator.api().wait_machine(machine.name(), "its release", scene.limit(BOOT), leaves).await?;
    machine.power_cut().await;
    machine.power_on().await?;
    machine.wait_off(INSTALL).await?;
    claimed(scene, machine, false).await?;
    let (head, receipt) = (machine.disk(0).read(0, 512)?, machine.disk(0).read(RECEIPT_AT, 4096)?);
    ensure!(head.iter().chain(&receipt).all(|byte| *byte == 0), "{} was not wiped", machine.name());
    Ok(())
}
