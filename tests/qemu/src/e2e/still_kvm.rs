//! b: on a host whose KVM starts SeaBIOS and not OVMF, the proof refuses KVM, and a demo that must use it still ends.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};

use super::Context;

/// Like the KVM of a host without vmx and svm: OVMF's processor never runs, anything else does.
const STUB: &str = r#"#!/bin/bash
arguments=() kvm='' ovmf=''
for argument in "$@"; do
    case $argument in
    kvm) kvm=1 argument=tcg,thread=multi ;;
    host) argument=max,-erms ;;
    if=pflash,*) ovmf=1 ;;
    esac
    arguments+=("$argument")
done
if [ -n "$kvm" ] && [ -n "$ovmf" ]; then arguments+=(-S); fi
PATH=${PATH#*:} exec qemu-system-x86_64 "${arguments[@]}"
"#;

pub(super) async fn demo(context: Context) -> anyhow::Result<()> {
    let bin = context.dir.join("bin");
    std::fs::create_dir_all(&bin)?;
    let stub = bin.join("qemu-system-x86_64");
    std::fs::write(&stub, STUB)?;
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755))?;
    let cpuinfo = context.dir.join("cpuinfo");
    std::fs::write(&cpuinfo, "flags\t\t: fpu vmx\n")?;
    let artefacts = &context.artefacts;
    let boot = artefacts.kernel.parent().context("the kernel is in no directory")?;
    let boot = ["--boot".as_ref(), boot.as_os_str()];

    let logs = context.dir.join("proof");
    let arguments = ["accel".as_ref(), "--cpuinfo".as_ref(), cpuinfo.as_os_str(), "--logs".as_ref(), logs.as_os_str()];
    let (said, _) = lab(&context, &bin, "", &[&arguments[..], &boot].concat()).await?;
    ensure!(said.starts_with("tcg: "), "a KVM that stands still was believed: {said}");
    // Without /dev/kvm there is nothing to prove.
    ensure!(!Path::new("/dev/kvm").exists() || said.contains("uefi"), "the proof does not name the firmware: {said}");

    let logs = context.dir.join("demo");
    let image = artefacts.image.path.parent().context("the image is in no directory")?;
    let arguments = [
        ["demo".as_ref(), "--firmware=uefi".as_ref()],
        ["--coordinator".as_ref(), artefacts.coordinator.as_os_str()],
        ["--agent".as_ref(), artefacts.agent.as_os_str()],
        ["--image".as_ref(), image.as_os_str()],
        ["--logs".as_ref(), logs.as_os_str()],
        boot,
    ];
    let (out, err) = lab(&context, &bin, "kvm", &arguments.concat()).await?;
    ensure!(out.contains("phoned home"), "no phone-home: {out}");
    for name in ["baseline", "m1"] {
        let note = format!("{name} showed nothing under KVM");
        ensure!(err.matches(&note).count() == 1, "not one line \"{note}\": {err}");
    }
    Ok(())
}

/// Runs this program with the stub in QEMU's place, and returns what it wrote on standard output and standard error.
async fn lab(
    context: &Context, bin: &Path, accel: &str, arguments: &[&std::ffi::OsStr],
) -> anyhow::Result<(String, String)> {
    let path = std::env::var("PATH").context("PATH is not set")?;
    let mut command = tokio::process::Command::new(&context.program);
    command.args(arguments).env("PATH", format!("{}:{path}", bin.display())).env("LANDFALL_ACCEL", accel);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{} {arguments:?}: {}\n{out}\n{err}", context.program.display(), output.status);
    Ok((out, err))
}
