//! Tokens, withdrawn certificates, approval, and the audit log.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use landfall_api::{ApproveRequest, Machine, OperatorRevoked, Shared, TokenInfo, TokenList, TokenRequest};
use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::body::{JsonBody, Params};
use super::caller::Operator;
use super::guard::About;
use super::problem::Refusal;
use super::watch::{blanks, lines};
use crate::state::Coordinator;
use landfall_store::audit::MAX_PAGE;

/// Entries answered where no limit is named.
const DEFAULT_PAGE: usize = 1000;

/// Others' entries are looked for so often.
const LOOK: Duration = Duration::from_secs(1);

/// Parameters of the audit log.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AuditQuery {
    /// Only entries after this position.
    after: u64,
    /// How many at most; with `follow`, at once.
    limit: Option<usize>,
    /// Go on with new entries.
    follow: bool,
}

pub(super) async fn audit(
    State(coordinator): State<Arc<Coordinator>>, Params(query): Params<AuditQuery>,
) -> Result<Response, Refusal> {
    let limit = query.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let audit = coordinator.store.audit().clone();
    let mut written = audit.written();
    let first = audit.list(query.after, limit).await?;
    let (lines, response) = lines();
    tokio::spawn(async move {
        let (mut page, mut after) = (first, query.after);
        let (mut blanks, mut looks) = (blanks(), interval_at(Instant::now() + LOOK, LOOK));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let is_alone = coordinator.config.others.is_empty();
        loop {
            let full = page.len() >= limit;
            for entry in page {
                after = entry.position;
                if !lines.send(&entry).await {
                    return;
                }
            }
            if !query.follow {
                return;
            }
            // A full page has more behind it already.
            let mut more = full;
            while !more {
                tokio::select! {
                    waited = written.changed() => if waited.is_err() { return } else { more = true },
                    // What is asked of another coordinator it writes.
                    _ = looks.tick(), if !is_alone => more = true,
                    _ = blanks.tick() => if !lines.blank().await { return },
                    () = lines.closed() => return,
                }
            }
            page = match audit.list(after, limit).await {
                Ok(page) => page,
                Err(error) => return tracing::error!(%error, "cannot follow the audit log"),
            };
        }
    });
    Ok(response)
}

pub(super) async fn tokens(State(coordinator): State<Arc<Coordinator>>) -> Result<Json<TokenList>, Refusal> {
    Ok(Json(TokenList { items: coordinator.store.access().tokens().await? }))
}

pub(super) async fn make_token(
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, JsonBody(request): JsonBody<TokenRequest>,
) -> Result<Response, Refusal> {
    let issued = coordinator.store.access().make_token(request, &operator.name, Timestamp::now()).await?;
    let about = About {
        subject: format!("token/{}", issued.token.name),
        detail: format!("{} until {}", issued.token.role, issued.token.expires),
    };
    Ok((Extension(about), [("cache-control", "no-store")], Json(issued)).into_response())
}

pub(super) async fn delete_token(
    State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
) -> Result<(Extension<About>, Json<TokenInfo>), Refusal> {
    let gone = coordinator.store.access().delete_token(&name).await?;
    Ok((Extension(About::subject(format!("token/{name}"))), Json(gone)))
}

pub(super) async fn revoke_operator(
    State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
) -> Result<(Extension<About>, Json<OperatorRevoked>), Refusal> {
    let revoked = coordinator.store.access().revoke_operator(&name, Timestamp::now()).await?;
    Ok((Extension(About::subject(format!("operator/{name}"))), Json(revoked)))
}

pub(super) async fn approve(
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
    JsonBody(request): JsonBody<ApproveRequest>,
) -> Result<(Extension<About>, Json<Shared<Machine>>), Refusal> {
    let machine = coordinator.engine.enrolments().approve(&name, &request.fingerprint, &operator.name).await?;
    let key = machine.status.as_ref().and_then(|s| s.enrolment.approved.as_ref()).map(|key| key.fingerprint.clone());
    let about = About { subject: format!("machine/{name}"), detail: key.unwrap_or_default() };
    Ok((Extension(about), Json(machine)))
}

pub(super) async fn revoke_machine(
    State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
) -> Result<(Extension<About>, Json<Shared<Machine>>), Refusal> {
    let machine = coordinator.engine.certificates().revoke_machine(&name).await?;
    Ok((Extension(About::subject(format!("machine/{name}"))), Json(machine)))
}
