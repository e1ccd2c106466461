//! z: files of Tinkerbell and of curtin, as their users have them, become documents by `landfall import`, and these install a
//! Debian that starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use landfall_api::WorkflowPhase;
use landfall_lab::artefacts::OsImage;
use landfall_lab::{DiskBus, Firmware, Machine};

use super::Context;
use super::layout::{LOGIN, MEMORY_MIB, NO_PSTORE, TAR, scene};
use super::scene::{BOOT, DISK_BYTES, Scene, require_installed};
use super::tools::{run, text};

/// The import asks a person for something, such as a digest.
const ASKS: i32 = 7;
/// What the installed system shows before its prompt.
const ISSUE: &str = "landfall-lab: imported";

/// A Hardware, a Template and a Workflow.
fn tinkerbell(mac: &str, tar: &str, digest: &str) -> String {
    format!(
        r#"
apiVersion: tinkerbell.org/v1alpha1
kind: Hardware
metadata: {{ name: m1 }}
spec:
  disks: [{{ device: /dev/vda }}]
  interfaces:
    - dhcp: {{ arch: x86_64, hostname: m1, mac: {mac}, uefi: false }}
      netboot: {{ allowPXE: true, allowWorkflow: true }}
  metadata:
    instance:
      hostname: m1
      storage:
        disks:
          - device: /dev/vda
            wipe_table: true
            partitions:
              - {{ label: BIOS, number: 1, size: 4096 }}
              - {{ label: SWAP, number: 2, size: 524288 }}
              - {{ label: ROOT, number: 3, size: 0 }}
        filesystems:
          - mount: {{ device: /dev/vda3, format: ext4, point: /, create: {{ options: [-L, ROOT] }} }}
          - mount: {{ device: /dev/vda2, format: swap, point: swap, create: {{ options: [] }} }}
---
apiVersion: tinkerbell.org/v1alpha1
kind: Template
metadata: {{ name: debian }}
spec:
  data: |
    version: "0.1"
    name: debian
    global_timeout: 3600
    tasks:
      - name: os
        worker: "{{{{.device_1}}}}"
        actions:
          - name: partition
            image: quay.io/tinkerbell/actions/rootio:latest
            timeout: 300
            command: [partition]
          - name: format
            image: quay.io/tinkerbell/actions/rootio:latest
            timeout: 300
            command: [format]
          - name: root
            image: quay.io/tinkerbell/actions/archive2disk:latest
            timeout: 1800
            environment:
              ARCHIVE_URL: {tar}
              ARCHIVE_TYPE: tar
              TARFILE_CHECKSUM: {digest}
              DEST_DISK: /dev/vda3
              FS_TYPE: ext4
              DEST_PATH: /
          - name: console
            image: quay.io/tinkerbell/actions/writefile:latest
            timeout: 90
            environment:
              DEST_DISK: {{{{ formatPartition ( index .Hardware.Disks 0 ) 3 }}}}
              FS_TYPE: ext4
              DEST_PATH: /etc/default/grub.d/console.cfg
              CONTENTS: |
                GRUB_CMDLINE_LINUX="console=ttyS0,115200 {NO_PSTORE}"
              UID: 0
              GID: 0
              MODE: 0644
              DIRMODE: 0755
          - name: issue
            image: quay.io/tinkerbell/actions/cexec:latest
            timeout: 90
            environment:
              BLOCK_DEVICE: {{{{ formatPartition ( index .Hardware.Disks 0 ) 3 }}}}
              FS_TYPE: ext4
              CHROOT: y
              DEFAULT_INTERPRETER: "/bin/sh -c"
              CMD_LINE: "echo '{ISSUE}' $(cat /etc/hostname) > /etc/issue"
          - name: grub
            image: quay.io/tinkerbell/actions/grub2disk:latest
            timeout: 900
            environment:
              GRUB_INSTALL_PATH: /dev/vda
              GRUB_DISK: /dev/vda3
              FS_TYPE: ext4
          - name: reboot
            image: public.registry.example/reboot:1.0
            timeout: 90
            pid: host
---
apiVersion: tinkerbell.org/v1alpha1
kind: Workflow
metadata: {{ name: m1 }}
spec: {{ templateRef: debian, hardwareRef: m1, hardwareMap: {{ device_1: {mac} }} }}
"#
    )
}

/// A configuration of one disk, a root archive and commands in the new system.
fn curtin(serial: &str, tar: &str) -> String {
    format!(
        r#"
storage:
  version: 1
  config:
    - {{id: disk0, type: disk, serial: {serial}, ptable: gpt, wipe: superblock-recursive, grub_device: true}}
    - {{id: esp, type: partition, device: disk0, number: 1, size: 64M, flag: boot}}
    - {{id: part-root, type: partition, device: disk0, number: 2, size: 2G}}
    - {{id: part-srv, type: partition, device: disk0, number: 3, size: 512M}}
    - {{id: fs-esp, type: format, fstype: fat32, volume: esp}}
    - {{id: fs-root, type: format, fstype: ext4, volume: part-root, label: ROOT}}
    - {{id: fs-srv, type: format, fstype: xfs, volume: part-srv}}
    - {{id: m-root, type: mount, device: fs-root, path: /, options: noatime}}
    - {{id: m-esp, type: mount, device: fs-esp, path: /boot/efi}}
    - {{id: m-srv, type: mount, device: fs-srv, path: /srv}}
sources: [{tar}]
write_files:
  console: {{path: /etc/default/grub.d/console.cfg, permissions: "0644", content: 'GRUB_CMDLINE_LINUX="console=ttyS0,115200 {NO_PSTORE}"'}}
late_commands:
  10-grub: [curtin, in-target, --, update-grub]
  20-issue: [curtin, in-target, --, sh, -c, "echo '{ISSUE}' $(cat /etc/hostname) > /etc/issue"]
power_state: {{mode: reboot}}
"#
    )
}

pub(super) async fn from_tinkerbell(context: Context) -> anyhow::Result<()> {
    let (scene, _) = scene(context).await?;
    let builder =
        Machine::builder("m1").firmware(Firmware::Bios).memory_mib(MEMORY_MIB).disk(DISK_BYTES, DiskBus::Virtio);
    // The imported documents describe it.
    let machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let images = scene.context.dir.join("images");
    // As archive2disk has it: TARFILE_CHECKSUM is that of the tar itself.
    let digest = tokio::task::spawn_blocking(move || plain_tar(&images)).await??;
    let files = tinkerbell(machine.mac(), &scene.url(PLAIN), &digest);
    let (code, documents, findings) = import(&scene, "tinkerbell", &files).await?;
    ensure!(code == 0, "the import of files that have a counterpart for everything asks for something:\n{findings}");
    let next = findings.lines().find_map(|line| line.strip_prefix("next: landfall ")).context("no next command")?;
    installs(&scene, machine, next, &documents).await
}

pub(super) async fn from_curtin(context: Context) -> anyhow::Result<()> {
    let (scene, unpack) = scene(context).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Uefi).memory_mib(MEMORY_MIB);
    let machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Virtio)).await?;
    let files = curtin(&machine.spec().disks[0].serial, &scene.url(TAR));
    let (code, documents, findings) = import(&scene, "curtin", &files).await?;
    ensure!(code == ASKS && findings.contains("digest"), "the import does not ask for the digest:\n{findings}");
    let refused = apply(&scene, &documents).await.err().context("a document with a placeholder was applied")?;
    let refused = format!("{refused:#}");
    ensure!(refused.contains("unpack.digest: \"todo\""), "the refusal does not name the placeholder: {refused}");
    let digest = unpack["digest"].as_str().context("no digest")?;
    installs(&scene, machine, "provision m1 --template curtin", &documents.replace("{{ todo.digest }}", digest)).await
}

/// Applies the documents and installs the machine by this command of `landfall`.
async fn installs(scene: &Scene, mut machine: Machine, command: &str, documents: &str) -> anyhow::Result<()> {
    apply(scene, documents).await?;
    let words: Vec<&str> = command.split(' ').chain(["--output", "name"]).collect();
    let workflow = scene.landfall(&words).await?;
    let workflow = workflow.trim().rsplit('/').next().unwrap_or_default().to_owned();
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, &format!("{ISSUE} debian"), BOOT * 3).await?;
    machine.wait_serial(power_on, LOGIN, BOOT).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)
}

async fn apply(scene: &Scene, documents: &str) -> anyhow::Result<()> {
    let file = scene.context.dir.join("documents.yaml");
    fs::write(&file, documents)?;
    scene.landfall(&["apply", "-f", &text(&file)]).await.map(drop)
}

/// Exit code, documents and findings.
async fn import(scene: &Scene, kind: &str, files: &str) -> anyhow::Result<(i32, String, String)> {
    let file = scene.context.dir.join(format!("{kind}.yaml"));
    fs::write(&file, files)?;
    let mut command = tokio::process::Command::new(&scene.context.cli);
    let output = command.args(["import", kind]).arg(&file).stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = output.status.code().context("landfall import was killed")?;
    Ok((code, text(output.stdout), text(output.stderr)))
}

const PLAIN: &str = "root.tar";

/// Decompresses the root tar beside itself; its digest.
fn plain_tar(images: &Path) -> anyhow::Result<String> {
    let plain: PathBuf = images.join(PLAIN);
    run("zstd", &["--quiet", "--force", "--decompress", &text(&images.join(TAR)), "-o", &text(&plain)])?;
    Ok(OsImage::measure(&plain)?.digest)
}
