//! l: a machine's parts are tested. A disk that fails makes the machine unhealthy, what the other parts measured stays, and the same
//! test passes once the disk is mended.

use anyhow::{Context as _, ensure};
use landfall_api::{
    ConditionStatus, ErrorCode, HealthReport, HealthTestKind, MachinePhase, MachineStatus, WorkflowPhase,
};
use landfall_lab::{DiskBus, DiskFault, Firmware, Machine};
use serde_json::json;

use super::Context;
use super::scene::{BOOT, Scene};

const DISK: u64 = 128 << 20;
/// Where a disk begins to fail, bytes.
const BAD: u64 = 70 << 20;
const GOOD: usize = 0;
const FAILS: usize = 1;

pub(super) async fn of_every_part(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Bios);
    let mut machine = scene.described(builder.disk(DISK, DiskBus::Virtio).disk(DISK, DiskBus::Nvme)).await?;
    machine.disk(GOOD).write(DISK / 2, &vec![0xA5; 1 << 20])?;
    let written = json!({ "serial": machine.spec().disks[GOOD].serial });
    scene
        .actions(
            "burn-in",
            json!([
                { "name": "memory", "healthTest": { "memory": { "percent": 50 } } },
                { "name": "cpu", "healthTest": { "cpu": { "time": "2s" } } },
                { "name": "network", "healthTest": { "network": { "time": "2s" } } },
                { "name": "write", "healthTest": { "diskWrite": { "disks": [written] } } },
                { "name": "read", "healthTest": { "diskRead": {} } },
            ]),
        )
        .await?;

    let run = scene.run(&machine, "burn-in").await?;
    machine.power_on().await?;
    machine.fail_disk(FAILS, DiskFault::read(BAD)).await?;
    let failed = scene.wait_end(&run, WorkflowPhase::Failed).await?.status.context("no status")?;
    let problem = failed.problem.context("the workflow failed without a reason")?;
    ensure!(problem.code == ErrorCode::HealthTestFailed, "{problem}");
    let status = reaches(&scene, MachinePhase::Unhealthy).await?;
    let healthy = status.conditions.iter().find(|one| one.kind == landfall_api::ConditionType::Healthy);
    ensure!(healthy.is_some_and(|one| one.status == ConditionStatus::False), "{healthy:?}");
    let serials = [GOOD, FAILS].map(|disk| machine.spec().disks[disk].serial.clone());
    let of = |tested: &[HealthReport], test: HealthTestKind, disk: Option<usize>| {
        let serial = disk.map(|disk| &serials[disk]);
        let is = |one: &&HealthReport| {
            one.test == test && serial.is_none_or(|serial| one.disk.as_ref().is_some_and(|d| d.serial == *serial))
        };
        tested.iter().find(is).cloned().with_context(|| format!("no report of {test} {disk:?}"))
    };
    use HealthTestKind::{Cpu, DiskRead, DiskWrite, Memory, Network};
    for (test, disk) in [(Memory, None), (Cpu, None), (Network, None), (DiskWrite, Some(GOOD)), (DiskRead, Some(GOOD))]
    {
        let report = of(&status.tested, test, disk)?;
        ensure!(report.passed() && report.errors == 0, "{}", report.summary());
        ensure!(report.workflow == run && (test == Cpu || report.bytes > 1 << 20), "{report:?}");
    }
    ensure!(of(&status.tested, DiskRead, Some(GOOD))?.bytes == DISK, "not the whole disk was read");
    let bad = of(&status.tested, DiskRead, Some(FAILS))?;
    ensure!(!bad.passed() && bad.errors == 1, "{}", bad.summary());
    let place = format!("cannot read {} bytes at {}", 4 << 20, BAD / (4 << 20) * (4 << 20));
    ensure!(bad.faults.iter().any(|fault| fault.contains(&place)), "{:?}", bad.faults);
    ensure!(machine.disk(GOOD).read(DISK / 2, 1 << 20)?.iter().all(|byte| *byte == 0), "the written disk is not empty");
    let shown = scene.landfall(&["describe", "machine", "m1"]).await?;
    for words in ["Unhealthy", "Health tests", "diskRead", &place] {
        ensure!(shown.contains(words), "landfall describe does not say \"{words}\":\n{shown}");
    }

    machine.mend_disk(FAILS).await?;
    scene
        .actions(
            "again",
            json!([{ "name": "read", "healthTest": { "diskRead": {} } }, { "name": "off", "powerOff": {} }]),
        )
        .await?;
    let run = scene.run(&machine, "again").await?;
    scene.wait_end(&run, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    let status = reaches(&scene, MachinePhase::Available).await?;
    ensure!(of(&status.tested, DiskRead, Some(FAILS))?.workflow == run, "{:?}", status.tested);
    ensure!(of(&status.tested, Memory, None)?.passed(), "the other tests' results stay");
    Ok(())
}

/// The machine's document follows its workflow's.
async fn reaches(scene: &Scene, phase: MachinePhase) -> anyhow::Result<MachineStatus> {
    let what = format!("phase {phase:?}");
    let is = |machine: &landfall_api::Machine| machine.status.as_ref().is_some_and(|status| status.phase == phase);
    let machine = scene.coordinator.api().wait_machine("m1", &what, scene.limit(BOOT), is).await?;
    machine.status.context("no status")
}
