//! Requests that another coordinator of the same database answers: of a machine's power and console the one that leads, of a workflow's
//! logs, and of a look at a machine, the one that has its agent. Of what each of them has a part, all are asked.
//!
//! This one has judged who calls. It asks in the caller's name, with a certificate that it makes for that; the other one takes it, and
//! leaves the audit log to this one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, IF_MATCH};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::TryStreamExt as _;
use futures::future::join_all;
use landfall_api::{API_PATH, ErrorCode, Kind, Problem};
use landfall_edge::gate::Limiter;
use landfall_machine::elsewhere;
use landfall_store::{CONFIRMED_WITHIN, StoreError};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::caller::{Operator, WHO};
use super::guard::Asked;
use super::problem::Refusal;
use super::watch::BOOKMARK_EVERY;
use crate::state::Coordinator;
use crate::tls::Peer;

/// The other coordinator answers a connection within this, or is gone.
const CONNECT: Duration = Duration::from_secs(5);
/// While it owes an answer, it is asked so often whether it is there.
const PING_EVERY: Duration = Duration::from_secs(10);
/// An answer that goes on has an empty line now and then: one that is silent for longer is of a coordinator that hangs.
const SILENT: Duration = Duration::from_secs(2 * BOOKMARK_EVERY.as_secs());
/// A part of a list that another coordinator has is there within this, or left out.
const PART: Duration = Duration::from_secs(2);
/// An answer that says why a request was refused is no longer.
const PROBLEM_BYTES: usize = 64 << 10;
/// Questions for documents that are not there ask the database so often at most.
static CATCH_UPS: Limiter = Limiter::a_second(20);

/// Which of several coordinators answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// Each.
    Any,
    /// The one that leads.
    Leading,
    /// The one that has the agent of the workflow in the path.
    AgentOfWorkflow,
    /// The one that has the agent of the machine in the path.
    AgentOfMachine,
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
    if is_passed_on(request.extensions().get::<Peer>()) {
        // Passed on again, it could go round.
        return match answers {
            Answers::Leading if !coordinator.engine.fleet().leads() => Refusal::from(none_leads()).into_response(),
            _ => next.run(request).await,
        };
    }
    let name = name_in(&parameters);
    let at = match answers {
        Answers::Any => Ok(None),
        Answers::Leading => leading(&coordinator),
        Answers::AgentOfWorkflow => with_agent(&coordinator, &name.unwrap_or_default()).await,
        Answers::AgentOfMachine => with_machine(&coordinator, &name.unwrap_or_default()).await,
    };
    let outcome = match at {
        Ok(None) => return next.run(request).await,
        Ok(Some(at)) => ask(&coordinator, &at, request).await,
        Err(problem) => Err(problem),
    };
    outcome.unwrap_or_else(|problem| Refusal::from(problem).into_response())
}

/// The document's name in the path.
fn name_in(parameters: &RawPathParams) -> Option<String> {
    parameters.iter().find(|(key, _)| *key == "name").map(|(_, name)| name.to_owned())
}

/// Whether another coordinator asks, in a person's name.
pub(super) fn is_passed_on(peer: Option<&Peer>) -> bool {
    matches!(peer, Some(Peer::Operator(certificate)) if certificate.stands_in)
}

/// What each of the others answers to a question of this person, and the URLs of those that give no answer: they may be gone.
///
/// # Errors
/// [`Problem`] with code `Internal`: this one cannot make a certificate for that, or a client.
pub(super) async fn parts<T: DeserializeOwned>(
    coordinator: &Coordinator, operator: &Operator, path: &str,
) -> Result<(Vec<T>, Vec<String>), Problem> {
    let client = &client(coordinator, operator)?;
    let parts = coordinator.config.others.iter().map(|at| async move {
        let part = async { client.get(format!("{at}{path}")).send().await?.error_for_status()?.json().await };
        match timeout(PART, part).await {
            Ok(Ok(part)) => return Ok(part),
            Ok(Err(error)) => {
                tracing::warn!(at, path, error = %error.without_url(), "another coordinator's part is missing")
            }
            Err(_) => tracing::warn!(at, path, "another coordinator did not answer in time; its part is missing"),
        }
        Err(at.clone())
    });
    let (mut answers, mut missing) = (Vec::new(), Vec::new());
    for part in join_all(parts).await {
        match part {
            Ok(part) => answers.push(part),
            Err(at) => missing.push(at),
        }
    }
    Ok((answers, missing))
}

fn leading(coordinator: &Coordinator) -> Result<Option<String>, Problem> {
    let fleet = coordinator.engine.fleet();
    if fleet.leads() {
        return Ok(None);
    }
    fleet.beside().led_by().map(Some).ok_or_else(none_leads)
}

fn none_leads() -> Problem {
    Problem::new(ErrorCode::StoreUnavailable, "no coordinator leads at the moment")
        .hint("ask again in some seconds; docs/scale.md says which coordinator leads")
}

/// The other coordinator that has the agent of a workflow's machine, if one has.
pub(super) async fn with_agent(coordinator: &Coordinator, workflow: &str) -> Result<Option<String>, Problem> {
    let Some(run) = coordinator.store.workflow(workflow).await? else { return Ok(None) };
    let Some(machine) = coordinator.store.machine(&run.spec.machine).await? else { return Ok(None) };
    Ok(elsewhere::other(&machine, coordinator.engine.fleet().own().as_deref()).map(str::to_owned))
}

/// The other coordinator that has the agent of a machine now, if one has.
async fn with_machine(coordinator: &Coordinator, machine: &str) -> Result<Option<String>, Problem> {
    let Some(machine) = coordinator.store.machine(machine).await? else { return Ok(None) };
    let other = elsewhere::other(&machine, coordinator.engine.fleet().own().as_deref());
    Ok(other.filter(|_| elsewhere::is_connected(&machine)).map(str::to_owned))
}

/// Another coordinator may have answered a person before this one has heard of what it stored. So this one takes in what is stored before
/// it says that there is no such document, and before it begins something by documents that the request names.
pub(super) async fn hear_first(
    State(Passage { coordinator, answers }): State<Passage>, parameters: RawPathParams, request: Request, next: Next,
) -> Response {
    let begins = request.method() != Method::GET && answers == Answers::Any;
    let name = name_in(&parameters);
    let path = request.uri().path().strip_prefix(API_PATH).unwrap_or_default();
    let kind = Kind::ALL.into_iter().find(|kind| path.trim_start_matches('/').split('/').next() == Some(kind.plural()));
    if let (Some(kind), Some(name)) = (kind, name)
        && let Err(error) = catch_up(&coordinator, kind, &name, begins).await
    {
        return Refusal::from(Problem::from(error)).into_response();
    }
    next.run(request).await
}

async fn catch_up(coordinator: &Coordinator, kind: Kind, name: &str, begins: bool) -> Result<(), StoreError> {
    let (beside, documents) = (coordinator.engine.fleet().beside(), coordinator.store.documents());
    // Without its database it answers from memory what it can.
    if coordinator.config.others.is_empty() || documents.unconfirmed() > CONFIRMED_WITHIN {
        return Ok(());
    }
    if begins || (documents.get(kind, name).await?.is_none() && CATCH_UPS.step().is_some()) {
        beside.hear_of(documents.newest().await?).await;
    }
    Ok(())
}

/// Asks other coordinators in this person's name; none where this one has lost its database.
fn client(coordinator: &Coordinator, operator: &Operator) -> Result<reqwest::Client, Problem> {
    // Rights may have been taken away since: the other one would go by this one's word.
    if coordinator.store.documents().unconfirmed() > CONFIRMED_WITHIN {
        let why = "this coordinator has lost its database, and asks no other one in a person's name";
        return Err(
            Problem::new(ErrorCode::StoreUnavailable, why).hint("ask another coordinator, or again in some seconds")
        );
    }
    let internal = |what: &str, error: &dyn std::error::Error| {
        Problem::new(ErrorCode::Internal, format!("cannot ask another coordinator: {what}: {error}"))
    };
    let identity = coordinator.pki.stand_in(&operator.name, operator.role);
    let identity = identity.map_err(|error| internal("no certificate", &error))?;
    let unfit = |error: reqwest::Error| internal("no connection can be made", &error);
    reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(CONNECT)
        // One that hangs answers none.
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .tls_certs_only([reqwest::Certificate::from_der(coordinator.pki.ca_der()).map_err(unfit)?])
        .identity(reqwest::Identity::from_pem(identity.as_bytes()).map_err(unfit)?)
        .build()
        .map_err(unfit)
}

async fn ask(coordinator: &Arc<Coordinator>, at: &str, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let Some(operator) = parts.extensions.get::<Operator>() else {
        return Err(Problem::new(ErrorCode::Unauthenticated, "it is not known who asks"));
    };
    let client = client(coordinator, operator)?;
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut asked = client.request(parts.method.clone(), format!("{at}{path}"));
    if let Some(caller) = parts.extensions.get::<Asked>() {
        asked = asked.header(WHO, caller.who());
    }
    for header in [CONTENT_TYPE, ACCEPT, IF_MATCH] {
        asked = parts.headers.get_all(&header).iter().fold(asked, |asked, value| asked.header(&header, value));
    }
    if parts.method != Method::GET {
        asked = asked.body(reqwest::Body::wrap_stream(body.into_data_stream()));
    }
    let answer = asked.send().await.map_err(|error| {
        let error = error.without_url();
        let (what, hint) = if error.is_connect() || parts.method == Method::GET {
            ("cannot be asked", "ask again in some seconds: if it is gone, another one takes its place")
        } else {
            ("gave no answer, and may have done it", "check whether it was done before you ask again")
        };
        let message = format!("the coordinator at {at}, which answers this, {what}: {error}");
        Problem::new(ErrorCode::StoreUnavailable, message).caused_by(&error).hint(hint)
    })?;
    let status = answer.status();
    if !status.is_success() {
        return Err(refused(at, status, answer).await);
    }
    let kind = answer.headers().get(CONTENT_TYPE).cloned();
    let read = (answer, coordinator.clone());
    let mut response = Response::new(Body::from_stream(futures::stream::try_unfold(read, next_of)));
    *response.status_mut() = status;
    kind.into_iter().for_each(|kind| drop(response.headers_mut().insert(CONTENT_TYPE, kind)));
    Ok(response)
}

/// An answer under way, and the coordinator that passes it on.
type Read = (reqwest::Response, Arc<Coordinator>);

/// The next bytes of its answer. The answer ends where this coordinator has lost its database: the person's right may be gone.
async fn next_of((mut answer, coordinator): Read) -> io::Result<Option<(Bytes, Read)>> {
    let chunk = timeout(SILENT, answer.chunk()).await?.map_err(|error| io::Error::other(error.without_url()))?;
    if coordinator.has_lost_store_to_others() {
        return Ok(None);
    }
    Ok(chunk.map(|bytes| (bytes, (answer, coordinator))))
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
