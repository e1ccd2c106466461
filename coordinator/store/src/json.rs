//! A document as it is stored and sent.

use std::sync::Arc;

use landfall_api::Document;
use serde_json::value::{RawValue, to_raw_value};

use super::{MAX_DOCUMENT_BYTES, StoreError};

/// The document as JSON, within the bound.
pub(super) fn encoded(document: &Document) -> Result<Arc<RawValue>, StoreError> {
    let metadata = document.metadata();
    let what = || format!("{} {}", document.kind(), metadata.name);
    let json = to_raw_value(document).map_err(|source| StoreError::Corrupt { what: what(), source })?;
    let bytes = json.get().len();
    if bytes > MAX_DOCUMENT_BYTES {
        return Err(StoreError::TooLarge { kind: document.kind(), name: metadata.name.clone(), bytes });
    }
    Ok(json.into())
}
