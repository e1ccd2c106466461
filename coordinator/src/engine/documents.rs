//! Applying and deleting documents: everything that can be wrong is said before anything is stored.

use landfall_api::{ActionSpec, Document, ErrorCode, Kind, Machine, Problem, Template};

use super::{ApplyOutcome, Engine, derive};
use crate::store::StoreError;

/// More ports than any machine netboots from.
const MAX_MACS: usize = 64;

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
        check_name(&document)?;
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

    fn check_machine(&self, machine: &Machine) -> Result<(), Problem> {
        let macs = &machine.spec.identity.macs;
        let at = |field: &str| format!("Machine/{}: spec.identity.{field}", machine.metadata.name);
        let invalid = |what: String| Problem::new(ErrorCode::InvalidDocument, what).at(at("macs"));
        if macs.is_empty() || macs.len() > MAX_MACS {
            return Err(invalid(format!("{} addresses are given; 1 to {MAX_MACS} are taken", macs.len()))
                .hint("list every port the machine may netboot from"));
        }
        for (n, mac) in macs.iter().enumerate() {
            if macs[..n].contains(mac) {
                return Err(invalid(format!("{mac} is listed twice")).hint("list each port once"));
            }
            if mac.0[0] & 1 == 1 || mac.0 == [0; 6] {
                return Err(invalid(format!("{mac} is no port's own address")).hint("take the one printed on the port"));
            }
            if let Some(owner) = self.index().machine_of_mac(*mac).filter(|owner| *owner != machine.metadata.name) {
                return Err(Problem::new(ErrorCode::AlreadyExists, format!("{mac} belongs to machine \"{owner}\""))
                    .at(at("macs"))
                    .hint(format!("correct one of the two documents, or: landfall delete machines {owner}")));
            }
        }
        Ok(())
    }

    /// What can be said of a template before a machine and parameters are known: each action's key, and the images whose
    /// URL has no expression.
    async fn check_template(&self, template: &Template) -> Result<(), Problem> {
        let at = |field: String| format!("Template/{}: spec.{field}", template.metadata.name);
        if template.spec.actions.is_empty() {
            return Err(Problem::new(ErrorCode::InvalidTemplate, "the list of actions is empty")
                .at(at("actions".into()))
                .hint("add at least one action, such as writeImage"));
        }
        for (n, action) in template.spec.actions.iter().enumerate() {
            let text = action.to_string();
            if text.contains("{{") || text.contains("{%") {
                let url =
                    action.pointer("/writeImage/image/url").and_then(|v| v.as_str()).filter(|u| !u.contains("{{"));
                if let Some(url) = url {
                    self.inner.sources.check(url).await?;
                }
                continue;
            }
            let action: landfall_api::Action = serde_path_to_error::deserialize(action).map_err(|error| {
                let path = error.path().to_string();
                Problem::new(ErrorCode::InvalidTemplate, error.into_inner().to_string())
                    .at(at(format!("actions[{n}].{path}")))
                    .hint("landfall explain templates lists the fields")
            })?;
            if let ActionSpec::WriteImage(spec) = &action.spec {
                self.inner.sources.check(&spec.image.url).await.map_err(|mut problem| {
                    problem.causes.push(format!("at {}", at(format!("actions[{n}].writeImage.image.url"))));
                    problem
                })?;
            }
        }
        Ok(())
    }
}

fn busy_with(machine: &str, workflow: &str) -> Problem {
    Problem::new(ErrorCode::MachineBusy, format!("machine \"{machine}\" is busy with workflow \"{workflow}\""))
        .hint(format!("wait for it, or stop it with: landfall cancel {workflow}"))
}

fn check_name(document: &Document) -> Result<(), Problem> {
    let name = &document.metadata().name;
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fine = (1..=63).contains(&name.len())
        && name.chars().all(|c| letter(c) || c == '-')
        && name.starts_with(letter)
        && name.ends_with(letter);
    if fine {
        return Ok(());
    }
    Err(Problem::new(ErrorCode::InvalidDocument, format!("\"{name}\" is not a name"))
        .at(format!("{}: metadata.name", document.kind()))
        .hint("use lower-case letters, digits and dashes, at most 63, beginning and ending with a letter or digit"))
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
