//! z: a machine lays its disks out, unpacks the root of a Debian that was never on a disk, installs that system's own GRUB, and starts
//! it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use landfall_api::{Workflow, WorkflowPhase};
use landfall_lab::{CoordinatorOptions, DiskBus, Firmware, Line, Machine, Mark, Network};
use serde_json::{Value, json};

use super::Context;
use super::says::at_start;
use super::scene::{BOOT, BOOTED, DISK_BYTES, INSTALL, Scene, require_installed};

pub(super) const TAR: &str = "root.tar.zst";
/// What the installed system says at its start: the prompt of a Debian on a serial console.
pub(super) const LOGIN: &str = "debian login:";
/// Without it the kernel reads every EFI variable while systemd waits for devices; under software emulation on a loaded host that
/// takes minutes, and systemd gives up.
pub(super) const NO_PSTORE: &str = "efi_pstore.pstore_disable=1";
/// What the installed system does at its start: it says from what its root is mounted.
const SAYS_ROOT: &str = r#"grep " / " /proc/mounts"#;
/// MiB of a machine's memory: the boot image, the tools layer and the programs of GRUB and LVM together.
pub(super) const MEMORY_MIB: u32 = 1024;

/// A coordinator that serves the root tar and has the tools layer; the source of its `unpack`.
pub(super) async fn scene(context: Context) -> anyhow::Result<(Scene, Value)> {
    let tools = context.artefacts.tools.clone().context("there is no tools layer; give --tools FILE")?;
    let tar = context.artefacts.root_tar.clone().context("there is no root tar; give --root-tar FILE")?;
    let images = context.dir.join("images");
    std::fs::create_dir_all(&images)?;
    linked(&tar.path, &images.join(TAR))?;
    let options = CoordinatorOptions { images, tools: Some(tools), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let unpack = json!({ "url": scene.url(TAR), "digest": tar.digest });
    Ok((scene, unpack))
}

/// A second name where that is possible, else a copy.
fn linked(from: &Path, to: &Path) -> anyhow::Result<()> {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

/// From the layout to the restart.
fn list(storage: &Value, unpack: &Value) -> Value {
    json!([
        { "name": "disks", "storage": storage },
        // What fills a layout need not stand in the list's own line.
        { "name": "root", "branch": "root", "unpack": unpack },
        { "name": "seed", "cloudInit": {} },
        { "name": "says", "exec": { "script": at_start(SAYS_ROOT, "basic.target") } },
        { "name": "boot", "installBootloader": { "kernelArguments": ["console=ttyS0,115200", NO_PSTORE] } },
        { "name": "reboot", "reboot": {} },
    ])
}

pub(super) async fn from_a_root_tar(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let first = match firmware {
        Firmware::Bios => json!({ "role": "biosBoot" }),
        Firmware::Uefi => json!({ "role": "esp", "size": "64MiB" }),
    };
    let storage = json!({ "disks": [{ "partitions": [first, { "role": "root" }] }] });
    let (scene, mut machine) = described(context, firmware, &storage).await?;
    let (workflow, power_on) = installed(&scene, &mut machine).await?;
    machine.wait_serial(power_on, LOGIN, BOOT).await?;
    require_installed(&machine, &workflow)
}

pub(super) async fn xfs_on_lvm(context: Context) -> anyhow::Result<()> {
    let storage = json!({
        "disks": [{ "partitions": [{ "role": "biosBoot" }, { "name": "pv" }] }],
        "volumeGroups": [{ "name": "vg0", "from": ["pv"], "volumes": [
            { "name": "swap", "size": "256MiB", "format": "swap" },
            { "name": "root", "size": "rest", "format": "xfs", "mount": "/" },
        ] }],
    });
    let (scene, mut machine) = described(context, Firmware::Bios, &storage).await?;
    let (workflow, power_on) = installed(&scene, &mut machine).await?;
    machine.wait_serial(power_on, "/dev/mapper/vg0-root / xfs", BOOT).await?;
    machine.wait_serial(power_on, LOGIN, BOOT).await?;
    require_installed(&machine, &workflow)
}

/// Patience of the installed system for devices that wait for a disk that is gone, seconds: software emulation is slow.
const PATIENT: &str = "systemd.default_device_timeout_sec=900";

pub(super) async fn on_a_mirror(context: Context) -> anyhow::Result<()> {
    let (scene, unpack) = scene(context).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Uefi).memory_mib(MEMORY_MIB);
    let builder = builder.disk(DISK_BYTES, DiskBus::Virtio).disk(DISK_BYTES, DiskBus::Virtio);
    let mut machine = scene.described(builder).await?;
    let select: Vec<Value> = machine.spec().disks.iter().map(|disk| json!({ "serial": disk.serial })).collect();
    let storage = json!({
        "disks": [{ "select": select, "partitions": [{ "role": "esp", "size": "64MiB" }, { "name": "pv" }] }],
        "raids": [{ "name": "efi", "level": 1, "from": ["esp"] }, { "name": "system", "level": 1, "from": ["pv"] }],
        "volumeGroups": [{ "name": "vg0", "from": ["system"], "volumes": [{ "name": "root", "mount": "/" }] }],
    });
    let mut list = list(&storage, &unpack);
    let look = r#"test "$LANDFALL_DISKS" = "/dev/vda /dev/vdb"; grep -q "^/dev/md/efi /boot/efi vfat " /proc/mounts"#;
    list[4]["installBootloader"]["kernelArguments"].as_array_mut().context("a list")?.push(json!(PATIENT));
    list.as_array_mut().context("a list")?.insert(2, json!({ "name": "look", "exec": { "script": look } }));
    scene.actions("install", list).await?;
    let (workflow, power_on) = installed(&scene, &mut machine).await?;
    machine.wait_serial(power_on, LOGIN, BOOT).await?;
    require_installed(&machine, &workflow)?;

    machine.power_off().await?;
    machine.pull_disk(0);
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, "/dev/mapper/vg0-root / ext4", BOOT * 2).await?;
    Ok(machine.wait_serial(power_on, LOGIN, BOOT).await?)
}

/// A layout is wiped and an image written over it in the same boot: what stood open on the disks is closed, and the receipts that
/// the wipe clears are not looked for.
pub(super) async fn then_wiped_and_written(context: Context) -> anyhow::Result<()> {
    let (scene, _) = scene(context).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Bios).memory_mib(MEMORY_MIB);
    let builder = builder.disk(DISK_BYTES, DiskBus::Virtio).disk(DISK_BYTES, DiskBus::Virtio);
    let mut machine = scene.described(builder).await?;
    let serials: Vec<String> = machine.spec().disks.iter().map(|disk| disk.serial.clone()).collect();
    let on = |disk: usize| json!({ "serial": serials[disk] });
    let storage = json!({
        "keys": { "system": "{{ secrets.disk.system }}" },
        "disks": [{ "select": [on(0), on(1)], "partitions": [{ "name": "pv" }] }],
        "raids": [{ "name": "system", "level": 1, "from": ["pv"] }],
        "volumeGroups": [{ "name": "vg0", "from": ["system"], "volumes": [
            { "name": "root", "mount": "/", "encrypt": { "key": "system", "name": "open" } },
        ] }],
    });
    scene.apply("Secret", "disk", json!({ "data": { "system": PASSPHRASE }, "machines": ["m1"] })).await?;
    let image = &scene.context.artefacts.image;
    linked(&image.path, &scene.context.dir.join("images").join(image.file_name()))?;
    let image = json!({ "url": scene.url(&image.file_name()), "digest": image.digest });
    scene.actions("lay", json!([{ "name": "disks", "storage": storage }])).await?;
    let laid = scene.run(&machine, "lay").await?;
    let power_on = machine.power_on().await?;
    scene.wait_end(&laid, WorkflowPhase::Succeeded).await?;
    let actions = json!([
        { "name": "wipe", "wipe": { "disks": [on(0), on(1)] } },
        { "name": "write", "writeImage": { "disk": on(0), "image": image } },
        { "name": "seed", "cloudInit": { "disk": on(0) } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let workflow = scene.provision(&machine).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_serial(power_on, BOOTED, BOOT).await?;
    let console = machine.serial().lines_since(power_on);
    let stopped = |line: &Line| line.text.contains("md: md") && line.text.contains("stopped.");
    ensure!(console.iter().any(stopped), "no array was open when the disks were wiped");
    ensure!(!machine.disk(1).has_primary_gpt()?, "the second disk was not wiped");
    require_installed(&machine, &workflow)
}

/// Bytes of the archive that are unpacked when the power is cut.
const SOME: u64 = 64 << 20;

pub(super) async fn cut_in_each_action(context: Context) -> anyhow::Result<()> {
    let storage = json!({ "disks": [{ "partitions": [{ "role": "biosBoot" }, { "role": "root" }] }] });
    let (scene, mut machine) = described(context, Firmware::Bios, &storage).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    machine.wait_serial(power_on, "mkfs.ext4", INSTALL).await?;
    machine.power_cut().await;

    machine.power_on().await?;
    let unpacks = |workflow: &Workflow| {
        let unpack = workflow.status.as_ref().and_then(|status| status.actions.get(1));
        unpack.is_some_and(|unpack| unpack.progress.as_ref().is_some_and(|progress| progress.raw_bytes > SOME))
    };
    let api = scene.coordinator.api();
    api.wait_workflow(&workflow, "a part of the archive", scene.limit(INSTALL), unpacks).await?;
    machine.power_cut().await;
    ensure!(!machine.disk(0).has_primary_gpt()?, "firmware finds a table on a disk with a part of a system");

    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, "grub-install: ", INSTALL).await?;
    machine.power_cut().await;

    let power_on = machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_serial(power_on, LOGIN, BOOT).await?;
    let actions = workflow.status.as_ref().map(|status| &status.actions).context("a workflow without a status")?;
    let attempts: Vec<u32> = actions.iter().map(|action| action.attempt).collect();
    ensure!(attempts == [2, 2, 1, 1, 2, 1], "each cut costs the action under way one attempt: {attempts:?}");
    require_installed(&machine, &workflow)
}

/// In no log, and on no console.
const PASSPHRASE: &str = "korrektpferdbatterie";
/// The initramfs asks for it.
const ASKS: &str = "Please unlock disk system";

pub(super) async fn on_luks(context: Context) -> anyhow::Result<()> {
    // GRUB of Debian 12 opens no LUKS2: its files are beside it.
    let storage = json!({
        "keys": { "system": "{{ secrets.disk.system }}" },
        "disks": [{ "partitions": [
            { "role": "esp", "size": "64MiB" },
            { "name": "boot", "size": "512MiB", "format": "ext4", "mount": "/boot" },
            { "role": "root", "encrypt": { "key": "system", "name": "system" } },
        ] }],
    });
    let (scene, mut machine) = described(context, Firmware::Uefi, &storage).await?;
    scene.apply("Secret", "disk", json!({ "data": { "system": PASSPHRASE }, "machines": ["m1"] })).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    machine.wait_serial(power_on, ASKS, INSTALL * 2).await?;
    machine.type_line("not the passphrase").await?;
    machine.wait_serial(power_on, "bad password or options", BOOT).await?;
    // What is typed before it asks again is shown and lost.
    let refused = machine.serial().mark();
    machine.wait_serial(refused, ASKS, BOOT).await?;
    machine.type_line(PASSPHRASE).await?;
    machine.wait_serial(power_on, "/dev/mapper/system / ext4", BOOT).await?;
    machine.wait_serial(power_on, LOGIN, BOOT).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;

    let logs = scene.landfall(&["logs", &workflow.metadata.name]).await?;
    let console = machine.serial().lines_since(power_on).into_iter().map(|line| line.text);
    let coordinator = scene.coordinator.log().lines_since(Mark::default()).into_iter().map(|line| line.text);
    for text in [logs].into_iter().chain(console).chain(coordinator) {
        ensure!(!text.contains(PASSPHRASE), "the passphrase is shown: {text}");
    }
    let disk = machine.disk(0).path().to_owned();
    ensure!(!tokio::task::spawn_blocking(move || holds(&disk, PASSPHRASE)).await??, "the passphrase is on the disk");
    require_installed(&machine, &workflow)
}

/// Whether a disk holds a text anywhere.
fn holds(disk: &Path, text: &str) -> anyhow::Result<bool> {
    let found = Command::new("grep").args(["--quiet", "--fixed-strings", "--text", text]).arg(disk).status()?;
    match found.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => anyhow::bail!("grep failed on {}", disk.display()),
    }
}

/// A machine with one disk, and a template `install` that lays it out, installs Debian, and lets it say what its root is.
async fn described(context: Context, firmware: Firmware, storage: &Value) -> anyhow::Result<(Scene, Machine)> {
    let (scene, unpack) = scene(context).await?;
    let builder = Machine::builder("m1").firmware(firmware).memory_mib(MEMORY_MIB).disk(DISK_BYTES, DiskBus::Virtio);
    let machine = scene.described(builder).await?;
    scene.actions("install", list(storage, &unpack)).await?;
    Ok((scene, machine))
}

/// From power-on until the installed system has phoned home.
async fn installed(scene: &Scene, machine: &mut Machine) -> anyhow::Result<(Workflow, Mark)> {
    let (workflow, power_on) = scene.install(machine).await?;
    ensure!(workflow.status.as_ref().is_some_and(|s| s.phoned_home_at.is_some()), "it succeeded without a phone-home");
    Ok((workflow, power_on))
}
