//! What an action does, and what came of it. The matches here name every action.

use serde::{Deserialize, Serialize};

use super::{
    resolved::{CloudInit, WriteImage},
    result::{CloudInitResult, KexecResult, StorageResult, WipeResult, WriteImageResult},
};
use crate::{
    ActionSpec, DiskId, DiskReceipt, EfiBootResult, EfiBootSpec, Exec, ExecResult, GrowRootResult, GrowRootSpec,
    HoldSpec, Http, HttpResult, Ignition, IgnitionResult, InstallBootloaderResult, InstallBootloaderSpec, KexecSpec,
    PowerOffSpec, RebootSpec, RunContainer, RunContainerResult, Storage, SystemIdentity, SystemIdentityResult, Unpack,
    UnpackResult, Wait, WaitResult, WipeSpec, WriteFile, WriteFileResult,
};

/// What an action does. Where the agent needs nothing beyond what a template says, it is the template's own spec.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionKind {
    /// Writes a disk image.
    WriteImage(WriteImage),
    /// Puts a NoCloud seed on the installed disk.
    CloudInit(CloudInit),
    /// Waits until a person lets the workflow go on.
    Hold(HoldSpec),
    /// Restarts into the installed system.
    Reboot(RebootSpec),
    /// Turns the machine off.
    PowerOff(PowerOffSpec),
    /// Wipes disks.
    Wipe(WipeSpec),
    /// Starts the installed system's own kernel, past the firmware.
    Kexec(KexecSpec),
    /// Writes one file into the installed system.
    WriteFile(WriteFile),
    /// Runs a program in the installed system.
    Exec(Exec),
    /// Unpacks an archive into the installed system.
    Unpack(Unpack),
    /// Divides disks.
    Storage(Storage),
    /// Makes the installed system start.
    InstallBootloader(InstallBootloaderSpec),
    /// Puts an Ignition config on the installed disk.
    Ignition(Ignition),
    /// Sets UEFI's boot order.
    EfiBoot(EfiBootSpec),
    /// Makes the installed system this machine.
    Identity(SystemIdentity),
    /// Makes the root's partition and file system larger.
    GrowRoot(GrowRootSpec),
    /// Calls a web server.
    Http(Http),
    /// Waits.
    Wait(Wait),
    /// Runs a program of an image.
    RunContainer(RunContainer),
}

/// What came of an action that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "a handful exist at a time; a box would only burden who makes one")]
pub enum ActionResult {
    /// Of `writeImage`.
    WriteImage(WriteImageResult),
    /// Of `cloudInit`.
    CloudInit(CloudInitResult),
    /// Of `hold`: a person resumed the workflow.
    Hold,
    /// Of `reboot`; reported, and flushed for a bounded time, before the machine goes down.
    Reboot,
    /// Of `powerOff`; as `Reboot`.
    PowerOff,
    /// Of `wipe`; agents of protocol 2 to 7 had it as `clearDisks`.
    #[serde(alias = "clearDisks")]
    Wipe(WipeResult),
    /// Of `kexec`; as `Reboot`.
    Kexec(KexecResult),
    /// Of `writeFile`.
    WriteFile(WriteFileResult),
    /// Of `exec`: the program ended with exit code 0.
    Exec(ExecResult),
    /// Of `unpack`.
    Unpack(UnpackResult),
    /// Of `storage`.
    Storage(StorageResult),
    /// Of `installBootloader`.
    InstallBootloader(InstallBootloaderResult),
    /// Of `ignition`.
    Ignition(IgnitionResult),
    /// Of `efiBoot`.
    EfiBoot(EfiBootResult),
    /// Of `identity`.
    Identity(SystemIdentityResult),
    /// Of `growRoot`.
    GrowRoot(GrowRootResult),
    /// Of `http`: the server's answer is a success.
    Http(HttpResult),
    /// Of `wait`: it is over, or what was waited for is so.
    Wait(WaitResult),
    /// Of `runContainer`: the program ended with exit code 0.
    RunContainer(RunContainerResult),
}

/// A part of an [`ActionResult`] whose size the agent decides. A program that trusts no agent bounds each of them.
#[derive(Debug)]
pub enum Part<'a> {
    /// A name, such as a device's.
    Word(&'a mut String),
    /// A text of any length.
    Text(&'a mut String),
    /// Disks.
    Disks(&'a mut Vec<DiskId>),
    /// A receipt.
    Receipt(&'a mut DiskReceipt),
}

impl ActionResult {
    /// Every part whose size the agent decides.
    pub fn parts(&mut self) -> Vec<Part<'_>> {
        match self {
            Self::WriteImage(said) => said.receipt.iter_mut().map(Part::Receipt).collect(),
            Self::CloudInit(said) => vec![Part::Word(&mut said.root_device)],
            Self::WriteFile(said) => vec![Part::Word(&mut said.root_device)],
            Self::Exec(said) => vec![Part::Word(&mut said.root_device)],
            Self::Unpack(said) => vec![Part::Word(&mut said.root_device)],
            Self::GrowRoot(said) => vec![Part::Word(&mut said.root_device)],
            Self::Http(said) => vec![Part::Text(&mut said.body)],
            Self::Hold | Self::Wait(_) | Self::Reboot | Self::PowerOff => Vec::new(),
            Self::Wipe(said) => vec![Part::Disks(&mut said.disks)],
            Self::Storage(said) => vec![Part::Disks(&mut said.disks)],
            Self::InstallBootloader(said) => vec![Part::Word(&mut said.root_device), Part::Text(&mut said.platforms)],
            Self::Ignition(said) => vec![Part::Word(&mut said.device), Part::Word(&mut said.path)],
            Self::EfiBoot(said) => vec![Part::Disks(&mut said.disks)],
            Self::RunContainer(said) => vec![Part::Disks(&mut said.disks)],
            Self::Identity(said) => vec![Part::Word(&mut said.root_device), Part::Text(&mut said.written)],
            Self::Kexec(said) => vec![
                Part::Word(&mut said.root_device),
                Part::Text(&mut said.kernel),
                Part::Text(&mut said.initramfs),
                Part::Text(&mut said.cmdline),
            ],
        }
    }

    /// Whether it is the result of that kind of action.
    pub const fn is_of(&self, spec: &ActionSpec) -> bool {
        match self {
            Self::WriteImage(_) => matches!(spec, ActionSpec::WriteImage(_)),
            Self::CloudInit(_) => matches!(spec, ActionSpec::CloudInit(_)),
            Self::Hold => matches!(spec, ActionSpec::Hold(_)),
            Self::Reboot => matches!(spec, ActionSpec::Reboot(_)),
            Self::PowerOff => matches!(spec, ActionSpec::PowerOff(_)),
            Self::Wipe(_) => matches!(spec, ActionSpec::Wipe(_)),
            Self::Kexec(_) => matches!(spec, ActionSpec::Kexec(_)),
            Self::WriteFile(_) => matches!(spec, ActionSpec::WriteFile(_)),
            Self::Exec(_) => matches!(spec, ActionSpec::Exec(_)),
            Self::Unpack(_) => matches!(spec, ActionSpec::Unpack(_)),
            Self::Storage(_) => matches!(spec, ActionSpec::Storage(_)),
            Self::InstallBootloader(_) => matches!(spec, ActionSpec::InstallBootloader(_)),
            Self::Ignition(_) => matches!(spec, ActionSpec::Ignition(_)),
            Self::EfiBoot(_) => matches!(spec, ActionSpec::EfiBoot(_)),
            Self::Identity(_) => matches!(spec, ActionSpec::Identity(_)),
            Self::GrowRoot(_) => matches!(spec, ActionSpec::GrowRoot(_)),
            Self::Http(_) => matches!(spec, ActionSpec::Http(_)),
            Self::Wait(_) => matches!(spec, ActionSpec::Wait(_)),
            Self::RunContainer(_) => matches!(spec, ActionSpec::RunContainer(_)),
        }
    }

    /// What happened, as a sentence for people.
    pub fn summary(&self) -> String {
        match self {
            Self::WriteImage(WriteImageResult { written: false, .. }) => "the disk already held this image".into(),
            Self::WriteImage(WriteImageResult { raw_bytes, written_bytes, elapsed_ms, .. }) => {
                let seconds = elapsed_ms.div_euclid(1000);
                format!("image of {raw_bytes} bytes on disk, {written_bytes} of them written, in {seconds} s")
            }
            Self::CloudInit(seeded) => format!("seed written to {}", seeded.root_device),
            Self::WriteFile(written) => format!("file written to {}", written.root_device),
            Self::Exec(done) => format!("the program ended with exit code 0 in the system on {}", done.root_device),
            Self::Unpack(UnpackResult { root_device, entries, bytes }) => {
                format!("{entries} entries with {bytes} bytes unpacked to {root_device}")
            }
            Self::Hold => "a person resumed it".into(),
            Self::Wipe(WipeResult { disks }) => {
                let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
                format!("wiped {}", names.join(", "))
            }
            Self::Storage(StorageResult { disks, written }) => {
                let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
                let what = if *written { "laid out" } else { "laid out already:" };
                format!("{what} {}", names.join(", "))
            }
            Self::InstallBootloader(InstallBootloaderResult { root_device, platforms }) => {
                format!("GRUB of the system on {root_device} installed: {platforms}")
            }
            Self::EfiBoot(EfiBootResult { disks, .. }) if disks.is_empty() => "the boot order is left as it is".into(),
            Self::EfiBoot(EfiBootResult { policy, disks }) => {
                let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
                format!("the boot order of UEFI is set for {}: {}", names.join(", "), policy.as_str())
            }
            Self::Ignition(IgnitionResult { device, path }) => format!("Ignition config written to {path} of {device}"),
            Self::Identity(SystemIdentityResult { root_device, written }) => {
                format!("the system on {root_device} has {written}")
            }
            Self::GrowRoot(GrowRootResult { root_device, size_bytes, grown }) => {
                let what = if *grown { "has" } else { "had already" };
                format!("the partition of {root_device} {what} {size_bytes} bytes, and its file system fills it")
            }
            Self::Http(HttpResult { status, body, .. }) if body.is_empty() => format!("the server answered {status}"),
            Self::Http(HttpResult { status, body, .. }) => {
                format!("the server answered {status}: {}", body.escape_debug())
            }
            Self::Wait(WaitResult { waited_ms }) => format!("waited for {} s", waited_ms.div_euclid(1000)),
            Self::RunContainer(RunContainerResult { disks }) if disks.is_empty() => {
                "the container's program ended with exit code 0".into()
            }
            Self::RunContainer(RunContainerResult { disks }) => {
                let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
                format!("the container's program ended with exit code 0; it could write {}", names.join(", "))
            }
            Self::Reboot | Self::PowerOff => "the machine is going down".into(),
            Self::Kexec(KexecResult { kernel, initramfs, cmdline, root_device }) => {
                format!(
                    "{kernel} of {root_device} is loaded with {initramfs} and \"{cmdline}\", and the machine jumps into it"
                )
            }
        }
    }
}
