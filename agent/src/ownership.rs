//! Whether the machine is the agent's: then its clock and the boot order of its firmware are the agent's to set.

use std::sync::atomic::{AtomicBool, Ordering};

static CLAIMED: AtomicBool = AtomicBool::new(false);

/// Claims it: this agent was booted, and nothing else works on this machine.
pub(crate) fn claim_machine() {
    CLAIMED.store(true, Ordering::Relaxed);
}

/// Whether it is the agent's.
pub(crate) fn owns_machine() -> bool {
    CLAIMED.load(Ordering::Relaxed)
}
