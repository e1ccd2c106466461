//! Machine: one physical or virtual computer.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Authority, Condition, Digest, EnrolmentStatus, MacAddr, MachineFacts, Object, ProofKind};

/// A machine document.
pub type Machine = Object<MachineSpec, MachineStatus>;

/// Who the machine is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineSpec {
    /// How it is recognised.
    pub identity: IdentitySpec,
    /// What it must show before it is given a certificate. Default `bootToken`.
    #[serde(default, skip_serializing_if = "ProofKind::is_default")]
    pub proof: ProofKind,
    /// Whether Landfall installs it, or only watches it. Default: `managed`.
    #[serde(default, skip_serializing_if = "Management::is_managed")]
    pub management: Management,
    /// Somebody works on it: no install starts and it boots its own disk. An install under way goes on. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maintenance: bool,
}

/// Whose machine it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Management {
    /// Landfall installs it when a person asks, or a rule does.
    #[default]
    Managed,
    /// Watched and never touched: nothing is ever run on it, and it always boots its own disk.
    External,
}

impl Management {
    const fn is_managed(&self) -> bool {
        matches!(self, Self::Managed)
    }
}

/// How a machine is recognised. Every field that is given must agree with what the machine says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdentitySpec {
    /// The ports it may netboot from; at least one. No two machines share one.
    pub macs: Vec<MacAddr>,
    /// SMBIOS system UUID, in the byte order the firmware's setup pages show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<Uuid>,
    /// SMBIOS system serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// One word for people; nothing decides by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MachinePhase {
    /// Seen on the network, not described by anybody.
    Discovered,
    /// Described, nothing installed by us.
    Available,
    /// An install is asked for or under way.
    Provisioning,
    /// Installed, or adopted as it was.
    Provisioned,
    /// What installs left is being cleared.
    Deprovisioning,
    /// The last workflow failed or was cancelled; the reason is in the conditions.
    Failed,
    /// Held until a person decides, such as on a receipt the store does not know.
    Held,
    /// Its document goes as soon as nothing of it can still be acting.
    Deleting,
}

/// What the coordinator has seen of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Derived from the conditions, for people.
    pub phase: MachinePhase,
    /// `Managed`, `Maintenance`, `Connected`, `Progressing`, `Provisioned`, `NoReceipt`, `ReceiptConflict`, `StoreBehind`,
    /// `IdentityAmbiguous` and the like.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The last facts the agent reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<MachineFacts>>,
    /// Every receipt last known to be on this machine's disks.
    #[serde(default)]
    pub receipts: Vec<DiskReceipt>,
    /// How it came to be let in, and what it was given.
    #[serde(default, skip_serializing_if = "EnrolmentStatus::is_empty")]
    pub enrolment: EnrolmentStatus,
    /// Who took the machine over as it was, and when. Ends with the next install or deprovisioning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Authority>,
    /// The workflow that is not terminal, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The newest session's epoch; 0 if none yet.
    #[serde(default)]
    pub epoch: u64,
    /// The computer that holds the newest session; kept so that a restarted coordinator still knows whom it may be
    /// working for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionHolder>,
    /// When the agent was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard: Option<Timestamp>,
    /// The agent's peak resident memory (VmHWM) in its last session, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_peak_rss_bytes: Option<u64>,
    /// CLOCK_BOOTTIME at the Enroll answer of the last session, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled_boottime_ms: Option<u64>,
    /// The agent's address and version in its last session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// It may be acting on a lease.
    #[serde(default)]
    pub leased: bool,
}

/// A disk, by facts that do not move.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskId {
    /// World-wide name; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn: String,
    /// Serial number; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// Path on the bus, such as `pci-0000:00:04.0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The kernel's name at the time; for people, never compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Model; for people, never compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Capacity, bytes.
    pub size_bytes: u64,
}

impl DiskId {
    /// Whether both name the same disk: by wwn if either has one, else by serial if either has one, else by path; and
    /// the capacity agrees.
    pub fn same_disk(&self, other: &Self) -> bool {
        let by = |a: &str, b: &str| (!a.is_empty() || !b.is_empty()).then(|| a == b);
        self.size_bytes == other.size_bytes
            && by(&self.wwn, &other.wwn)
                .or_else(|| by(&self.serial, &other.serial))
                .or_else(|| by(&self.path, &other.path))
                .unwrap_or(false)
    }
}

/// How far an install got, as its mark on the disk says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReceiptState {
    /// It had begun; the disk is not bootable.
    Intent,
    /// It was committed: the disk holds the verified image.
    Done,
}

/// The mark an install leaves on the machine's own disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The machine it was written for.
    pub machine_uid: Uuid,
    /// The run that wrote it.
    pub workflow_uid: Uuid,
    /// The run's name, for people.
    pub workflow_name: String,
    /// The machine document's generation when the workflow was rendered.
    pub generation: u64,
    /// Index of the action in the run's list.
    pub action_index: u32,
    /// Digest of the image as stated in the template; absent where it was waived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<Digest>,
    /// How far it got.
    pub state: ReceiptState,
    /// By the agent's clock.
    pub written_at: Timestamp,
}

/// A receipt and the disk it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskReceipt {
    /// The disk.
    pub disk: DiskId,
    /// The mark on it.
    pub receipt: Receipt,
}
