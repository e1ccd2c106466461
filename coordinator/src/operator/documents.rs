//! Documents: list, watch, get, apply, delete.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use landfall_api::{ApplyResponse, Document, ErrorCode, Kind, LabelSelector, Problem, Role};
use serde::Deserialize;
use serde_json::Value;

use super::body::{JsonBody, Params};
use super::caller::Operator;
use super::guard::About;
use super::pages::Wanted;
use super::precondition::IfMatch;
use super::problem::Refusal;
use super::{pages, precondition, watch};
use crate::state::Coordinator;

/// Parameters of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ListQuery {
    watch: bool,
    resource_version: Option<u64>,
    /// Only the document of that name.
    name: Option<String>,
    /// Only documents whose labels agree.
    label_selector: Option<String>,
    /// At most so many documents; the most that a page may hold for 0, which is the default.
    limit: Option<usize>,
    /// The page after this one's.
    #[serde(rename = "continue")]
    from: Option<String>,
}

pub(super) async fn list(
    kind: Kind, _: Operator, State(coordinator): State<Arc<Coordinator>>, Params(query): Params<ListQuery>,
) -> Result<Response, Refusal> {
    let labels = query.label_selector.as_deref().unwrap_or_default().parse::<LabelSelector>().map_err(|error| {
        Problem::new(ErrorCode::InvalidDocument, error.to_string())
            .at("labelSelector")
            .hint("separate requirements with commas: a=b, c!=d, e in (x,y), f notin (z), g, !h")
    })?;
    let wanted = Wanted { kind, name: query.name, labels };
    if query.watch {
        if query.limit.is_some() || query.from.is_some() {
            return Err(pages::unpaged());
        }
        return watch::stream(&coordinator, wanted, query.resource_version).await;
    }
    let from = query.from.map_or(Ok(pages::Token::default()), |token| token.parse())?;
    // Another coordinator may have given the pages before.
    coordinator.engine.fleet().beside().hear_of(from.revision()).await;
    let list = pages::page(coordinator.store.documents(), &wanted, query.limit.unwrap_or_default(), from).await?;
    Ok(Json(list).into_response())
}

pub(super) async fn get(
    kind: Kind, _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let found = coordinator.store.documents().get(kind, &name).await?;
    let found = found.ok_or_else(|| missing(kind, &name))?;
    Ok(([precondition::tag(&found)], Json(found)).into_response())
}

/// "No such document", with what to do.
pub(super) fn missing(kind: Kind, name: &str) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("there is no {} \"{name}\"", kind.singular()))
        .hint(format!("list them with landfall get {}", kind.plural()))
}

/// Who may change documents of a kind. Rules let machines in, and secrets are for those who may see everything anyway.
pub(super) const fn role_for(kind: Kind) -> Role {
    match kind {
        Kind::Machine | Kind::Template | Kind::Workflow | Kind::Pool => Role::Operator,
        Kind::Secret | Kind::EnrolmentRule => Role::Admin,
    }
}

pub(super) async fn delete(
    kind: Kind, operator: Operator, State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<Json<Document>, Refusal> {
    if if_match != IfMatch::Absent {
        if_match.check(coordinator.store.documents().get(kind, &name).await?.as_ref())?;
    }
    // Compared again when it is deleted: it may change in between.
    let deleted = coordinator.engine.documents().delete_if(kind, &name, &operator.name, if_match.version()).await;
    let document = deleted.map_err(|problem| if_match.refused(problem))?;
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
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, Params(query): Params<ApplyQuery>,
    if_match: IfMatch, JsonBody(tree): JsonBody<Value>,
) -> Result<(Extension<About>, Json<ApplyResponse<Document>>), Refusal> {
    let mut document = Document::from_value(tree)?;
    operator.at_least(role_for(document.kind()), &format!("applying {}", document.kind().plural()))?;
    document.validate()?;
    // Another coordinator may have answered with that version, which this one is about to hear of.
    let version = if_match.version().unwrap_or(document.metadata().resource_version);
    coordinator.engine.fleet().beside().hear_of(version).await;
    if if_match != IfMatch::Absent {
        let stored = coordinator.store.documents().get(document.kind(), &document.metadata().name).await?;
        if_match.check(stored.as_ref())?;
    }
    if let Some(version) = if_match.version() {
        // The engine compares it again when it writes.
        document.metadata_mut().resource_version = version;
    }
    let applied = coordinator.engine.documents().apply(document, &operator.name, query.dry_run).await;
    let (object, outcome) = applied.map_err(|problem| if_match.refused(problem))?;
    let about = About { subject: object.reference(), detail: outcome.to_string() };
    Ok((Extension(about), Json(ApplyResponse { outcome, object })))
}
