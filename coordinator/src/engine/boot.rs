//! What a machine that netboots is told, and the one-time tokens it gets.

use jiff::Timestamp;
use landfall_api::{MacAddr, Machine, Problem, Workflow, WorkflowPhase};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{BootDecision, Engine, derive, secret};

/// What is stored of a boot token, under its hash.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenRecord {
    pub(super) machine: Uuid,
    /// SHA-256 of the first key that used it, hex.
    pub(super) key: Option<String>,
}

pub(super) fn token_name(token: &str) -> String {
    format!("boot-token/{}", secret::hash(token))
}

impl Engine {
    /// What a machine that netboots from `mac` is told; mints a boot token if it is to run the agent. The UUID is for
    /// the log only: whether it is the right machine is judged at enrolment, where the agent reads it itself.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read or written; the machine then boots its own disk.
    pub async fn boot_decision(&self, mac: MacAddr, smbios_uuid: Option<Uuid>) -> Result<BootDecision, Problem> {
        let Some(name) = self.index().machine_of_mac(mac) else { return Ok(BootDecision::Unknown) };
        let Some(machine) = self.inner.store.machine(&name).await? else { return Ok(BootDecision::Unknown) };
        if let (Some(said), Some(described)) = (smbios_uuid, machine.spec.identity.smbios_uuid)
            && said != described
        {
            tracing::warn!(machine = %name, %mac, %said, %described, "the boot script was asked for with another SMBIOS UUID");
        }
        let workflow = self.current_workflow(&machine).await?;
        match machine.metadata.uid {
            Some(uid) if wants_agent(&machine, workflow.as_ref()) => {
                let token = self.mint_boot_token(uid).await?;
                Ok(BootDecision::RunAgent { machine: name, token })
            }
            _ => Ok(BootDecision::BootDisk { machine: name }),
        }
    }

    /// Whether a machine document names this address. Reads no store.
    pub async fn known_mac(&self, mac: MacAddr) -> bool {
        self.index().machine_of_mac(mac).is_some()
    }

    /// The name of the machine with this address. Reads no store.
    pub fn machine_of_mac(&self, mac: MacAddr) -> Option<String> {
        self.index().machine_of_mac(mac)
    }

    async fn mint_boot_token(&self, machine: Uuid) -> Result<String, Problem> {
        let token = secret::random()?;
        let expires = self.after(self.inner.settings.boot_token_ttl);
        self.put_token(&token, &TokenRecord { machine, key: None }, expires).await?;
        Ok(token)
    }

    pub(super) async fn put_token(&self, token: &str, record: &TokenRecord, expires: Timestamp) -> Result<(), Problem> {
        let value = serde_json::to_vec(record).map_err(super::drive::internal)?;
        Ok(self.inner.store.secrets().put(&token_name(token), &value, expires).await?)
    }

    pub(super) fn after(&self, duration: std::time::Duration) -> Timestamp {
        self.now().checked_add(duration).unwrap_or(Timestamp::MAX)
    }

    /// The machine's newest run.
    pub(super) async fn current_workflow(&self, machine: &Machine) -> Result<Option<Workflow>, Problem> {
        match machine.status.as_ref().and_then(|s| s.workflow.as_deref()) {
            Some(name) => Ok(self.inner.store.workflow(name).await?),
            None => Ok(None),
        }
    }
}

fn wants_agent(machine: &Machine, workflow: Option<&Workflow>) -> bool {
    let held = machine.status.as_ref().is_some_and(|s| derive::holds(&s.conditions, "ReceiptConflict"));
    let Some(workflow) = workflow else { return false };
    let forced = workflow.spec.authority.as_ref().is_some_and(|a| a.force);
    let phase = workflow.status.as_ref().map(|s| s.phase);
    matches!(phase, Some(WorkflowPhase::Pending | WorkflowPhase::Running)) && (!held || forced)
}
