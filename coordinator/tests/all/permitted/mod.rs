//! A coordinator in this process, over real TLS: every kind of caller, and what the audit log says of them.
#![allow(clippy::disallowed_methods, reason = "these tests run a coordinator by the real clock")]
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use landfall_api::{AuditEntry, Document, Pin, Problem, Role, TokenRequest};
use landfall_coordinator::config::Config;
use landfall_coordinator::engine::{Engine, Settings, SourceChecker};
use landfall_coordinator::pki::{Pki, issue_operator};
use landfall_coordinator::state::Coordinator;
use landfall_coordinator::tls::{TlsListener, server_config};
use landfall_coordinator::{operator, session};
use landfall_proto::SERVER_NAME;
use landfall_session::Target;
use landfall_store::Store;
use landfall_store::audit::MAX_PAGE;
use prost::Message;
use rcgen::{CertificateParams, Issuer, KeyPair, SanType, SerialNumber};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::{net::TcpSocket, time::timeout};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::site::document;
pub(crate) use super::site::{API, LIMIT, machine};

pub(crate) const MAC_A: &str = "52:54:00:00:00:0a";
pub(crate) const MAC_B: &str = "52:54:00:00:00:0b";

struct AllThere;

#[async_trait]
impl SourceChecker for AllThere {
    async fn check(&self, _: &landfall_api::Download) -> Result<(), Problem> {
        Ok(())
    }
}

/// What a caller shows.
#[derive(Clone, Default)]
pub(crate) struct Shows {
    /// Chain and key, PEM.
    pub(crate) certificate: Option<(String, String)>,
    pub(crate) bearer: Option<String>,
}

/// What came back: the HTTP status, the gRPC status (0 where there is none), and the body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) grpc: i32,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// A coordinator with machines `a` and `b`, and its clients.
pub(crate) struct Site {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) address: SocketAddr,
    pub(crate) dir: tempfile::TempDir,
    stop: CancellationToken,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with("", Duration::from_secs(3600)).await
    }

    /// With more lines of configuration, and certificates that last so long.
    pub(crate) async fn with(more: &str, certificate_ttl: Duration) -> Self {
        // Already installed by another test is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let dir = tempfile::tempdir().unwrap();
        let boot = "[boot]\nkernel = \"/k\"\ninitramfs = \"/i\"\nbootloaders = \"/b\"\nimages = \"/m\"\n";
        let limits = "[limits]\nheartbeat = \"1s\"\n";
        let text = format!("data_dir = {:?}\nadvertise = \"127.0.0.1\"\n{boot}{limits}{more}", dir.path());
        let config: Config = toml::from_str(&text).unwrap();
        let store = Store::memory();
        let pki = Arc::new(Pki::open(dir.path(), IpAddr::from(Ipv4Addr::LOCALHOST), certificate_ttl).unwrap());
        let settings = Settings { certificate_ttl, ..Settings::from_config(&config, Default::default()) };
        let engine = Engine::start(store.clone(), settings, Arc::new(Timestamp::now), pki.clone(), Arc::new(AllThere));
        let engine = engine.await.unwrap();
        let listener = TlsListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), server_config(&pki).unwrap());
        let listener = listener.await.unwrap();
        let coordinator = Arc::new(Coordinator { config, store, engine: engine.clone(), pki, ops: Arc::default() });
        let app = session::router(engine).merge(operator::router(coordinator.clone()));
        let (address, stop) = (listener.address(), CancellationToken::new());
        tokio::spawn(listener.serve(app, stop.clone()));
        let site = Self { coordinator, address, dir, stop };
        for (name, mac) in [("a", MAC_A), ("b", MAC_B)] {
            site.apply(machine(name, mac)).await;
        }
        let image = json!({"url": "http://127.0.0.1:1/a.zst", "digest": format!("sha256:{}", "00".repeat(32))});
        let actions = json!([{"name": "write", "writeImage": {"image": image}}, {"name": "reboot", "reboot": {}}]);
        site.apply(document("Template", "os", json!({"actions": actions}))).await;
        site
    }

    pub(crate) async fn apply(&self, document: Value) -> Document {
        let document = Document::from_value(document).unwrap();
        self.coordinator.engine.documents().apply(document, "test", false).await.unwrap().0
    }

    pub(crate) async fn uid(&self, machine: &str) -> Uuid {
        self.machine(machine).await.metadata.uid.unwrap()
    }

    pub(crate) async fn machine(&self, name: &str) -> landfall_api::Machine {
        self.coordinator.store.machine(name).await.unwrap().unwrap().into_inner()
    }

    /// An operator's certificate.
    pub(crate) fn operator(&self, name: &str, role: Role) -> Shows {
        let out = self.dir.path().join(format!("out-{name}"));
        issue_operator(self.dir.path(), name, role, Duration::from_secs(3600), &out).unwrap();
        let read = |end: &str| std::fs::read_to_string(out.join(format!("{name}.{end}"))).unwrap();
        Shows { certificate: Some((read("pem"), read("key"))), bearer: None }
    }

    /// A token, shown without any certificate.
    pub(crate) async fn token(&self, name: &str, role: Role) -> Shows {
        let request = TokenRequest { name: name.into(), role, ttl: None };
        let issued = self.coordinator.store.access().make_token(request, "test", Timestamp::now()).await.unwrap();
        Shows { certificate: None, bearer: Some(issued.value) }
    }

    /// A machine's certificate, as an enrolment gives it.
    pub(crate) async fn machine_certificate(&self, name: &str) -> Shows {
        let uid = self.uid(name).await;
        self.signed(&format!("landfall://machine/{uid}/{name}"), 3600)
    }

    /// A certificate of the site's own CA for the name in the URI, which ends so many seconds from now.
    pub(crate) fn signed(&self, uri: &str, ends_in: i64) -> Shows {
        let read = |file: &str| std::fs::read_to_string(self.dir.path().join("pki").join(file)).unwrap();
        let ca_key = KeyPair::from_pem(&read("ca.key")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), ca_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let at = |seconds: i64| {
            let time = Timestamp::now().as_second() + seconds;
            std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time).unwrap())
        };
        (params.not_before, params.not_after) = (at(-20 * 3600).into(), at(ends_in).into());
        params.serial_number = Some(SerialNumber::from_slice(&Uuid::new_v4().into_bytes()[..8]));
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Shows { certificate: Some((certificate.pem(), key.serialize_pem())), bearer: None }
    }

    pub(crate) fn target(&self) -> Target {
        let pin: Pin = self.coordinator.pki.ca_pin().to_string().parse().unwrap();
        Target::new(&format!("https://{}", self.address), vec![pin]).unwrap()
    }

    /// A boot token for the machine with that address, which is made to have work first.
    pub(crate) async fn boot_token(&self, machine: &str, mac: &str) -> String {
        let asked = landfall_api::Authority { person: "test".into(), at: Timestamp::now(), force: false };
        // Busy already is what is wanted.
        drop(self.coordinator.engine.requests().provision(machine, "os", Default::default(), asked, None).await);
        match self.coordinator.engine.boot().boot_decision(mac.parse().unwrap(), None).await.unwrap() {
            landfall_boot::policy::Decision::RunAgent { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    /// One request from 127.0.0.`host` over a connection of its own.
    pub(crate) async fn send(&self, host: u8, shows: &Shows, request: Request<Full<Bytes>>) -> Answer {
        timeout(LIMIT, self.try_send(host, shows, request)).await.unwrap()
    }

    async fn try_send(&self, host: u8, shows: &Shows, mut request: Request<Full<Bytes>>) -> Answer {
        let mut roots = RootCertStore::empty();
        roots.add(self.coordinator.pki.ca_der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &shows.certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().unwrap();
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
        let tcp = socket.connect(self.address).await.unwrap();
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let driving = tokio::spawn(connection);
        if let Some(bearer) = &shows.bearer {
            request.headers_mut().insert("authorization", format!("Bearer {bearer}").parse().unwrap());
        }
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let collected = body.collect().await.unwrap();
        let code = |headers: &http::HeaderMap| headers.get("grpc-status").map(|v| v.to_str().unwrap().parse().unwrap());
        let grpc = code(&head.headers).or_else(|| collected.trailers().and_then(code)).unwrap_or(0);
        driving.abort();
        Answer { status: head.status.as_u16(), grpc, body: collected.to_bytes().to_vec() }
    }

    /// A request to a route of the operators' API.
    pub(crate) async fn ask(&self, host: u8, shows: &Shows, method: Method, path: &str, body: &str) -> Answer {
        let uri = format!("https://{SERVER_NAME}{path}");
        let request = Request::builder().method(method).uri(uri).body(Full::from(body.to_owned())).unwrap();
        self.send(host, shows, request).await
    }

    /// An agent's call with these messages, and the end after them.
    pub(crate) async fn call<M: Message>(&self, host: u8, shows: &Shows, call: &str, messages: &[M]) -> Answer {
        let mut framed = Vec::new();
        for message in messages {
            let bytes = message.encode_to_vec();
            framed.push(0);
            framed.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
            framed.extend(bytes);
        }
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("https://{SERVER_NAME}/landfall.agent.v1.AgentService/{call}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::from(framed))
            .unwrap();
        self.send(host, shows, request).await
    }

    pub(crate) async fn audit(&self) -> Vec<AuditEntry> {
        self.coordinator.store.audit().list(0, MAX_PAGE).await.unwrap()
    }

    /// The entries of what came from 127.0.0.`host`.
    pub(crate) async fn audit_of(&self, host: u8) -> Vec<AuditEntry> {
        let from = format!("127.0.0.{host}");
        self.audit().await.into_iter().filter(|entry| entry.from == from).collect()
    }
}

/// A PKCS#10 request for a key.
pub(crate) fn csr(key: &KeyPair) -> Vec<u8> {
    CertificateParams::default().serialize_request(key).unwrap().der().to_vec()
}
