//! Applying and deleting documents: everything that can be wrong is said before anything is stored.

use std::sync::Arc;

use landfall_api::{
    ApplyOutcome, Authority, Document, ErrorCode, Kind, Machine, MachineStatus, Management, Pool, Problem, Reservation,
    Template,
};

use landfall_machine::{Input, derive, is_open, life::busy, power};
use landfall_store::StoreError;

use super::fleet::{Fleet, Live};
use super::identities::Identities;
use super::removals::Removals;
use super::requests::Requests;
use super::secrets::Vault;
use super::source;
use super::source::SourceChecker;
use super::steps::Steps;
use crate::workflow::refuse_circles;

/// Documents that people apply and delete.
pub struct Documents {
    fleet: Arc<Fleet>,
    steps: Steps,
    identities: Arc<Identities>,
    requests: Requests,
    removals: Arc<Removals>,
    vault: Arc<Vault>,
    sources: Arc<dyn SourceChecker>,
}

/// Who applies a document.
#[derive(Debug, Clone, Copy)]
struct By<'a> {
    who: &'a str,
    person: bool,
}

impl Documents {
    pub(in crate::engine) const fn new(
        fleet: Arc<Fleet>, steps: Steps, identities: Arc<Identities>, requests: Requests, removals: Arc<Removals>,
        vault: Arc<Vault>, sources: Arc<dyn SourceChecker>,
    ) -> Self {
        Self { fleet, steps, identities, requests, removals, vault, sources }
    }

    /// Creates a document, or changes the spec and labels of the one of that name. `dry_run` checks and stores nothing.
    /// A `resourceVersion` in the document, if any, must be the stored one; a status in it is ignored.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidDocument`, `InvalidTemplate`, `AlreadyExists` (an address is another machine's),
    /// `SourceUnreachable`, `Conflict`, or `Forbidden` (workflows are made by `provision`).
    pub async fn apply(
        &self, document: Document, who: &str, dry_run: bool,
    ) -> Result<(Document, ApplyOutcome), Problem> {
        self.apply_as(document, By { who, person: true }, dry_run).await
    }

    /// The same, where a file says it and no person stands behind it at this moment.
    ///
    /// # Errors
    /// As [`Documents::apply`].
    pub async fn apply_file(&self, document: Document, who: &str) -> Result<(Document, ApplyOutcome), Problem> {
        self.apply_as(document, By { who, person: false }, false).await
    }

    async fn apply_as(
        &self, document: Document, by: By<'_>, dry_run: bool,
    ) -> Result<(Document, ApplyOutcome), Problem> {
        document.validate()?;
        match &document {
            Document::Machine(machine) => return self.apply_machine(machine, document.clone(), by, dry_run).await,
            Document::Template(template) => self.check_template(template).await?,
            Document::EnrolmentRule(_) | Document::Secret(_) | Document::Pool(_) => {}
            Document::Workflow(_) => {
                return Err(Problem::new(
                    ErrorCode::Forbidden,
                    "a workflow cannot be applied: a person must request it",
                )
                .at("kind")
                .hint("use: landfall provision MACHINE --template TEMPLATE"));
            }
        }
        let document = match document {
            Document::Secret(secret) => return self.vault.apply(secret.into_inner(), by.who, dry_run).await,
            other => other,
        };
        self.put(document, by, dry_run).await
    }

    /// One identity is written at a time, and one change of a machine: what is found here still holds when it is stored.
    async fn apply_machine(
        &self, machine: &Machine, document: Document, by: By<'_>, dry_run: bool,
    ) -> Result<(Document, ApplyOutcome), Problem> {
        let (turn, one) = self.identities.alone().await?;
        let name = &machine.metadata.name;
        let mut live = match self.fleet.store().machine(name).await?.and_then(|stored| stored.metadata.uid) {
            Some(uid) => Some(self.fleet.machines().lock(uid).await),
            None => None,
        };
        self.check_machine(machine)?;
        let applied = turn.during(self.put(document, by, dry_run)).await?;
        drop((turn, one));
        if let (Document::Machine(machine), Some(live), false) = (&applied.0, &mut live, dry_run)
            && applied.1 != ApplyOutcome::Unchanged
        {
            self.goes_on(live, machine).await?;
        }
        Ok(applied)
    }

    /// Creates the document, or changes the stored one's spec and labels.
    async fn put(&self, document: Document, by: By<'_>, dry_run: bool) -> Result<(Document, ApplyOutcome), Problem> {
        let (kind, name) = (document.kind(), document.metadata().name.clone());
        // A machine is written by a coordinator that has heard of what others stored.
        let mut has_heard = self.fleet.own().is_none() || kind == Kind::Machine;
        // Against an engine that changes the status at the same moment; a person's own version is not tried again.
        for _ in 0..16 {
            let stored = self.fleet.store().documents().get(kind, &name).await?;
            // Checked also in a dry run, because the caller relies on its answer.
            let named = document.metadata().resource_version;
            if let Some(stored) = stored.as_ref().map(|s| s.metadata().resource_version).filter(|is| *is != named)
                && names_version(&document)
            {
                return Err(StoreError::Conflict { kind, name, stored, given: named }.into());
            }
            let mut merged = merge(document.clone(), stored.as_ref());
            if let Document::Pool(pool) = &mut merged {
                self.stands_behind(pool, stored.as_ref(), by);
            }
            let outcome = match &stored {
                None => ApplyOutcome::Created,
                Some(stored) if *stored == merged => ApplyOutcome::Unchanged,
                Some(_) => ApplyOutcome::Configured,
            };
            // It was compared with the document in memory. Another coordinator may have stored a newer one.
            if outcome == ApplyOutcome::Unchanged && !has_heard {
                self.fleet.hear_others().await?;
                has_heard = true;
                continue;
            }
            if let Document::Machine(machine) = &mut merged
                && outcome != ApplyOutcome::Unchanged
            {
                let stored = stored.as_ref().and_then(|stored| match stored {
                    Document::Machine(stored) => Some(&**stored),
                    _ => None,
                });
                power::follow_document(machine);
                self.may_become(machine, stored).await?;
                // The store counts the generation up with the change of spec that is about to be written.
                let generation = stored.map_or(1, |old| old.metadata.generation + u64::from(old.spec != machine.spec));
                derive::wanted(machine, (self.fleet.now(), generation));
                derive::phase(machine);
            }
            if dry_run {
                return Ok((merged, outcome));
            }
            if outcome == ApplyOutcome::Unchanged {
                // The request that stored it may have been cut off before it was known here.
                if let Document::Machine(machine) = &merged {
                    self.fleet.index().put_machine(machine);
                }
                return Ok((merged, outcome));
            }
            let written = match outcome {
                ApplyOutcome::Created => self.fleet.store().documents().create(merged).await,
                _ => self.fleet.store().documents().update(merged).await,
            };
            match written {
                Ok(document) => {
                    if let Document::Machine(machine) = &document {
                        self.fleet.index().put_machine(machine);
                    }
                    tracing::info!(%kind, name, who = by.who, ?outcome, "applied");
                    return Ok((document, outcome));
                }
                Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. })
                    if !names_version(&document) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::new(ErrorCode::Conflict, format!("{kind} \"{name}\" changed again and again during the request")))
    }

    /// Notes the person who requested what the pool's document says: machines are wiped in that name. What a file changes has none.
    fn stands_behind(&self, pool: &mut Pool, stored: Option<&Document>, by: By<'_>) {
        let old = match stored {
            Some(Document::Pool(old)) => Some(old),
            _ => None,
        };
        let new = pool.spec.clone();
        let status = pool.status.get_or_insert_default();
        let same = old.is_some_and(|old| old.spec == new && old.metadata.labels == pool.metadata.labels);
        let old = old.map(|old| &old.spec);
        if old != Some(&new) {
            // Who waits for it means what is wanted now.
            status.conditions.clear();
        }
        let another = old.is_none_or(|old| old.install() != new.install());
        let resized = old.is_none_or(|old| old.replicas != new.replicas);
        let changed = match (by.person, &status.requested) {
            (false, _) | (true, Some(_)) => another || resized,
            // A file has set the template. A person who changes the number alone does not request that template; one who applies
            // the same document does.
            (true, None) => another || same,
        };
        if changed {
            let authority = || Authority { person: by.who.to_owned(), at: self.fleet.now(), force: false };
            status.requested = by.person.then(authority);
        }
    }

    /// Deletes a document, in the name of `who`. A machine may be deleted at any moment: its workflow is cancelled, and
    /// the document stays, with a `deletionTimestamp`, for as long as an agent may be acting. A run that has not ended
    /// is refused.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` or `MachineBusy`.
    pub async fn delete(&self, kind: Kind, name: &str, who: &str) -> Result<Document, Problem> {
        self.delete_if(kind, name, who, None).await
    }

    /// The same, of the document with that `resourceVersion` alone, where one is stated.
    ///
    /// # Errors
    /// As [`Documents::delete`], and `Conflict`.
    pub async fn delete_if(
        &self, kind: Kind, name: &str, who: &str, version: Option<u64>,
    ) -> Result<Document, Problem> {
        let Some(found) = self.fleet.store().documents().get(kind, name).await? else {
            return Err(self.fleet.not_found(kind, name).await);
        };
        match &found {
            Document::Secret(_) => self.vault.delete(name, version).await,
            Document::Template(_) | Document::EnrolmentRule(_) | Document::Pool(_) => {
                Ok(self.fleet.store().documents().delete_if(kind, name, version).await?)
            }
            Document::Machine(_) => {
                let by = Authority { person: who.to_owned(), at: self.fleet.now(), force: false };
                self.requests.delete_machine(name, &by, version).await
            }
            Document::Workflow(workflow) => {
                if is_open(workflow) {
                    return Err(busy(&workflow.spec.machine, name));
                }
                self.removals.forget_workflow_if(workflow, version).await
            }
        }
    }

    /// The same, where no person stands behind it at this moment: a machine with a run that has not ended stays.
    ///
    /// # Errors
    /// As [`Documents::delete`].
    pub async fn delete_idle(&self, kind: Kind, name: &str, who: &str) -> Result<Document, Problem> {
        if kind == Kind::Machine
            && let Some(run) = self.fleet.current_workflow(&*self.fleet.described(name).await?).await?
            && is_open(&run)
        {
            return Err(busy(name, &run.metadata.name));
        }
        self.delete(kind, name, who).await
    }

    /// A machine that is being deleted cannot change; a machine with a running workflow cannot become unmanaged.
    async fn may_become(&self, machine: &Machine, stored: Option<&Machine>) -> Result<(), Problem> {
        let Some(stored) = stored else { return Ok(()) };
        let name = &machine.metadata.name;
        if stored.metadata.deletion_timestamp.is_some() {
            let hint = format!("wait for it with: landfall wait machine/{name} --for=delete, then apply it again");
            let message = format!("machine \"{name}\" is being deleted");
            return Err(Problem::new(ErrorCode::Conflict, message).at(format!("Machine/{name}")).hint(hint));
        }
        if machine.spec.management == Management::External
            && stored.spec.management != Management::External
            && let Some(run) = self.fleet.current_workflow(stored).await?
            && is_open(&run)
        {
            return Err(busy(name, &run.metadata.name).at(format!("Machine/{name}: spec.management")));
        }
        Ok(())
    }

    /// Its maintenance may just have ended, with an agent there that waits.
    async fn goes_on(&self, live: &mut Live, machine: &Machine) -> Result<(), Problem> {
        if !live.is_connected() {
            return Ok(());
        }
        self.steps.accept_spec(live, &machine.metadata.name).await?;
        if machine.spec.maintenance {
            return Ok(());
        }
        let looked = self.steps.drive(live, &machine.metadata.name, Input::LookAgain).await;
        self.steps.or_cut(live, looked)
    }

    /// What no document can say of itself: its addresses are no other machine's.
    fn check_machine(&self, machine: &Machine) -> Result<(), Problem> {
        let (name, index) = (&machine.metadata.name, self.fleet.index());
        let refuse = |what: String, owner: &str, field: &str| {
            Err(Problem::new(ErrorCode::AlreadyExists, format!("{what} machine \"{owner}\""))
                .at(format!("Machine/{name}: spec.{field}"))
                .hint(format!(
                    "correct one of the two documents, or delete the other with: landfall delete machines {owner}"
                )))
        };
        let reservations = index.reservations();
        for mac in machine.macs() {
            if let Some(owner) = index.owner_of_port(*mac, name) {
                return refuse(format!("{mac} belongs to"), &owner, "identity.macs");
            }
        }
        for Reservation { mac, address } in &machine.spec.reservations {
            // A machine that discovery found may be this very one, or forged.
            if let Some(owner) = index.owner_of_port(*mac, name).filter(|owner| index.discovered().is_described(owner))
            {
                return refuse(format!("{mac} belongs to"), &owner, "reservations");
            }
            if let Some(owner) = reservations.machine_of_address(*address).filter(|owner| owner != name) {
                return refuse(format!("{address} is reserved by"), owner, "reservations");
            }
        }
        let owner = machine.spec.identity.smbios_uuid.and_then(|uuid| index.machine_of_uuid(uuid));
        match owner.filter(|owner| owner != name) {
            Some(owner) => refuse("that SMBIOS UUID belongs to".to_owned(), &owner, "identity.smbiosUuid"),
            None => Ok(()),
        }
    }

    /// Its includes, and images whose URL is known before a machine and parameters are.
    async fn check_template(&self, template: &Template) -> Result<(), Problem> {
        refuse_circles(template, &self.requests.fragments(template).await?)?;
        for (n, action) in template.spec.actions.iter().enumerate() {
            let Some(wanted) = source::in_template(action) else { continue };
            self.sources.check(&wanted).await.map_err(|mut problem| {
                let url = std::mem::take(&mut problem.subject);
                problem.causes.insert(0, url);
                problem.at(format!("Template/{}: spec.actions[{n}].writeImage.image.url", template.metadata.name))
            })?;
        }
        Ok(())
    }
}

fn names_version(document: &Document) -> bool {
    document.metadata().resource_version != 0
}

/// The stored document with the applied one's spec and labels; or the applied one, ready to be created.
fn merge(applied: Document, stored: Option<&Document>) -> Document {
    let version = applied.metadata().resource_version;
    macro_rules! merged {
        ($($kind:ident)*) => {
            match (applied, stored) {
                $((Document::$kind(new), Some(Document::$kind(old))) => {
                    let mut merged = old.clone();
                    merged.spec.clone_from(&new.spec);
                    merged.metadata.labels.clone_from(&new.metadata.labels);
                    Document::$kind(merged)
                })*
                (mut new, _) => {
                    let metadata = new.metadata_mut();
                    (metadata.uid, metadata.creation_timestamp) = (None, None);
                    (metadata.generation, metadata.resource_version) = (0, 0);
                    match &mut new {
                        Document::Machine(machine) => machine.status = Some(MachineStatus::default()),
                        Document::Template(template) => template.status = None,
                        Document::Workflow(workflow) => workflow.status = None,
                        Document::Secret(secret) => secret.status = None,
                        Document::EnrolmentRule(rule) => rule.status = None,
                        Document::Pool(pool) => pool.status = None,
                    }
                    return new;
                }
            }
        };
    }
    let mut merged = merged!(Machine Template Secret EnrolmentRule Pool);
    if version != 0 {
        merged.metadata_mut().resource_version = version;
    }
    merged
}
