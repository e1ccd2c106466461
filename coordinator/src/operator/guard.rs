//! The check in front of every route, and the audit of what went through it.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Method, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures::StreamExt as _;
use jiff::Timestamp;
use landfall_api::{AuditOutcome, ErrorCode, Problem};

use super::{
    caller::{Caller, Operator, admit},
    problem::{Failure, Refusal},
    routes::{Access, RouteInfo},
};
use crate::{audit::Note, state::Coordinator, store::actor, tls::Peer};

/// What a row of the table asks of its callers.
#[derive(Clone)]
pub(super) struct Gate {
    coordinator: Arc<Coordinator>,
    access: Access,
    changes: bool,
}

impl Gate {
    pub(super) fn new(coordinator: Arc<Coordinator>, route: &RouteInfo) -> Self {
        Self { coordinator, access: route.access, changes: route.changes() }
    }
}

/// What a handler adds to the entry that the audit log gets of it; put into its response's extensions. Never a secret.
#[derive(Clone, Debug)]
pub(super) struct About {
    /// Such as `machine/node-1`.
    pub(super) subject: String,
    /// More for people.
    pub(super) detail: String,
}

impl About {
    /// Of this subject, with nothing more to say.
    pub(super) fn subject(subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), detail: String::new() }
    }
}

/// Lets a request through to its handler, or refuses it.
pub(super) async fn check(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let Access::Least(least) = gate.access else { return next.run(request).await };
    let place = Place::of(&request);
    let admitted = admit(&gate.coordinator, request.extensions().get::<Peer>(), request.headers()).await;
    let caller = match admitted.and_then(|caller| caller.at_least(least).map(|()| caller)) {
        Ok(caller) => caller,
        Err(problem) => return refuse(&gate.coordinator, place, request.extensions().get::<Peer>(), problem).await,
    };
    request.extensions_mut().insert(Operator { name: caller.name.clone(), role: caller.role });
    // Whatever it changes is in its caller's name.
    let response = actor::acting(&caller.who, next.run(request)).await;
    if gate.changes {
        let failure = response.extensions().get::<Failure>().map(|f| f.0);
        let about = response.extensions().get::<About>();
        let refused =
            matches!(failure, Some(ErrorCode::Forbidden | ErrorCode::Unauthenticated | ErrorCode::Unapproved));
        let outcome = match (response.status().is_success(), refused) {
            (true, _) => AuditOutcome::Done,
            (false, true) => AuditOutcome::Refused,
            (false, false) => AuditOutcome::Failed,
        };
        let note = Note {
            who: caller.who.clone(),
            subject: about.map(|about| about.subject.clone()).unwrap_or_default(),
            detail: about.map(|about| about.detail.clone()).unwrap_or_default(),
            outcome,
            code: failure,
            ..place.note()
        };
        gate.coordinator.store.audit().note(Timestamp::now(), note).await;
    }
    ending_with(response, &gate.coordinator, caller)
}

/// Method, path and address of a request: what is left to tell when the request itself is gone.
pub(super) struct Place {
    method: Method,
    path: String,
    from: String,
}

impl Place {
    fn of(request: &Request) -> Self {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let from = match request.extensions().get::<SocketAddr>() {
            Some(address) => address.ip().to_canonical().to_string(),
            None => "unix".to_owned(),
        };
        Self { method, path, from }
    }

    /// The path and never the query: what a caller puts there by mistake stays out.
    fn note(self) -> Note {
        Note {
            who: String::new(),
            from: self.from,
            action: format!("{} {}", self.method, self.path),
            subject: String::new(),
            outcome: AuditOutcome::Refused,
            code: None,
            detail: String::new(),
        }
    }
}

async fn refuse(coordinator: &Coordinator, place: Place, peer: Option<&Peer>, problem: Problem) -> Response {
    let who = match peer {
        None | Some(Peer::Anonymous) => "anonymous".to_owned(),
        Some(Peer::Machine(machine)) => format!("machine/{}", machine.name),
        Some(Peer::Operator(operator)) => format!("{}/{}", operator.role, operator.name),
        Some(Peer::Local { user, .. }) => format!("local/{user}"),
    };
    let note = Note { who, code: Some(problem.code), ..place.note() };
    coordinator.store.audit().note(Timestamp::now(), note).await;
    Refusal::from(problem).into_response()
}

/// An answer that goes on for long ends when its caller may look no more.
fn ending_with(response: Response, coordinator: &Arc<Coordinator>, caller: Caller) -> Response {
    let lines = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/x-ndjson");
    if !lines {
        return response;
    }
    let coordinator = coordinator.clone();
    let mut changed = coordinator.store.access().changed();
    let withdrawn = async move {
        loop {
            let left = caller.ends.map_or(std::time::Duration::MAX, |end| {
                std::time::Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default()
            });
            tokio::select! {
                told = changed.changed() => if told.is_err() { return },
                () = tokio::time::sleep(left) => return,
            }
            if !caller.still_good(&coordinator).await {
                return;
            }
        }
    };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(withdrawn))))
}
