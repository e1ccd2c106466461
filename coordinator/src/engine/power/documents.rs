//! What a look at a machine's power goes by.

use landfall_api::{BmcStatus, Machine, PowerState, Problem, Shared, Workflow};
use landfall_machine::power::{Wanted, wanted};
use landfall_machine::{Session, elsewhere};

use crate::engine::fleet::Fleet;

/// The documents, and what is known of the agent.
pub(super) struct Documents {
    pub(super) machine: Shared<Machine>,
    pub(super) workflow: Option<Shared<Workflow>>,
    /// An agent is there, or at another coordinator.
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
            let (own, now) = (fleet.own(), fleet.moment());
            let known = elsewhere::known(&machine, live.session.clone(), own.as_deref(), &fleet.limits(), now);
            connected = live.is_connected() || known.as_ref().is_some_and(Session::is_elsewhere);
            acts = known.is_some_and(|session| session.may_act(now));
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
