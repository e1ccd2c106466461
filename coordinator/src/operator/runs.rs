//! Starting and stopping workflows, and other decisions of a person about a machine: each records the person.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use jiff::Timestamp;
use landfall_api::{
    Authority, DeprovisionRequest, DetachResponse, Document, Inspection, Machine, PowerReport, PowerRequest, Preview,
    PreviewRequest, ProvisionRequest, RenderRequest, RenderedList, Shared, WipeSpec, Workflow,
};

use serde::Deserialize;

use super::body::{JsonBody, Params};
use super::caller::Operator;
use super::problem::Refusal;
use crate::engine::Clearing;
use crate::state::Coordinator;

/// No parameters. A request that must not start anything, such as one with `dryRun`, is refused and never taken for one
/// without them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NoQuery {}

pub(super) async fn provision(
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
    Params(NoQuery {}): Params<NoQuery>, JsonBody(request): JsonBody<ProvisionRequest>,
) -> Result<Json<Shared<Workflow>>, Refusal> {
    let ProvisionRequest { template, parameters, force, expects } = request;
    let authority = Authority { person: operator.name, at: Timestamp::now(), force };
    let requests = coordinator.engine.requests();
    Ok(Json(requests.provision(&machine, &template, parameters, authority, expects.as_deref()).await?))
}

/// Changes nothing.
pub(super) async fn dry_run(
    _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
    JsonBody(request): JsonBody<ProvisionRequest>,
) -> Result<Json<RenderedList>, Refusal> {
    let ProvisionRequest { template, parameters, force, .. } = request;
    Ok(Json(coordinator.engine.requests().dry_run(&machine, &template, &parameters, force).await?))
}

/// Changes nothing.
pub(super) async fn render(
    _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
    JsonBody(request): JsonBody<RenderRequest>,
) -> Result<Json<RenderedList>, Refusal> {
    Ok(Json(coordinator.engine.requests().render(&machine, request).await?))
}

pub(super) async fn deprovision(
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
    JsonBody(request): JsonBody<DeprovisionRequest>,
) -> Result<Json<Shared<Workflow>>, Refusal> {
    let authority = Authority { person: operator.name, at: Timestamp::now(), force: request.force };
    let wipe = WipeSpec { disks: request.disks, level: request.level, fallback: request.fallback };
    let clearing = Clearing { wipe, power_off: request.power_off };
    let requests = coordinator.engine.requests();
    Ok(Json(requests.deprovision(&machine, clearing, authority, request.expects.as_deref()).await?))
}

/// Changes nothing.
pub(super) async fn preview(
    _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
    JsonBody(request): JsonBody<PreviewRequest>,
) -> Result<Json<Preview>, Refusal> {
    Ok(Json(coordinator.engine.requests().preview(&machine, request).await?))
}

pub(super) async fn inspect(
    _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
) -> Result<Json<Inspection>, Refusal> {
    Ok(Json(coordinator.engine.inspections().inspect(&machine).await?))
}

pub(super) async fn power(
    _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
    JsonBody(request): JsonBody<PowerRequest>,
) -> Result<Json<PowerReport>, Refusal> {
    Ok(Json(coordinator.engine.power().request(&machine, request).await?))
}

pub(super) async fn detach(
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
) -> Result<Json<DetachResponse<Document>>, Refusal> {
    let authority = Authority { person: operator.name, at: Timestamp::now(), force: false };
    let (object, stays) = coordinator.engine.requests().detach(&machine, authority).await?;
    Ok(Json(DetachResponse { object, stays }))
}

pub(super) async fn release(
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
) -> Result<Json<Shared<Machine>>, Refusal> {
    let authority = Authority { person: operator.name, at: Timestamp::now(), force: false };
    Ok(Json(coordinator.engine.pools().release(&machine, authority).await?))
}

/// Handlers of the verbs that take a name alone: each calls the engine's request of the same name and answers the document.
macro_rules! verbs {
    ($($verb:ident: $document:ty;)*) => {$(
        pub(super) async fn $verb(
            operator: Operator,
            State(coordinator): State<Arc<Coordinator>>,
            Path(name): Path<String>,
        ) -> Result<Json<Shared<$document>>, Refusal> {
            let authority = Authority { person: operator.name, at: Timestamp::now(), force: false };
            Ok(Json(coordinator.engine.requests().$verb(&name, authority).await?))
        }
    )*};
}

verbs! {
    adopt: Machine;
    cancel: Workflow;
    pause: Workflow;
    resume: Workflow;
    confirm: Workflow;
    confirm_identity: Machine;
    retry: Workflow;
}
