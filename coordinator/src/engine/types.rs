//! What goes into and comes out of the engine.

use std::{net::IpAddr, time::Duration};

use jiff::Timestamp;
pub use landfall_api::ApplyOutcome;
pub use landfall_api::message::{Hello, Identity, RunningAction};
use landfall_api::{Action, DiskReceipt, MachineFacts};
pub use landfall_machine::Refusal;
use landfall_machine::run::Start;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::tls::MachineCert;

/// What a netbooting machine boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootDecision {
    /// No document describes it.
    Unknown,
    /// It has nothing to do: boot the own disk.
    BootDisk {
        /// Its name.
        machine: String,
    },
    /// It has a run waiting: start the agent.
    RunAgent {
        /// Its name.
        machine: String,
        /// A one-time boot token for the kernel's command line.
        token: String,
    },
    /// Somebody has to let it in: start the agent, without a token.
    Approve {
        /// Its name, where it has one yet.
        machine: Option<String>,
    },
}

/// How an agent proves that it may have a machine's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The one-time token of its boot script.
    BootToken(String),
    /// A person is to approve the key; its fingerprint as the agent shows it.
    Approval(String),
    /// The certificate that the connection showed.
    Renewal,
}

/// An agent that asks for a certificate.
#[derive(Debug, Clone)]
pub struct EnrollRequest {
    /// Who it says it is.
    pub identity: Identity,
    /// Its boot id.
    pub boot_id: String,
    /// PKCS#10.
    pub csr_der: Vec<u8>,
    /// Its proof.
    pub proof: Proof,
    /// What it saw of itself, where it said.
    pub facts: Option<Box<MachineFacts>>,
    /// Where it asks from; `None` where that is not known.
    pub address: Option<IpAddr>,
    /// The machine's certificate that the connection showed.
    pub shown: Option<MachineCert>,
}

/// The answer to one that asks for a certificate.
#[derive(Debug, Clone)]
pub enum Enrolment {
    /// Here it is.
    Granted(Enrolled),
    /// Somebody has to let it in first.
    Waiting {
        /// What is waited for, for the console.
        reason: String,
        /// When to ask again.
        retry_after: Duration,
    },
}

/// A certificate for a machine.
#[derive(Debug, Clone)]
pub struct Enrolled {
    /// The machine's name.
    pub machine: String,
    /// The machine's uid.
    pub machine_uid: Uuid,
    /// The machine's certificate, then the CA's; DER.
    pub chain_der: Vec<Vec<u8>>,
    /// The machine's certificate's serial, lower-case hex.
    pub serial_hex: String,
    /// When it ends.
    pub expires: Timestamp,
    /// The coordinator's time.
    pub time: Timestamp,
}

/// A list of actions for an agent, with its lease.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The session's epoch.
    pub epoch: u64,
    /// The run.
    pub workflow_uid: Uuid,
    /// Its name.
    pub workflow_name: String,
    /// The machine.
    pub machine_uid: Uuid,
    /// The machine document's generation at rendering.
    pub generation: u64,
    /// How long the agent may act without hearing from here.
    pub lease: Duration,
    /// The whole list.
    pub actions: Vec<AssignedAction>,
    /// Actions before this have succeeded.
    pub start_index: u32,
    /// The attempt to use for the action at `start_index`.
    pub start_attempt: u32,
    /// Every action to start at once, one a branch; that at `start_index` is the first.
    pub starts: Vec<Start>,
    /// Runs whose work this one takes over.
    pub earlier_runs: Vec<Uuid>,
    /// Every receipt believed to be on the machine.
    pub expected_receipts: Vec<DiskReceipt>,
    /// A person asked for this run.
    pub person_authorised: bool,
    /// That person said `--force`.
    pub force: bool,
}

/// One action as sent: the pinned one, and for `cloudInit` the files and the secret made from it.
#[derive(Clone)]
pub struct AssignedAction {
    /// As pinned in the workflow's status, with its secrets in place.
    pub action: Action,
    /// The seed, for `cloudInit`.
    pub seed: Option<Seed>,
}

/// Its name alone: secrets are in it.
impl std::fmt::Debug for AssignedAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AssignedAction").field("name", &self.action.name).finish_non_exhaustive()
    }
}

/// The NoCloud seed of an installed system. Secrets are in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed {
    /// `user-data`.
    pub user_data: String,
    /// `meta-data`.
    pub meta_data: String,
    /// `network-config`.
    pub network_config: String,
    /// The phone-home unit, if one is wanted.
    pub phone_home: Option<PhoneHomeUnit>,
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seed").field("phone_home", &self.phone_home).finish_non_exhaustive()
    }
}

/// What the phone-home unit needs.
#[derive(Clone, PartialEq, Eq)]
pub struct PhoneHomeUnit {
    /// Where to.
    pub url: String,
    /// The run's bearer token: a secret, never in a status or a log.
    pub bearer: String,
    /// Digests of the CA keys that may sign the server.
    pub ca_pins: Vec<String>,
}

impl std::fmt::Debug for PhoneHomeUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PhoneHomeUnit").field("url", &self.url).field("ca_pins", &self.ca_pins).finish_non_exhaustive()
    }
}

/// What the engine tells a connected agent.
#[derive(Debug, Clone)]
pub enum ToAgent {
    /// Do this.
    Assign(Box<Assignment>),
    /// Act on for so long.
    LeaseRenewal {
        /// The session's epoch.
        epoch: u64,
        /// From its arrival.
        lease: Duration,
    },
    /// What persons want of this run: all of it each time.
    Control {
        /// The run.
        workflow_uid: Uuid,
        /// Begin no other action.
        paused: bool,
        /// Holds that it may go past, by index.
        released: Vec<u32>,
    },
    /// Stop this run.
    Cancel {
        /// The run.
        workflow_uid: Uuid,
        /// Why, for the console.
        reason: String,
    },
    /// A newer session exists: stop, acknowledge, end.
    Fenced {
        /// The fenced session's epoch.
        epoch: u64,
        /// Why, for the console.
        reason: String,
    },
    /// Nothing to do.
    Idle {
        /// Boot the own disk now; else stay and wait.
        boot_disk: bool,
    },
}

/// What the installed system says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PhoneHomeReport {
    /// Its host name.
    pub hostname: String,
    /// Its boot id.
    pub boot_id: String,
    /// `PRETTY_NAME` of its os-release.
    pub os_release: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// `/etc/machine-id`.
    pub machine_id: String,
}

/// One log line of an action.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogRecord {
    /// By the agent's clock.
    pub time: Timestamp,
    /// `error`, `warn`, `info` or `debug`.
    pub level: String,
    /// Index of the action.
    pub action_index: u32,
    /// The attempt.
    pub attempt: u32,
    /// The line.
    pub message: String,
}
