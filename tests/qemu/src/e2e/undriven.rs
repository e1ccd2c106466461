//! s: a driver that the kernel's command line blocks, one that the kernel refuses, two that crash, and one that the boot image lacks: the
//! facts say which is which, the machine reaches its coordinator by a port whose driver comes after one that crashes, and a disk may be
//! missing behind the other.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use landfall_image::cpio::{self, Archive, Content};
use landfall_lab::{Card, CoordinatorOptions, DiskBus, Firmware, KERNEL_ARGS, Network, Plug};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use serde_json::json;

use super::Context;
use super::own_initramfs::put_behind_boot_image;
use super::scene::{BOOT, DISK_BYTES, Scene};

/// The kernel refuses a module with a number that is none.
const MORE: &str = "modprobe.blacklist=virtio_rng e1000.debug=much";
/// The files of the drivers that crash, as a boot image may have them.
const CRASHES: [&str; 4] = ["vmxnet3.ko", "vmxnet3.ko.zst", "mptsas.ko", "mptsas.ko.zst"];
/// Vendor and device, as QEMU's virtio-rng, e1000, vmxnet3, mptsas1068 and megasas have them, and why they have no driver.
const UNDRIVEN: [(&str, &str, &str); 5] = [
    ("1af4", "1005", "module virtio_rng is not loaded: the kernel's command line blocks it"),
    ("8086", "100e", "module e1000 is not loaded: Invalid argument"),
    ("15ad", "07b0", "module vmxnet3 crashed while it was loaded; the kernel's log says where"),
    ("1000", "0054", "module mptsas crashed while it was loaded; the kernel's log says where"),
    ("1000", "0060", "the boot image lacks a module that fits: megaraid_sas"),
];

pub(super) async fn in_the_facts(context: Context) -> anyhow::Result<()> {
    let initramfs = with_a_crash(&context)?;
    let kernel_args = format!("{KERNEL_ARGS} {MORE}");
    let options = CoordinatorOptions { kernel_args, initramfs, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios);
    let builder = builder.port(Plug::Lab, Some(Card::E1000)).port(Plug::Lab, Some(Card::Vmxnet3));
    let builder = builder.disk(DISK_BYTES, DiskBus::MptSas).disk(DISK_BYTES, DiskBus::MegaSas);
    let mut machine = scene.described(builder).await?;
    // Without work it would boot its own disk.
    let hold = json!([{ "name": "wait", "hold": { "message": "until its facts were read" } }]);
    scene.actions("look", hold).await?;
    scene.run(&machine, "look").await?;
    let power_on = machine.power_on().await?;
    let has_facts = |m: &landfall_api::Machine| m.status.as_ref().is_some_and(|status| status.facts.is_some());
    let seen = scene.coordinator.api().wait_machine("m1", "its facts", scene.limit(BOOT), has_facts).await?;
    let facts = seen.status.and_then(|status| status.facts).context("a machine without facts")?;
    for (vendor, device, why) in UNDRIVEN {
        let found = facts.devices.iter().find(|one| (one.vendor.as_str(), one.device.as_str()) == (vendor, device));
        let found = found.with_context(|| format!("{vendor}:{device} is not among the devices"))?;
        ensure!(found.problem.contains(why) && !found.modalias.is_empty(), "{vendor}:{device} is undriven: {found:?}");
    }
    let ports_and_disks = facts.devices.iter().filter(|one| ["network", "storage"].contains(&one.class.as_str()));
    let missing: Vec<_> = ports_and_disks.flat_map(|one| &one.missing_modules).collect();
    ensure!(missing == ["megaraid_sas"], "modules that the boot image lacks: {missing:?}");
    let driven = facts.devices.iter().filter(|one| one.modalias.is_empty());
    let puzzled: Vec<_> = driven.filter(|one| !one.problem.is_empty()).collect();
    ensure!(puzzled.is_empty(), "devices with a driver have a problem: {puzzled:?}");
    let console = machine.serial().lines_since(power_on);
    ensure!(console.iter().any(|line| line.text.contains("invalid opcode: 0000 [#1]")), "the kernel had no oops");
    let gave_up = "continuing without what it waited for: driver mptsas crashed while it was loaded";
    machine.wait_serial(power_on, gave_up, BOOT).await?;
    Ok(())
}

/// The boot image, with two drivers whose first instruction crashes.
fn with_a_crash(context: &Context) -> anyhow::Result<PathBuf> {
    let boot_image = zstd::Decoder::new(File::open(&context.artefacts.initramfs)?)?;
    let mut archive = Archive::new();
    for mut driver in cpio::list(boot_image, &CRASHES)?.into_iter().filter(|member| !member.content.is_empty()) {
        let packed = driver.path.ends_with(".zst");
        if packed {
            driver.content = zstd::decode_all(&driver.content[..])?;
        }
        crash(&mut driver.content)?;
        if packed {
            driver.content = zstd::encode_all(&driver.content[..], 1)?;
        }
        archive.file(&driver.path, driver.mode, Content::Bytes(driver.content))?;
    }
    put_behind_boot_image(context, &archive)
}

/// What follows a module's signature (`MODULE_SIG_STRING`, include/linux/module_signature.h).
const SIGNED: &[u8] = b"~Module signature appended~\n";
/// The instruction UD2 of x86, which is none. INT3 would do it in a context like an interrupt's, where an oops is a panic.
const UD2: [u8; 2] = [0x0f, 0x0b];

/// Makes a module's start crash. Its signature would not hold any more, and a module without one is loaded all the same.
fn crash(module: &mut Vec<u8>) -> anyhow::Result<()> {
    if module.ends_with(SIGNED) {
        module.truncate(module.len() - SIGNED.len());
    }
    let at = {
        let object = object::File::parse(&module[..])?;
        let start = object.symbols().find(|symbol| symbol.name() == Ok("init_module")).context("no init_module")?;
        let section = object.section_by_index(start.section_index().context("init_module is elsewhere")?)?;
        let (file, _) = section.file_range().context("init_module is in no section of the file")?;
        // A call for the tracer comes first, which the kernel replaces: an operand that it fills in, and the opcode E8 before it.
        let filled: Vec<u64> = section.relocations().map(|(at, _)| at).collect();
        let first = start.address()..start.address() + 8;
        let calls = filled.iter().filter(|at| first.contains(at));
        let after_call = calls.filter(|at| section.data().is_ok_and(|code| code[**at as usize - 1] == 0xe8)).min();
        let at = after_call.map_or(start.address(), |operand| operand + 4);
        ensure!(!filled.contains(&(at + 1)), "the kernel fills in what the instruction would be");
        usize::try_from(file + at)?
    };
    module[at..at + UD2.len()].copy_from_slice(&UD2);
    Ok(())
}
