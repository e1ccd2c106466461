//! A coordinator that a test plays: the real port and CA, and each accepted stream as a [`Line`].

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_api::message::{ActionRef, Identity, Proof, Vitals};
use landfall_api::{DiskId, MachineFacts, Pin, SecretText};
use landfall_coordinator::pki::Pki;
use landfall_coordinator::tls;
use landfall_coordinator::tls::{Peer, TlsListener};
use landfall_proto::v1::agent_service_server::{AgentService, AgentServiceServer};
use landfall_proto::v1::session_request::Message as Up;
use landfall_proto::v1::session_response::Message as Down;
use landfall_proto::{PROTOCOL, v1};
use landfall_session::{
    AgentKey, Changing, Connection, Credentials, Host, Instruction, Looking, News, Seen, Session, SessionConfig,
    SessionHandle, Target, enroll,
};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

/// Generous: a loaded machine is not a failure.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// One accepted session stream, as the test plays the coordinator.
pub(super) struct Line {
    pub(super) peer: Peer,
    up: Streaming<v1::SessionRequest>,
    down: mpsc::Sender<Result<v1::SessionResponse, Status>>,
}

impl Line {
    pub(super) async fn next(&mut self) -> Up {
        timeout(LIMIT, self.up.message()).await.unwrap().unwrap().unwrap().message.unwrap()
    }
    pub(super) async fn hello(&mut self) -> v1::Hello {
        match self.next().await {
            Up::Hello(hello) => hello,
            other => panic!("{other:?}"),
        }
    }
    pub(super) async fn event(&mut self) -> v1::Event {
        loop {
            if let Up::Event(event) = self.next().await {
                return event;
            }
        }
    }
    pub(super) async fn checked(&mut self) -> v1::Checked {
        loop {
            if let Up::Checked(checked) = self.next().await {
                return checked;
            }
        }
    }
    pub(super) async fn say(&self, message: Down) {
        self.down.send(Ok(v1::SessionResponse { message: Some(message) })).await.unwrap();
    }
    pub(super) async fn welcome(&self, epoch: u64) {
        self.welcome_as(epoch, PROTOCOL).await;
    }
    pub(super) async fn welcome_as(&self, epoch: u64, protocol: u32) {
        self.say(Down::Welcome(v1::Welcome {
            epoch,
            time: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
            heartbeat_interval: span(Duration::from_millis(200)),
            versions: Some(v1::Versions { software: "test".into(), protocol }),
            others: Vec::new(),
        }))
        .await;
    }
    pub(super) async fn ack(&self, event: &v1::Event) {
        self.say(Down::Ack(v1::Ack {
            workflow_uid: event.workflow_uid.clone(),
            action_index: event.action_index,
            attempt: event.attempt,
            seq: event.seq,
        }))
        .await;
    }
}

pub(super) fn span(d: Duration) -> Option<prost_types::Duration> {
    Some(d.try_into().unwrap())
}

/// Who the TLS port said was calling, and from where.
pub(super) type Caller = (Option<Peer>, Option<SocketAddr>);

#[derive(Clone)]
pub(super) struct Scripted {
    pub(super) pki: Arc<Pki>,
    lines: mpsc::Sender<Line>,
    telemetry: mpsc::Sender<v1::TelemetryRequest>,
    pub(super) enrolled_by: Arc<Mutex<VecDeque<Caller>>>,
}

#[tonic::async_trait]
impl AgentService for Scripted {
    async fn enroll(&self, request: Request<v1::EnrollRequest>) -> Result<Response<v1::EnrollResponse>, Status> {
        let extensions = request.extensions();
        let seen = (extensions.get::<Peer>().cloned(), extensions.get::<SocketAddr>().copied());
        self.enrolled_by.lock().unwrap().push_back(seen);
        let request = request.into_inner();
        let Some(v1::enroll_request::Proof::BootToken(token)) = request.proof else { panic!() };
        if token.token != "right" {
            return Err(Status::permission_denied("the token is spent"));
        }
        let issued = self.pki.issue_machine(&request.csr_der, "node-1", Uuid::from_u128(7)).unwrap();
        Ok(Response::new(v1::EnrollResponse {
            coordinator_time: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
            outcome: Some(v1::enroll_response::Outcome::Credentials(v1::Credentials {
                machine_name: "node-1".into(),
                machine_uid: Uuid::from_u128(7).to_string(),
                certificate_chain_der: issued.chain_der,
            })),
        }))
    }

    type SessionStream = ReceiverStream<Result<v1::SessionResponse, Status>>;
    async fn session(
        &self, request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned().unwrap();
        // The handshake lets a certificate through that has ended; each call says why it is refused.
        if let Peer::Machine(certificate) = &peer
            && certificate.not_after < jiff::Timestamp::now()
        {
            return Err(Status::unauthenticated("the certificate has ended"));
        }
        let (down, out) = mpsc::channel(16);
        drop(self.lines.send(Line { peer, up: request.into_inner(), down }).await);
        Ok(Response::new(ReceiverStream::new(out)))
    }

    async fn telemetry(
        &self, request: Request<Streaming<v1::TelemetryRequest>>,
    ) -> Result<Response<v1::TelemetryResponse>, Status> {
        let mut stream = request.into_inner();
        while let Some(item) = stream.message().await? {
            drop(self.telemetry.send(item).await);
        }
        Ok(Response::new(v1::TelemetryResponse::default()))
    }
}

pub(super) struct Fixture {
    pub(super) pki: Arc<Pki>,
    pub(super) service: Scripted,
    pub(super) lines: mpsc::Receiver<Line>,
    pub(super) telemetry: mpsc::Receiver<v1::TelemetryRequest>,
    pub(super) address: SocketAddr,
    pub(super) server: tokio::task::JoinHandle<()>,
    pub(super) data: tempfile::TempDir,
    pub(super) memory: watch::Sender<u64>,
}

pub(super) async fn serve(service: &Scripted, at: SocketAddr) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let config = tls::server_config(&service.pki).unwrap();
    let listener = TlsListener::bind(at, config).await.unwrap();
    let address = listener.address();
    let routes = tonic::service::Routes::new(AgentServiceServer::new(service.clone())).into_axum_router();
    let server = tokio::spawn(async move { listener.serve(routes, CancellationToken::new()).await.unwrap() });
    (address, server)
}

pub(super) fn pki(dir: &Path, ttl: Duration) -> Arc<Pki> {
    Arc::new(Pki::open(dir, IpAddr::from(Ipv4Addr::LOCALHOST), ttl).unwrap())
}

impl Fixture {
    pub(super) async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let pki = pki(data.path(), Duration::from_secs(3600));
        let (lines_in, lines) = mpsc::channel(4);
        let (telemetry_in, telemetry) = mpsc::channel(64);
        let service =
            Scripted { pki: pki.clone(), lines: lines_in, telemetry: telemetry_in, enrolled_by: Arc::default() };
        let (address, server) = serve(&service, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
        Self { pki, service, lines, telemetry, address, server, data, memory: watch::Sender::new(5) }
    }
    pub(super) fn target(&self) -> Target {
        let pin: Pin = self.pki.ca_pin().to_string().parse().unwrap();
        Target::new(&format!("https://{}", self.address), vec![pin]).unwrap()
    }
    pub(super) async fn credentials(&self) -> Credentials {
        let key = AgentKey::generate().unwrap();
        let token = Proof::BootToken(SecretText::new("right"));
        let enrolled = enroll(&self.target(), "0.1.0", &identity(), "boot-1", &token, &key).await.unwrap();
        assert_eq!((enrolled.machine_name.as_str(), enrolled.machine_uid), ("node-1", Uuid::from_u128(7)));
        assert_eq!(enrolled.coordinator_time.as_second(), 1_700_000_000);
        enrolled.credentials
    }
    pub(super) async fn start(&self) -> (SessionHandle, mpsc::Receiver<Instruction>) {
        self.begin(self.target(), self.credentials().await)
    }
    pub(super) fn begin(
        &self, target: Target, credentials: Credentials,
    ) -> (SessionHandle, mpsc::Receiver<Instruction>) {
        let config = SessionConfig {
            target,
            credentials,
            software: "0.1.0".into(),
            identity: identity(),
            boot_id: "boot-1".into(),
            enrolled_at: Duration::from_secs(3),
        };
        Session::start(config, Arc::new(Bench(self.memory.subscribe())))
    }
    /// An agent that enrolled, connected and was welcomed to its first epoch.
    pub(super) async fn welcomed() -> (Self, SessionHandle, mpsc::Receiver<Instruction>, Line) {
        let mut fixture = Self::new().await;
        let (handle, instructions) = fixture.start().await;
        let mut line = fixture.line().await;
        line.hello().await;
        line.welcome(1).await;
        (fixture, handle, instructions, line)
    }
    pub(super) async fn line(&mut self) -> Line {
        timeout(LIMIT, self.lines.recv()).await.unwrap().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(super) fn identity() -> Identity {
    Identity { smbios_uuid: Some(Uuid::from_u128(9)), serial: "S1".into(), macs: vec![] }
}

/// A machine with so much memory. What is new besides is always more memory, and then its disks are others too.
struct Bench(watch::Receiver<u64>);

impl Host for Bench {
    fn changed<'a>(&'a self, seen: &'a Seen) -> Changing<'a> {
        Box::pin(async move { drop(self.news(&seen.facts).await) })
    }
    fn news<'a>(&'a self, facts: &'a MachineFacts) -> News<'a> {
        Box::pin(async move {
            let mut memory = self.0.clone();
            let memory_bytes = *memory.wait_for(|bytes| *bytes != facts.memory_bytes).await.unwrap();
            MachineFacts { memory_bytes, ..facts.clone() }
        })
    }
    fn look(&self) -> Looking<'_> {
        Seen {
            facts: MachineFacts { memory_bytes: *self.0.borrow(), ..MachineFacts::default() },
            ..Seen::disks(vec![DiskId { serial: "d1".into(), size_bytes: 1 << 30, ..DiskId::default() }], vec![])
        }
        .at_once()
    }
    fn glance(&self) -> Looking<'_> {
        Box::pin(async {
            let mut seen = self.look().await;
            seen.facts.cpu.model = "glanced at".into();
            seen
        })
    }
    fn vitals(&self) -> Vitals {
        Vitals { uptime: Duration::from_secs(1), peak_rss_bytes: 2 }
    }
}

pub(super) fn action() -> ActionRef {
    ActionRef { workflow_uid: Uuid::from_u128(42), action_index: 0, attempt: 1 }
}

pub(super) fn assignment(epoch: u64, lease: Duration) -> Down {
    let second = span(Duration::from_secs(1));
    Down::Assignment(v1::Assignment {
        epoch,
        workflow_uid: action().workflow_uid.to_string(),
        workflow_name: "w".into(),
        machine_uid: Uuid::from_u128(7).to_string(),
        generation: 1,
        lease: span(lease),
        actions: vec![v1::Action {
            name: "restart".into(),
            timeout: second,
            retry: Some(v1::RetryPolicy { max_attempts: 1, initial_backoff: second, max_backoff: second }),
            branch: String::new(),
            when: String::new(),
            kind: Some(v1::action::Kind::Reboot(v1::Reboot {})),
        }],
        start_attempt: 1,
        ..v1::Assignment::default()
    })
}

/// Waits until the connection is so.
pub(super) async fn connection(handle: &SessionHandle, is: impl FnMut(&Connection) -> bool) -> Connection {
    timeout(LIMIT, handle.connection().wait_for(is)).await.unwrap().unwrap().clone()
}

pub(super) fn renewal(seconds: u64) -> Down {
    Down::LeaseRenewal(v1::LeaseRenewal { epoch: 1, lease: span(Duration::from_secs(seconds)), counts_from_ms: 0 })
}

pub(super) async fn instruction(from: &mut mpsc::Receiver<Instruction>) -> Instruction {
    timeout(LIMIT, from.recv()).await.unwrap().unwrap()
}

pub(super) async fn assigned(from: &mut mpsc::Receiver<Instruction>) -> landfall_session::LeaseWatch {
    match instruction(from).await {
        Instruction::Assign { lease, assignment } => {
            assert_eq!(assignment.workflow_uid, action().workflow_uid);
            lease
        }
        other => panic!("{other:?}"),
    }
}
