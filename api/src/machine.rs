//! Machine: one physical or virtual computer.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

use crate::{
    Authority, BmcSpec, BmcStatus, BootWay, Condition, DiskId, DiskReceipt, DurationSpec, EnrolmentStatus, FactChange,
    HealthReport, MacAddr, MachineFacts, NetworkInterface, Object, PoolClaim, PowerSpec, ProofKind, Shared, WipeReport,
};

/// A machine document.
pub type Machine = Object<MachineSpec, MachineStatus>;

/// Who the machine is.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineSpec {
    /// How it is recognised. Default, of a machine whose `bmc` has Redfish: by the ports that its BMC lists.
    #[serde(default, skip_serializing_if = "IdentitySpec::is_empty")]
    pub identity: IdentitySpec,
    /// What it must prove to get a certificate. Default `bootToken`.
    #[serde(default, skip_serializing_if = "ProofKind::is_default")]
    pub proof: ProofKind,
    /// Whether Landfall installs it or only watches it. Default: `managed`.
    #[serde(default, skip_serializing_if = "Management::is_managed")]
    pub management: Management,
    /// A person works on it: no install starts, and it boots its own disk. A running install continues. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maintenance: bool,
    /// What the agent sets up on this machine where DHCP on every port is not enough: fixed addresses, VLANs, bonds. A `cloudInit`
    /// action without a network gives the installed system the same, and then no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<NetworkInterface>,
    /// Addresses that the coordinator's DHCP server (`dhcp.mode = "full"`) gives to ports of this machine and to no other host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Reservation>,
    /// Its BMC, through which the coordinator switches it on and has it netboot.
    pub bmc: Option<BmcSpec>,
    /// How a machine without a BMC is switched on. Without either a person does it.
    pub power: Option<PowerSpec>,
}

impl MachineSpec {
    /// More ports than any machine netboots from.
    pub const MAX_MACS: usize = 64;

    /// Whether the coordinator can read the machine's power.
    pub const fn reads_power(&self) -> bool {
        self.bmc.is_some()
    }

    /// Whether the ways are those of the machine's own list.
    pub fn states_ways(&self) -> bool {
        self.bmc.as_ref().is_some_and(|bmc: &BmcSpec| !bmc.ways.is_empty())
    }
}

/// An address for a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reservation {
    /// The port. The machine need not netboot from it: its BMC's may stand here.
    pub mac: MacAddr,
    /// The address, in the range of its subnet or outside.
    pub address: Ipv4Addr,
}

/// Whether Landfall manages the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Management {
    /// Landfall installs it on request of a person or a rule.
    #[default]
    Managed,
    /// Only watched: no workflow runs on it, and it always boots its own disk.
    External,
}

impl Management {
    const fn is_managed(&self) -> bool {
        matches!(self, Self::Managed)
    }
}

/// How a machine is recognised. Every stated field must match what the machine reports.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdentitySpec {
    /// The ports it may netboot from; at least one. Two machines cannot share one.
    pub macs: Vec<MacAddr>,
    /// SMBIOS system UUID, in the byte order the firmware's setup pages show.
    pub smbios_uuid: Option<Uuid>,
    /// SMBIOS system serial number.
    pub serial: Option<String>,
}

impl IdentitySpec {
    /// Whether nothing is stated.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Machine {
    /// The ports that it is recognised by: those of its document, else those that the BMC of its document lists.
    pub fn macs(&self) -> &[MacAddr] {
        if !self.spec.identity.is_empty() {
            return &self.spec.identity.macs;
        }
        let read = self.status.as_ref().and_then(|status| status.bmc.as_ref());
        let read = read.filter(|read| read.address.as_ref() == self.spec.bmc.as_ref().map(|bmc| &bmc.address));
        read.map(|read| read.recognised_by.as_slice()).unwrap_or_default()
    }

    /// The ways to have the machine start its agent that the coordinator may try, in their order. None where a person starts it, or
    /// where it would not be recognised.
    pub fn ways(&self) -> Vec<BootWay> {
        match (&self.spec.bmc, &self.spec.power) {
            _ if self.macs().is_empty() => Vec::new(),
            (Some(bmc), _) => bmc.ways(),
            (None, Some(PowerSpec::WakeOnLan(_))) => vec![BootWay::OwnOrder],
            (None, Some(PowerSpec::Manual(_)) | None) => Vec::new(),
        }
    }

    /// What a person is to do so that it netboots; absent: the coordinator does it.
    pub fn prompt(&self) -> Option<String> {
        let by_hand = "switch it on, or restart it if it is on";
        match (&self.spec.bmc, &self.spec.power) {
            (None, None) => Some(by_hand.to_owned()),
            (None, Some(PowerSpec::Manual(manual))) => {
                let place = manual.message.as_ref().map(|message| format!(" ({message})")).unwrap_or_default();
                Some(by_hand.to_owned() + &place)
            }
            (Some(_), _) | (None, Some(PowerSpec::WakeOnLan(_))) => None,
        }
    }
}

/// One word for people, derived from the conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum MachinePhase {
    /// Seen on the network, without a person's document.
    Discovered,
    /// Described, not installed by Landfall.
    #[default]
    Available,
    /// An install is requested or running.
    Provisioning,
    /// Installed, or adopted as it was.
    Provisioned,
    /// The disks are being cleared.
    Deprovisioning,
    /// A part of it failed its last health test.
    Unhealthy,
    /// The last workflow failed or was cancelled; the reason is in the conditions.
    Failed,
    /// Held until a person decides, such as on a receipt the store does not know.
    Held,
    /// Its document is removed as soon as no agent of it can still act.
    Deleting,
}

/// What the coordinator has seen of a machine.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Derived from the conditions, for people.
    pub phase: MachinePhase,
    /// `Managed`, `Maintenance`, `Connected`, `Progressing`, `Provisioned`, `NoReceipt`, `ReceiptConflict`, `StoreBehind`,
    /// `IdentityAmbiguous`, `BMCReachable` and the like.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The last facts the agent reported.
    pub facts: Option<Shared<MachineFacts>>,
    /// What changed of its hardware from one session to the next, the newest last; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fact_changes: Vec<FactChange>,
    /// Every receipt last known to be on this machine's disks.
    #[serde(default)]
    pub receipts: Vec<DiskReceipt>,
    /// How its disks were wiped, the newest last; at most 128.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wiped: Vec<WipeReport>,
    /// How its parts did in health tests, the newest last; at most 128.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tested: Vec<HealthReport>,
    /// The pool that has it.
    pub pool: Option<PoolClaim>,
    /// What was read of its BMC, and done there.
    pub bmc: Option<BmcStatus>,
    /// How it was admitted, and its certificates.
    #[serde(default, skip_serializing_if = "EnrolmentStatus::is_empty")]
    pub enrolment: EnrolmentStatus,
    /// Who adopted the machine, and when. Removed by the next install or deprovisioning.
    pub adopted: Option<Authority>,
    /// The workflow that is not terminal, or the last one.
    pub workflow: Option<String>,
    /// The newest session's epoch; 0 if none yet.
    #[serde(default)]
    pub epoch: u64,
    /// The computer that holds the newest session; kept so that a restarted coordinator knows which computer may still
    /// be at work.
    pub session: Option<SessionHolder>,
    /// When the agent was last heard.
    pub last_heard: Option<Timestamp>,
    /// The agent's peak resident memory (VmHWM) in its last session, bytes.
    pub agent_peak_rss_bytes: Option<u64>,
    /// CLOCK_BOOTTIME at the Enroll answer of the last session, milliseconds.
    pub enrolled_boottime_ms: Option<u64>,
    /// The agent's address and version in its last session.
    pub agent: Option<String>,
}

/// The computer that holds a machine's session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionHolder {
    /// Its boot id.
    pub boot_id: String,
    /// Its disks.
    #[serde(default)]
    pub disks: Vec<DiskId>,
    /// Its address.
    #[serde(default)]
    pub address: String,
    /// It may still act on a lease.
    #[serde(default)]
    pub leased: bool,
    /// How long the lease was promised to last; a coordinator with another configuration must not end it sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<DurationSpec>,
    /// Its agent still scanned its buses when the session began: what its disks carry was not reported yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scanning: bool,
    /// The URL of the coordinator that has the session, where several have one database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<String>,
}
