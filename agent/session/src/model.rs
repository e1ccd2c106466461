//! The messages between agent and coordinator, as the agent's code sees them: parsed, bounded, with real types.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use landfall_api::{Digest, DiskId, DiskReceipt, DiskSelector, MacAddr, Problem};
use uuid::Uuid;

use crate::{LeaseWatch, Pin};

/// What firmware and hardware say about who this machine is. The reader leaves placeholders out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// SMBIOS system UUID, in the byte order the firmware's setup pages show.
    pub smbios_uuid: Option<Uuid>,
    /// SMBIOS system serial number; empty if it is a placeholder.
    pub serial: String,
    /// Permanent addresses of every port.
    pub macs: Vec<MacAddr>,
}

/// What an agent proves at enrolment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The one-time token from the kernel command line.
    BootToken(Secret),
    /// A person compares this key fingerprint on the console with the one the coordinator shows.
    Approval {
        /// [`crate::AgentKey::fingerprint`].
        fingerprint: String,
    },
}

/// A text that must not reach a log: its `Debug` says only that it is there.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` out of logs.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(empty)" } else { "(secret)" })
    }
}

/// One attempt at one action of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionRef {
    /// The run.
    pub workflow_uid: Uuid,
    /// Index in the run's action list, from 0.
    pub action_index: u32,
    /// The attempt, from 1.
    pub attempt: u32,
}

impl fmt::Display for ActionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.workflow_uid, self.action_index, self.attempt)
    }
}

/// A workflow assigned to this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The session's epoch of the assignment.
    pub epoch: u64,
    /// The run.
    pub workflow_uid: Uuid,
    /// The run's name, for people and receipts.
    pub workflow_name: String,
    /// The machine it is for.
    pub machine_uid: Uuid,
    /// The machine document's generation when the run was rendered.
    pub generation: u64,
    /// How long the agent may act, from the arrival, without hearing from the coordinator. Never zero. The library has
    /// already taken it into the [`LeaseWatch`].
    pub lease: Duration,
    /// Every action of the run; never empty.
    pub actions: Vec<Action>,
    /// Actions before this index have already succeeded. May equal the length: nothing is left to do.
    pub start_index: u32,
    /// The attempt number to use for the action at `start_index`; from 1.
    pub start_attempt: u32,
    /// Every action to start at once, one a branch, that at `start_index` first; empty if nothing is left to do. A branch
    /// of the same stage that has none has ended.
    pub starts: Vec<Start>,
    /// Workflows that this one continues: disks that carry their receipts were written for this one.
    pub earlier_runs: Vec<Uuid>,
    /// Every receipt the coordinator believes is on this machine: the compare of compare-and-swap.
    pub expected_receipts: Vec<DiskReceipt>,
    /// A person requested this workflow by name, so a disk that is not blank may be written.
    pub person_authorised: bool,
    /// A person used `--force`: any receipt on the disk is accepted.
    pub force: bool,
}

/// Where a branch of a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Index of the action.
    pub index: u32,
    /// Its attempt, from 1.
    pub attempt: u32,
}

/// Requests of persons for a running workflow. Only the newest counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Control {
    /// Begin no other action or attempt.
    pub paused: bool,
    /// Indices of `hold` actions from which a person resumed the workflow.
    pub released: Vec<u32>,
}

/// One action of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Unique within its list.
    pub name: String,
    /// How long one attempt may take. Never zero.
    pub timeout: Duration,
    /// How often it is tried.
    pub retry: Retry,
    /// Consecutive actions that name a branch form one stage: its branches run at once, the actions of one in order.
    pub branch: Option<String>,
    /// What it does.
    pub kind: ActionKind,
}

/// How often an action is tried, and how long to wait in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// At least 1; 1 means no retry.
    pub max_attempts: u32,
    /// Wait before the second attempt; doubles each time.
    pub initial_backoff: Duration,
    /// The longest wait between two attempts.
    pub max_backoff: Duration,
}

/// What an action does.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionKind {
    /// Writes a disk image.
    WriteImage(WriteImage),
    /// Puts a NoCloud seed on the installed disk.
    CloudInit(CloudInit),
    /// Waits until a person resumes the workflow.
    Hold {
        /// What the person must do or decide.
        message: String,
    },
    /// Restarts into the installed system.
    Reboot,
    /// Turns the machine off.
    PowerOff,
    /// Clears disks.
    ClearDisks(ClearDisks),
    /// Starts the installed system's own kernel, past the firmware.
    Kexec(Kexec),
}

/// Which system is started, and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kexec {
    /// The kernel's whole command line; absent: what the installed system's boot loader would give.
    pub cmdline: Option<String>,
    /// The disk; absent: the one this run wrote.
    pub disk: Option<DiskSelector>,
}

/// What proves an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageProof {
    /// The stored bytes have this digest.
    Stored(Digest),
    /// What they decode to has this digest.
    Raw(Digest),
    /// A file of checksums lists it.
    Sums {
        /// Where the file is.
        url: String,
        /// What proves the file itself.
        signature: Option<ImageSignature>,
    },
    /// A signature of the stored bytes.
    Signed(ImageSignature),
    /// An index with the digest of every chunk.
    Index {
        /// Where the index is.
        url: String,
        /// Digest of the index's own bytes.
        digest: Digest,
    },
    /// Every URL is an OCI reference by digest.
    Pinned,
    /// The template waives a proof explicitly.
    Waived,
}

/// A detached signature and who must have made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSignature {
    /// Where the signature is.
    pub url: String,
    /// The public key, as its maker publishes it.
    pub key: String,
}

/// How to connect to an image's servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageAccess {
    /// Authorities to trust besides the public ones, PEM.
    pub ca_certificates: Vec<String>,
    /// `http://host:port` of a proxy.
    pub proxy: Option<String>,
    /// Credentials; `None`: no credentials.
    pub authorization: Option<ImageAuthorization>,
}

/// Credentials for an image's servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageAuthorization {
    /// RFC 7617.
    Basic {
        /// The user's name.
        username: String,
        /// The password.
        password: Secret,
    },
    /// RFC 6750.
    Bearer(
        /// The token.
        Secret,
    ),
}

/// Writes a disk image to exactly one disk.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteImage {
    /// Which disk. Every expression is text, whatever it was in the template.
    pub disk: DiskSelector,
    /// Where the image is, in the order to try; never empty.
    pub urls: Vec<String>,
    /// What proves it.
    pub proof: ImageProof,
    /// A format's name; absent: by content.
    pub format: Option<String>,
    /// How to connect to its servers.
    pub access: ImageAccess,
    /// Labels of partitions that stay.
    pub keep: Vec<String>,
    /// Read everything back before the disk becomes bootable.
    pub read_back: bool,
}

/// Clears boot sectors, tables, signatures and, last of all, receipts.
#[derive(Debug, Clone, PartialEq)]
pub struct ClearDisks {
    /// Exactly one disk must match each; empty: every disk that carries a receipt of this machine.
    pub disks: Vec<DiskSelector>,
}

/// A NoCloud seed for the installed disk.
#[derive(Debug, Clone, PartialEq)]
pub struct CloudInit {
    /// The whole file; may hold secrets.
    pub user_data: Secret,
    /// The whole file.
    pub meta_data: String,
    /// The whole file; empty: none.
    pub network_config: String,
    /// Absent: no phone-home unit is installed.
    pub phone_home: Option<PhoneHome>,
    /// Which disk; absent: the disk that this run wrote.
    pub disk: Option<DiskSelector>,
}

/// What the installed system needs to phone home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhoneHome {
    /// `https://…/phone-home`.
    pub url: String,
    /// Good for one machine and one run.
    pub bearer_token: Secret,
    /// The server's certificate must be signed by one of them; never empty.
    pub ca_pins: Vec<Pin>,
}

/// Instructions of the coordinator.
#[derive(Debug, Clone)]
pub enum Instruction {
    /// Work. After a reconnect the coordinator may repeat the assignment the agent is already working on (same
    /// `workflow_uid`): the library has taken its lease, and the agent ignores the repeat.
    Assign {
        /// What to do.
        assignment: Box<Assignment>,
        /// Whether it may still be done; see [`LeaseWatch`].
        lease: LeaseWatch,
    },
    /// A person stopped the run. Stop, and report the running action as failed with code `Cancelled`.
    Cancel {
        /// Which run.
        workflow_uid: Uuid,
        /// Why, for people.
        reason: String,
    },
    /// Requests of persons for a running workflow.
    Control {
        /// Which run.
        workflow_uid: Uuid,
        /// All of it; it replaces earlier requests.
        control: Control,
    },
    /// A newer session of this machine exists. The lease is already revoked; stop and report the running action as
    /// failed with code `Fenced`: the library acknowledges the fence once nothing runs any more. The session has ended.
    Fenced {
        /// Why, for people.
        reason: String,
    },
    /// Nothing to do.
    Idle {
        /// Boot the own disk now; else stay and wait.
        boot_disk: bool,
    },
    /// The coordinator does not accept this session.
    Refused {
        /// Why.
        problem: Problem,
        /// The library asks again after this. Absent: it does not, and the session has ended.
        retry_after: Option<Duration>,
    },
}

/// One numbered fact about an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What it is about.
    pub action: ActionRef,
    /// From 1, without gaps within an attempt.
    pub seq: u64,
    /// By the agent's clock.
    pub time: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// What happened. All of these change state, so none is ever dropped.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// The attempt began.
    Started,
    /// It succeeded.
    Finished(ActionResult),
    /// It failed, and everything it did has stopped.
    Failed {
        /// Why.
        problem: Problem,
        /// False: a retry cannot help, or could destroy something.
        retryable: bool,
    },
    /// The receipt on a disk changed: intent written, or commit made.
    ReceiptWritten(DiskReceipt),
}

impl EventKind {
    /// Whether the attempt is over with it.
    pub const fn ends_attempt(&self) -> bool {
        matches!(self, Self::Finished(_) | Self::Failed { .. })
    }
}

/// What a finished action yields.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "only a few exist at a time; a box would only complicate construction")]
pub enum ActionResult {
    /// Of `writeImage`.
    WriteImage(WriteImageResult),
    /// Of `cloudInit`.
    CloudInit {
        /// The device the seed went to.
        root_device: String,
    },
    /// Of `hold`.
    Hold,
    /// Of `reboot`; reported, and flushed for a bounded time, before the machine goes down.
    Reboot,
    /// Of `powerOff`; as `Reboot`.
    PowerOff,
    /// Of `clearDisks`.
    ClearDisks {
        /// Disks that now carry nothing, whether it was cleared just now or before.
        disks: Vec<DiskId>,
    },
    /// Of `kexec`; as `Reboot`.
    Kexec(Loaded),
}

/// A kernel that is loaded and waits for the jump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The installed root file system's device.
    pub root_device: String,
    /// Its path inside the installed system, links resolved.
    pub kernel: String,
    /// Likewise.
    pub initramfs: String,
    /// What it starts with, without what may be a secret.
    pub cmdline: String,
}

/// How a write ended. Counters are bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteImageResult {
    /// The receipt left on the disk; absent if the image's table has no room.
    pub receipt: Option<DiskReceipt>,
    /// False: the receipt already said `done` for this action.
    pub written: bool,
    /// Stored bytes taken in.
    pub stored_bytes: u64,
    /// Decoded bytes.
    pub raw_bytes: u64,
    /// Bytes really written to the device.
    pub written_bytes: u64,
    /// From the first request to the commit.
    pub elapsed: Duration,
}

/// How serious a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is wrong but goes on.
    Warn,
    /// What a person wants to follow.
    Info,
    /// Details.
    Debug,
}

impl LogLevel {
    /// As it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// What a heartbeat carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Since boot.
    pub uptime: Duration,
    /// VmHWM of the agent, bytes.
    pub peak_rss_bytes: u64,
}
