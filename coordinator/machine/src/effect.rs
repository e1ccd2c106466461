//! What a step asks for, in the order in which it is to be done.

use std::time::Duration;

use landfall_api::message::Ended;
pub use landfall_api::message::Refusal;
use landfall_api::{Problem, Reason};
use uuid::Uuid;

use crate::{epoch::Epoch, run::Start};

/// One of the workflows of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The machine's newest.
    Newest,
    /// The older one that the input names.
    Older,
}

/// What is to be done. What is stored comes first: an agent hears only of what is on stable storage, and the lease of an
/// assignment is known to the store before its agent knows of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Store the machine's document.
    StoreMachine,
    /// Store a workflow's document.
    StoreWorkflow(Which),
    /// Answer the input with this refusal.
    Refuse(Refusal),
    /// Say to people that some computer claims to be this machine and may not be.
    Alarm {
        /// Which kind of claim it is.
        reason: Reason,
        /// One sentence.
        message: String,
    },
    /// Tell the agent of the older session that it is fenced.
    Fence {
        /// That session's.
        epoch: Epoch,
        /// Why, for the console.
        reason: String,
    },
    /// The session is accepted: what follows is for its agent.
    Open(Epoch),
    /// Tell the agent of the newest session.
    Send(Tell),
    /// Give the agent its list, to be begun at these actions at once. Its lease is stored already. If the list cannot be
    /// made, [`crate::Input::CannotAssign`] is to follow.
    Assign {
        /// Of which workflow.
        of: Which,
        /// Never empty; one a branch.
        starts: Vec<Start>,
    },
    /// Hand in [`crate::Input::Settled`] after [`SETTLE`].
    Settle(Epoch),
    /// Hand in [`crate::Input::Turn`]: whether the machine's workflow may begin now beside all others.
    AskTurn,
    /// The agent that waited for its turn has gone.
    LeaveQueue,
    /// Mark the machine's document as one that is to go.
    MarkDeleted,
    /// Nothing can be acting on the machine any more: remove its document.
    Remove,
}

/// The time for an agent that outlived its session to send its unacknowledged events before it gets instructions.
pub const SETTLE: Duration = Duration::from_secs(3);

/// What an agent is sent, beside its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tell {
    /// Act on for so long.
    LeaseRenewal {
        /// The session's.
        epoch: Epoch,
        /// The length.
        lease: Duration,
        /// From then on it counts, by the agent's own clock; `None`: from the arrival.
        counts_from: Option<Duration>,
    },
    /// What persons want of this workflow: all of it each time.
    Control {
        /// The workflow.
        workflow_uid: Uuid,
        /// Begin no other action.
        paused: bool,
        /// Holds that it may go past, by index.
        released: Vec<u32>,
    },
    /// Stop this workflow.
    Cancel {
        /// The workflow.
        workflow_uid: Uuid,
        /// Why, for the console.
        reason: String,
    },
    /// The machine is not the coordinator's any more: stop, acknowledge, end.
    Fenced {
        /// The session's.
        epoch: Epoch,
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

/// A person's request is not tried again by itself.
pub(crate) const fn refused(problem: Problem) -> Refusal {
    Refusal { problem, retry_after: None }
}
