//! The limit: the agents' calls answered by bare tonic over mutual TLS, with nothing stored and nothing decided. The
//! difference to a coordinator is the coordinator's own cost.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use anyhow::{Context as _, Result, anyhow};
use landfall_proto::v1::agent_service_server::{AgentService, AgentServiceServer};
use landfall_proto::v1::session_request::Message as Up;
use landfall_proto::v1::session_response::Message as Down;
use landfall_proto::{PROTOCOL, SERVER_NAME, v1};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, transport::server::Connected};
use uuid::Uuid;

/// Between heartbeats, and how long a lease is: the coordinator's defaults.
const HEARTBEAT: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(600);
/// How long a certificate is good for.
const CERTIFICATE: Duration = Duration::from_secs(12 * 3600);
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Serves on `listen`, with a CA kept in `directory`, whose pin is written to `directory/pin`. Never returns by itself.
///
/// # Errors
/// The directory cannot be used, or the address not bound.
pub async fn serve(listen: SocketAddr, directory: &Path) -> Result<()> {
    let authority = Authority::open(directory)?;
    let acceptor = TlsAcceptor::from(Arc::new(authority.server_config()?));
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    fs::write(directory.join("pin"), authority.pin()).context("cannot write the pin")?;
    let (out, ready) = mpsc::channel(64);
    tokio::spawn(accept(listener, acceptor, out));
    let echo = Echo { authority: Arc::new(authority), epochs: Arc::default() };
    let server = tonic::transport::Server::builder().add_service(AgentServiceServer::new(echo));
    Ok(server.serve_with_incoming(ReceiverStream::new(ready)).await?)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, out: mpsc::Sender<io::Result<Secured>>) {
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (acceptor, out) = (acceptor.clone(), out.clone());
        tokio::spawn(async move {
            if tcp.set_nodelay(true).is_ok()
                && let Ok(Ok(stream)) = timeout(HANDSHAKE_LIMIT, acceptor.accept(tcp)).await
            {
                // A closed channel means that the server has ended.
                drop(out.send(Ok(Secured(stream))).await);
            }
        });
    }
}

/// A TLS stream that tonic may serve.
struct Secured(TlsStream<TcpStream>);

impl Connected for Secured {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl AsyncRead for Secured {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

/// A CA of its own, the same after a restart.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    spki: Vec<u8>,
}

impl Authority {
    fn open(directory: &Path) -> Result<Self> {
        let (key_file, certificate_file) = (directory.join("ca.key"), directory.join("ca.pem"));
        if !key_file.exists() {
            let mut params = CertificateParams::default();
            params.distinguished_name = named("echo CA");
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            let key = KeyPair::generate()?;
            fs::write(&certificate_file, params.self_signed(&key)?.pem()).context("cannot write the CA")?;
            fs::write(&key_file, key.serialize_pem()).context("cannot write the CA's key")?;
        }
        let key = KeyPair::from_pem(&fs::read_to_string(&key_file).context("cannot read the CA's key")?)?;
        let spki = key.subject_public_key_info();
        let certificate = CertificateDer::from_pem_file(&certificate_file).map_err(|e| anyhow!("the CA: {e}"))?;
        Ok(Self { issuer: Issuer::from_ca_cert_der(&certificate, key)?, certificate, spki })
    }

    fn pin(&self) -> String {
        landfall_session::pin_of_spki(&self.spki).to_string()
    }

    fn issue(
        &self, name: &str, usage: ExtendedKeyUsagePurpose, key: &impl rcgen::PublicKeyData,
    ) -> Result<CertificateDer<'static>> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = named(name);
        params.not_before = (SystemTime::now() - Duration::from_secs(3600)).into();
        params.not_after = (SystemTime::now() + CERTIFICATE).into();
        params.extended_key_usages = vec![usage];
        Ok(params.signed_by(key, &self.issuer)?.der().clone())
    }

    fn server_config(&self) -> Result<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let key = KeyPair::generate()?;
        let chain = vec![self.issue(SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth, &key)?, self.certificate.clone()];
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, private)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // As the coordinator: sessions are never resumed, so nothing is kept of them.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

#[derive(Clone)]
struct Echo {
    authority: Arc<Authority>,
    epochs: Arc<AtomicU64>,
}

/// A machine's name, as `machine::Machine` derives its address from its number.
fn name_of(identity: Option<&v1::Identity>) -> String {
    let mac = identity.and_then(|i| i.macs.first()).map_or("", String::as_str);
    let digits: String = mac.chars().skip(9).filter(char::is_ascii_hexdigit).collect();
    format!("m{:05}", u32::from_str_radix(&digits, 16).unwrap_or(0))
}

fn uid_of(name: &str) -> Uuid {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

fn span(span: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(span).ok()
}

fn time() -> Option<prost_types::Timestamp> {
    Some(SystemTime::now().into())
}

#[tonic::async_trait]
impl AgentService for Echo {
    async fn enroll(&self, request: Request<v1::EnrollRequest>) -> Result<Response<v1::EnrollResponse>, Status> {
        let request = request.into_inner();
        let name = name_of(request.identity.as_ref());
        let failed = |error: anyhow::Error| Status::invalid_argument(error.to_string());
        let parsed =
            CertificateSigningRequestParams::from_der(&request.csr_der.into()).map_err(|e| failed(e.into()))?;
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let certificate = self.authority.issue(&name, usage, &parsed.public_key).map_err(failed)?;
        Ok(Response::new(v1::EnrollResponse {
            coordinator_time: time(),
            outcome: Some(v1::enroll_response::Outcome::Credentials(v1::Credentials {
                machine_uid: uid_of(&name).to_string(),
                machine_name: name,
                certificate_chain_der: vec![certificate.to_vec(), self.authority.certificate.to_vec()],
            })),
        }))
    }

    type SessionStream = ReceiverStream<Result<v1::SessionResponse, Status>>;

    async fn session(
        &self, request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (down, answers) = mpsc::channel(16);
        let (mut up, epoch) = (request.into_inner(), self.epochs.fetch_add(1, Ordering::Relaxed) + now_seconds());
        tokio::spawn(async move {
            while let Ok(Some(message)) = up.message().await {
                for answer in message.message.map(|message| answers_to(message, epoch)).unwrap_or_default() {
                    if down.send(Ok(v1::SessionResponse { message: Some(answer) })).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn telemetry(
        &self, request: Request<Streaming<v1::TelemetryRequest>>,
    ) -> Result<Response<v1::TelemetryResponse>, Status> {
        let (mut items, mut accepted) = (request.into_inner(), 0);
        while let Some(_item) = items.message().await? {
            accepted += 1;
        }
        Ok(Response::new(v1::TelemetryResponse { accepted }))
    }
}

/// Epochs rise over a restart too.
fn now_seconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() * 100_000)
}

fn answers_to(message: Up, epoch: u64) -> Vec<Down> {
    match message {
        Up::Hello(hello) => {
            let welcome = Down::Welcome(v1::Welcome {
                epoch,
                time: time(),
                heartbeat_interval: span(HEARTBEAT),
                versions: Some(v1::Versions { software: "echo".into(), protocol: PROTOCOL }),
                others: Vec::new(),
            });
            let name = name_of(hello.identity.as_ref());
            // A machine that returns already has its workflow.
            if hello.last_epoch == 0 { vec![welcome, assignment(&name, epoch)] } else { vec![welcome] }
        }
        Up::Event(event) => vec![Down::Ack(v1::Ack {
            workflow_uid: event.workflow_uid,
            action_index: event.action_index,
            attempt: event.attempt,
            seq: event.seq,
        })],
        Up::Heartbeat(_) => vec![Down::LeaseRenewal(v1::LeaseRenewal { epoch, lease: span(LEASE), counts_from_ms: 0 })],
        Up::DiskReport(_) | Up::Facts(_) | Up::FenceAck(_) | Up::Checked(_) => Vec::new(),
    }
}

/// A workflow as the coordinator assigns it.
fn assignment(name: &str, epoch: u64) -> Down {
    let action = |name: &str, kind| v1::Action {
        name: name.to_owned(),
        timeout: span(Duration::from_secs(3600)),
        retry: Some(v1::RetryPolicy {
            max_attempts: 1,
            initial_backoff: span(Duration::from_secs(5)),
            max_backoff: span(Duration::from_secs(300)),
        }),
        branch: String::new(),
        when: String::new(),
        kind: Some(kind),
    };
    let write = v1::WriteImage {
        url: "http://127.0.0.1:7480/images/os.raw.zst".into(),
        digest: format!("sha256:{}", "0a".repeat(32)),
        ..v1::WriteImage::default()
    };
    let seed = v1::CloudInit {
        user_data: "#cloud-config\nhostname: machine\n".into(),
        vendor_data: String::new(),
        meta_data: format!("instance-id: {}\nlocal-hostname: {name}\n", uid_of(name)),
        phone_home: Some(v1::PhoneHome {
            url: "https://127.0.0.1:7443/phone-home".into(),
            bearer_token: "x".repeat(101),
            ca_pins: vec![format!("sha256:{}", "0b".repeat(32))],
            other_urls: Vec::new(),
        }),
        ..v1::CloudInit::default()
    };
    Down::Assignment(v1::Assignment {
        epoch,
        workflow_uid: uid_of(name).to_string(),
        workflow_name: format!("{name}-0a1b2c3d"),
        machine_uid: uid_of(name).to_string(),
        generation: 1,
        lease: span(LEASE),
        actions: vec![
            action("write", v1::action::Kind::WriteImage(write)),
            action("seed", v1::action::Kind::CloudInit(seed)),
            action("restart", v1::action::Kind::Reboot(v1::Reboot {})),
        ],
        start_attempt: 1,
        person_authorised: true,
        ..v1::Assignment::default()
    })
}
