//! z: programs of the installed system run inside it, before it ever booted: a script that ends itself is tried again, its output
//! reaches the person live and without secrets, and what the program left running is gone when the disk is given back.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use landfall_lab::Firmware;
use serde_json::json;

use super::Context;
use super::scene::{BOOT, Scene};

/// Where the image has its root: behind the first MiB, the BIOS boot partition and the EFI system partition.
pub(super) const ROOT_AT: u64 = (2 + 16) << 20;
const SECRET: &str = "korrekt-pferd-batterie";
/// Ends itself by a signal the first time; the second time it leaves a process behind. The variable is in a namespace of its own:
/// OVMF takes no unknown names in the one of the specification.
const SCRIPT: &str = r#"
echo "this is attempt $(cat /opt/tries 2>/dev/null | wc -l) with $TOKEN"
echo try >> /opt/tries
sync
test "$(wc -l < /opt/tries)" -gt 1 || { echo "no luck the first time"; kill -TERM $$; echo "survived"; }
test -b "$LANDFALL_DISK"
test -b "$LANDFALL_ROOT_DEVICE"
grep -q "^$LANDFALL_ROOT_DEVICE / " /proc/mounts
read -r pid rest < /proc/$$/stat
test "$pid" = $$
test -e /dev/fd/1
echo "an error" > /dev/stderr
printf '\007\000\000\000x' > /sys/firmware/efi/efivars/LandfallTest-3f6c2a54-0b77-4a5e-9d0e-5c1f0a9e7b21
echo "$TOKEN" > /opt/token
setsid sh -c 'exec >/dev/null 2>&1 </dev/null; sleep 3600 > /opt/left' &
echo done
"#;

pub(super) async fn inside_the_new_system(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Uefi)).await?;
    scene.apply("Secret", "site", json!({ "data": { "token": SECRET }, "machines": ["m1"] })).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let script = json!({ "script": SCRIPT, "env": { "TOKEN": "{{ secrets.site.token }}" } });
    let command = json!({ "command": ["touch", "here"], "directory": "/opt" });
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "script", "exec": script, "retry": { "maxAttempts": 2, "initialBackoff": "1s" } },
        { "name": "command", "exec": command },
        { "name": "off", "powerOff": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, _) = scene.install(&mut machine).await?;
    machine.wait_off(BOOT).await?;

    let logs = scene.landfall(&["logs", &workflow.metadata.name]).await?;
    for line in [
        "| this is attempt 0 with ***", "| no luck the first time", "| this is attempt 1 with ***", "| an error",
        "| done",
    ] {
        ensure!(logs.contains(line), "landfall logs does not show \"{line}\":\n{logs}");
    }
    ensure!(!logs.contains("survived"), "the script outlived its own signal:\n{logs}");
    let events = scene.landfall(&["events", &format!("workflow/{}", workflow.metadata.name)]).await?;
    ensure!(
        events.contains("the program ended with exit code 143 (SIGTERM)"),
        "no event states why the script failed:\n{events}"
    );
    let console = machine.serial().lines_since(landfall_lab::Mark::default());
    for text in [logs, events].into_iter().chain(console.into_iter().map(|line| line.text)) {
        ensure!(!text.contains(SECRET), "the secret is shown: {text}");
    }
    let disk = machine.disk(0).path().to_owned();
    let read = |path: &'static str| {
        let disk = disk.clone();
        tokio::task::spawn_blocking(move || file(&disk, path))
    };
    ensure!(read("/opt/tries").await?? == "try\ntry\n", "the script did not run twice");
    ensure!(read("/opt/token").await??.trim() == SECRET, "the secret did not reach the script");
    ensure!(read("/opt/here").await??.is_empty(), "the command did not start in its directory");
    Ok(())
}

/// A file of the root on a disk of a machine that is off.
pub(super) fn file(disk: &Path, path: &str) -> anyhow::Result<String> {
    let file_system = format!("{}?offset={ROOT_AT}", disk.display());
    let output = Command::new("debugfs").arg("-R").arg(format!("cat {path}")).arg(file_system).output();
    let output = output.context("cannot run debugfs of e2fsprogs")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(!errors.contains("not found"), "{path}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
