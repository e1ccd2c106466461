//! What the coordinator asks of the agent, with what only a running session can add: the lease as it runs.

use std::time::Duration;

use landfall_api::Problem;
use landfall_api::message::{Assignment, Control, Ended};
use uuid::Uuid;

use crate::LeaseWatch;

/// What the coordinator asks of the agent.
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
    /// Say whether this list would begin to write, with [`crate::SessionHandle::checked`]; there is no lease for it.
    Check(Box<Assignment>),
    /// A person stopped the run. Stop, and report the running action as failed with code `Cancelled`.
    Cancel {
        /// Which run.
        workflow_uid: Uuid,
        /// Why, for people.
        reason: String,
    },
    /// What persons want of a run under way.
    Control {
        /// Which run.
        workflow_uid: Uuid,
        /// All of it; whatever was said before counts no more.
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
        /// How the machine's newest workflow ended, if it has.
        ended: Option<Ended>,
    },
    /// The coordinator does not accept this session.
    Refused {
        /// Why.
        problem: Problem,
        /// The library asks again after this. Absent: it does not, and the session has ended.
        retry_after: Option<Duration>,
    },
}
