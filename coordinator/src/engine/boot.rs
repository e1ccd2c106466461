//! What a netbooting machine gets: the decision, and one-time tokens.

use std::net::IpAddr;

use jiff::Timestamp;
use landfall_api::{EnrolmentStatus, MacAddr, Machine, Problem, ProofKind, Shared, Workflow};
use landfall_boot::policy::Decision;
use uuid::Uuid;

use landfall_machine::life;

use super::Engine;

impl Engine {
    /// What a machine boots that netboots from `mac`; mints a boot token if it must run the agent. The UUID is for the
    /// log only: whether it is the right machine is judged at enrolment, where the agent reads it itself. `from` is the
    /// address that asks: unknown machines get the agent only if discovery is on for it.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read or written; the machine then boots its own disk.
    pub async fn boot_decision_from(
        &self,
        mac: MacAddr,
        smbios_uuid: Option<Uuid>,
        from: Option<IpAddr>,
    ) -> Result<Decision, Problem> {
        let discovered = from.is_some_and(|from| self.inner.settings.load().discovery.covers(from));
        let unknown = || if discovered { Decision::Approve { machine: None } } else { Decision::Unknown };
        let Some(name) = self.index().machine_of_mac(mac) else { return Ok(unknown()) };
        let Some(machine) = self.inner.store.machine(&name).await? else { return Ok(unknown()) };
        if let (Some(said), Some(described)) = (smbios_uuid, machine.spec.identity.smbios_uuid)
            && said != described
        {
            tracing::warn!(machine = %name, %mac, %said, %described, "a boot script was requested with another SMBIOS \
                UUID");
        }
        let enrolment = machine.status.as_ref().map(|s| &s.enrolment);
        if discovered && enrolment.is_some_and(EnrolmentStatus::is_unapproved) {
            return Ok(Decision::Approve { machine: Some(name) });
        }
        let workflow = self.current_workflow(&machine).await?;
        match machine.metadata.uid {
            Some(_)
                if life::wants_agent(&machine, workflow.as_deref()) && machine.spec.proof == ProofKind::Approval =>
            {
                Ok(Decision::Approve { machine: Some(name) })
            }
            Some(uid) if life::wants_agent(&machine, workflow.as_deref()) => {
                let revocations = enrolment.map_or(0, |e| e.revocations);
                let ttl = self.inner.settings.load().boot_token_ttl;
                let token = self.inner.tokens.mint(uid, revocations, ttl).await?;
                Ok(Decision::RunAgent { machine: name, token })
            }
            _ => Ok(Decision::BootDisk { machine: name }),
        }
    }

    /// The same, of a machine whose address is not known.
    ///
    /// # Errors
    /// As [`Engine::boot_decision_from`].
    pub async fn boot_decision(&self, mac: MacAddr, smbios_uuid: Option<Uuid>) -> Result<Decision, Problem> {
        self.boot_decision_from(mac, smbios_uuid, None).await
    }

    /// Whether a machine document names this address. Reads no store.
    pub async fn known_mac(&self, mac: MacAddr) -> bool {
        self.index().machine_of_mac(mac).is_some()
    }

    /// The name of the machine with this address. Reads no store.
    pub fn machine_of_mac(&self, mac: MacAddr) -> Option<String> {
        self.index().machine_of_mac(mac)
    }

    pub(super) fn after(&self, duration: std::time::Duration) -> Timestamp {
        self.now().checked_add(duration).unwrap_or(Timestamp::MAX)
    }

    /// The machine's newest workflow.
    pub(super) async fn current_workflow(&self, machine: &Machine) -> Result<Option<Shared<Workflow>>, Problem> {
        match machine.status.as_ref().and_then(|s| s.workflow.as_deref()) {
            Some(name) => Ok(self.inner.store.workflow(name).await?),
            None => Ok(None),
        }
    }
}
