//! The check in front of every route, and the audit of what went through it.

use std::{net::SocketAddr, sync::Arc};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use jiff::Timestamp;
use landfall_api::{AuditOutcome, ErrorCode, Problem, Role};
use tokio::sync::watch;

use super::caller::{Caller, Operator, admit};
use super::cross_site::not_from_another_site;
use super::problem::{Failure, Refusal};
use crate::{state::Coordinator, tls::Peer};
use landfall_store::actor;
use landfall_store::audit::{ANONYMOUS, MACHINE, Note};

/// Whom a route lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody who reaches the port.
    Anyone,
    /// A caller with at least this role.
    Least(Role),
}

/// What is to be known of a route.
#[derive(Debug, Clone)]
pub struct RouteInfo {
    /// `None`: whatever the method.
    pub method: Option<Method>,
    /// With `{name}` for a segment that varies.
    pub path: String,
    /// Whom it lets in.
    pub access: Access,
    /// What it does, in one line.
    pub about: String,
    /// Whether the audit log has no entry of it, although its method is one that changes something: it only reads, and what is asked stands
    /// in a body; or it is a part of what another request began.
    pub reads: bool,
}

impl RouteInfo {
    /// Whether a request changes something, and is written into the audit log. A backup carries every secret away: it
    /// counts.
    pub fn changes(&self) -> bool {
        (self.may_be_sent_blindly() && !self.reads) || self.path == "/backup"
    }

    /// Whether a page of another site could have a browser send it: by its method, not by what it does.
    fn may_be_sent_blindly(&self) -> bool {
        self.method.as_ref().is_some_and(|method| !method.is_safe())
    }
}

/// What a row of the table asks of its callers.
#[derive(Clone)]
pub(super) struct Gate {
    coordinator: Arc<Coordinator>,
    access: Access,
    changes: bool,
    /// Whether a certificate alone does not show that its owner means it.
    checks_site: bool,
}

impl Gate {
    pub(super) fn new(coordinator: Arc<Coordinator>, route: &RouteInfo) -> Self {
        let checks_site = route.changes() || route.may_be_sent_blindly();
        Self { coordinator, access: route.access, changes: route.changes(), checks_site }
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

/// Who asked for what, for the entry of something that ends long after its request.
#[derive(Clone)]
pub(super) struct Asked {
    who: String,
    place: Place,
}

impl Asked {
    /// For the audit log: `admin/ann`.
    pub(super) fn who(&self) -> &str {
        &self.who
    }

    /// The entry that it ended.
    pub(super) fn ended(self, about: About) -> Note {
        let (subject, detail, outcome) = (about.subject, about.detail, AuditOutcome::Done);
        let action = format!("CLOSE {}", self.place.path);
        Note { who: self.who, action, subject, detail, outcome, ..self.place.note() }
    }
}

/// Lets a request through to its handler, or refuses it.
pub(super) async fn check(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let Access::Least(least) = gate.access else { return next.run(request).await };
    let place = Place::of(&request);
    // Before the caller is checked: revocations from now on are reported.
    let withdrawn = gate.coordinator.store.access().changed();
    let admitted = admit(&gate.coordinator, request.extensions().get::<Peer>(), request.headers()).await;
    let admitted = admitted.and_then(|caller| {
        caller.at_least(least)?;
        if gate.checks_site && caller.by_certificate() {
            not_from_another_site(request.headers(), request.uri())?;
        }
        Ok(caller)
    });
    let caller = match admitted {
        Ok(caller) => caller,
        Err(problem) => return refuse(&gate.coordinator, place, request.extensions().get::<Peer>(), problem).await,
    };
    request.extensions_mut().insert(Operator { name: caller.name.clone(), role: caller.role });
    request.extensions_mut().insert(Asked { who: caller.who.clone(), place: place.clone() });
    // The coordinator that passed it on notes it.
    let is_noted =
        matches!(request.extensions().get::<Peer>(), Some(Peer::Operator(certificate)) if certificate.stands_in);
    let response = if gate.changes && !is_noted {
        to_its_end(gate.coordinator.clone(), caller.who.clone(), place, request, next).await
    } else {
        actor::acting(&caller.who, next.run(request)).await
    };
    ending_with(response, &gate.coordinator, caller, withdrawn)
}

/// Runs what changes something, and notes it: also when the client goes away meanwhile, which ends the request but must
/// leave nothing half done and nothing unsaid. What is to be done is noted before, for a coordinator that is killed in between.
async fn to_its_end(
    coordinator: Arc<Coordinator>, who: String, place: Place, request: Request, next: Next,
) -> Response {
    let task = tokio::spawn(async move {
        // Whatever it changes is in its caller's name.
        let audit = coordinator.store.audit();
        let begun = audit.begin(Timestamp::now(), Note { who: who.clone(), ..place.clone().note() }).await;
        let response = actor::acting(&who, next.run(request)).await;
        audit.end(begun, Timestamp::now(), note_of(who, place, &response)).await;
        response
    });
    match task.await {
        Ok(response) => response,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => {
                let problem = Problem::new(ErrorCode::Internal, format!("the request was not finished: {error}"));
                Refusal::from(problem.hint("the coordinator is stopping; check whether the request was executed"))
                    .into_response()
            }
        },
    }
}

fn note_of(who: String, place: Place, response: &Response) -> Note {
    let failure = response.extensions().get::<Failure>().map(|f| f.0);
    let about = response.extensions().get::<About>();
    let refused = matches!(failure, Some(ErrorCode::Forbidden | ErrorCode::Unauthenticated | ErrorCode::Unapproved));
    let outcome = match (response.status().is_success(), refused) {
        (true, _) => AuditOutcome::Done,
        (false, true) => AuditOutcome::Refused,
        (false, false) => AuditOutcome::Failed,
    };
    Note {
        who,
        subject: about.map(|about| about.subject.clone()).unwrap_or_default(),
        detail: about.map(|about| about.detail.clone()).unwrap_or_default(),
        outcome,
        code: failure,
        ..place.note()
    }
}

/// Method, path and address of a request: what is left to tell when the request itself is gone.
#[derive(Clone)]
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
        None | Some(Peer::Anonymous) => ANONYMOUS.to_owned(),
        Some(Peer::Machine(machine)) => format!("{MACHINE}{}", machine.name),
        Some(Peer::Operator(operator)) => format!("{}/{}", operator.role, operator.name),
        Some(Peer::Local { user, .. }) => format!("local/{user}"),
    };
    let note = Note { who, code: Some(problem.code), ..place.note() };
    coordinator.store.audit().note(Timestamp::now(), note).await;
    Refusal::from(problem).into_response()
}

/// A long response ends when its caller loses the right to read. `changed` reports every revocation since before the
/// caller was admitted.
fn ending_with(
    response: Response, coordinator: &Arc<Coordinator>, caller: Caller, mut changed: watch::Receiver<u64>,
) -> Response {
    let lines = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/x-ndjson");
    if !lines {
        return response;
    }
    let coordinator = coordinator.clone();
    let withdrawn = async move {
        loop {
            let left = caller.ends.map_or(std::time::Duration::MAX, |end| {
                std::time::Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default()
            });
            tokio::select! {
                waited = changed.changed() => if waited.is_err() { return },
                () = tokio::time::sleep(left) => return,
            }
            if !caller.still_good(&coordinator).await {
                return;
            }
        }
    };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(withdrawn))))
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Bytes, middleware::from_fn_with_state, routing::post};
    use http_body_util::BodyExt as _;
    use jiff::SignedDuration;
    use landfall_api::Role;
    use tokio::sync::Notify;
    use tower::ServiceExt as _;

    use super::*;
    use crate::operator::tests::{admin, api};
    use crate::tls::OperatorCert;

    #[tokio::test]
    async fn a_stream_ends_if_its_caller_is_revoked_meanwhile() {
        let api = api().await;
        let coordinator = &api.coordinator;
        let now = Timestamp::now();
        let not_after = now + SignedDuration::from_hours(1);
        let peer = Peer::Operator(OperatorCert {
            name: "bob".into(),
            role: Role::Viewer,
            made: now,
            not_after,
            stands_in: false,
        });
        let changed = coordinator.store.access().changed();
        let caller = admit(coordinator, Some(&peer), &http::HeaderMap::new()).await.unwrap();
        coordinator.store.access().revoke_operator("bob", Timestamp::now()).await.unwrap();
        let endless = futures::stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let response = ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(endless)).into_response();
        let body = ending_with(response, coordinator, caller, changed).into_body();
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, body.collect()).await.expect("it goes on").unwrap();
    }

    #[tokio::test]
    async fn an_interrupted_change_is_in_the_audit_log() {
        let api = api().await;
        let (begun, ends) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, ended) = (Arc::clone(&begun), Arc::clone(&ends));
        let handler = async move || {
            begins.notify_one();
            ended.notified().await;
        };
        let route = RouteInfo {
            method: Some(Method::POST),
            path: "/x".into(),
            access: Access::Least(Role::Operator),
            about: String::new(),
            reads: false,
        };
        let gate = from_fn_with_state(Gate::new(api.coordinator.clone(), &route), check);
        let router = Router::new().route("/x", post(handler)).layer(gate);
        let mut request = Request::post("/x").body(Body::empty()).unwrap();
        request.extensions_mut().insert(admin());
        let answered = tokio::spawn(router.oneshot(request));
        begun.notified().await;
        let audit = api.coordinator.store.audit();
        assert!(audit.list(0, 9).await.unwrap().is_empty(), "it is under way");
        // What the next start would find.
        audit.reveal(Timestamp::MAX).await.unwrap();
        let entries = audit.list(0, 9).await.unwrap();
        let [entry] = entries.as_slice() else { panic!("{entries:?}") };
        assert_eq!((entry.action.as_str(), entry.outcome), ("POST /x", AuditOutcome::Failed));
        assert!(entry.who.starts_with("admin/") && entry.detail.contains("may have been carried out"), "{entry:?}");
        ends.notify_one();
        assert!(answered.await.unwrap().unwrap().status().is_success());
        assert_eq!(audit.list(entry.position, 9).await.unwrap()[0].outcome, AuditOutcome::Done);
    }
}
