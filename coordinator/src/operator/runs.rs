//! Starting and stopping runs: each records who asked.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use jiff::Timestamp;
use landfall_api::{Authority, ProvisionRequest, Workflow};

use super::{body::JsonBody, caller::Operator, problem::Refusal};
use crate::state::Coordinator;

pub(super) async fn provision(
    operator: Operator,
    State(coordinator): State<Arc<Coordinator>>,
    Path(machine): Path<String>,
    JsonBody(request): JsonBody<ProvisionRequest>,
) -> Result<Json<Workflow>, Refusal> {
    let authority = Authority { person: operator.name, at: Timestamp::now(), force: request.force };
    Ok(Json(coordinator.engine.provision(&machine, &request.template, request.parameters, authority).await?))
}

pub(super) async fn cancel(
    operator: Operator,
    State(coordinator): State<Arc<Coordinator>>,
    Path(workflow): Path<String>,
) -> Result<Json<Workflow>, Refusal> {
    let authority = Authority { person: operator.name, at: Timestamp::now(), force: false };
    Ok(Json(coordinator.engine.cancel(&workflow, authority).await?))
}
