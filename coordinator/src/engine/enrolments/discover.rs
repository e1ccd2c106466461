//! Unknown machines: recorded if discovery is on, bounded in number, and forgotten if they are not approved.

use landfall_api::message::{EnrollRequest, Identity};
use landfall_api::{
    API_VERSION, Document, EnrolmentRule, ErrorCode, IdentitySpec, Kind, Machine, MachineFacts, MachineSpec, Metadata,
    Problem,
};
use landfall_machine::life::discovered;

use super::super::identities::{describe, facts_of, undescribed};
use super::rules::{label, name_by};
use super::{Asker, Enrolments};
use landfall_store::StoreError;
use landfall_store::audit::Note;

/// Ports noted of a discovered machine; a document takes no more.
const MAX_PORTS: usize = 64;

impl Enrolments {
    /// Makes a document of a computer that fits none, and answers its name; `None` where discovery is off for its address
    /// or there is nothing to know it by.
    ///
    /// # Errors
    /// [`Problem`] with code `AmbiguousIdentity`, `LimitReached`, `AlreadyExists`, or of the store.
    pub(super) async fn discover(&self, request: &EnrollRequest, by: &Asker) -> Result<Option<String>, Problem> {
        let settings = self.fleet.settings();
        let discovery = &settings.discovery;
        let covered = by.address.is_some_and(|address| discovery.covers(address));
        if !covered || request.identity.macs.is_empty() {
            return Ok(None);
        }
        let (turn, _one) = self.identities.alone().await?;
        // Another ask of the same computer may have been first.
        if let Some(name) = self.identities.machine_of(&request.identity)? {
            return Ok(Some(name));
        }
        let unapproved = self.fleet.index().discovered().unapproved.len();
        if unapproved >= discovery.max_machines {
            let message =
                format!("{unapproved} discovered machines wait for approval already; no more are taken note of");
            return Err(Problem::new(ErrorCode::LimitReached, message)
                .hint("approve or delete some of them, or raise discovery.max_machines"));
        }
        let facts = facts_of(request);
        let rule = self.matching_rule(&facts).await?;
        let machine = self.discovered(&request.identity, &facts, rule.as_deref()).await?;
        let (name, now) = (machine.metadata.name.clone(), self.fleet.now());
        let created = turn.during(self.fleet.store().documents().create(Document::from(machine))).await?;
        if let Document::Machine(machine) = &created {
            self.fleet.index().put_machine(machine);
        }
        tracing::info!(machine = %name, "discovered");
        let from = by.address.map(|a| a.to_canonical().to_string()).unwrap_or_default();
        let detail = describe(&request.identity);
        let note = Note { from, ..Note::own("Discover", format!("machine/{name}"), detail) };
        self.fleet.store().audit().note(now, note).await;
        Ok(Some(name))
    }

    async fn discovered(
        &self, said: &Identity, facts: &MachineFacts, rule: Option<&EnrolmentRule>,
    ) -> Result<Machine, Problem> {
        let now = self.fleet.now();
        let mut macs = said.macs.clone();
        macs.sort_unstable_by_key(ToString::to_string);
        macs.dedup();
        macs.truncate(MAX_PORTS);
        let by_rule = rule.and_then(|rule| name_by(rule, facts));
        let by_mac = macs.first().map(|mac| format!("mac-{}", mac.to_string().replace(':', "")));
        let names = by_rule.into_iter().chain(label(&said.serial)).chain(by_mac);
        let mut taken = Vec::new();
        for name in names {
            if self.fleet.store().machine(&name).await?.is_some() {
                taken.push(name);
                continue;
            }
            return Ok(Machine {
                api_version: API_VERSION.to_owned(),
                kind: Kind::Machine,
                metadata: Metadata { name, creation_timestamp: Some(now), ..Metadata::default() },
                spec: MachineSpec {
                    identity: IdentitySpec {
                        macs,
                        smbios_uuid: said.smbios_uuid,
                        serial: Some(said.serial.clone()).filter(|serial| !serial.is_empty()),
                    },
                    ..MachineSpec::default()
                },
                status: Some(discovered(facts, now)),
            });
        }
        let message = format!("a computer was discovered, but every name for it is taken: {}", taken.join(", "));
        Err(Problem::new(ErrorCode::AlreadyExists, message).hint("describe it by hand, with another name"))
    }

    /// Forgets unapproved discovered machines without recent requests. One that a person has described since is kept.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub async fn forget_unapproved(&self) -> Result<(), Problem> {
        let names: Vec<String> = self.fleet.index().discovered().unapproved.iter().cloned().collect();
        for name in names {
            let Some(machine) = self.fleet.store().machine(&name).await? else { continue };
            let uid = machine.metadata.uid.unwrap_or_default();
            let _lock = self.fleet.machines().lock(uid).await;
            let Some(machine) = self.fleet.store().machine(&name).await? else { continue };
            if !self.is_over(&machine) {
                continue;
            }
            let judged = Some(machine.metadata.resource_version);
            match self.fleet.store().documents().delete_if(Kind::Machine, &name, judged).await {
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                // A person may have described it through another coordinator.
                Err(StoreError::Conflict { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
            self.fleet.index().drop_machine(&machine);
            self.fleet.machines().forget(uid);
            tracing::info!(machine = %name, "an unapproved discovered machine is forgotten");
            let note = Note::own("ForgetDiscovered", format!("machine/{name}"), "");
            self.fleet.store().audit().note(self.fleet.now(), note).await;
        }
        Ok(())
    }

    fn is_over(&self, machine: &Machine) -> bool {
        let Some(status) = machine.status.as_ref().filter(|_| undescribed(machine)) else { return false };
        let asked = status.enrolment.waiting.iter().map(|key| key.last_asked).max().or(status.enrolment.discovered_at);
        let keep = self.fleet.settings().discovery.keep.get();
        let quiet = asked.is_none_or(|at| at.checked_add(keep).is_ok_and(|end| end <= self.fleet.now()));
        quiet && status.workflow.is_none()
    }
}
