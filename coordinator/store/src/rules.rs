//! What every back end does to a document's metadata, in one place.

use jiff::Timestamp;
use landfall_api::{Document, Kind};
use uuid::Uuid;

use super::{ChangeOp, ChangeSet, Seen, StoreError};

/// Metadata of a new document. `revision` is the store's next one.
fn created(mut document: Document, revision: u64) -> Document {
    let metadata = document.metadata_mut();
    metadata.uid.get_or_insert_with(Uuid::new_v4);
    metadata.creation_timestamp.get_or_insert_with(Timestamp::now);
    metadata.deletion_timestamp = None;
    metadata.generation = 1;
    metadata.resource_version = revision;
    document
}

/// A change that is asked for.
#[derive(Clone)]
pub(super) enum Asked {
    /// A new document.
    Create(Document),
    /// Another content, of the version that it states.
    Update(Document),
    /// The document's end, of that version alone where one is stated.
    Delete { kind: Kind, name: String, version: Option<u64> },
    /// The same content, of the version that was read.
    Keep(Seen),
}

impl Asked {
    /// All of a set, in the order of the answers; how many come before those.
    pub(super) fn all(set: ChangeSet) -> (Vec<Self>, usize) {
        let ChangeSet { new, changed, seen, .. } = set;
        let checks = seen.len();
        let writes = new.into_iter().map(Self::Create).chain(changed.into_iter().map(Self::Update));
        (seen.into_iter().map(Self::Keep).chain(writes).collect(), checks)
    }

    /// The document that it is about.
    pub(super) fn key(&self) -> (Kind, &str) {
        match self {
            Self::Create(document) | Self::Update(document) => (document.kind(), &document.metadata().name),
            Self::Delete { kind, name, .. } | Self::Keep(Seen { kind, name, .. }) => (*kind, name),
        }
    }

    /// What it makes of `stored`. `revision` is the store's next one.
    pub(super) fn on(self, stored: Option<&Document>, now: Timestamp, revision: u64) -> Result<Written, StoreError> {
        let Some(stored) = stored else {
            return match self {
                Self::Create(document) => Ok(Written::As(ChangeOp::Added, created(document, revision))),
                // What went by it is to be made again without it.
                Self::Keep(Seen { kind, name, version }) => {
                    Err(StoreError::Conflict { kind, name, stored: 0, given: version })
                }
                Self::Update(_) | Self::Delete { .. } => {
                    let (kind, name) = self.key();
                    Err(StoreError::NotFound { kind, name: name.to_owned() })
                }
            };
        };
        match self {
            Self::Create(document) => {
                Err(StoreError::AlreadyExists { kind: document.kind(), name: document.metadata().name.clone() })
            }
            Self::Update(document) => updated(stored, document, revision),
            Self::Delete { version, .. } => deleted(stored, version, now, revision),
            Self::Keep(seen) => is_at(stored, seen.version).map(|()| Written::Same),
        }
    }
}

/// What a write comes to.
pub(super) enum Written {
    /// Equal to what is stored: nothing to write.
    Same,
    /// To be written, or with [`ChangeOp::Deleted`] to be removed.
    As(ChangeOp, Document),
}

/// The compare of the compare-and-swap.
fn is_at(stored: &Document, given: u64) -> Result<(), StoreError> {
    let (kind, metadata) = (stored.kind(), stored.metadata());
    if metadata.resource_version == given {
        return Ok(());
    }
    Err(StoreError::Conflict { kind, name: metadata.name.clone(), stored: metadata.resource_version, given })
}

/// Checks the compare-and-swap and fills in the metadata that only a store may change.
pub(super) fn updated(stored: &Document, mut new: Document, revision: u64) -> Result<Written, StoreError> {
    is_at(stored, new.metadata().resource_version)?;
    let old = stored.metadata();
    let same_spec = same_spec(stored, &new);
    let metadata = new.metadata_mut();
    metadata.uid = old.uid;
    metadata.creation_timestamp = old.creation_timestamp;
    metadata.deletion_timestamp = old.deletion_timestamp;
    if old.deletion_timestamp.is_some() {
        // A finalizer added after the deletion has nothing to end.
        metadata.finalizers.retain(|name| old.finalizers.contains(name));
    }
    metadata.generation = old.generation + u64::from(!same_spec);
    if new == *stored {
        return Ok(Written::Same);
    }
    new.metadata_mut().resource_version = revision;
    let ended = new.metadata().deletion_timestamp.is_some() && new.metadata().finalizers.is_empty();
    Ok(Written::As(if ended { ChangeOp::Deleted } else { ChangeOp::Modified }, new))
}

/// The result of a deletion: the document is removed, or only marked while a finalizer remains.
fn deleted(stored: &Document, version: Option<u64>, now: Timestamp, revision: u64) -> Result<Written, StoreError> {
    version.map_or(Ok(()), |given| is_at(stored, given))?;
    let mut document = stored.clone();
    if document.metadata().finalizers.is_empty() {
        return Ok(Written::As(ChangeOp::Deleted, document));
    }
    let metadata = document.metadata_mut();
    if metadata.deletion_timestamp.is_some() {
        return Ok(Written::Same);
    }
    metadata.deletion_timestamp = Some(now);
    metadata.resource_version = revision;
    Ok(Written::As(ChangeOp::Modified, document))
}

/// Whether both want the same.
pub(super) fn same_spec(a: &Document, b: &Document) -> bool {
    match (a, b) {
        (Document::Machine(a), Document::Machine(b)) => a.spec == b.spec,
        (Document::Template(a), Document::Template(b)) => a.spec == b.spec,
        (Document::Workflow(a), Document::Workflow(b)) => a.spec == b.spec,
        (Document::Secret(a), Document::Secret(b)) => a.spec == b.spec,
        (Document::EnrolmentRule(a), Document::EnrolmentRule(b)) => a.spec == b.spec,
        (Document::Pool(a), Document::Pool(b)) => a.spec == b.spec,
        _ => false,
    }
}
