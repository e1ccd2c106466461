//! What every back end does to a document's metadata, in one place.

use jiff::Timestamp;
use landfall_api::Document;
use uuid::Uuid;

use super::{MAX_DOCUMENT_BYTES, StoreError};

/// Metadata of a new document. `revision` is the store's next one.
pub(super) fn created(mut document: Document, revision: u64) -> Document {
    let metadata = document.metadata_mut();
    metadata.uid.get_or_insert_with(Uuid::new_v4);
    metadata.creation_timestamp.get_or_insert_with(Timestamp::now);
    metadata.generation = 1;
    metadata.resource_version = revision;
    document
}

/// What a replacement comes to.
pub(super) enum Updated {
    /// Equal to what is stored: nothing to write.
    Same,
    /// To be written.
    New(Document),
}

/// Checks the compare-and-swap and fills in the metadata that only a store may change.
pub(super) fn updated(stored: &Document, mut new: Document, revision: u64) -> Result<Updated, StoreError> {
    let (kind, old) = (stored.kind(), stored.metadata());
    if new.metadata().resource_version != old.resource_version {
        return Err(StoreError::Conflict {
            kind,
            name: old.name.clone(),
            stored: old.resource_version,
            given: new.metadata().resource_version,
        });
    }
    let same_spec = match (stored, &new) {
        (Document::Machine(a), Document::Machine(b)) => a.spec == b.spec,
        (Document::Template(a), Document::Template(b)) => a.spec == b.spec,
        (Document::Workflow(a), Document::Workflow(b)) => a.spec == b.spec,
        _ => false,
    };
    let metadata = new.metadata_mut();
    metadata.uid = old.uid;
    metadata.creation_timestamp = old.creation_timestamp;
    metadata.generation = old.generation + u64::from(!same_spec);
    if new == *stored {
        return Ok(Updated::Same);
    }
    new.metadata_mut().resource_version = revision;
    Ok(Updated::New(new))
}

/// The document as JSON, within the bound.
pub(super) fn encoded(document: &Document) -> Result<String, StoreError> {
    let metadata = document.metadata();
    let what = || format!("{} {}", document.kind(), metadata.name);
    let json = serde_json::to_string(document).map_err(|source| StoreError::Corrupt { what: what(), source })?;
    if json.len() > MAX_DOCUMENT_BYTES {
        return Err(StoreError::TooLarge { kind: document.kind(), name: metadata.name.clone(), bytes: json.len() });
    }
    Ok(json)
}
