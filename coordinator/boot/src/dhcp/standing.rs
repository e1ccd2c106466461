//! Whether a port is answered at all: by its machine's document, or by discovery.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall_api::MacAddr;
use landfall_edge::gate::Limiter;
use tokio::time::timeout;

use super::{LOOKUP_LIMIT, Silence, Standing, UNKNOWN_A_SECOND};
use crate::policy::BootPolicy;

/// Looks up who is answered.
pub(crate) struct Standings {
    policy: Arc<dyn BootPolicy>,
    discovery: Arc<AtomicBool>,
    unknown: Limiter,
}

impl Standings {
    /// `discovery`: whether unknown machines are answered; may change at any time.
    pub(crate) fn new(policy: Arc<dyn BootPolicy>, discovery: Arc<AtomicBool>) -> Self {
        Self { policy, discovery, unknown: Limiter::a_second(UNKNOWN_A_SECOND) }
    }

    pub(crate) fn policy(&self) -> &dyn BootPolicy {
        &*self.policy
    }

    /// # Errors
    /// [`Silence`]: it cannot be looked up, or too many unknown machines ask.
    pub(crate) async fn of(&self, mac: MacAddr) -> Result<Standing, Silence> {
        match timeout(LOOKUP_LIMIT, self.policy.known(mac)).await {
            Ok(Ok(true)) => Ok(Standing::Known),
            Ok(Ok(false)) if self.discovery.load(Ordering::Relaxed) => {
                if self.unknown.step().is_some() {
                    Ok(Standing::Discovered)
                } else {
                    Err(Silence::TooManyUnknown)
                }
            }
            Ok(Ok(false)) => Ok(Standing::Unknown),
            Ok(Err(e)) => Err(Silence::Lookup(e.to_string())),
            Err(_) => Err(Silence::Lookup(format!("no answer within {} s", LOOKUP_LIMIT.as_secs()))),
        }
    }
}
