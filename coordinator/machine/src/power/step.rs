//! One step of a machine's power.

use landfall_api::BootWay;
use uuid::Uuid;

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing is wanted.
    Rest,
    /// Look again in a moment.
    Wait,
    /// Try this way from now on, for this workflow.
    Begin(Uuid, BootWay),
    /// Ask the system to shut down.
    Shutdown,
    /// Switch the power off.
    Off,
    /// Have the next start boot that way.
    SetBoot(BootWay),
    /// Switch the power on.
    On,
    /// The attempt has ended.
    End(Outcome),
    /// Let the firmware's own order decide again, without a medium.
    ClearBoot,
    /// Every way was tried for this workflow.
    GiveUp,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The agent is heard.
    Heard,
    /// This way does not lead to it, for that reason.
    Failed(String),
    /// Nothing waits for the machine any more.
    Dropped,
}
