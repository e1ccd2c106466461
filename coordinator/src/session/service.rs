//! The three calls.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, stream::Map};
use landfall_api::message::{EnrollAnswer, EnrollRequest, Telemetry, ToAgent};
use landfall_api::{ErrorCode, Problem};
use landfall_proto::v1::agent_service_server::AgentService;
use landfall_proto::v1::{SessionRequest, SessionResponse, TelemetryRequest, TelemetryResponse};
use landfall_proto::{ConvertError, v1};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

use super::access::Admitted;
use super::failures::Failures;
use super::{access, bounds, facts, status, stream};
use crate::engine::{Asker, Engine};
use crate::tls::{MachineCert, Peer};
use landfall_edge::gate::{Limiters, Rate};
use landfall_edge::metrics::{metrics, refused};

/// Telemetry of one machine: items a second in the long run (ten times what is shown of them), and 10,000 at once. They are taken in
/// whatever comes and thinned behind it: leaving them unread would fill the connection's window and hold up the agent's own
/// heartbeats. But reading costs time that others need, so a stream that never lets up is closed; the agent opens another
/// one, after a while.
const ITEMS: Rate = Rate::a_second(2000, Duration::from_secs(5));
/// Machines that owe for telemetry at one time and are counted apart; one that keeps to the rate owes for a moment only.
const SPOKEN: usize = 4096;

/// Messages to an agent that the connection has not taken yet.
const DOWN: usize = 64;
/// A telemetry stream that says nothing for so long is closed; the agent opens another when it has something to say.
const TELEMETRY_IDLE: Duration = Duration::from_secs(600);

pub(super) struct AgentApi {
    engine: Engine,
    failures: Failures,
    /// Of every machine, over all its streams: one gets no more by opening several.
    telemetry: Limiters<Uuid>,
    /// See [`stream::TURNS`].
    turns: Arc<Semaphore>,
    /// See [`facts::RATE`].
    facts: Arc<Limiters<Uuid>>,
}

impl AgentApi {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            failures: Failures::default(),
            telemetry: Limiters::new(ITEMS, SPOKEN),
            turns: Arc::new(Semaphore::new(stream::TURNS)),
            facts: Arc::new(Limiters::new(facts::RATE, SPOKEN)),
        }
    }
}

/// The machine whose certificate was found good; nothing else gets past the check in front of the calls.
fn machine_of<T>(request: &Request<T>) -> Result<MachineCert, Status> {
    match request.extensions().get::<Admitted>() {
        Some(Admitted(machine)) => Ok(machine.clone()),
        None => Err(status::of(
            Problem::new(ErrorCode::Unauthenticated, "this call needs a machine's certificate").hint("enrol first"),
        )),
    }
}

impl AgentApi {
    /// Whether there is such a run, and makes its log ready. Another machine's is refused.
    async fn may_tell_of(&self, machine: &MachineCert, workflow: Uuid, address: &str) -> Result<bool, Status> {
        match self.engine.sessions().machine_of_run(workflow).await.map_err(status::of)? {
            Some(owner) if owner == machine.uid => {
                self.engine.telemetry().prepare_logs(workflow).await.map_err(status::of)?;
                Ok(true)
            }
            None => Ok(false),
            Some(_) => {
                let message = format!("machine \"{}\" sends reports for another machine's workflow", machine.name);
                let problem = Problem::new(ErrorCode::Forbidden, message).at(workflow.to_string());
                let peer = Peer::Machine(machine.clone());
                access::refused(&self.engine, "Telemetry", &peer, Some(address.to_owned()), &problem).await;
                Err(status::of(problem))
            }
        }
    }
}

fn address_of<T>(request: &Request<T>) -> String {
    request.extensions().get::<SocketAddr>().map_or_else(|| "unknown".to_owned(), |a| a.ip().to_string())
}

#[tonic::async_trait]
impl AgentService for AgentApi {
    async fn enroll(&self, request: Request<v1::EnrollRequest>) -> Result<Response<v1::EnrollResponse>, Status> {
        let (address, from) = (address_of(&request), request.extensions().get::<SocketAddr>().copied());
        // A machine whose certificate is good has proved something, and is one of few.
        let anonymous = request.extensions().get::<Admitted>().is_none();
        let from = from.filter(|_| anonymous);
        if let Err(problem) = self.failures.may_try(from.as_ref()) {
            refused("enroll", problem.code);
            return Err(status::of(problem));
        }
        let asker = Asker {
            address: request.extensions().get::<SocketAddr>().map(SocketAddr::ip),
            shown: request.extensions().get::<Admitted>().map(|Admitted(machine)| machine.clone()),
        };
        let peer = asker.shown.clone().map_or(Peer::Anonymous, Peer::Machine);
        let request = match EnrollRequest::try_from(request.into_inner()).and_then(bounds::enroll) {
            Ok(request) => request,
            Err(error) => {
                let problem = status::invalid(&error);
                let _line = self.failures.failed(from.as_ref());
                access::refused(&self.engine, "Enroll", &peer, Some(address), &problem).await;
                return Err(status::of(problem));
            }
        };
        match self.engine.enrolments().enroll(request, asker).await {
            Ok(enrolment) => {
                let answer = EnrollAnswer { coordinator_time: self.engine.fleet().now(), outcome: enrolment.into() };
                Ok(Response::new(answer.into()))
            }
            Err(problem) => {
                if let Some(left_out) = self.failures.failed(from.as_ref()) {
                    tracing::warn!(address, %problem, left_out, "an enrolment was refused");
                }
                refused("enroll", problem.code);
                Err(status::of(problem))
            }
        }
    }

    /// Converts a message when the connection takes it: in the queue a [`SessionResponse`] would need four times the room of a [`ToAgent`],
    /// and tokio makes room for 32 when it makes the queue.
    type SessionStream =
        Map<ReceiverStream<Result<ToAgent, Status>>, fn(Result<ToAgent, Status>) -> Result<SessionResponse, Status>>;

    async fn session(
        &self, request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (machine, address) = (machine_of(&request)?, address_of(&request));
        let (down, answers) = mpsc::channel(DOWN);
        let engine = self.engine.clone();
        // Ends with the connection: either half failing ends it, and every wait in it is bounded.
        let facts = facts::Facts::new(self.facts.clone(), machine.uid);
        tokio::spawn(stream::run(engine, self.turns.clone(), facts, machine, address, request.into_inner(), down));
        Ok(Response::new(ReceiverStream::new(answers).map(|message| message.map(SessionResponse::from))))
    }

    async fn telemetry(
        &self, request: Request<Streaming<TelemetryRequest>>,
    ) -> Result<Response<TelemetryResponse>, Status> {
        let (machine, address) = (machine_of(&request)?, address_of(&request));
        let mut items = request.into_inner();
        let (mut accepted, mut known) = (0, None);
        let mut revoked = self.engine.certificates().revocations();
        loop {
            // What has arrived already is taken without a wait: agents send dozens at once.
            let item = match items.message().now_or_never() {
                Some(Ok(Some(item))) => item,
                Some(_) => break,
                None => tokio::select! {
                    biased;
                    item = timeout(TELEMETRY_IDLE, items.message()) => match item {
                        Ok(Ok(Some(item))) => item,
                        _ => break,
                    },
                    waited = revoked.changed() => {
                        if waited.is_err() {
                            break;
                        }
                        self.engine.certificates().check_certificate(&machine).map_err(status::of)?;
                        continue;
                    }
                },
            };
            self.engine.certificates().check_certificate(&machine).map_err(status::of)?;
            if self.telemetry.step(machine.uid).is_none() {
                metrics().telemetry_streams_closed.add(1);
                let message = "more than 2000 progress and log items a second";
                let hint = "an agent may log in a loop: reduce the agent's RUST_LOG";
                return Err(status::of(Problem::new(ErrorCode::LimitReached, message).hint(hint)));
            }
            let invalid = |error: ConvertError| status::of(status::invalid(&error));
            let item = bounds::telemetry(Telemetry::try_from(item).map_err(invalid)?);
            let workflow_uid = item.workflow_uid();
            if known != Some(workflow_uid) {
                // Boxed: done once a run, while the stream waits all along.
                match Box::pin(self.may_tell_of(&machine, workflow_uid, &address)).await? {
                    true => known = Some(workflow_uid),
                    // The workflow was deleted: its remaining reports are dropped.
                    false => continue,
                }
            }
            match item {
                Telemetry::Progress { action, progress } => {
                    self.engine.telemetry().progress(machine.uid, action, progress)
                }
                Telemetry::Log { workflow_uid, line } => self.engine.telemetry().log(workflow_uid, line),
            }
            accepted += 1;
        }
        Ok(Response::new(TelemetryResponse { accepted }))
    }
}
