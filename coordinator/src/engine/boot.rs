//! What a netbooting machine gets: the decision, and one-time tokens.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use landfall_api::{EnrolmentStatus, MacAddr, Problem, ProofKind};
use landfall_boot::policy::{Decision, ReceiptOf};
use uuid::Uuid;

use landfall_machine::life;

use super::{fleet::Fleet, tokens::Tokens};

/// What netbooting machines get.
pub struct Boot {
    fleet: Arc<Fleet>,
    tokens: Arc<Tokens>,
}

impl Boot {
    pub(in crate::engine) const fn new(fleet: Arc<Fleet>, tokens: Arc<Tokens>) -> Self {
        Self { fleet, tokens }
    }

    /// What a machine boots that netboots from `mac`; mints a boot token if it must run the agent. The UUID is for the
    /// log only: whether it is the right machine is judged at enrolment, where the agent reads it itself. `from` is the
    /// address that asks: unknown machines get the agent only if discovery is on for it.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read or written; the machine then boots its own disk.
    pub async fn boot_decision_from(
        &self, mac: MacAddr, smbios_uuid: Option<Uuid>, from: Option<IpAddr>,
    ) -> Result<Decision, Problem> {
        let discovered = from.is_some_and(|from| self.fleet.settings().discovery.covers(from));
        let unknown =
            || if discovered { Decision::Approve { machine: None, network: Vec::new() } } else { Decision::Unknown };
        let Some(name) = self.fleet.index().machine_of_mac(mac) else { return Ok(unknown()) };
        let Some(machine) = self.fleet.store().machine(&name).await? else { return Ok(unknown()) };
        if let (Some(said), Some(described)) = (smbios_uuid, machine.spec.identity.smbios_uuid)
            && said != described
        {
            tracing::warn!(machine = %name, %mac, %said, %described, "a boot script was requested with another SMBIOS \
                UUID");
        }
        let enrolment = machine.status.as_ref().map(|s| &s.enrolment);
        if discovered && enrolment.is_some_and(EnrolmentStatus::is_unapproved) {
            return Ok(Decision::Approve { machine: Some(name), network: machine.spec.network.clone() });
        }
        let workflow = self.fleet.current_workflow(&machine).await?;
        match machine.metadata.uid {
            Some(_)
                if life::wants_agent(&machine, workflow.as_deref()) && machine.spec.proof == ProofKind::Approval =>
            {
                Ok(Decision::Approve { machine: Some(name), network: machine.spec.network.clone() })
            }
            Some(uid) if life::wants_agent(&machine, workflow.as_deref()) => {
                let revocations = enrolment.map_or(0, |e| e.revocations);
                let ttl = self.fleet.settings().boot_token_ttl;
                let token = self.tokens.mint(uid, revocations, ttl).await?;
                Ok(Decision::RunAgent { machine: name, token, network: machine.spec.network.clone() })
            }
            _ => {
                let receipt = life::installed_by(&machine, workflow.as_deref());
                let receipt = receipt.map(|(workflow, action)| ReceiptOf { workflow, action });
                Ok(Decision::BootDisk { receipt, machine: name })
            }
        }
    }

    /// The same, of a machine whose address is not known.
    ///
    /// # Errors
    /// As [`Boot::boot_decision_from`].
    pub async fn boot_decision(&self, mac: MacAddr, smbios_uuid: Option<Uuid>) -> Result<Decision, Problem> {
        self.boot_decision_from(mac, smbios_uuid, None).await
    }

    /// Whether a machine document names this address. Reads no store.
    pub async fn known_mac(&self, mac: MacAddr) -> bool {
        let index = self.fleet.index();
        index.machine_of_mac(mac).is_some() || index.reservations().address_for(mac).is_some()
    }

    /// The address that a machine document reserves for this port. Reads no store.
    pub fn address_for(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.fleet.index().reservations().address_for(mac)
    }

    /// The port that a machine document reserves this address for. Reads no store.
    pub fn reserved_for(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.fleet.index().reservations().reserved_for(address)
    }

    /// The name of the machine with this address. Reads no store.
    pub fn machine_of_mac(&self, mac: MacAddr) -> Option<String> {
        self.fleet.index().machine_of_mac(mac)
    }
}
