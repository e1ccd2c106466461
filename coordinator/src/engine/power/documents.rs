//! What a look at a machine's power goes by.

use landfall_api::{BmcStatus, Machine, PowerState, Problem, Shared, Workflow};
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

    /// The power, as it was read. "Off" of a webhook says nothing while an agent may act: the outlet may be one of two.
    pub(super) fn power(&self) -> Option<PowerState> {
        let bmc = self.machine.spec.bmc.as_ref()?;
        let is_sure = !(self.may_act && bmc.address.protocol().is_webhook());
        self.bmc().power.filter(|power| is_sure || *power != PowerState::Off)
    }

    pub(super) fn wanted(&self) -> Wanted {
        wanted(&self.machine, self.workflow.as_deref(), self.connected, self.power())
    }
}
