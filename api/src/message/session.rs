//! What travels on an open session, in both directions.

use std::time::Duration;

use uuid::Uuid;

use super::{ActionRef, Assignment, DiskReport, EventRecord, Hello, Refusal, Welcome};
use crate::{MachineFacts, Problem};

/// A message of the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum ToCoordinator {
    /// The first message of every session.
    Hello(Hello),
    /// The disks, once every bus was scanned, and whenever they changed after that.
    Disks(DiskReport),
    /// What the agent saw of its machine.
    Facts(Box<MachineFacts>),
    /// The agent is alive.
    Heartbeat(Vitals),
    /// One numbered fact about an action.
    Event(EventRecord),
    /// The answer to [`ToAgent::Check`], or to [`ToAgent::Inspect`].
    Checked {
        /// The workflow uid of the list.
        list_uid: Uuid,
        /// Why an action would not begin; `None`: every action would.
        problem: Option<Box<Problem>>,
    },
    /// The fenced session's last word: it has stopped everything destructive.
    FenceAck {
        /// The fenced session's epoch.
        epoch: u64,
    },
}

/// What a heartbeat carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vitals {
    /// CLOCK_BOOTTIME when it was made; whole milliseconds count.
    pub uptime: Duration,
    /// VmHWM of the agent, bytes.
    pub peak_rss_bytes: u64,
}

/// A message of the coordinator.
#[derive(Debug, Clone, PartialEq)]
pub enum ToAgent {
    /// The session is accepted: the first answer.
    Welcome(Box<Welcome>),
    /// The session is not accepted: the only answer.
    Refused(Box<Refusal>),
    /// Do this.
    Assign(Box<Assignment>),
    /// Would this list begin to write? Its workflow uid names the question, and no workflow; its lease means nothing.
    Check(Box<Assignment>),
    /// Look at the machine again; [`ToCoordinator::Checked`] with this uid follows the facts.
    Inspect(Uuid),
    /// Events are on stable storage.
    Ack(Ack),
    /// Act on for so long.
    LeaseRenewal {
        /// The session's epoch.
        epoch: u64,
        /// Never zero.
        lease: Duration,
        /// The agent's own clock in the newest hello or heartbeat that the coordinator had heard; `None`: from the arrival.
        counts_from: Option<Duration>,
    },
    /// What persons want of a workflow under way.
    Control {
        /// The workflow.
        workflow_uid: Uuid,
        /// All of it, each time.
        control: Control,
    },
    /// Stop this workflow.
    Cancel {
        /// The workflow.
        workflow_uid: Uuid,
        /// Why, for the console.
        reason: String,
    },
    /// A newer session of this machine exists: stop, acknowledge, end.
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
        /// How the machine's newest workflow ended, if it has.
        ended: Option<Ended>,
    },
}

/// How a workflow ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which one.
    pub workflow_uid: Uuid,
    /// Why it failed or was cancelled; `None`: it succeeded.
    pub problem: Option<String>,
}

/// Everything up to and including `seq` of this attempt is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The attempt.
    pub action: ActionRef,
    /// The number of its last stored event, from 1.
    pub seq: u64,
}

/// What persons want of a workflow under way. The newest alone counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Control {
    /// Finish what is under way, and begin no other action or attempt.
    pub paused: bool,
    /// Indices of `hold` actions that a person let the workflow go past.
    pub released: Vec<u32>,
}
