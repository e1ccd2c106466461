//! Accounts that machines set in their own BMCs: which one a machine gets, and what follows once its BMC has it.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_api::message::ActionResult;
use landfall_api::{
    ActionSpec, ActionState, ActionStatus, BmcAccount, BmcAccountSpec, BmcSpec, Machine, Problem, Workflow,
};
use landfall_machine::derive;
use uuid::Uuid;

use super::fleet::Fleet;
use super::secrets::{Vault, bmc_secret};

/// Accounts of machines' BMCs.
pub(in crate::engine) struct BmcAccounts {
    fleet: Arc<Fleet>,
    vault: Arc<Vault>,
}

impl BmcAccounts {
    pub(in crate::engine) const fn new(fleet: Arc<Fleet>, vault: Arc<Vault>) -> Self {
        Self { fleet, vault }
    }

    /// The account that the machine's agent is to set, by that action of a workflow; stored, sealed, before this returns.
    ///
    /// # Errors
    /// [`Problem`] about the Secret, or of the store.
    pub(in crate::engine) async fn to_set(
        &self, machine: &Machine, spec: &BmcAccountSpec, by: (Uuid, &str),
    ) -> Result<BmcAccount, Problem> {
        self.vault.account_to_set(machine, spec, by).await
    }

    /// An action of a workflow has succeeded. If it set an account: that is the one in use, a login that the BMC refused before holds
    /// it back no more, and a machine without `spec.bmc` gets one. May be repeated.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(in crate::engine) async fn finished(
        &self, run: &Workflow, (index, attempt): (usize, u32), result: &ActionResult,
    ) -> Result<(), Problem> {
        let action = run.status.as_ref().and_then(|status| status.action(index));
        // Of one that is under way alone: an agent could repeat that of another at will.
        let is_it = |action: &&ActionStatus| action.state == ActionState::Running && action.attempt == attempt;
        let Some(action) = action.filter(is_it) else { return Ok(()) };
        let (ActionSpec::BmcAccount(spec), ActionResult::BmcAccount(set)) = (&action.action.spec, result) else {
            return Ok(());
        };
        let (Some(workflow), Some(machine)) = (run.metadata.uid, self.fleet.store().machine(&run.spec.machine).await?)
        else {
            return Ok(());
        };
        let Some(address) = spec.protocol.address(set.address) else { return Ok(()) };
        if let Some(why) = self.is_refused(&machine, set.address).await? {
            tracing::warn!(machine = machine.metadata.name, address = %set.address, why, "what the agent says of its BMC is not used");
            return Ok(());
        }
        let action = action.action.name.as_str();
        self.vault.account_is_set(&machine, (workflow, action), (set.address, &address)).await?;
        let (credentials, now) = (bmc_secret(&machine), self.fleet.now());
        // What a rule let in is described by a person, or not at all: a document of its own would count as that.
        let is_described = self.fleet.index().discovered().is_described(&machine.metadata.name);
        let changed = self
            .fleet
            .mutate_machine(&machine.metadata.name, |machine| {
                // Wake-on-LAN and a BMC exclude each other.
                if is_described && machine.spec.bmc.is_none() && machine.spec.power.is_none() {
                    machine.spec.bmc = Some(BmcSpec::new(address.clone(), credentials.clone()));
                    // The store counts the generation up with it.
                    derive::wanted(machine, (now, machine.metadata.generation + 1));
                }
                if let Some(bmc) = machine.status.as_mut().and_then(|status| status.bmc.as_mut()) {
                    (bmc.refused, bmc.console_refused) = (None, None);
                }
            })
            .await?;
        // Its power is looked after from now on.
        self.fleet.index().put_machine(&changed);
        Ok(())
    }

    /// Why no account is used at the address that an agent says its BMC has; nothing if one may be. An agent may lie, and then the
    /// password would be shown, or tried, elsewhere.
    async fn is_refused(&self, machine: &Machine, address: IpAddr) -> Result<Option<&'static str>, Problem> {
        let is_a_hosts = match address {
            IpAddr::V4(ip) => !ip.is_link_local() && !ip.is_broadcast(),
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        };
        if !is_a_hosts || address.is_multicast() || address.is_unspecified() {
            return Ok(Some("it is not the address of a host on a network"));
        }
        let has_it = |other: &Machine| {
            let host = other.spec.bmc.as_ref().and_then(|bmc| bmc.address.host().parse::<IpAddr>().ok());
            other.metadata.name != machine.metadata.name && host == Some(address)
        };
        let is_taken = self.fleet.store().machines().await?.iter().any(|other| has_it(other));
        Ok(is_taken.then_some("it is that of another machine's BMC"))
    }
}
