//! A real coordinator process for tests that attack it: where it listens, what it holds, what it says, and the good
//! clients that must be served meanwhile.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_api::message::Assignment;
use landfall_edge::testing::ports;
use landfall_proto::SERVER_NAME;
use landfall_session::{Instruction, SessionHandle};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client::TlsStream};

pub(crate) use super::site::{API, LIMIT, agent::word};
use super::site::{agent::session, document};

pub(crate) const MAC: &str = "52:54:00:00:00:01";

/// The process; killed when dropped.
pub(crate) struct Coordinator {
    child: Child,
    log: PathBuf,
}

impl Coordinator {
    /// Starts it by `command` and waits until it is ready.
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Self {
        let file = std::fs::File::create(&log).unwrap();
        let child = command.env("RUST_LOG", "info").stderr(Stdio::from(file)).spawn().unwrap();
        let mut coordinator = Self { child, log };
        let begun = Instant::now();
        while !coordinator.log().contains(" ready ") {
            let ended = coordinator.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < LIMIT, "it did not start:\n{}", coordinator.log());
            // A file does not notify when it has grown.
            std::thread::sleep(Duration::from_millis(20));
        }
        coordinator
    }

    /// Everything it wrote so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Sends it a signal, by its name without SIG.
    pub(crate) fn signal(&self, name: &str) {
        // The shell's own: a small Debian has no `kill` beside it.
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status().unwrap();
        assert!(sent.success());
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// A figure of /proc/PID/status such as `VmRSS`, bytes.
    pub(crate) fn memory(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// How many files it has open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Requires that it still runs and that no task in it has panicked.
    pub(crate) fn require_sound(&mut self) {
        let log = self.log();
        assert!(self.child.try_wait().unwrap().is_none(), "it ended:\n{log}");
        let bad: Vec<_> = log.lines().filter(|line| line.contains("panicked") || line.contains("overflow")).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A directory with a configuration, and ports of its own.
pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) address: &'static str,
    pub(crate) http: u16,
    pub(crate) tls: u16,
    pub(crate) tftp: u16,
}

impl Site {
    /// On loopback, with TFTP and without DHCP.
    pub(crate) fn loopback() -> Self {
        Self::new("127.0.0.1", ports(), "")
    }

    /// With more lines of configuration.
    pub(crate) fn new(address: &'static str, [http, tls, tftp]: [u16; 3], more: &str) -> Self {
        // Already installed by another test is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let dir = tempfile::tempdir().unwrap();
        for (file, bytes) in [("vmlinuz", 7), ("initramfs", 7), ("images/os.zst", 7), ("loaders/snponly.efi", 1 << 20)]
        {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![7; bytes]).unwrap();
        }
        let at = dir.path().display();
        let config = format!(
            "data_dir = \"{at}/data\"\nadvertise = \"{address}\"\n\
             [http]\nlisten = \"{address}:{http}\"\n[tls]\nlisten = \"{address}:{tls}\"\n\
             [tftp]\nlisten = \"{address}:{tftp}\"\n[boot]\nkernel = \"{at}/vmlinuz\"\ninitramfs = \"{at}/initramfs\"\n\
             images = \"{at}/images\"\nbootloaders = \"{at}/loaders\"\n[limits]\nheartbeat = \"1s\"\n{more}"
        );
        std::fs::write(dir.path().join("c.toml"), config).unwrap();
        Self { dir, address, http, tls, tftp }
    }

    /// Starts the coordinator; `before` are words before its own, such as `ip netns exec NAME`.
    pub(crate) fn start(&self, before: &[&str]) -> Coordinator {
        let program = env!("CARGO_BIN_EXE_landfall-coordinator");
        let mut command = match before {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.arg("--config").arg(self.dir.path().join("c.toml"));
        Coordinator::start(command, self.dir.path().join("log"))
    }

    fn data(&self, file: &str) -> PathBuf {
        self.dir.path().join("data").join(file)
    }

    /// As `landfall` does on the coordinator's host, over the Unix socket.
    pub(crate) async fn api(&self, method: &str, path: &str, body: &Value) -> Value {
        let socket = UnixStream::connect(self.data("api.sock")).await.unwrap();
        let (status, answer) = request(socket, method, &format!("{API}{path}"), &body.to_string()).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    pub(crate) async fn apply(&self, kind: &str, name: &str, spec: Value) {
        self.api("POST", "/apply", &document(kind, name, spec)).await;
    }

    /// A machine `m1` with a run that begins with an image. Returns the run's name.
    pub(crate) async fn run(&self) -> String {
        let url = format!("http://{}:{}/images/os.zst", self.address, self.http);
        let actions = json!([
            {"name": "write", "writeImage": {"image": {"url": url, "digest": format!("sha256:{}", "0a".repeat(32))}}},
            {"name": "restart", "reboot": {}},
        ]);
        self.apply("Machine", "m1", json!({"identity": {"macs": [MAC]}})).await;
        self.apply("Template", "os", json!({"actions": actions})).await;
        let run = self.api("POST", "/machines/m1/provision", &json!({"template": "os"})).await;
        run["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// The machine's boot script.
    pub(crate) async fn script(&self) -> String {
        let stream = TcpStream::connect((self.address, self.http)).await.unwrap();
        let (status, script) = request(stream, "GET", &format!("/boot/ipxe?mac={MAC}"), "").await;
        assert_eq!(status, 200, "{script}");
        script
    }

    pub(crate) fn tls_address(&self) -> SocketAddr {
        format!("{}:{}", self.address, self.tls).parse().unwrap()
    }

    /// A TLS client that trusts this coordinator; `admin`: with the first operator's certificate.
    pub(crate) fn tls_client(&self, alpn: &[&[u8]], admin: bool) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let certificates = |file: &str| {
            CertificateDer::pem_file_iter(self.data(file)).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        };
        roots.add_parsable_certificates(certificates("admin/ca.pem"));
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let mut config = if admin {
            let key = PrivateKeyDer::from_pem_file(self.data("admin/admin.key")).unwrap();
            builder.with_client_auth_cert(certificates("admin/admin.pem"), key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }

    /// A finished handshake.
    pub(crate) async fn handshake(&self, client: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.tls_address()).await?;
        client.connect(ServerName::try_from(SERVER_NAME).unwrap(), stream).await
    }

    /// An operator's request over the network, on a connection of its own. One that is cut off under a flood is made again, as
    /// any client does.
    pub(crate) async fn operator(&self, client: &TlsConnector, path: &str) -> u16 {
        let begun = Instant::now();
        loop {
            let cut = match self.handshake(client).await {
                Ok(stream) => match answer(stream, "GET", path, "").await {
                    Some((status, _)) => return status,
                    None => "no answer".to_owned(),
                },
                Err(error) => error.to_string(),
            };
            assert!(begun.elapsed() < LIMIT, "{path}: {cut}");
        }
    }

    /// A machine's agent: enrolled, with a session.
    pub(crate) async fn agent(&self) -> Agent {
        let (handle, instructions, _) = session(&self.script().await, "m1", MAC).await;
        Agent { handle, instructions }
    }
}

/// A connected agent.
pub(crate) struct Agent {
    pub(crate) handle: SessionHandle,
    pub(crate) instructions: mpsc::Receiver<Instruction>,
}

impl Agent {
    pub(crate) async fn assigned(&mut self) -> Box<Assignment> {
        loop {
            match timeout(LIMIT, self.instructions.recv()).await.unwrap().unwrap() {
                Instruction::Assign { assignment, .. } => return assignment,
                other => assert!(matches!(other, Instruction::Idle { .. }), "{other:?}"),
            }
        }
    }
}

/// One HTTP/1.1 request on a connection of its own.
pub(crate) async fn request(
    stream: impl AsyncRead + AsyncWrite + Unpin, method: &str, path: &str, body: &str,
) -> (u16, String) {
    answer(stream, method, path, body).await.unwrap_or_else(|| panic!("no answer to {method} {path}"))
}

/// The same; nothing if the connection was cut off before an answer.
async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin, method: &str, path: &str, body: &str,
) -> Option<(u16, String)> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // A peer may end without a TLS close; the length says whether all is there.
    let _ended = timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
}

/// Mebibytes, for people.
pub(crate) fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// A sequence that is the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub(crate) fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.roll() % n as u64) as usize
    }
    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n.div_ceil(8)).flat_map(|_| self.roll().to_le_bytes()).take(n).collect()
    }
}
