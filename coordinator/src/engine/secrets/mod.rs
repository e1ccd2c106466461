//! Secret documents: the values go into the secret store, the document keeps their keys and a version, and a workflow gets
//! them when its assignment is made for the machine they belong to.
//!
//! Two stores hold a secret, and no transaction spans them. Values are written first, with their version: a crash
//! between the two leaves values that are newer than their document says, and the next apply puts that right. They are
//! removed first as well: values without a document must not remain.

mod bmc_account;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{
    Action, ActionSpec, ApplyOutcome, BMC_PASSWORD, BMC_USERNAME, BmcAddress, Document, ErrorCode, Kind, Machine,
    Problem, Secret, SecretSpec, SecretStatus, Shared, Workflow, place_has,
};
use landfall_bmc::Account;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use uuid::Uuid;

pub(super) use self::bmc_account::bmc_secret;
use super::{Clock, fleet::Fleet, internal};
use landfall_store::{Alone, Hold, Store, StoreError};

use crate::workflow::{SecretRef, references, resolve};

/// A machine's lock, and that of all coordinators, may be held while others write secrets here: for so long at most.
const WITHIN: Duration = Duration::from_secs(5);

/// An account: the uid of its Secret, and the version of the values.
pub(in crate::engine) type Version = (Uuid, u64);

/// A secret's values as they are kept, sealed.
#[derive(Default, Serialize, Deserialize)]
struct Values {
    version: u64,
    data: BTreeMap<String, String>,
    /// The uid of the machine for whose BMC Landfall made it; absent: a person wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_for: Option<Uuid>,
    /// An account that a BMC may have already, and that takes the place of the other once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<Pending>,
}

/// An account that a machine is setting in its BMC.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Pending {
    /// The newest workflow that sets it, and the name of its action.
    workflow: Uuid,
    action: String,
    /// The uid of the machine that does.
    machine: Option<Uuid>,
    username: String,
    password: String,
}

/// The name under which a secret document's values are kept.
fn store_name(name: &str) -> String {
    format!("secret/{name}")
}

/// Whether a machine may have a secret's values: named, or with every label that is asked for.
fn belongs_to(spec: &SecretSpec, machine: &Machine) -> bool {
    let labels = &machine.metadata.labels;
    spec.machines.contains(&machine.metadata.name)
        || (!spec.match_labels.is_empty()
            && spec.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// Secrets: their documents, and their values, sealed in the store.
pub(super) struct Vault {
    fleet: Arc<Fleet>,
    store: Store,
    clock: Clock,
    /// One change of a secret's values at a time: they and their document are two writes.
    changes: tokio::sync::Mutex<()>,
}

impl Vault {
    pub(super) fn new(fleet: Arc<Fleet>, store: Store, clock: Clock) -> Self {
        Self { fleet, store, clock, changes: tokio::sync::Mutex::default() }
    }

    /// Waits until no other change of a secret is under way, here or at another coordinator, and what those stored is known here.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    async fn alone(&self) -> Result<(Arc<Hold>, tokio::sync::MutexGuard<'_, ()>), Problem> {
        // Those of this coordinator share it.
        let hold = self.fleet.beside().alone(Alone::Secret).await?;
        if self.fleet.own().is_none() {
            return Ok((hold, self.changes.lock().await));
        }
        let late = || Problem::new(ErrorCode::StoreUnavailable, "other secrets are being written for too long");
        let one = timeout(WITHIN, self.changes.lock()).await;
        Ok((hold, one.map_err(|_| late().hint("repeat the request in a moment"))?))
    }

    async fn document(&self, name: &str) -> Result<Option<Shared<Secret>>, Problem> {
        let found = self.store.documents().get(Kind::Secret, name).await?;
        Ok(found.and_then(|document| match document {
            Document::Secret(secret) => Some(secret),
            _ => None,
        }))
    }

    async fn values(&self, name: &str) -> Result<Option<Values>, Problem> {
        let kept = self.store.secrets().get(&store_name(name), self.clock.wall()).await?;
        // What does not parse is not quoted: it may be half a value.
        let damaged = |_| Problem::new(ErrorCode::Internal, format!("cannot parse the values of secret \"{name}\""));
        kept.map(|bytes| serde_json::from_slice(&bytes).map_err(damaged)).transpose()
    }

    async fn put_values(&self, name: &str, values: &Values) -> Result<(), Problem> {
        let bytes = serde_json::to_vec(values).map_err(internal)?;
        Ok(self.store.secrets().put(&store_name(name), &bytes, Timestamp::MAX).await?)
    }

    /// Creates a secret, or changes it. Without `data` it keeps the values it has.
    pub(super) async fn apply(
        &self, mut given: Secret, who: &str, dry_run: bool,
    ) -> Result<(Document, ApplyOutcome), Problem> {
        let name = given.metadata.name.clone();
        let at = format!("Secret/{name}");
        let data = std::mem::take(&mut given.spec.data);
        let alone = if dry_run { None } else { Some(self.alone().await?) };
        let (stored, kept) = (self.document(&name).await?, self.values(&name).await?);
        if data.is_empty() && kept.is_none() {
            return Err(Problem::new(ErrorCode::InvalidDocument, "the secret has no values")
                .at(format!("{at}: spec.data"))
                .hint("write at least one: data: {KEY: value}"));
        }
        if let Some(stored) = &stored
            && given.metadata.resource_version != 0
            && given.metadata.resource_version != stored.metadata.resource_version
        {
            let (is, named) = (stored.metadata.resource_version, given.metadata.resource_version);
            let message = format!("the Secret \"{name}\" is at resourceVersion {is}, but the write states {named}");
            return Err(Problem::new(ErrorCode::Conflict, message).at(at).hint("read it again"));
        }
        let mut version = kept.as_ref().map_or(0, |values| values.version);
        let changed = !data.is_empty() && kept.as_ref().is_none_or(|values| values.data != data);
        if changed {
            // Above the document's too: of a store that was restored only one of the two may be older.
            version = version.max(stored.as_ref().and_then(|s| s.status.as_ref()).map_or(0, |s| s.version)) + 1;
        }
        // What a person writes is that person's, and nothing of another account is kept beside it.
        let values = if changed { Values { version, data, ..Values::default() } } else { kept.unwrap_or_default() };
        let status = SecretStatus { keys: values.data.keys().cloned().collect(), version };
        let merged = match &stored {
            Some(stored) => {
                let mut merged = Secret::clone(stored);
                merged.spec = given.spec;
                merged.metadata.labels = given.metadata.labels;
                merged.status = Some(status);
                merged
            }
            None => {
                let metadata = &mut given.metadata;
                (metadata.uid, metadata.creation_timestamp) = (None, None);
                (metadata.generation, metadata.resource_version) = (0, 0);
                Secret { status: Some(status), ..given }
            }
        };
        let outcome = match &stored {
            None => ApplyOutcome::Created,
            Some(stored) if !changed && **stored == merged => ApplyOutcome::Unchanged,
            Some(_) => ApplyOutcome::Configured,
        };
        let merged = Document::from(merged);
        let (Some((turn, _)), false) = (alone, outcome == ApplyOutcome::Unchanged) else {
            return Ok((merged, outcome));
        };
        if changed {
            turn.during(self.put_values(&name, &values)).await?;
        }
        let documents = self.store.documents();
        let written = match stored {
            None => turn.during(documents.create(merged)).await?,
            Some(_) => turn.during(documents.update(merged)).await?,
        };
        tracing::info!(kind = %Kind::Secret, name, who, version, ?outcome, "applied");
        Ok((written, outcome))
    }

    /// The account for a BMC, and the version of its values. The Secret must name the BMC's host: a person who may write machines
    /// must not be able to have a Secret sent to any host.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` or `Forbidden`; or of the store.
    pub(super) async fn bmc_account(&self, name: &str, address: &BmcAddress) -> Result<(Account, Version), Problem> {
        let host = address.host();
        let at = format!("Secret/{name}");
        let missing = |what: String, hint: String| Problem::new(ErrorCode::NotFound, what).at(&at).hint(hint);
        let Some(document) = self.document(name).await? else {
            return Err(missing(
                format!("there is no secret \"{name}\""),
                format!("apply it, with the values {BMC_USERNAME} and {BMC_PASSWORD}"),
            ));
        };
        if !document.spec.bmcs.iter().any(|place| place_has(place, address)) {
            return Err(Problem::new(
                ErrorCode::Forbidden,
                format!("the secret \"{name}\" does not name the BMC {host}"),
            )
            .at(&at)
            .hint(match address.protocol().before_places() {
                "" => format!("add {host}, or a network or domain with it, to its spec.bmcs"),
                "http://" => format!("add http://{host} to its spec.bmcs, or speak https to the BMC"),
                before => format!("add {before}{host} to its spec.bmcs"),
            }));
        }
        let mut values = self.values(name).await?.unwrap_or_default();
        let mut value = |key: &str| {
            let found = values.data.remove(key).filter(|value| !value.is_empty());
            found.ok_or_else(|| {
                missing(format!("the secret \"{name}\" has no value \"{key}\""), format!("add it: data: {{{key}: …}}"))
            })
        };
        let account = Account { username: value(BMC_USERNAME)?, password: value(BMC_PASSWORD)? };
        Ok((account, (document.metadata.uid.unwrap_or_default(), values.version)))
    }

    /// The `resourceVersion` of a secret's document; 0: there is none.
    pub(super) async fn version_of(&self, name: &str) -> Result<u64, Problem> {
        Ok(self.document(name).await?.map_or(0, |secret| secret.metadata.resource_version))
    }

    /// The values that a workflow's list refers to, as far as they are there: what must not be shown of it.
    pub(super) async fn of_workflow(&self, workflow: &Workflow) -> Result<Vec<String>, Problem> {
        let Some(status) = &workflow.status else { return Ok(Vec::new()) };
        let actions = || status.actions.iter().chain(&status.on_failure).map(|status| &*status.action);
        let mut out = self.of_actions(actions()).await?;
        if actions().any(|action| matches!(action.spec, ActionSpec::BmcAccount(_)))
            && let Some(machine) = self.store.machine(&workflow.spec.machine).await?
        {
            out.extend(self.bmc_passwords(&machine).await?);
        }
        Ok(out)
    }

    /// The same of actions that are in no workflow.
    pub(super) async fn of_actions(&self, actions: impl Iterator<Item = &Action>) -> Result<Vec<String>, Problem> {
        let mut out = Vec::new();
        for action in actions {
            for reference in references(&serde_json::to_value(action).map_err(internal)?) {
                let values = self.values(&reference.secret).await?;
                out.extend(values.and_then(|mut values| values.data.remove(&reference.key)));
            }
        }
        Ok(out)
    }

    /// Removes a secret's values, then its document.
    pub(super) async fn delete(&self, name: &str, version: Option<u64>) -> Result<Document, Problem> {
        let (turn, _one) = self.alone().await?;
        // The values go first, so the version is looked at before; whatever changes it waits here.
        let stored = self.document(name).await?.map_or(0, |secret| secret.metadata.resource_version);
        if let Some(given) = version.filter(|version| *version != stored) {
            return Err(StoreError::Conflict { kind: Kind::Secret, name: name.to_owned(), stored, given }.into());
        }
        drop(turn.during(self.store.secrets().consume(&store_name(name), self.clock.wall())).await?);
        Ok(turn.during(self.store.documents().delete(Kind::Secret, name)).await?)
    }

    /// A whole list with its secrets in place. Fails unless every one that it refers to is there, has the key, and is this
    /// machine's.
    pub(super) async fn insert_all(&self, machine: &Machine, actions: &[Action]) -> Result<Vec<Action>, Problem> {
        let mut out = Vec::with_capacity(actions.len());
        for action in actions {
            out.push(self.insert(machine, action.clone()).await?);
        }
        Ok(out)
    }

    /// A pinned action with the values in place of its references: only for the agent.
    pub(super) async fn insert(&self, machine: &Machine, action: Action) -> Result<Action, Problem> {
        let tree = serde_json::to_value(&action).map_err(internal)?;
        let wanted = references(&tree);
        if wanted.is_empty() {
            return Ok(action);
        }
        let values = self.known(machine, &wanted).await?;
        let value_of = |reference: &SecretRef| values.get(reference).map(String::as_str);
        let tree = resolve(tree, &value_of).map_err(|reference| not_there(&reference, machine))?;
        // What the parser says could quote a value.
        serde_json::from_value(tree).map_err(|_| {
            Problem::new(ErrorCode::Internal, format!("cannot insert the secrets into action \"{}\"", action.name))
                .at(format!("Machine/{}", machine.metadata.name))
        })
    }

    async fn known(
        &self, machine: &Machine, wanted: &BTreeSet<SecretRef>,
    ) -> Result<BTreeMap<SecretRef, String>, Problem> {
        let mut known = BTreeMap::new();
        let mut read: BTreeMap<&str, Values> = BTreeMap::new();
        for reference in wanted {
            let name = reference.secret.as_str();
            if !read.contains_key(name) {
                let document = self.document(name).await?.ok_or_else(|| not_there(reference, machine))?;
                if !belongs_to(&document.spec, machine) {
                    let owner = &machine.metadata.name;
                    let message = format!("the secret \"{name}\" does not belong to machine \"{owner}\"");
                    return Err(Problem::new(ErrorCode::Forbidden, message).at(format!("Secret/{name}")).hint(
                        format!(
                            "name the machine in its spec.machines, or give {owner} the labels in its spec.matchLabels"
                        ),
                    ));
                }
                read.insert(name, self.values(name).await?.ok_or_else(|| not_there(reference, machine))?);
            }
            let value = read.get(name).and_then(|values| values.data.get(&reference.key));
            known.insert(reference.clone(), value.ok_or_else(|| not_there(reference, machine))?.clone());
        }
        Ok(known)
    }
}

fn not_there(reference: &SecretRef, machine: &Machine) -> Problem {
    let SecretRef { secret, key } = reference;
    let message = format!(
        "there is no secret \"{secret}\" with the key \"{key}\", which a workflow of machine \"{}\" needs",
        machine.metadata.name
    );
    Problem::new(ErrorCode::NotFound, message)
        .at(format!("Secret/{secret}"))
        .hint("list secrets and their keys with landfall get secrets, and apply the missing one")
}
