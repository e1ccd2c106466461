//! Documents: list, watch, get, apply, delete.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use landfall_api::{ApplyResponse, Document, ErrorCode, Kind, List, ListMetadata, Problem};
use serde::Deserialize;
use serde_json::Value;

use super::{
    body::{JsonBody, Params},
    caller::Operator,
    problem::Refusal,
    watch,
};
use crate::state::Coordinator;

/// Parameters of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ListQuery {
    watch: bool,
    resource_version: Option<u64>,
    /// Only the document of that name.
    name: Option<String>,
}

pub(super) async fn list(
    kind: Kind,
    _: Operator,
    State(coordinator): State<Arc<Coordinator>>,
    Params(query): Params<ListQuery>,
) -> Result<Response, Refusal> {
    if query.watch {
        return watch::stream(&coordinator, kind, query.name, query.resource_version).await;
    }
    let (mut items, revision) = coordinator.store.documents().list(kind).await?;
    items.retain(|d| query.name.as_ref().is_none_or(|name| &d.metadata().name == name));
    Ok(Json(List { items, metadata: ListMetadata { resource_version: revision } }).into_response())
}

pub(super) async fn get(
    kind: Kind,
    _: Operator,
    State(coordinator): State<Arc<Coordinator>>,
    Path(name): Path<String>,
) -> Result<Json<Document>, Refusal> {
    let found = coordinator.store.documents().get(kind, &name).await?;
    Ok(Json(found.ok_or_else(|| missing(kind, &name))?))
}

/// "No such document", with what to do.
pub(super) fn missing(kind: Kind, name: &str) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("there is no {} \"{name}\"", kind.singular()))
        .hint(format!("landfall get {} lists them", kind.plural()))
}

pub(super) async fn delete(
    kind: Kind,
    operator: Operator,
    State(coordinator): State<Arc<Coordinator>>,
    Path(name): Path<String>,
) -> Result<Json<Document>, Refusal> {
    let document = coordinator.engine.delete(kind, &name).await?;
    tracing::info!(service = "operator", by = operator.name, document = document.reference(), "deleted");
    Ok(Json(document))
}

/// Parameters of an apply.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ApplyQuery {
    dry_run: bool,
}

pub(super) async fn apply(
    operator: Operator,
    State(coordinator): State<Arc<Coordinator>>,
    Params(query): Params<ApplyQuery>,
    JsonBody(tree): JsonBody<Value>,
) -> Result<Json<ApplyResponse<Document>>, Refusal> {
    let document = Document::from_value(tree)?;
    document.validate()?;
    let (object, outcome) = coordinator.engine.apply(document, &operator.name, query.dry_run).await?;
    Ok(Json(ApplyResponse { outcome, object }))
}
