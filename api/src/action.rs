//! Actions: the typed steps of a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DiskSelector, DurationSpec, ImageSpec, Verify};

/// One step: a name, how long it may take, how often it is tried, and what it does.
///
/// Written flat: the key of [`ActionSpec`] stands beside `name`. Reading is by hand (see `action_de`), because
/// `#[serde(flatten)]` can neither refuse unknown fields nor say where in them a fault is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Unique within its list; a DNS label.
    pub name: String,
    /// How long one attempt may take. Default: 1 h for `writeImage`, 24 h for `hold`, 5 min for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationSpec>,
    /// Retry policy. Default: 3 attempts for `writeImage` (a download may break), 1 for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// Consecutive actions that name a branch form one stage: its branches run at once, the actions of one branch in
    /// order, and what follows begins when all have ended. A DNS label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// What it does.
    #[serde(flatten)]
    pub spec: ActionSpec,
}

impl ActionSpec {
    /// The keys under which actions are written.
    pub const KEYS: [&'static str; 7] =
        ["writeImage", "cloudInit", "hold", "reboot", "powerOff", "clearDisks", "kexec"];
    /// Those after which the agent is gone, so that nothing may follow them.
    pub const LAST_STEPS: [&'static str; 3] = ["reboot", "powerOff", "kexec"];
    /// Those of them that start the installed system.
    pub const STARTS_SYSTEM: [&'static str; 2] = ["reboot", "kexec"];
    /// The key this one is written under.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::WriteImage(_) => "writeImage",
            Self::CloudInit(_) => "cloudInit",
            Self::Hold(_) => "hold",
            Self::Reboot(_) => "reboot",
            Self::PowerOff(_) => "powerOff",
            Self::ClearDisks(_) => "clearDisks",
            Self::Kexec(_) => "kexec",
        }
    }
    /// Whether the agent is gone after it, so that nothing may follow.
    pub fn is_last_step(&self) -> bool {
        Self::LAST_STEPS.contains(&self.key())
    }
    /// Whether the installed system starts after it, and so may phone home.
    pub fn starts_system(&self) -> bool {
        Self::STARTS_SYSTEM.contains(&self.key())
    }
}

/// What an action does: exactly one of these keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "at most 64 exist in a run; a box would only burden who makes one")]
pub enum ActionSpec {
    /// Writes a disk image.
    WriteImage(WriteImageSpec),
    /// Puts a NoCloud seed on the installed disk.
    CloudInit(CloudInitSpec),
    /// Stops here until a person says `landfall resume`.
    Hold(HoldSpec),
    /// Restarts into the installed system. The last action.
    Reboot(RebootSpec),
    /// Turns the machine off. The last action.
    PowerOff(PowerOffSpec),
    /// Clears what makes disks bootable and known: tables, signatures, receipts.
    ClearDisks(ClearDisksSpec),
    /// Starts the installed system's own kernel without a restart of the machine. The last action.
    Kexec(KexecSpec),
}

/// How often an action is tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetrySpec {
    /// 1 to 100; 1 means no retry.
    pub max_attempts: u32,
    /// Wait before the second attempt; doubles each time. Default 2s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_backoff: Option<DurationSpec>,
    /// The longest wait between attempts. Default 1m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backoff: Option<DurationSpec>,
}

/// Writes a disk image to exactly one disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteImageSpec {
    /// Which disk. Exactly one must match.
    #[serde(default)]
    pub disk: DiskSelector,
    /// Which image.
    pub image: ImageSpec,
    /// Labels of partitions of the disk's present GPT that stay, with all their content. A run fails before anything is
    /// changed if one is not there, if two carry it, or if the image would touch it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// `readBack`: everything is read back and compared before the disk becomes bootable. Default: `none`.
    #[serde(default, skip_serializing_if = "Verify::is_none")]
    pub verify: Verify,
}

/// A NoCloud seed on the installed disk: structured fields, or whole files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudInitSpec {
    /// Which disk. Default: the disk that this run wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSelector>,
    /// The installed system's host name. Default: the machine's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Accounts to make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserSpec>,
    /// Netplan version 2 `network` mapping. Default: DHCP on every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<serde_json::Value>,
    /// More cloud-config, merged under the fields above (which win).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user_data: BTreeMap<String, serde_json::Value>,
    /// The phone-home unit. Default: installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phone_home: Option<PhoneHomeSpec>,
}

/// The phone-home unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PhoneHomeSpec {
    /// Whether the unit is installed. Without it the run succeeds at its reboot.
    pub enabled: bool,
    /// How long the installed system has to phone home, from the reboot. Default 15m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DurationSpec>,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserSpec {
    /// Login name.
    pub name: String,
    /// Public keys for `authorized_keys`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// May use sudo without a password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// Supplementary groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Login shell. Default `/bin/bash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
}

/// Restarts the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RebootSpec {}

/// Stops the run at this point until a person says `landfall resume`. Its timeout is how long it waits; then it fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoldSpec {
    /// What the person is to do or to decide, in one sentence.
    pub message: String,
}

/// Turns the machine off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PowerOffSpec {}

/// Clears what makes disks bootable and known: boot sectors, partition tables, signatures and, last of all, receipts. Data
/// between them stays and is not overwritten: this is no erasure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClearDisksSpec {
    /// Which disks; exactly one must match each. Default: every disk that carries a receipt of this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskSelector>,
}

/// Loads the installed system's own kernel and initramfs and jumps into it: no firmware runs in between. What cannot be
/// loaded fails the action, with the machine still up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KexecSpec {
    /// Which disk. Default: the disk that this run wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSelector>,
    /// The kernel's whole command line, at most 2047 bytes; nothing is added to it. Default: what the installed system's boot
    /// loader would give (a boot loader entry, else `grub.cfg`), else `root=UUID=… ro`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<String>,
}

impl KexecSpec {
    /// The longest command line, bytes: the kernel's own COMMAND_LINE_SIZE on x86 and arm64, without the final NUL.
    pub const MAX_CMDLINE: usize = 2047;
}
