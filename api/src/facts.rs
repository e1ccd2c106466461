//! Facts: what the agent saw.

mod change;
mod disk;
mod hardware;
mod neighbour;
pub(crate) mod schema;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::change::{FactChange, FactDifference, Inspection, MAX_FACT_CHANGES, keep_changes};
pub use self::disk::{DiskContents, DiskFacts, DiskHealth, MAX_PARTITIONS, MAX_VOLUMES, PartitionFacts, VolumeFacts};
pub use self::hardware::{
    BmcFacts, DeviceFacts, MAX_DEVICES, MAX_MODULES, MemoryFacts, MemoryModule, MemoryNode, TpmFacts, WatchdogFacts,
};
pub use self::neighbour::Neighbour;
use crate::MacAddr;

/// Everything the agent saw of its machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineFacts {
    /// The identity that the firmware states.
    pub smbios: SmbiosFacts,
    /// Processors.
    pub cpu: CpuFacts,
    /// Usable memory, bytes.
    pub memory_bytes: u64,
    /// What that memory is made of.
    #[serde(default, skip_serializing_if = "MemoryFacts::is_empty")]
    pub memory: MemoryFacts,
    /// Whole disks, in the kernel's order.
    pub disks: Vec<DiskFacts>,
    /// Ports with a link layer.
    pub nics: Vec<NicFacts>,
    /// What is plugged into PCI and USB and is of use: no bridges, no parts of the chipset, no hubs; 256 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceFacts>,
    /// How many devices there are beyond these.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_devices: u32,
    /// How it was started.
    pub firmware: FirmwareFacts,
    /// The TPM, if the kernel has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<TpmFacts>,
    /// The management controller, if the machine has one and a driver for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcFacts>,
    /// The hardware watchdog, if the kernel drives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<WatchdogFacts>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// From SMBIOS; placeholder values are left empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SmbiosFacts {
    /// System UUID, lower-case, in the byte order the firmware's setup pages show.
    pub uuid: String,
    /// System serial number.
    pub serial: String,
    /// System manufacturer.
    pub manufacturer: String,
    /// Product name.
    pub product: String,
}

/// Processors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuFacts {
    /// Model name.
    pub model: String,
    /// Logical processors online: hardware threads.
    pub logical: u32,
    /// `x86_64` or `aarch64`.
    pub architecture: String,
    /// Sockets with a processor; 0 if the kernel does not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sockets: u32,
    /// Cores of all sockets; 0 if the kernel does not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cores: u32,
    /// What the first processor can do, in the kernel's words (`avx2`, `vmx`), sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

/// One network port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicFacts {
    /// The kernel's name.
    pub name: String,
    /// Permanent address.
    pub mac: MacAddr,
    /// Driver; empty if unknown.
    #[serde(default)]
    pub driver: String,
    /// Version of its firmware, in its driver's words; empty if the driver states none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub firmware: String,
    /// Mbit/s, absent without carrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u32>,
    /// Whether a link was seen.
    pub carrier: bool,
    /// Where its device is: `0000:3b:00.0` on PCI, `1-4.2:1.0` on USB; empty for a virtual port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// What was last heard from the other end of its cable (LLDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<Neighbour>,
}

/// How the kernel was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FirmwareMode {
    /// Legacy BIOS.
    #[default]
    Bios,
    /// UEFI.
    Uefi,
}

/// Firmware.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareFacts {
    /// BIOS or UEFI.
    pub mode: FirmwareMode,
    /// Vendor and version as SMBIOS has them.
    #[serde(default)]
    pub version: String,
    /// UEFI Secure Boot, absent on BIOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
    /// Whether the firmware has no platform key and takes keys of Secure Boot (Setup Mode); absent on BIOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_mode: Option<bool>,
}
