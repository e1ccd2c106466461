//! The agent's session library against the real TLS port and CA, with a scripted coordinator behind it: what holds on the
//! wire, whatever either side's logic is.
#![allow(clippy::disallowed_methods, reason = "these tests run a coordinator by the real clock")]

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use landfall_api::{
    DiskId, ErrorCode, MachineFacts, Pin, SecretText,
    message::{ActionRef, ActionResult, EventBody, Identity, LogLevel, Proof, Vitals},
};
use landfall_coordinator::{
    pki::Pki,
    tls::{self, Peer, TlsListener},
};
use landfall_proto::{
    PROTOCOL,
    v1::{
        self,
        agent_service_server::{AgentService, AgentServiceServer},
        session_request::Message as Up,
        session_response::Message as Down,
    },
};
use landfall_session::{
    AgentKey, Connection, Credentials, Host, Instruction, Looking, Seen, Session, SessionConfig, SessionHandle, Target,
    enroll,
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

/// Generous: a loaded machine is not a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// One accepted session stream, as the test plays the coordinator.
struct Line {
    peer: Peer,
    up: Streaming<v1::SessionRequest>,
    down: mpsc::Sender<Result<v1::SessionResponse, Status>>,
}

impl Line {
    async fn next(&mut self) -> Up {
        timeout(LIMIT, self.up.message()).await.unwrap().unwrap().unwrap().message.unwrap()
    }
    async fn hello(&mut self) -> v1::Hello {
        match self.next().await {
            Up::Hello(hello) => hello,
            other => panic!("{other:?}"),
        }
    }
    async fn event(&mut self) -> v1::Event {
        loop {
            if let Up::Event(event) = self.next().await {
                return event;
            }
        }
    }
    async fn say(&self, message: Down) {
        self.down.send(Ok(v1::SessionResponse { message: Some(message) })).await.unwrap();
    }
    async fn welcome(&self, epoch: u64) {
        self.welcome_as(epoch, PROTOCOL).await;
    }
    async fn welcome_as(&self, epoch: u64, protocol: u32) {
        self.say(Down::Welcome(v1::Welcome {
            epoch,
            time: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
            heartbeat_interval: span(Duration::from_millis(200)),
            versions: Some(v1::Versions { software: "test".into(), protocol }),
        }))
        .await;
    }
    async fn ack(&self, event: &v1::Event) {
        self.say(Down::Ack(v1::Ack {
            workflow_uid: event.workflow_uid.clone(),
            action_index: event.action_index,
            attempt: event.attempt,
            seq: event.seq,
        }))
        .await;
    }
}

fn span(d: Duration) -> Option<prost_types::Duration> {
    Some(d.try_into().unwrap())
}

/// Who the TLS port said was calling, and from where.
type Caller = (Option<Peer>, Option<SocketAddr>);

#[derive(Clone)]
struct Scripted {
    pki: Arc<Pki>,
    lines: mpsc::Sender<Line>,
    telemetry: mpsc::Sender<v1::TelemetryRequest>,
    enrolled_by: Arc<Mutex<VecDeque<Caller>>>,
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
        &self,
        request: Request<Streaming<v1::SessionRequest>>,
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
        &self,
        request: Request<Streaming<v1::TelemetryRequest>>,
    ) -> Result<Response<v1::TelemetryResponse>, Status> {
        let mut stream = request.into_inner();
        while let Some(item) = stream.message().await? {
            drop(self.telemetry.send(item).await);
        }
        Ok(Response::new(v1::TelemetryResponse::default()))
    }
}

struct Fixture {
    pki: Arc<Pki>,
    service: Scripted,
    lines: mpsc::Receiver<Line>,
    telemetry: mpsc::Receiver<v1::TelemetryRequest>,
    address: SocketAddr,
    server: tokio::task::JoinHandle<()>,
    _data: tempfile::TempDir,
}

async fn serve(service: &Scripted, at: SocketAddr) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let config = tls::server_config(&service.pki).unwrap();
    let listener = TlsListener::bind(at, config).await.unwrap();
    let address = listener.address();
    let routes = tonic::service::Routes::new(AgentServiceServer::new(service.clone())).into_axum_router();
    let server = tokio::spawn(async move { listener.serve(routes, CancellationToken::new()).await.unwrap() });
    (address, server)
}

fn pki(dir: &Path, ttl: Duration) -> Arc<Pki> {
    Arc::new(Pki::open(dir, IpAddr::from(Ipv4Addr::LOCALHOST), ttl).unwrap())
}

impl Fixture {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let pki = pki(data.path(), Duration::from_secs(3600));
        let (lines_in, lines) = mpsc::channel(4);
        let (telemetry_in, telemetry) = mpsc::channel(64);
        let service =
            Scripted { pki: pki.clone(), lines: lines_in, telemetry: telemetry_in, enrolled_by: Arc::default() };
        let (address, server) = serve(&service, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
        Self { pki, service, lines, telemetry, address, server, _data: data }
    }
    fn target(&self) -> Target {
        let pin: Pin = self.pki.ca_pin().to_string().parse().unwrap();
        Target::new(&format!("https://{}", self.address), vec![pin]).unwrap()
    }
    async fn credentials(&self) -> Credentials {
        let key = AgentKey::generate().unwrap();
        let token = Proof::BootToken(SecretText::new("right"));
        let enrolled = enroll(&self.target(), "0.1.0", &identity(), "boot-1", &token, &key).await.unwrap();
        assert_eq!((enrolled.machine_name.as_str(), enrolled.machine_uid), ("node-1", Uuid::from_u128(7)));
        assert_eq!(enrolled.coordinator_time.as_second(), 1_700_000_000);
        enrolled.credentials
    }
    async fn start(&self) -> (SessionHandle, mpsc::Receiver<Instruction>) {
        let config = SessionConfig {
            target: self.target(),
            credentials: self.credentials().await,
            software: "0.1.0".into(),
            identity: identity(),
            boot_id: "boot-1".into(),
            enrolled_at: Duration::from_secs(3),
        };
        Session::start(config, Arc::new(Bench))
    }
    async fn line(&mut self) -> Line {
        timeout(LIMIT, self.lines.recv()).await.unwrap().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn identity() -> Identity {
    Identity { smbios_uuid: Some(Uuid::from_u128(9)), serial: "S1".into(), macs: vec![] }
}

struct Bench;

impl Host for Bench {
    fn look(&self) -> Looking<'_> {
        Seen {
            facts: MachineFacts { memory_bytes: 5, ..MachineFacts::default() },
            ..Seen::disks(vec![DiskId { serial: "d1".into(), size_bytes: 1 << 30, ..DiskId::default() }], vec![])
        }
        .at_once()
    }
    fn vitals(&self) -> Vitals {
        Vitals { uptime: Duration::from_secs(1), peak_rss_bytes: 2 }
    }
}

fn action() -> ActionRef {
    ActionRef { workflow_uid: Uuid::from_u128(42), action_index: 0, attempt: 1 }
}

fn assignment(epoch: u64, lease: Duration) -> Down {
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
            kind: Some(v1::action::Kind::Reboot(v1::Reboot {})),
        }],
        start_attempt: 1,
        ..v1::Assignment::default()
    })
}

fn renewal(seconds: u64) -> Down {
    Down::LeaseRenewal(v1::LeaseRenewal { epoch: 1, lease: span(Duration::from_secs(seconds)), counts_from_ms: 0 })
}

async fn instruction(from: &mut mpsc::Receiver<Instruction>) -> Instruction {
    timeout(LIMIT, from.recv()).await.unwrap().unwrap()
}

async fn assigned(from: &mut mpsc::Receiver<Instruction>) -> landfall_session::LeaseWatch {
    match instruction(from).await {
        Instruction::Assign { lease, assignment } => {
            assert_eq!(assignment.workflow_uid, action().workflow_uid);
            lease
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_agent_enrols_says_hello_works_and_is_acknowledged() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let (peer, from) = fixture.service.enrolled_by.lock().unwrap().pop_front().unwrap();
    assert_eq!(peer, Some(Peer::Anonymous));
    assert_eq!(from.unwrap().ip(), fixture.address.ip());

    let mut line = fixture.line().await;
    let Peer::Machine(machine) = &line.peer else { panic!("{:?}", line.peer) };
    assert_eq!((machine.name.as_str(), machine.uid), ("node-1", Uuid::from_u128(7)));
    let hello = line.hello().await;
    assert_eq!((hello.last_epoch, hello.boot_id.as_str(), hello.enrolled_boottime_ms), (0, "boot-1", 3000));
    assert_eq!(hello.disks[0].serial, "d1");
    line.welcome(1).await;
    let (mut facts, mut heartbeats) = (0, 0);
    while facts == 0 || heartbeats < 3 {
        match line.next().await {
            Up::Facts(v1::Facts { json }) => {
                facts += 1;
                assert!(json.contains("\"memoryBytes\":5"));
            }
            Up::Heartbeat(beat) => {
                heartbeats += 1;
                assert!(beat.uptime_ms > 1000 && beat.peak_rss_bytes == 2, "by the clock of its leases: {beat:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(facts, 1);

    line.say(assignment(1, Duration::from_secs(600))).await;
    let lease = assigned(&mut instructions).await;
    assert!(lease.is_valid() && handle.lease().remaining() > Some(Duration::from_secs(500)));
    handle.report(action(), EventBody::Started).await.unwrap();
    handle.progress(action(), landfall_api::Progress { raw_bytes: 7, ..Default::default() });
    handle.log(action(), LogLevel::Info, "going down");
    handle.report(action(), EventBody::Finished { result: ActionResult::Reboot }).await.unwrap();
    assert!(handle.flush(Duration::from_millis(50)).await.is_err(), "nothing is acked yet");
    let (first, second) = (line.event().await, line.event().await);
    assert_eq!((first.seq, second.seq), (1, 2));
    line.ack(&second).await;
    handle.flush(LIMIT).await.unwrap();
    let item = timeout(LIMIT, fixture.telemetry.recv()).await.unwrap().unwrap().item.unwrap();
    assert!(matches!(item, v1::telemetry_request::Item::Progress(p) if p.raw_bytes == 7));
    let item = timeout(LIMIT, fixture.telemetry.recv()).await.unwrap().unwrap().item.unwrap();
    assert!(matches!(item, v1::telemetry_request::Item::Log(l) if l.message == "going down"));

    line.say(Down::Cancel(v1::Cancel { workflow_uid: action().workflow_uid.to_string(), reason: "person".into() }))
        .await;
    let got = instruction(&mut instructions).await;
    assert!(matches!(got, Instruction::Cancel { workflow_uid, reason }
        if workflow_uid == action().workflow_uid && reason == "person"));
    line.say(Down::Idle(v1::Idle { boot_disk: true })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Idle { boot_disk: true }));

    handle.close().await;
    assert_eq!(*handle.connection().borrow(), Connection::Ended);
    assert!(handle.report(action(), EventBody::Started).await.is_err());
}

#[tokio::test]
async fn unacknowledged_events_are_resent_after_a_break() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome(1).await;
    line.say(assignment(1, Duration::from_secs(600))).await;
    let lease = assigned(&mut instructions).await;
    handle.report(action(), EventBody::Started).await.unwrap();
    let started = line.event().await;

    // The coordinator dies with the ack unsent, and the agent goes on.
    let address = fixture.address;
    fixture.server.abort();
    drop(line);
    let mut connection = handle.connection();
    timeout(LIMIT, connection.wait_for(|c| matches!(c, Connection::Disconnected { .. }))).await.unwrap().unwrap();
    assert!(lease.is_valid());
    handle.report(action(), EventBody::Finished { result: ActionResult::Reboot }).await.unwrap();

    let (again, server) = serve(&fixture.service, address).await;
    assert_eq!(again, address);
    fixture.server = server;
    let mut line = fixture.line().await;
    let hello = line.hello().await;
    assert_eq!(hello.last_epoch, 1);
    assert_eq!(hello.running, None, "it has finished meanwhile");
    line.welcome(2).await;
    let (first, second) = (line.event().await, line.event().await);
    assert_eq!(first, started, "the same event, number and time included");
    assert_eq!(second.seq, 2);
    line.ack(&first).await;
    line.ack(&first).await;
    line.ack(&second).await;
    handle.flush(LIMIT).await.unwrap();
    // A repeat of the assignment renews the very lease that work goes on under.
    line.say(assignment(2, Duration::from_secs(6000))).await;
    drop(assigned(&mut instructions).await);
    assert!(lease.remaining() > Some(Duration::from_secs(5000)));
}

#[tokio::test]
async fn a_fence_ends_the_lease_and_waits_for_the_workflow() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome(1).await;
    line.say(assignment(1, Duration::from_secs(600))).await;
    let lease = assigned(&mut instructions).await;
    handle.report(action(), EventBody::Started).await.unwrap();
    line.event().await;
    line.say(Down::Fenced(v1::Fenced { epoch: 9, reason: "newer".into() })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Fenced { .. }));
    assert!(!lease.is_valid());
    // A renewal that was on its way revives nothing.
    line.say(renewal(600)).await;
    // Five heartbeats long, the work has not stopped: no answer yet.
    for _ in 0..5 {
        match line.next().await {
            Up::Heartbeat(_) | Up::Facts(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(!lease.is_valid());
    let problem = landfall_api::Problem::new(ErrorCode::Fenced, "stopped");
    handle.report(action(), EventBody::Failed { problem, retryable: false }).await.unwrap();
    let failed = line.event().await;
    assert!(matches!(failed.event, Some(v1::event::Event::Failed(_))));
    let answer = loop {
        match line.next().await {
            Up::Heartbeat(_) | Up::Facts(_) => {}
            other => break other,
        }
    };
    assert_eq!(answer, Up::FenceAck(v1::FenceAck { epoch: 9 }));
    line.ack(&failed).await;
    handle.flush(LIMIT).await.unwrap();
    drop(line);
    let mut connection = handle.connection();
    timeout(LIMIT, connection.wait_for(|c| *c == Connection::Ended)).await.unwrap().unwrap();
    let credentials = fixture.credentials().await;
    assert!(handle.restart(credentials).is_err(), "the machine is another session's now");
}

#[tokio::test]
async fn an_expired_lease_cannot_be_renewed() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome(1).await;
    line.say(assignment(1, Duration::from_millis(300))).await;
    let lease = assigned(&mut instructions).await;
    timeout(LIMIT, lease.expired()).await.unwrap();
    line.say(renewal(600)).await;
    line.say(Down::Idle(v1::Idle { boot_disk: false })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Idle { .. }), "the renewal has been taken");
    assert!(!lease.is_valid() && !handle.lease().is_valid());
    // Only another assignment starts another term.
    line.say(assignment(1, Duration::from_secs(600))).await;
    let second = assigned(&mut instructions).await;
    assert!(second.is_valid() && !lease.is_valid());
    line.say(renewal(6000)).await;
    line.say(Down::Idle(v1::Idle { boot_disk: false })).await;
    drop(instruction(&mut instructions).await);
    assert!(second.remaining() > Some(Duration::from_secs(5000)));
}

#[tokio::test]
async fn only_refusals_with_a_time_are_retried() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let refused = |retry_after| {
        let problem = v1::Problem { code: "AmbiguousIdentity".into(), message: "two".into(), ..Default::default() };
        Down::Refused(v1::Refused { problem: Some(problem), retry_after })
    };
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.say(refused(span(Duration::from_millis(10)))).await;
    let got = instruction(&mut instructions).await;
    assert!(matches!(got, Instruction::Refused { problem, retry_after: Some(_) }
        if problem.code == ErrorCode::AmbiguousIdentity));
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.say(refused(None)).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Refused { retry_after: None, .. }));
    let mut connection = handle.connection();
    timeout(LIMIT, connection.wait_for(|c| *c == Connection::Ended)).await.unwrap().unwrap();
    // With new credentials the same handle goes on.
    let mut instructions = handle.restart(fixture.credentials().await).unwrap();
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome(5).await;
    line.say(Down::Idle(v1::Idle { boot_disk: true })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Idle { boot_disk: true }));
}

#[tokio::test]
async fn an_invalid_assignment_fails_its_workflow() {
    let mut fixture = Fixture::new().await;
    let (_handle, _instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome(1).await;
    let Down::Assignment(mut wire) = assignment(1, Duration::from_secs(600)) else { unreachable!() };
    wire.actions[0].kind = None;
    line.say(Down::Assignment(wire)).await;
    let event = line.event().await;
    assert_eq!(event.workflow_uid, action().workflow_uid.to_string());
    let Some(v1::event::Event::Failed(failed)) = event.event else { panic!("{event:?}") };
    let problem = failed.problem.unwrap();
    assert_eq!((problem.code.as_str(), failed.retryable), ("VersionSkew", false));
    assert_eq!(problem.subject, "assignment.actions[0].kind");
}

#[tokio::test]
async fn newer_and_older_coordinator_protocols_are_handled() {
    for protocol in [1, PROTOCOL, PROTOCOL + 1] {
        let mut fixture = Fixture::new().await;
        let (handle, mut instructions) = fixture.start().await;
        let mut line = fixture.line().await;
        assert_eq!(line.hello().await.versions.unwrap().protocol, PROTOCOL);
        line.welcome_as(1, protocol).await;
        line.say(assignment(1, Duration::from_secs(600))).await;
        assigned(&mut instructions).await;
        handle.report(action(), EventBody::Started).await.unwrap();
        let event = line.event().await;
        line.ack(&event).await;
        handle.flush(LIMIT).await.unwrap();
    }
    let mut fixture = Fixture::new().await;
    let (handle, _instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome_as(1, 0).await;
    let mut connection = handle.connection();
    let lost = timeout(LIMIT, connection.wait_for(|c| matches!(c, Connection::Disconnected { .. }))).await.unwrap();
    let Connection::Disconnected { problem, .. } = lost.unwrap().clone() else { unreachable!() };
    assert_eq!(problem.code, ErrorCode::VersionSkew);
    assert!(problem.hint.contains("landfall-coordinator"), "{problem}");
}

#[tokio::test]
async fn requests_of_persons_reach_the_agent() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    assert_eq!(line.hello().await.holds, "");
    line.welcome(1).await;
    let uid = action().workflow_uid;
    let wire = v1::RunControl { workflow_uid: uid.to_string(), paused: true, released_holds: vec![2, 5] };
    line.say(Down::RunControl(wire)).await;
    match instruction(&mut instructions).await {
        Instruction::Control { workflow_uid, control } => {
            assert_eq!((workflow_uid, control.paused, control.released), (uid, true, vec![2, 5]));
        }
        other => panic!("{other:?}"),
    }
    // Nothing of the run is under way, and still the list is the agent's: it must not be handed out again.
    handle.holds(Some(uid));
    drop(line);
    let hello = fixture.line().await.hello().await;
    assert_eq!((hello.holds, hello.running), (uid.to_string(), None));
}

#[tokio::test]
async fn a_fence_is_answered_only_when_no_branch_runs() {
    let mut fixture = Fixture::new().await;
    let (handle, _instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome(1).await;
    let branch = |action_index| ActionRef { action_index, ..action() };
    for index in [0, 1] {
        handle.report(branch(index), EventBody::Started).await.unwrap();
        line.event().await;
    }
    line.say(Down::Fenced(v1::Fenced { epoch: 9, reason: "newer".into() })).await;
    let failed = || EventBody::Failed { problem: landfall_api::Problem::new(ErrorCode::Fenced, "x"), retryable: false };
    handle.report(branch(0), failed()).await.unwrap();
    line.event().await;
    for _ in 0..5 {
        assert!(matches!(line.next().await, Up::Heartbeat(_) | Up::Facts(_)), "one branch still runs");
    }
    handle.report(branch(1), failed()).await.unwrap();
    line.event().await;
    loop {
        match line.next().await {
            Up::Heartbeat(_) | Up::Facts(_) => {}
            answer => break assert_eq!(answer, Up::FenceAck(v1::FenceAck { epoch: 9 })),
        }
    }
}

#[tokio::test]
async fn a_fence_waits_for_attempts_that_may_still_write() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    line.hello().await;
    line.welcome(1).await;
    line.say(assignment(1, Duration::from_secs(600))).await;
    assigned(&mut instructions).await;
    handle.report(action(), EventBody::Started).await.unwrap();
    let untold = ActionRef { action_index: 1, ..action() };
    handle.report(untold, EventBody::Started).await.unwrap();
    let still_runs = handle.still_runs();
    let problem = landfall_api::Problem::new(ErrorCode::Timeout, "it does not stop");
    handle.report(action(), EventBody::Failed { problem, retryable: false }).await.unwrap();
    line.say(Down::Fenced(v1::Fenced { epoch: 9, reason: "newer".into() })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Fenced { .. }));
    let (mut heartbeats, mut events) = (0, 0);
    while heartbeats < 3 || events < 3 {
        match line.next().await {
            Up::Heartbeat(_) => heartbeats += 1,
            Up::Event(_) => events += 1,
            Up::Facts(_) => {}
            other => panic!("{other:?}"),
        }
    }
    drop(still_runs);
    for _ in 0..3 {
        assert!(matches!(line.next().await, Up::Heartbeat(_)), "one whose end was not reported still counts");
    }
    handle.is_over(action().workflow_uid);
    loop {
        match line.next().await {
            Up::Heartbeat(_) => {}
            answer => break assert_eq!(answer, Up::FenceAck(v1::FenceAck { epoch: 9 })),
        }
    }
}

#[tokio::test]
async fn a_fenced_session_connects_no_more_however_its_connection_ends() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    line.hello().await;
    line.welcome(1).await;
    handle.report(action(), EventBody::Started).await.unwrap();
    line.say(Down::Fenced(v1::Fenced { epoch: 9, reason: "newer".into() })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Fenced { .. }));
    // Nonsense, which otherwise is a reason to connect again.
    line.welcome(1).await;
    let mut connection = handle.connection();
    timeout(LIMIT, connection.wait_for(|c| *c == Connection::Ended)).await.unwrap().unwrap();
    assert!(instructions.recv().await.is_none() && fixture.lines.try_recv().is_err());
}

#[tokio::test]
async fn each_enrolment_failure_has_its_own_message() {
    let fixture = Fixture::new().await;
    let key = AgentKey::generate().unwrap();
    let ask = |target: Target, token: &'static str| {
        let key = key.clone();
        async move {
            let proof = Proof::BootToken(SecretText::new(token));
            enroll(&target, "0.1.0", &identity(), "boot-1", &proof, &key).await.unwrap_err()
        }
    };
    let other = landfall_session::pin_of_spki(b"another CA");
    let wrong = ask(Target::new(&format!("https://{}", fixture.address), vec![other]).unwrap(), "right").await;
    assert_eq!((wrong.problem.code, wrong.retryable), (ErrorCode::Unauthenticated, true));
    assert!(wrong.problem.hint.contains(&other.to_string()), "{}", wrong.problem);
    assert!(wrong.problem.causes.join(" ").contains(&fixture.pki.ca_pin().to_string()), "{}", wrong.problem);

    let spent = ask(fixture.target(), "spent").await;
    assert!(!spent.retryable && spent.problem.message.contains("spent"), "{}", spent.problem);

    let target = Target::new("https://127.0.0.1:1", vec![other]).unwrap();
    let refused = ask(target, "right").await;
    assert_eq!((refused.problem.code, refused.retryable), (ErrorCode::SourceUnreachable, true));
    assert!(refused.problem.hint.contains("landfall-coordinator"), "{}", refused.problem);

    // No name server listens here, and `.invalid` never resolves where one does.
    let target = Target::new("https://no-such-name.invalid:1", vec![other])
        .unwrap()
        .with_nameservers(vec![IpAddr::from(Ipv4Addr::LOCALHOST)]);
    let unresolved = ask(target, "right").await;
    assert!(unresolved.problem.message.contains("no-such-name.invalid"), "{}", unresolved.problem);
}

#[tokio::test]
async fn broken_and_silent_clients_block_no_other() {
    use tokio::io::AsyncWriteExt as _;
    let fixture = Fixture::new().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(tokio::net::TcpStream::connect(fixture.address).await.unwrap());
        let mut rubbish = tokio::net::TcpStream::connect(fixture.address).await.unwrap();
        rubbish.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    }
    drop(timeout(Duration::from_secs(9), fixture.credentials()).await.expect("enrolled beside twenty silent clients"));
}

#[tokio::test]
async fn an_expired_certificate_ends_the_session() {
    let mut fixture = Fixture::new().await;
    let real = fixture.service.pki.clone();
    fixture.service.pki = pki(fixture._data.path(), Duration::from_secs(1));
    fixture.server.abort();
    let (address, server) = serve(&fixture.service, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
    (fixture.address, fixture.server) = (address, server);
    assert_eq!(real.ca_pin(), fixture.pki.ca_pin());
    let credentials = fixture.credentials().await;
    // Until it has certainly run out: certificates count in whole seconds.
    sleep(Duration::from_millis(2100)).await;
    let config = SessionConfig {
        target: fixture.target(),
        credentials,
        software: "0.1.0".into(),
        identity: identity(),
        boot_id: "boot-1".into(),
        enrolled_at: Duration::ZERO,
    };
    let (_handle, mut instructions) = Session::start(config, Arc::new(Bench));
    let got = instruction(&mut instructions).await;
    assert!(
        matches!(&got, Instruction::Refused { problem, retry_after: None } if problem.code == ErrorCode::Unauthenticated),
        "{got:?}"
    );
}
