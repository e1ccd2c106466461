//! What a step goes by beside the machine itself: the same for every machine of a coordinator.

use std::time::Duration;

use crate::restore::Horizon;

/// An agent not heard for so many heartbeats is silent.
const SILENT_AFTER: u32 = 3;

/// Settings, and what the coordinator knows of its own past.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long an agent may act unheard.
    pub lease: Duration,
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// From the reboot to the phone-home, where the template names none.
    pub phone_home_deadline: Duration,
    /// From the request of a workflow to its machine's first agent; after it the machine counts as not seen.
    pub netboot_deadline: Duration,
    /// The oldest protocol revision that agents may speak.
    pub oldest_protocol: u32,
    /// How far the store's knowledge reaches.
    pub horizon: Horizon,
}

impl Limits {
    /// An agent that was not heard for so long is silent.
    pub fn silent_after(&self) -> Duration {
        self.heartbeat * SILENT_AFTER
    }
}
