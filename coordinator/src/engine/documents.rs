//! Applying and deleting documents: everything that can be wrong is said before anything is stored.

use landfall_api::{Document, ErrorCode, Kind, Machine, Problem, Template};

use super::{ApplyOutcome, Engine, Wanted, derive};
use crate::store::StoreError;

impl Engine {
    /// Creates a document, or changes the spec and labels of the one of that name. `dry_run` checks and stores nothing.
    /// A `resourceVersion` in the document, if any, must be the stored one; a status in it is ignored.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidDocument`, `InvalidTemplate`, `AlreadyExists` (an address is another machine's),
    /// `SourceUnreachable`, `Conflict`, or `Forbidden` (workflows are made by `provision`).
    pub async fn apply(
        &self,
        document: Document,
        who: &str,
        dry_run: bool,
    ) -> Result<(Document, ApplyOutcome), Problem> {
        document.validate()?;
        match &document {
            Document::Machine(machine) => self.check_machine(machine)?,
            Document::Template(template) => self.check_template(template).await?,
            Document::Workflow(_) => {
                return Err(Problem::new(ErrorCode::Forbidden, "a workflow is not applied: a person asks for it")
                    .at("kind")
                    .hint("run: landfall provision MACHINE --template TEMPLATE"));
            }
        }
        let (kind, name) = (document.kind(), document.metadata().name.clone());
        // Against an engine that changes the status at the same moment; a person's own version is not tried again.
        for _ in 0..16 {
            let stored = self.inner.store.documents().get(kind, &name).await?;
            let merged = merge(document.clone(), stored.as_ref());
            let outcome = match &stored {
                None => ApplyOutcome::Created,
                Some(stored) if *stored == merged => ApplyOutcome::Unchanged,
                Some(_) => ApplyOutcome::Configured,
            };
            if dry_run || outcome == ApplyOutcome::Unchanged {
                return Ok((merged, outcome));
            }
            let written = match outcome {
                ApplyOutcome::Created => self.inner.store.documents().create(merged).await,
                _ => self.inner.store.documents().update(merged).await,
            };
            match written {
                Ok(document) => {
                    if let Document::Machine(machine) = &document {
                        self.index().put_machine(machine);
                    }
                    tracing::info!(%kind, name, who, ?outcome, "applied");
                    return Ok((document, outcome));
                }
                Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. })
                    if !names_version(&document) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::new(ErrorCode::Conflict, format!("{kind} \"{name}\" is being changed without end")))
    }

    /// Deletes a document. A machine under way, and a run that has not ended, are refused.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` or `MachineBusy`.
    pub async fn delete(&self, kind: Kind, name: &str) -> Result<Document, Problem> {
        let Some(found) = self.inner.store.documents().get(kind, name).await? else {
            return Err(self.not_found(kind, name).await);
        };
        match found {
            Document::Template(_) => Ok(self.inner.store.documents().delete(kind, name).await?),
            Document::Machine(machine) => {
                let uid = machine.metadata.uid.unwrap_or_default();
                let _lock = self.inner.machines.lock(uid).await;
                if let Some(busy) = self
                    .current_workflow(&machine)
                    .await?
                    .filter(|w| w.status.as_ref().is_some_and(|s| !s.phase.is_terminal()))
                {
                    return Err(busy_with(name, &busy.metadata.name));
                }
                let gone = self.inner.store.documents().delete(kind, name).await?;
                self.index().drop_machine(&machine);
                self.inner.machines.forget(uid);
                Ok(gone)
            }
            Document::Workflow(workflow) => {
                if workflow.status.as_ref().is_some_and(|s| !s.phase.is_terminal()) {
                    return Err(busy_with(&workflow.spec.machine, name));
                }
                self.forget_workflow(&workflow).await
            }
        }
    }

    /// What no document can say of itself: its addresses are no other machine's.
    fn check_machine(&self, machine: &Machine) -> Result<(), Problem> {
        for mac in &machine.spec.identity.macs {
            if let Some(owner) = self.index().machine_of_mac(*mac).filter(|owner| *owner != machine.metadata.name) {
                return Err(Problem::new(ErrorCode::AlreadyExists, format!("{mac} belongs to machine \"{owner}\""))
                    .at(format!("Machine/{}: spec.identity.macs", machine.metadata.name))
                    .hint(format!("correct one of the two documents, or: landfall delete machines {owner}")));
            }
        }
        Ok(())
    }

    /// Images whose URL is known before a machine and parameters are.
    async fn check_template(&self, template: &Template) -> Result<(), Problem> {
        for (n, action) in template.spec.actions.iter().enumerate() {
            let Some(wanted) = Wanted::in_template(action) else { continue };
            self.inner.sources.check(&wanted).await.map_err(|mut problem| {
                let url = std::mem::take(&mut problem.subject);
                problem.causes.insert(0, url);
                problem.at(format!("Template/{}: spec.actions[{n}].writeImage.image.url", template.metadata.name))
            })?;
        }
        Ok(())
    }
}

fn busy_with(machine: &str, workflow: &str) -> Problem {
    Problem::new(ErrorCode::MachineBusy, format!("machine \"{machine}\" is busy with workflow \"{workflow}\""))
        .hint(format!("wait for it, or stop it with: landfall cancel {workflow}"))
}

fn names_version(document: &Document) -> bool {
    document.metadata().resource_version != 0
}

/// The stored document with the applied one's spec and labels; or the applied one, ready to be created.
fn merge(applied: Document, stored: Option<&Document>) -> Document {
    let version = applied.metadata().resource_version;
    let mut merged = match (applied, stored) {
        (Document::Machine(new), Some(Document::Machine(old))) => {
            let mut merged = old.clone();
            merged.spec = new.spec;
            merged.metadata.labels = new.metadata.labels;
            Document::Machine(merged)
        }
        (Document::Template(new), Some(Document::Template(old))) => {
            let mut merged = old.clone();
            merged.spec = new.spec;
            merged.metadata.labels = new.metadata.labels;
            Document::Template(merged)
        }
        (mut new, _) => {
            let metadata = new.metadata_mut();
            (metadata.uid, metadata.creation_timestamp) = (None, None);
            (metadata.generation, metadata.resource_version) = (0, 0);
            match &mut new {
                Document::Machine(machine) => machine.status = Some(derive::new_machine_status()),
                Document::Template(template) => template.status = None,
                Document::Workflow(workflow) => workflow.status = None,
            }
            return new;
        }
    };
    if version != 0 {
        merged.metadata_mut().resource_version = version;
    }
    merged
}
