//! p: the coordinator's store is put back to an old copy, in which another workflow still waits for the machine. The
//! machine is held, nothing is written, and it boots its installed system.

use std::path::Path;

use anyhow::{Context as _, ensure};
use landfall_api::{ConditionStatus, Machine};
use landfall_lab::Firmware;
use landfall_lab::faulty::Notice;

use super::Context;
use super::scene::{BOOT, BOOTED, INSTALL, Scene, receipt, require_installed};

pub(super) async fn installs_nothing(context: Context) -> anyhow::Result<()> {
    let mut scene = Scene::start(context).await?;
    let server = scene.faulty().await?;
    let file = scene.image().file_name();
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Bios)).await?;
    scene.template(&server.url(&file)).await?;
    let waiting = scene.provision(&machine).await?;

    // The copy has a waiting workflow. It is taken while the coordinator is stopped, as any backup of files must be.
    let data = scene.coordinator.socket().parent().context("a socket in no directory")?.to_owned();
    let old = data.with_extension("old");
    ensure!(scene.coordinator.stop().await, "the coordinator did not drain on SIGTERM");
    copy(&data, &old)?;
    scene.coordinator.restart().await?;

    // That workflow is stopped, and another one installs the machine.
    scene.landfall(&["cancel", &waiting]).await?;
    let (installed, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    require_installed(&machine, &installed)?;
    let before = receipt(&machine)?;

    // The copy is put back, and the machine restarts.
    ensure!(scene.coordinator.stop().await, "the coordinator did not drain on SIGTERM");
    std::fs::remove_dir_all(&data)?;
    copy(&old, &data)?;
    scene.coordinator.restart().await?;
    machine.power_cut().await;
    let mark = server.mark();
    machine.power_on().await?;
    let held = |m: &Machine| {
        let conditions = m.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|c| c.kind == "ReceiptConflict" && c.status == ConditionStatus::True)
    };
    scene.coordinator.api().wait_machine(machine.name(), "held for its receipt", scene.limit(INSTALL), held).await?;
    let shown = scene.landfall(&["describe", "machine", machine.name()]).await?;
    ensure!(shown.contains("ReceiptConflict"), "landfall describe does not say why the machine is held:\n{shown}");
    // At the next start the held machine must boot its own disk.
    machine.power_cut().await;
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;

    let fetched = server.notices(mark).into_iter().any(|notice| matches!(notice, Notice::Request { .. }));
    ensure!(!fetched, "the image was fetched after the store was put back");
    ensure!(receipt(&machine)? == before, "the receipt on the disk has changed");
    require_installed(&machine, &installed)
}

/// A directory with everything in it but sockets.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())?;
    for entry in std::fs::read_dir(from)? {
        let (entry, kind) = entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind)))?;
        let to = to.join(entry.file_name());
        if kind.is_dir() {
            copy(&entry.path(), &to)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
