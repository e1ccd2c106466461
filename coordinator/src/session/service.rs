//! The three calls.

use std::{net::SocketAddr, time::Duration};

use landfall_api::{ErrorCode, Problem};
use landfall_proto::v1::{
    EnrollRequest, EnrollResponse, SessionRequest, SessionResponse, TelemetryRequest, TelemetryResponse,
    agent_service_server::AgentService,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

use super::{
    convert::{self, Telemetry},
    status, stream,
};
use crate::{engine::Engine, tls::Peer};

/// Messages to an agent that the connection has not taken yet.
const DOWN: usize = 64;
/// A telemetry stream that says nothing for so long is closed; the agent opens another when it has something to say.
const TELEMETRY_IDLE: Duration = Duration::from_secs(600);

pub(super) struct AgentApi {
    engine: Engine,
}

impl AgentApi {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

/// The machine whose certificate the connection showed.
fn machine_of<T>(request: &Request<T>) -> Result<Uuid, Status> {
    match request.extensions().get::<Peer>() {
        Some(Peer::Machine(machine)) => Ok(machine.uid),
        _ => Err(status::of(
            Problem::new(ErrorCode::Unauthenticated, "this call needs a machine's certificate").hint("enrol first"),
        )),
    }
}

fn address_of<T>(request: &Request<T>) -> String {
    request.extensions().get::<SocketAddr>().map_or_else(|| "unknown".to_owned(), |a| a.ip().to_string())
}

#[tonic::async_trait]
impl AgentService for AgentApi {
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollResponse>, Status> {
        let address = address_of(&request);
        let wire = convert::enroll(request.into_inner()).map_err(|error| status::of(error.into()))?;
        match self.engine.enroll(wire).await {
            Ok(enrolled) => Ok(Response::new(convert::enrolled(enrolled))),
            Err(problem) => {
                tracing::warn!(address, %problem, "an enrolment was refused");
                Err(status::of(problem))
            }
        }
    }

    type SessionStream = ReceiverStream<Result<SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (machine, address) = (machine_of(&request)?, address_of(&request));
        let (down, answers) = mpsc::channel(DOWN);
        let engine = self.engine.clone();
        // Ends with the connection: either half failing ends it, and every wait in it is bounded.
        tokio::spawn(stream::run(engine, machine, address, request.into_inner(), down));
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn telemetry(
        &self,
        request: Request<Streaming<TelemetryRequest>>,
    ) -> Result<Response<TelemetryResponse>, Status> {
        let machine = machine_of(&request)?;
        let mut items = request.into_inner();
        let (mut accepted, mut known) = (0, None);
        while let Ok(Some(item)) = timeout(TELEMETRY_IDLE, items.message()).await.unwrap_or(Ok(None)) {
            let item = convert::telemetry(item).map_err(|error| status::of(error.into()))?;
            let (Telemetry::Progress { workflow_uid, .. } | Telemetry::Log { workflow_uid, .. }) = &item;
            if known != Some(*workflow_uid) {
                if !self.engine.runs_on(*workflow_uid, machine).await.map_err(status::of)? {
                    continue;
                }
                known = Some(*workflow_uid);
            }
            match item {
                Telemetry::Progress { workflow_uid, action_index, attempt, progress } => {
                    self.engine.progress(machine, workflow_uid, action_index, attempt, progress).await;
                }
                Telemetry::Log { workflow_uid, record } => self.engine.log(workflow_uid, record),
            }
            accepted += 1;
        }
        Ok(Response::new(TelemetryResponse { accepted }))
    }
}
