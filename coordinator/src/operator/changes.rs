//! What was changed of a document, when and by whom.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use landfall_api::{HistoryEntry, Kind};
use serde::Deserialize;

use super::{body::Params, caller::Operator, documents::missing, problem::Refusal, watch::lines};
use crate::state::Coordinator;
use landfall_store::HISTORY_PER_DOCUMENT;

/// Parameters of a history.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct HistoryQuery {
    /// The number of newest changes to return.
    limit: Option<usize>,
}

/// A document that is gone has a history for as long as it is kept.
pub(super) async fn history(
    kind: Kind, _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
    Params(query): Params<HistoryQuery>,
) -> Result<Response, Refusal> {
    let documents = coordinator.store.documents();
    let limit = query.limit.unwrap_or(HISTORY_PER_DOCUMENT);
    let entries: Vec<HistoryEntry> = documents.history(kind, &name, limit).await?;
    if entries.is_empty() && documents.get(kind, &name).await?.is_none() {
        return Err(missing(kind, &name).into());
    }
    let (lines, response) = lines();
    tokio::spawn(async move {
        for entry in entries {
            if !lines.send(&entry).await {
                return;
            }
        }
    });
    Ok(response)
}
