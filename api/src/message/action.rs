//! What an action does, and what came of it. The list and the matches here name every action, by name.

use serde::{Deserialize, Serialize};

use super::resolved::{CloudInit, WriteImage};
use super::result::*;
use crate::action::*;
use crate::{DiskId, DiskReceipt};

/// Makes [`ActionKind`] and [`ActionResult`] from rows of `Variant(what the agent is sent) -> (what it reports)`. The order of the
/// rows means nothing: they stand by name, so that two that are added at the same time seldom meet.
macro_rules! messages {
    ($($(#[$does:meta])+ $name:ident($sent:ty) -> $(#[$about:meta])* ($($result:ty)?),)+) => {
        /// What an action does. Where the agent needs nothing beyond what a template says, it is the template's own spec.
        #[derive(Debug, Clone, PartialEq)]
        pub enum ActionKind { $($(#[$does])+ $name($sent),)+ }

        /// What came of an action that succeeded.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        #[expect(clippy::large_enum_variant, reason = "a handful exist at a time; a box would only burden who makes one")]
        pub enum ActionResult {
            $(#[doc = concat!("Of [`ActionKind::", stringify!($name), "`].")] $(#[$about])* $name $(($result))?,)+
        }

        impl ActionResult {
            /// Whether it is the result of that kind of action.
            pub const fn is_of(&self, spec: &ActionSpec) -> bool {
                match self { $(Self::$name { .. } => matches!(spec, ActionSpec::$name(_)),)+ }
            }
        }
    };
}

messages! {
    /// Sets an account in the machine's BMC.
    BmcAccount(BmcAccount) -> (BmcAccountResult),
    /// Puts a NoCloud seed on the installed disk.
    CloudInit(CloudInit) -> (CloudInitResult),
    /// Sets UEFI's boot order.
    EfiBoot(EfiBootSpec) -> (EfiBootResult),
    /// Runs a program in the installed system.
    Exec(Exec) ->
        /// The program ended with exit code 0.
        (ExecResult),
    /// Makes the root's partition and file system larger.
    GrowRoot(GrowRootSpec) -> (GrowRootResult),
    /// Tests a part of the machine.
    HealthTest(HealthTest) ->
        /// Every part passed.
        (HealthTestResult),
    /// Waits until a person lets the workflow go on.
    Hold(HoldSpec) ->
        /// A person resumed the workflow.
        (),
    /// Calls a web server.
    Http(Http) ->
        /// The server's answer is a success.
        (HttpResult),
    /// Makes the installed system this machine.
    Identity(SystemIdentity) -> (SystemIdentityResult),
    /// Puts an Ignition config on the installed disk.
    Ignition(Ignition) -> (IgnitionResult),
    /// Makes the installed system start.
    InstallBootloader(InstallBootloaderSpec) -> (InstallBootloaderResult),
    /// Starts the installed system's own kernel, past the firmware.
    Kexec(KexecSpec) ->
        /// As `Reboot`.
        (KexecResult),
    /// Turns the machine off.
    PowerOff(PowerOffSpec) ->
        /// As `Reboot`.
        (),
    /// Restarts into the installed system.
    Reboot(RebootSpec) ->
        /// Reported, and flushed for a bounded time, before the machine goes down.
        (),
    /// Runs a program of an image.
    RunContainer(RunContainer) ->
        /// The program ended with exit code 0.
        (RunContainerResult),
    /// Enrols keys for Secure Boot.
    SecureBoot(SecureBootSpec) -> (SecureBootResult),
    /// Divides disks.
    Storage(Storage) -> (StorageResult),
    /// Unpacks an archive into the installed system.
    Unpack(Unpack) -> (UnpackResult),
    /// Waits.
    Wait(Wait) ->
        /// It is over, or what was waited for is so.
        (WaitResult),
    /// Wipes disks.
    Wipe(WipeSpec) ->
        /// Agents of protocol 2 to 7 had it as `clearDisks`.
        #[serde(alias = "clearDisks")]
        (WipeResult),
    /// Writes one file into the installed system.
    WriteFile(WriteFile) -> (WriteFileResult),
    /// Writes a disk image.
    WriteImage(WriteImage) -> (WriteImageResult),
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
            Self::BmcAccount(_) => Vec::new(),
            Self::CloudInit(said) => vec![Part::Word(&mut said.root_device)],
            Self::EfiBoot(said) => vec![Part::Disks(&mut said.disks)],
            Self::Exec(said) => vec![Part::Word(&mut said.root_device)],
            Self::GrowRoot(said) => vec![Part::Word(&mut said.root_device)],
            Self::HealthTest(_) => Vec::new(),
            Self::Hold => Vec::new(),
            Self::Http(said) => vec![Part::Text(&mut said.body)],
            Self::Identity(said) => vec![Part::Word(&mut said.root_device), Part::Text(&mut said.written)],
            Self::Ignition(said) => vec![Part::Word(&mut said.device), Part::Word(&mut said.path)],
            Self::InstallBootloader(said) => vec![Part::Word(&mut said.root_device), Part::Text(&mut said.platforms)],
            Self::Kexec(said) => vec![
                Part::Word(&mut said.root_device),
                Part::Text(&mut said.kernel),
                Part::Text(&mut said.initramfs),
                Part::Text(&mut said.cmdline),
            ],
            Self::PowerOff => Vec::new(),
            Self::Reboot => Vec::new(),
            Self::RunContainer(said) => vec![Part::Disks(&mut said.disks)],
            Self::SecureBoot(_) => Vec::new(),
            Self::Storage(said) => vec![Part::Disks(&mut said.disks)],
            Self::Unpack(said) => vec![Part::Word(&mut said.root_device)],
            Self::Wait(_) => Vec::new(),
            Self::Wipe(said) => vec![Part::Disks(&mut said.disks)],
            Self::WriteFile(said) => vec![Part::Word(&mut said.root_device)],
            Self::WriteImage(said) => said.receipt.iter_mut().map(Part::Receipt).collect(),
        }
    }

    /// What happened, as a sentence for people.
    pub fn summary(&self) -> String {
        match self {
            Self::BmcAccount(BmcAccountResult { address, user }) => {
                format!("the BMC at {address} has the account, as its user {user}")
            }
            Self::CloudInit(seeded) => format!("seed written to {}", seeded.root_device),
            Self::EfiBoot(EfiBootResult { disks, .. }) if disks.is_empty() => "the boot order is left as it is".into(),
            Self::EfiBoot(EfiBootResult { policy, disks }) => {
                let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
                format!("the boot order of UEFI is set for {}: {}", names.join(", "), policy.as_str())
            }
            Self::Exec(done) => format!("the program ended with exit code 0 in the system on {}", done.root_device),
            Self::GrowRoot(GrowRootResult { root_device, size_bytes, grown }) => {
                let what = if *grown { "has" } else { "had already" };
                format!("the partition of {root_device} {what} {size_bytes} bytes, and its file system fills it")
            }
            Self::HealthTest(HealthTestResult { parts: 1 }) => "it passed".into(),
            Self::HealthTest(HealthTestResult { parts }) => format!("all {parts} passed"),
            Self::Hold => "a person resumed it".into(),
            Self::Http(HttpResult { status, body, .. }) if body.is_empty() => format!("the server answered {status}"),
            Self::Http(HttpResult { status, body, .. }) => {
                format!("the server answered {status}: {}", body.escape_debug())
            }
            Self::Identity(SystemIdentityResult { root_device, written }) => {
                format!("the system on {root_device} has {written}")
            }
            Self::Ignition(IgnitionResult { device, path }) => format!("Ignition config written to {path} of {device}"),
            Self::InstallBootloader(InstallBootloaderResult { root_device, platforms }) => {
                format!("GRUB of the system on {root_device} installed: {platforms}")
            }
            Self::Kexec(KexecResult { kernel, initramfs, cmdline, root_device }) => {
                format!(
                    "{kernel} of {root_device} is loaded with {initramfs} and \"{cmdline}\", and the machine jumps into it"
                )
            }
            Self::PowerOff => "the machine is going down".into(),
            Self::Reboot => "the machine is going down".into(),
            Self::SecureBoot(SecureBootResult { enrolled: true }) => {
                "the firmware has these keys; the fact firmware.secureBoot says at the next start whether it goes by them".into()
            }
            Self::SecureBoot(SecureBootResult { enrolled: false }) => "the firmware had these keys already".into(),
            Self::RunContainer(RunContainerResult { disks }) if disks.is_empty() => {
                "the container's program ended with exit code 0".into()
            }
            Self::RunContainer(RunContainerResult { disks }) => {
                let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
                format!("the container's program ended with exit code 0; it could write {}", names.join(", "))
            }
            Self::Storage(StorageResult { disks, written }) => {
                let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
                let what = if *written { "laid out" } else { "laid out already:" };
                format!("{what} {}", names.join(", "))
            }
            Self::Unpack(UnpackResult { root_device, entries, bytes }) => {
                format!("{entries} entries with {bytes} bytes unpacked to {root_device}")
            }
            Self::Wait(WaitResult { waited_ms }) => format!("waited for {} s", waited_ms.div_euclid(1000)),
            Self::Wipe(WipeResult { disks }) => {
                let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
                format!("wiped {}", names.join(", "))
            }
            Self::WriteFile(written) => format!("file written to {}", written.root_device),
            Self::WriteImage(WriteImageResult { written: false, .. }) => "the disk already held this image".into(),
            Self::WriteImage(WriteImageResult { raw_bytes, written_bytes, elapsed_ms, .. }) => {
                let seconds = elapsed_ms.div_euclid(1000);
                format!("image of {raw_bytes} bytes on disk, {written_bytes} of them written, in {seconds} s")
            }
        }
    }
}
