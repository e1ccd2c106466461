//! Actions: the typed steps of a workflow. Each has a file of its own with its fields and its declaration ([`kind`]), and
//! a line in the list below; everything in `api` that depends on the set of actions follows from these two.

mod access;
mod bmc_account;
mod cloud_init;
mod efi_boot;
mod exec;
mod grow_root;
mod health_test;
mod hold;
mod http;
mod identity;
mod ignition;
mod install_bootloader;
mod kexec;
mod kind;
mod power_off;
mod program;
mod read;
mod reboot;
mod renamed;
mod rules;
mod run_container;
mod schema;
mod secure_boot;
mod storage;
mod unpack;
mod wait;
mod wipe;
mod write_file;
mod write_image;

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize, de::MapAccess};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

pub use self::bmc_account::{BmcAccount, BmcAccountProtocol, BmcAccountResult, BmcAccountSpec, BmcPrivilege};
pub use self::cloud_init::{CloudInitSpec, PhoneHomeSpec, UserDataKind, UserDataSpec, UserSpec, network_section};
pub use self::efi_boot::{BootPolicy, EfiBootResult, EfiBootSpec};
pub use self::exec::{Exec, ExecProgram, ExecResult, ExecSpec, UnusableProgram};
pub use self::grow_root::{GrowRootResult, GrowRootSpec};
pub use self::health_test::{
    CpuTestSpec, DiskReadSpec, DiskWriteSpec, HealthTest, HealthTestResult, HealthTestSpec, MemoryTestSpec,
    NetworkTestSpec, SpeedError, SpeedSpec, UnusableHealthTest,
};
pub use self::hold::HoldSpec;
pub use self::http::{Http, HttpMethod, HttpResult, HttpSpec, KeepBody, UnusableCall};
pub use self::identity::{
    Account, AccountSpec, InterfaceSpec, IpWithPrefix, NetworkFormat, NetworkSpec, Renewal, SystemIdentity,
    SystemIdentityResult, SystemIdentitySpec, UnusableAccount,
};
pub use self::ignition::{Ignition, IgnitionResult, IgnitionSpec, UnusableIgnition};
pub use self::install_bootloader::{FirmwareSpec, InstallBootloaderResult, InstallBootloaderSpec, LoaderSpec};
pub use self::kexec::KexecSpec;
use self::kind::Declaration;
pub use self::kind::{ActionInfo, Download, Then};
pub use self::power_off::PowerOffSpec;
pub use self::program::ExecVariable;
pub use self::reboot::RebootSpec;
pub use self::run_container::{
    ContainerCapability, ContainerDevice, ContainerMount, ContainerNetwork, RunContainer, RunContainerResult,
    RunContainerSpec,
};
pub use self::secure_boot::{SecureBootResult, SecureBootSpec, SignedVariable, SignedVariableError};
pub use self::storage::{
    Content, DiskLayoutSpec, EncryptSpec, FileSystem, Member, PartitionRole, PartitionSpec, RaidSpec, SizeError,
    SizeSpec, Storage, StorageFault, StorageSpec, SubvolumeSpec, TableSpec, VolumeGroupSpec, VolumeSpec,
};
pub use self::unpack::{Unpack, UnpackResult, UnpackSource, UnpackSpec, UnusableArchive};
pub use self::wait::{Awaited, UntilSpec, UnusableWait, Wait, WaitResult, WaitSpec};
pub use self::wipe::WipeSpec;
pub use self::write_file::{FileSource, UnusableFile, WriteFile, WriteFileResult, WriteFileSpec};
pub use self::write_image::WriteImageSpec;
pub(crate) use self::{
    renamed::list,
    rules::{Fault, Rules},
};
use crate::DurationSpec;

/// Makes [`ActionSpec`] from lines of `key => Variant(Fields)`. Everything else stands in the action's own file, in its
/// `impl Declaration`.
macro_rules! actions {
    ($($key:literal => $variant:ident($spec:ty),)+) => {
        const COUNT: usize = [$($key),+].len();

        /// What an action does: exactly one of these keys.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        pub enum ActionSpec {
            $(
                #[doc = concat!("`", $key, "`")]
                #[serde(rename = $key)]
                $variant($spec),
            )+
        }

        impl ActionSpec {
            /// Every action's key and declaration.
            pub const ALL: [(&'static str, ActionInfo); COUNT] = [$(($key, <$spec>::INFO)),+];
            /// The keys of actions in documents.
            pub const KEYS: [&'static str; COUNT] = [$($key),+];
            /// Every field of an action: those that all have, then the keys.
            const FIELDS: [&'static str; COUNT + 5] = ["name", "timeout", "retry", "branch", "when", $($key),+];

            /// Fields that came after their actions: key, field, and the first protocol revision whose agents know it.
            pub fn later_fields() -> Vec<(&'static str, &'static str, u32)> {
                let of = |key, later: &'static [(&'static str, u32)]| later.iter().map(move |(field, n)| (key, *field, *n));
                let mut out = Vec::new();
                $(out.extend(of($key, <$spec>::LATER));)+
                out
            }

            /// The newest protocol revision that an action needs.
            pub const NEWEST_PROTOCOL: u32 = {
                let mut newest = 0;
                $(
                    if <$spec>::INFO.protocol > newest {
                        newest = <$spec>::INFO.protocol;
                    }
                    let mut at = 0;
                    while at < <$spec>::LATER.len() {
                        if <$spec>::LATER[at].1 > newest {
                            newest = <$spec>::LATER[at].1;
                        }
                        at += 1;
                    }
                )+
                newest
            };

            /// The key this one is written under.
            pub const fn key(&self) -> &'static str {
                match self { $(Self::$variant(_) => $key,)+ }
            }
            /// What its declaration says.
            pub const fn info(&self) -> ActionInfo {
                match self { $(Self::$variant(_) => <$spec>::INFO,)+ }
            }
            /// The first protocol revision whose agents know it with the fields that it states.
            pub fn protocol(&self) -> u32 {
                match self { $(Self::$variant(spec) => spec.protocol(),)+ }
            }
            /// What the agent will fetch for it.
            pub fn downloads(&self) -> Vec<Download> {
                match self { $(Self::$variant(spec) => spec.downloads(),)+ }
            }
            /// Whether the action `key` with these fields works on the disk that its list wrote, unless it names another.
            pub(crate) fn means_written_disk(key: &str, spec: &Map<String, Value>) -> bool {
                match key {
                    $($key => <$spec>::means_written_disk(spec),)+
                    _ => false,
                }
            }
            /// Reads the value of `key`; `None` if that is no action's.
            fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Option<Result<Self, A::Error>> {
                match key {
                    $($key => Some(map.next_value().map(Self::$variant)),)+
                    _ => None,
                }
            }
            /// The schema of each key's value.
            fn schemas(generator: &mut SchemaGenerator) -> [(&'static str, schemars::Schema); COUNT] {
                [$(($key, generator.subschema_for::<$spec>())),+]
            }
            /// What the fields of the action `key` mean together.
            pub(crate) fn check(key: &str, spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
                match key {
                    $($key => <$spec>::check(spec, path, rules),)+
                    _ => {}
                }
            }
        }
    };
}

actions! {
    "bmcAccount" => BmcAccount(BmcAccountSpec),
    "cloudInit" => CloudInit(CloudInitSpec),
    "efiBoot" => EfiBoot(EfiBootSpec),
    "exec" => Exec(ExecSpec),
    "growRoot" => GrowRoot(GrowRootSpec),
    "healthTest" => HealthTest(HealthTestSpec),
    "hold" => Hold(HoldSpec),
    "http" => Http(HttpSpec),
    "identity" => Identity(SystemIdentitySpec),
    "ignition" => Ignition(IgnitionSpec),
    "installBootloader" => InstallBootloader(InstallBootloaderSpec),
    "kexec" => Kexec(KexecSpec),
    "powerOff" => PowerOff(PowerOffSpec),
    "reboot" => Reboot(RebootSpec),
    "runContainer" => RunContainer(RunContainerSpec),
    "secureBoot" => SecureBoot(SecureBootSpec),
    "storage" => Storage(StorageSpec),
    "unpack" => Unpack(UnpackSpec),
    "wait" => Wait(WaitSpec),
    "wipe" => Wipe(WipeSpec),
    "writeFile" => WriteFile(WriteFileSpec),
    "writeImage" => WriteImage(WriteImageSpec),
}

impl ActionSpec {
    /// Whether it puts a system on a disk, as far as can be known from it: the last action of a list that does is meant where an
    /// action names no disk.
    pub fn writes_system(&self) -> bool {
        match self {
            Self::WriteImage(_) => true,
            Self::Storage(spec) => spec.mounts_root(),
            _ => false,
        }
    }
    /// Whether it leaves its disks empty.
    pub const fn empties_disk(&self) -> bool {
        match self {
            Self::Wipe(_) => true,
            Self::HealthTest(spec) => spec.disk_write.is_some(),
            _ => false,
        }
    }
    /// Whether it can change what is on a disk.
    pub const fn changes_disk(&self) -> bool {
        match self {
            Self::BmcAccount(_)
            | Self::EfiBoot(_)
            | Self::Hold(_)
            | Self::Http(_)
            | Self::Kexec(_)
            | Self::PowerOff(_)
            | Self::Reboot(_)
            | Self::SecureBoot(_)
            | Self::Wait(_) => false,
            Self::HealthTest(spec) => spec.disk_write.is_some(),
            _ => true,
        }
    }
    /// The keys of the actions of which `wanted` holds, in the list's order.
    pub fn keys_where(wanted: impl Fn(&ActionInfo) -> bool) -> Vec<&'static str> {
        Self::ALL.iter().filter(|(_, info)| wanted(info)).map(|(key, _)| *key).collect()
    }
    /// Every place of an action in which a secret may stand, such as `cloudInit.users`.
    pub fn secret_places() -> impl Iterator<Item = String> {
        Self::ALL.iter().flat_map(|(key, info)| info.secrets.iter().map(move |field| format!("{key}.{field}")))
    }
    /// Whether a secret may stand at this path of an action, such as `cloudInit.users[0].name`. A place says nothing of indexes:
    /// `identity.users.passwordHash` is that of every account.
    pub fn may_hold_secret(path: &str) -> bool {
        let parts = path.split('[').map(|part| match part.split_once(']') {
            Some((index, rest)) if index.bytes().all(|b| b.is_ascii_digit()) => rest.to_owned(),
            Some(_) => format!("[{part}"),
            None => part.to_owned(),
        });
        let path: String = parts.collect();
        let inside = |place: String| {
            path.strip_prefix(&place).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        Self::secret_places().any(inside)
    }
}

/// One step: a name, a timeout, a retry policy, and what it does.
///
/// Written flat: the key of [`ActionSpec`] stands beside `name`. Reading is by hand (see `read.rs`), because
/// `#[serde(flatten)]` can neither refuse unknown fields nor say where in them a fault is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Unique within its list; a DNS label.
    pub name: String,
    /// How long one attempt may take. Default: [`ActionInfo::timeout`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationSpec>,
    /// Retry policy. Default: [`ActionInfo::attempts`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// Consecutive actions that name a branch form one stage: its branches run at once, the actions of one branch in
    /// order, and the next stage begins when all have ended. A DNS label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// What is left of its condition: over results of actions before it. It is done only if it holds when its turn comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What it does.
    #[serde(flatten)]
    pub spec: ActionSpec,
}

impl Action {
    /// The first protocol revision whose agents decide conditions over results.
    pub const WHEN_PROTOCOL: u32 = 8;

    /// The first protocol revision whose agents can do it as it is written.
    pub fn protocol(&self) -> u32 {
        self.spec.protocol().max(if self.when.is_some() { Self::WHEN_PROTOCOL } else { 0 })
    }
}

/// How often an action is tried.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetrySpec {
    /// 1 to 100; 1 means no retry.
    pub max_attempts: u32,
    /// Wait before the second attempt; doubles each time. Default: 2s.
    pub initial_backoff: Option<DurationSpec>,
    /// The longest wait between attempts. Default: 1m.
    pub max_backoff: Option<DurationSpec>,
    /// How often the machine may restart unexpectedly while the action is under way before the workflow fails, 0 to 100.
    /// Such restarts use up no attempt. Default: 5; 0 for a `runContainer` with `devices`.
    pub max_restarts: Option<u32>,
}
