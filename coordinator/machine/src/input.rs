//! What can happen to a machine.

use std::time::Duration;

use jiff::SignedDuration;
use landfall_api::message::{DiskReport, EventRecord, Hello, Vitals};
use landfall_api::{Authority, Problem};

use uuid::Uuid;

use crate::{effect::Which, epoch::Epoch};

/// One thing that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// An agent asks for a session. Its identity fits the machine's document.
    Hello {
        /// What it says of itself.
        hello: Box<Hello>,
        /// Where it comes from, as the coordinator sees it.
        address: String,
        /// For each of its receipts: whether the store has the workflow that it names.
        known: Vec<bool>,
    },
    /// An agent knows every disk now, or other disks are there.
    Disks {
        /// Its session's.
        epoch: Epoch,
        /// What it found.
        report: Box<DiskReport>,
        /// For each of its receipts: whether the store has the workflow that it names.
        known: Vec<bool>,
    },
    /// An agent was heard.
    Heartbeat {
        /// Its session's.
        epoch: Epoch,
        /// What it said of itself.
        vitals: Vitals,
    },
    /// An agent reported something of one workflow, and the log holds it.
    Reported {
        /// Its session's.
        epoch: Epoch,
        /// The workflow.
        of: Which,
        /// In their order, with their positions in the log; 0 where the log could not take one.
        events: Vec<(u64, EventRecord)>,
    },
    /// This coordinator, which has the machine's session, is gone, or was this one before it was started again: it takes its place.
    TakeOver(String),
    /// At the start: what the log holds of the newest workflow beyond its status.
    Replayed(Vec<(u64, EventRecord)>),
    /// The stream of a session ended.
    Closed {
        /// Its.
        epoch: Epoch,
        /// Why, for people.
        why: String,
    },
    /// A fenced agent has stopped everything destructive.
    FenceAcknowledged {
        /// Its session's.
        epoch: Epoch,
    },
    /// The machine's BMC reads that it has no power, and has read so for this long.
    ReadsOff(Duration),
    /// The time to settle is over.
    Settled {
        /// The session's.
        epoch: Epoch,
    },
    /// Whether the newest workflow may begin now.
    Turn(bool),
    /// Something changed for which an idle agent may be waiting: a maintenance ended, or there is room.
    LookAgain,
    /// A workflow is to be asked for: the one before it must have ended. A person who says `--force` ends one that a hold
    /// kept from beginning.
    MakeWay(Option<Authority>),
    /// A workflow was asked for and stored; it is the newest.
    Launched,
    /// Time passed.
    Tick,
    /// An installed system phoned home with the token of these workflows.
    PhonedHome(Vec<Which>),
    /// A person stops a workflow.
    Cancel(Which, Authority),
    /// A person wants no other action begun.
    Pause(Which, Authority),
    /// A person lets it go on: after a pause, else past the hold it stands at.
    Resume(Which, Authority),
    /// A person lets a workflow begin that is held since a long absence of the coordinator.
    Confirm(Which, Authority),
    /// A person has looked at the identity alarm, and clears it.
    ConfirmIdentity(Authority),
    /// A person takes the machine over as it is.
    Adopt(Authority),
    /// A person deletes the machine.
    Delete(Authority),
    /// The coordinator cannot go on with the newest workflow.
    GiveUp(Box<Problem>),
    /// The list of the newest assignment cannot be made.
    CannotAssign(Which, Box<Problem>),
    /// An agent goes on from reports of this workflow that were acknowledged and that the store does not have.
    EventsMissing(Uuid),
    /// The wall's clock was set forward by so much, or back.
    ClockSet(SignedDuration),
    /// The coordinator started.
    Started,
}
