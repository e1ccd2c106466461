//! What must stay as it is, on a machine: the system on a disk that no person gave away, and the data of a preserved partition.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, Workflow, WorkflowPhase};
use landfall_lab::artefacts::OsImage;
use landfall_lab::{CoordinatorOptions, Firmware, Network, Registry, RegistryStorage};
use serde_json::{Value, json};

use super::Context;
use super::layout::scene as scene_with_tools;
use super::scene::{BOOT, Scene};
use super::tools::{run, text};

/// The name that the rule gives.
const FOUND: &str = "found";

/// h: a rule's workflow names a disk with a system that this coordinator did not install.
pub(super) async fn from_a_rule(context: Context) -> anyhow::Result<()> {
    // The lab's lines end in the table `dhcp`.
    let more = "discovery = true\n[discovery]\nsubnets = [\"10.77.0.0/24\"]\n".to_owned();
    let options = CoordinatorOptions { more, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios);
    let mut machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let (image, disk) = (scene.image().path.clone(), machine.disk(0).path().to_owned());
    let before = scene.context.dir.join("before.img");
    let (from, to) = (image.clone(), before.clone());
    tokio::task::spawn_blocking(move || {
        run("zstd", &["--quiet", "--decompress", "--sparse", &text(&from), "-o", &text(&to)])?;
        run(
            "dd",
            &[
                "status=none",
                "conv=notrunc,sparse",
                "bs=1M",
                &format!("if={}", to.display()),
                &format!("of={}", disk.display()),
            ],
        )
    })
    .await??;
    let file =
        json!({ "path": "/etc/motd", "content": "changed", "disk": { "serial": machine.spec().disks[0].serial } });
    let list = json!([{ "name": "file", "writeFile": file }, { "name": "off", "powerOff": {} }]);
    scene.apply("Template", "change", json!({ "actions": list, "successOn": "reboot" })).await?;
    let rule = json!({ "name": FOUND, "approve": true, "template": "change" });
    scene.apply("EnrolmentRule", "all", rule).await?;
    machine.power_on().await?;
    let begun = |m: &landfall_api::Machine| m.status.as_ref().is_some_and(|status| status.workflow.is_some());
    let api = scene.coordinator.api();
    let found = api.wait_machine(FOUND, "the rule's workflow", scene.limit(BOOT), begun).await?;
    let workflow = found.status.and_then(|status| status.workflow).context("a machine without a workflow")?;
    let problem = problem(&scene.wait_end(&workflow, WorkflowPhase::Failed).await?)?;
    ensure!(problem.code == ErrorCode::DiskNotBlank && problem.message.contains("no person"), "{problem}");
    machine.power_cut().await;
    let disk = machine.disk(0).path().to_owned();
    let same = tokio::task::spawn_blocking(move || begins_with(&disk, &before)).await??;
    ensure!(same, "the system on the disk was changed");
    Ok(())
}

/// Whether a disk begins with the bytes of a file.
fn begins_with(disk: &Path, file: &Path) -> anyhow::Result<bool> {
    let (mut disk, mut file) = (File::open(disk)?, File::open(file)?);
    let (mut found, mut wanted) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let length = file.read(&mut wanted)?;
        if length == 0 {
            return Ok(true);
        }
        disk.read_exact(&mut found[..length])?;
        if found[..length] != wanted[..length] {
            return Ok(false);
        }
    }
}

fn problem(workflow: &Workflow) -> anyhow::Result<landfall_api::Problem> {
    workflow.status.as_ref().and_then(|status| status.problem.clone()).context("the workflow failed without a reason")
}

const REPOSITORY: &str = "site/kept";
/// Where the preserved partition begins on its disk, bytes: behind the root of 256 MiB.
const DATA_AT: u64 = 257 << 20;

/// z: an image's whiteouts name what is on a preserved partition that is mounted below the new root.
pub(super) async fn from_whiteouts(context: Context) -> anyhow::Result<()> {
    let (scene, _) = scene_with_tools(context).await?;
    let dir = scene.context.dir.clone();
    let (storage, digest) = tokio::task::spawn_blocking(move || image(&dir)).await??;
    let _registry = Registry::start(&storage, &scene.network, &scene.context.dir).await?;
    let mut machine = scene.described(scene.ordinary("m1").firmware(Firmware::Bios).memory_mib(512)).await?;
    let off = json!({ "name": "off", "powerOff": {} });

    let kept = json!({ "path": "/srv/data/kept", "content": "of the first install" });
    let actions = json!([disks(false), { "name": "data", "writeFile": kept }, off]);
    finished(&scene, &mut machine, "first", actions, WorkflowPhase::Succeeded).await?;
    ensure!(data(&machine, "kept").await?.contains("of the first install"), "there is nothing to be kept");

    let url = format!("oci+http://{}:{}/{REPOSITORY}@{digest}", Network::ADDRESS, Registry::PORT);
    let actions = json!([disks(true), { "name": "root", "unpack": { "image": url } }, off]);
    finished(&scene, &mut machine, "second", actions, WorkflowPhase::Succeeded).await?;
    ensure!(
        data(&machine, "kept").await?.contains("of the first install"),
        "an image's whiteout removed preserved data"
    );
    ensure!(data(&machine, "own").await?.is_empty(), "a whiteout left what a lower layer made");
    ensure!(data(&machine, "second").await?.contains("of the second layer"), "the second layer was not unpacked");
    Ok(())
}

fn disks(preserve: bool) -> Value {
    let data = if preserve {
        json!({ "name": "data", "format": "ext4", "mount": "/srv", "preserve": true })
    } else {
        json!({ "name": "data", "size": "256MiB", "format": "ext4", "mount": "/srv" })
    };
    let root = json!({ "role": "root", "size": "256MiB" });
    json!({ "name": "disks", "storage": { "disks": [{ "partitions": [root, data] }] } })
}

/// Runs a list on a machine until it has ended as wanted, and leaves the machine off.
async fn finished(
    scene: &Scene, machine: &mut landfall_lab::Machine, template: &str, actions: Value, wanted: WorkflowPhase,
) -> anyhow::Result<Workflow> {
    scene.apply("Template", template, json!({ "actions": actions, "successOn": "reboot" })).await?;
    let workflow = scene.run(machine, template).await?;
    machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, wanted).await?;
    machine.power_off().await?;
    Ok(workflow)
}

/// What a file of the partition that is to be kept holds; nothing of one that is not there.
async fn data(machine: &landfall_lab::Machine, name: &str) -> anyhow::Result<String> {
    let at = format!("{}?offset={DATA_AT}", machine.disk(0).path().display());
    let request = format!("cat /data/{name}");
    let read = move || Command::new("debugfs").args(["-R", &request, &at]).output();
    let output = tokio::task::spawn_blocking(read).await?.context("cannot run debugfs of e2fsprogs")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An image of two layers. Below the preserved partition the second removes what the first made, and what it never had.
fn image(dir: &Path) -> anyhow::Result<(RegistryStorage, String)> {
    let storage = RegistryStorage::create(&dir.join("registry"), REPOSITORY)?;
    let files = [("first", vec!["own"]), ("second", vec!["second", ".wh.own", ".wh.kept", ".wh..wh..opq"])];
    let layers = files.map(|(name, files)| {
        let (content, tar) = (dir.join(name), dir.join(format!("{name}.tar")));
        let data = content.join("srv/data");
        std::fs::create_dir_all(&data)?;
        for file in files {
            std::fs::write(data.join(file), format!("of the {name} layer"))?;
        }
        run("tar", &["--owner=0", "--group=0", "-C", &text(&content), "-cf", &text(&tar), "."])?;
        let layer = OsImage::measure(&tar)?;
        storage.blob(&layer.digest, &tar)?;
        anyhow::Ok(layer)
    });
    let [first, second] = layers;
    let layers = [first?, second?];
    let rootfs = json!({ "type": "layers", "diff_ids": [layers[0].digest, layers[1].digest] });
    let (config, size) = storage.json(&json!({ "architecture": "amd64", "os": "linux", "rootfs": rootfs }))?;
    let layers = layers.map(|layer| json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer.digest, "size": layer.stored_bytes }));
    let digest = storage.manifest(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": size },
        "layers": layers,
    }))?;
    Ok((storage, digest))
}
