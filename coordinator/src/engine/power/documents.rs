//! What a look at a machine's power goes by.

use landfall_api::{BmcStatus, Machine, Problem, Shared, Workflow};
use landfall_machine::power::{Wanted, may_act, wanted};

use crate::engine::fleet::Fleet;

/// The documents, and what is known of the agent.
pub(super) struct Documents {
    pub(super) machine: Shared<Machine>,
    pub(super) workflow: Option<Shared<Workflow>>,
    /// An agent is there.
    pub(super) connected: bool,
    /// An agent may act on a lease, heard or not.
    pub(super) may_act: bool,
}

impl Documents {
    /// As they are now; absent: there is no such machine.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(super) async fn read(fleet: &Fleet, machine: &str) -> Result<Option<Self>, Problem> {
        let Some(machine) = fleet.store().machine(machine).await? else { return Ok(None) };
        let workflow = fleet.current_workflow(&machine).await?;
        let (mut connected, mut acts) = (false, false);
        if let Some(uid) = machine.metadata.uid {
            let live = fleet.machines().lock(uid).await;
            connected = live.is_connected();
            acts = may_act(live.session.as_ref(), machine.status.as_ref(), &fleet.limits(), fleet.moment());
        }
        Ok(Some(Self { machine, workflow, connected, may_act: acts }))
    }

    pub(super) fn bmc(&self) -> BmcStatus {
        self.machine.status.as_ref().and_then(|status| status.bmc.clone()).unwrap_or_default()
    }

    pub(super) fn wanted(&self) -> Wanted {
        let power = self.bmc().power.filter(|_| self.machine.spec.reads_power());
        wanted(&self.machine, self.workflow.as_deref(), self.connected, power)
    }
}
