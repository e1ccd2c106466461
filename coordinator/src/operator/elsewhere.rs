//! Requests that another coordinator of the same database answers: of a machine's power and console the one that leads, of a workflow's
//! logs the one that has its machine's agent.
//!
//! This one has judged who calls. It asks in the caller's name, with a certificate that it makes for that; the other one takes it, and
//! leaves the audit log to this one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, IF_MATCH};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::TryStreamExt as _;
use landfall_api::{ErrorCode, Problem};
use landfall_machine::elsewhere;

use super::caller::Operator;
use super::problem::Refusal;
use crate::state::Coordinator;
use crate::tls::Peer;

/// The other coordinator answers a connection within this, or is gone.
const CONNECT: Duration = Duration::from_secs(5);
/// An answer that says why a request was refused is no longer.
const PROBLEM_BYTES: usize = 64 << 10;

/// Which of several coordinators answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// Each.
    Any,
    /// The one that leads.
    Leading,
    /// The one that has the agent of the workflow in the path.
    WithAgent,
}

/// What decides that.
#[derive(Clone)]
pub(super) struct Passage {
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) answers: Answers,
}

/// Lets the one answer that can.
pub(super) async fn pass_on(
    State(Passage { coordinator, answers }): State<Passage>, parameters: RawPathParams, request: Request, next: Next,
) -> Response {
    // It was passed on to this one.
    if matches!(request.extensions().get::<Peer>(), Some(Peer::Operator(certificate)) if certificate.stands_in) {
        return next.run(request).await;
    }
    let name = parameters.iter().find(|(key, _)| *key == "name").map(|(_, name)| name.to_owned());
    let at = match answers {
        Answers::Any => Ok(None),
        Answers::Leading => leading(&coordinator),
        Answers::WithAgent => with_agent(&coordinator, &name.unwrap_or_default()).await,
    };
    let outcome = match at {
        Ok(None) => return next.run(request).await,
        Ok(Some(at)) => ask(&coordinator, &at, request).await,
        Err(problem) => Err(problem),
    };
    outcome.unwrap_or_else(|problem| Refusal::from(problem).into_response())
}

fn leading(coordinator: &Coordinator) -> Result<Option<String>, Problem> {
    let fleet = coordinator.engine.fleet();
    if fleet.leads() {
        return Ok(None);
    }
    fleet.beside().led_by().map(Some).ok_or_else(|| {
        Problem::new(ErrorCode::StoreUnavailable, "no coordinator leads at the moment")
            .hint("ask again in some seconds; docs/scale.md says which coordinator leads")
    })
}

async fn with_agent(coordinator: &Coordinator, workflow: &str) -> Result<Option<String>, Problem> {
    let Some(run) = coordinator.store.workflow(workflow).await? else { return Ok(None) };
    let Some(machine) = coordinator.store.machine(&run.spec.machine).await? else { return Ok(None) };
    Ok(elsewhere::other(&machine, coordinator.engine.fleet().own().as_deref()).map(str::to_owned))
}

async fn ask(coordinator: &Coordinator, at: &str, request: Request) -> Result<Response, Problem> {
    let internal = |what: &str, error: &dyn std::error::Error| {
        Problem::new(ErrorCode::Internal, format!("cannot ask the coordinator at {at}: {what}: {error}"))
    };
    let (parts, body) = request.into_parts();
    let Some(operator) = parts.extensions.get::<Operator>() else {
        return Err(Problem::new(ErrorCode::Unauthenticated, "it is not known who asks"));
    };
    let identity = coordinator.pki.stand_in(&operator.name, operator.role);
    let identity = identity.map_err(|error| internal("no certificate", &error))?;
    let unfit = |error: reqwest::Error| internal("no connection can be made", &error);
    let client = reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .tls_certs_only([reqwest::Certificate::from_der(coordinator.pki.ca_der()).map_err(unfit)?])
        .identity(reqwest::Identity::from_pem(identity.as_bytes()).map_err(unfit)?)
        .build()
        .map_err(unfit)?;
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut asked = client.request(parts.method.clone(), format!("{at}{path}"));
    for header in [CONTENT_TYPE, ACCEPT, IF_MATCH] {
        asked = parts.headers.get_all(&header).iter().fold(asked, |asked, value| asked.header(&header, value));
    }
    if parts.method != Method::GET {
        asked = asked.body(reqwest::Body::wrap_stream(body.into_data_stream()));
    }
    let answer = asked.send().await.map_err(|error| {
        let error = error.without_url();
        Problem::new(
            ErrorCode::StoreUnavailable,
            format!("the coordinator at {at}, which answers this, cannot be asked: {error}"),
        )
        .caused_by(&error)
        .hint("ask again in some seconds: if it is gone, another one takes its place")
    })?;
    let status = answer.status();
    if !status.is_success() {
        return Err(refused(at, status, answer).await);
    }
    let kind = answer.headers().get(CONTENT_TYPE).cloned();
    let mut response = Response::new(Body::from_stream(answer.bytes_stream().map_err(reqwest::Error::without_url)));
    *response.status_mut() = status;
    kind.into_iter().for_each(|kind| drop(response.headers_mut().insert(CONTENT_TYPE, kind)));
    Ok(response)
}

/// Why the other one refused it, in its own words.
async fn refused(at: &str, status: StatusCode, answer: reqwest::Response) -> Problem {
    let read = answer.bytes_stream().try_fold(Vec::new(), |mut all, bytes| async move {
        let room = PROBLEM_BYTES.saturating_sub(all.len());
        all.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(all)
    });
    let said = read.await.ok().and_then(|bytes| serde_json::from_slice::<Problem>(&bytes).ok());
    said.unwrap_or_else(|| Problem::new(ErrorCode::Internal, format!("the coordinator at {at} answered {status}")))
}
