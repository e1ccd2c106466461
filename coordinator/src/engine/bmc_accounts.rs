//! Accounts that machines set in their own BMCs: which one a machine gets, and what follows once its BMC has it.

use std::sync::Arc;

use landfall_api::message::ActionResult;
use landfall_api::{ActionSpec, ActionState, BmcAccount, BmcAccountSpec, BmcSpec, Machine, Problem, Workflow};
use landfall_machine::derive;
use uuid::Uuid;

use super::fleet::Fleet;
use super::logins::Logins;
use super::secrets::{Vault, bmc_secret};

/// Accounts of machines' BMCs.
pub(in crate::engine) struct BmcAccounts {
    fleet: Arc<Fleet>,
    vault: Arc<Vault>,
    logins: Arc<Logins>,
}

impl BmcAccounts {
    pub(in crate::engine) const fn new(fleet: Arc<Fleet>, vault: Arc<Vault>, logins: Arc<Logins>) -> Self {
        Self { fleet, vault, logins }
    }

    /// The account that the machine's agent is to set; stored, sealed, before this returns.
    ///
    /// # Errors
    /// [`Problem`] about the Secret, or of the store.
    pub(in crate::engine) async fn to_set(
        &self, machine: &Machine, spec: &BmcAccountSpec, workflow: Uuid,
    ) -> Result<BmcAccount, Problem> {
        let secret = bmc_secret(machine);
        // The name of the one that is made is no other machine's.
        let named = machine.spec.bmc.is_some();
        let machines = if named { self.fleet.store().machines().await? } else { Vec::new() };
        let shared_with = machines.iter().find(|other| {
            other.metadata.name != machine.metadata.name
                && other.spec.bmc.as_ref().is_some_and(|bmc| bmc.credentials == secret)
        });
        let shared_with = shared_with.map(|other| other.metadata.name.as_str());
        self.vault.account_to_set(machine, spec, workflow, shared_with).await
    }

    /// An action of a workflow has succeeded. If it set an account: that is the one in use, a login that the BMC refused before holds
    /// it back no more, and a machine without `spec.bmc` gets one. May be repeated.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(in crate::engine) async fn finished(
        &self, run: &Workflow, index: usize, result: &ActionResult,
    ) -> Result<(), Problem> {
        let action = run.status.as_ref().and_then(|status| status.action(index));
        let Some(action) = action.filter(|action| action.state != ActionState::Succeeded) else { return Ok(()) };
        let (ActionSpec::BmcAccount(spec), ActionResult::BmcAccount(set)) = (&action.action.spec, result) else {
            return Ok(());
        };
        let (Some(workflow), Some(machine)) = (run.metadata.uid, self.fleet.store().machine(&run.spec.machine).await?)
        else {
            return Ok(());
        };
        let Some(address) = spec.protocol.address(set.address) else { return Ok(()) };
        self.vault.account_is_set(&machine, workflow, (set.address, &address)).await?;
        let (credentials, now) = (bmc_secret(&machine), self.fleet.now());
        let changed = self
            .fleet
            .mutate_machine(&machine.metadata.name, |machine| {
                // Wake-on-LAN and a BMC exclude each other.
                if machine.spec.bmc.is_none() && machine.spec.power.is_none() {
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
        if let Some(bmc) = &changed.spec.bmc {
            self.logins.forgive(&bmc.address.base());
        }
        Ok(())
    }
}
