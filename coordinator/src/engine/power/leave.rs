//! What is left where a machine has another BMC, or none any more.

use std::time::Duration;

use landfall_api::{BmcAddress, BmcSpec, Machine};
use landfall_machine::power;
use tokio::time::timeout;

use super::control::Control;
use super::driver::Driver;

/// To eject a medium from a BMC that the machine has no more.
const LEAVE: Duration = Duration::from_secs(10);

impl Driver {
    /// The document may have another BMC, or none any more.
    pub(super) async fn leave(&mut self) {
        let Some(medium) = self.medium.take().filter(|medium| medium.not_ejected.is_none()) else { return };
        let Ok(found) = self.shared.fleet.store().machine(&self.machine).await else { return };
        // The same one by another path goes on with what was begun.
        let own = self.connection.address().map(BmcAddress::base);
        let is_another = |spec: &BmcSpec| Some(spec.address.base()) != own;
        let is_left = |machine: &Machine| {
            machine.metadata.deletion_timestamp.is_some() || machine.spec.bmc.as_ref().is_none_or(is_another)
        };
        if found.is_none_or(|machine| is_left(&machine)) {
            let ejected = match self.connection.bmc() {
                Some(bmc) => {
                    timeout(LEAVE, bmc.eject(&medium.url, medium.drive.as_deref())).await.is_ok_and(|done| done.is_ok())
                }
                None => false,
            };
            if !ejected {
                let (machine, url) = (&self.machine, medium.url);
                tracing::warn!(
                    machine,
                    url,
                    "the boot medium stays in a virtual drive of the BMC that the machine had"
                );
            }
        }
    }

    /// The document may have no BMC any more.
    pub(super) async fn forget(&self) {
        let gone = self.shared.fleet.store().machine(&self.machine).await;
        let without =
            gone.is_ok_and(|found| found.is_some_and(|m| Control::of(&m.spec).is_none() && m.status.is_some()));
        let erased = async || self.shared.fleet.mutate_machine(&self.machine, power::erase).await;
        if without && let Err(problem) = erased().await {
            tracing::warn!(machine = self.machine, %problem, "what was read of the removed BMC stays in the status");
        }
    }
}
