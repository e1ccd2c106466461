//! What a machine is made of beside disks and ports: memory, devices, TPM, BMC, watchdog.

use std::net::{Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Digest, MacAddr};

/// Devices that facts name; the others are counted. A large server has a hundred.
pub const MAX_DEVICES: usize = 256;
/// Modules of memory that facts name: SMBIOS describes one for each slot, and a large server has 96.
pub const MAX_MODULES: usize = 256;
/// Memory, by node and by module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryFacts {
    /// NUMA nodes; a machine without NUMA has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<MemoryNode>,
    /// Modules (DIMMs) as SMBIOS describes them; empty slots are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<MemoryModule>,
}

impl MemoryFacts {
    pub(super) const fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.modules.is_empty()
    }
}

/// One NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryNode {
    /// The kernel's number of it, from 0.
    pub number: u32,
    /// Its memory, bytes; 0 for a node that has processors alone.
    pub size_bytes: u64,
    /// Its processors, as the kernel writes a list: `0-15,32-47`.
    #[serde(default)]
    pub cpus: String,
}

/// One module of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryModule {
    /// The name printed at its slot, such as `DIMM_A1`; behind that of its bank where several slots have one name.
    pub slot: String,
    /// Bytes.
    pub size_bytes: u64,
    /// `DDR4`, `DDR5` and the like; empty if unknown.
    #[serde(default)]
    pub kind: String,
    /// Configured speed, megatransfers a second; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mts: Option<u32>,
    /// Manufacturer.
    #[serde(default)]
    pub manufacturer: String,
    /// Serial number.
    #[serde(default)]
    pub serial: String,
    /// Part number.
    #[serde(default)]
    pub part: String,
}

/// One device on PCI or USB.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceFacts {
    /// `pci` or `usb`.
    pub bus: String,
    /// Where it is: `0000:3b:00.0` on PCI, `1-4.2` on USB.
    pub address: String,
    /// What it is for: `storage`, `network`, `display` (a GPU), `accelerator`, `serial bus`, `input` and the like; `other`.
    pub class: String,
    /// Vendor's number, four hexadecimal digits.
    pub vendor: String,
    /// Device's number, four hexadecimal digits.
    pub device: String,
    /// Subsystem's vendor and device on PCI, `15d9:0968`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subsystem: String,
    /// What it calls itself; PCI devices do not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The driver that it has; empty without one.
    #[serde(default)]
    pub driver: String,
    /// The kernel modules that are its driver and the driver of a virtio device behind it; without most that the kernel has built in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Of a device without a driver, what the kernel looks for one by (its modalias); or that of the virtio device behind it, if that has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub modalias: String,
    /// Why it has no driver: no module of the boot image fits, the kernel refuses the one that does or its command line blocks it, the
    /// module is still being loaded or crashed, or it is loaded and does not drive the device. Empty where a driver of the kernel's own
    /// drives it, and where the agent loads none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// Modules that fit it too, that the kernel of the boot image has in profile `server`, and that the image was packed without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_modules: Vec<String>,
}

/// A trusted platform module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TpmFacts {
    /// Major version of its specification, 1 or 2.
    pub version: u32,
    /// What it calls itself; empty where the kernel does not tell.
    #[serde(default)]
    pub description: String,
    /// SHA-256 of its endorsement key (RSA 2048, the public part as a SubjectPublicKeyInfo in DER): the same for the life of the TPM, and
    /// of no other. Absent before version 2, and where the TPM gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endorsement_key: Option<Digest>,
}

/// A management controller (BMC), as it answers the machine's own system by IPMI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcFacts {
    /// IPv4 address of its port; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// IPv6 address of its port, other than the link-local one; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_v6: Option<Ipv6Addr>,
    /// Where the IPv4 address is from: `static`, `dhcp`, `bios` or `other`; empty if the BMC does not tell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address_source: String,
    /// MAC address of its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// VLAN that its port is tagged for, 1 to 4094; absent without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Version of its firmware, `2.10`.
    #[serde(default)]
    pub firmware: String,
    /// Its manufacturer's number at IANA (private enterprise number), such as 674 for Dell.
    #[serde(default)]
    pub manufacturer: u32,
    /// The manufacturer's number of the product.
    #[serde(default)]
    pub product: u16,
}

/// A hardware watchdog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchdogFacts {
    /// What it calls itself.
    pub identity: String,
    /// Seconds until it restarts the machine, once it runs.
    #[serde(default)]
    pub timeout_seconds: u32,
}
