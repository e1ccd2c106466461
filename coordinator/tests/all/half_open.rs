//! Thousands of connections that say nothing, or too little, while a machine installs and a person asks: the coordinator
//! stays up, its memory and its open files stay bounded, and no good client waits for long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::besieged::{LIMIT, Site, mib};
use futures::{StreamExt as _, stream};
use landfall_api::message::{ActionRef, EventBody};
use landfall_boot::http::serve::MAX_CONNECTIONS;
use landfall_coordinator::tls::listener::{ANONYMOUS, QUIET};
use landfall_edge::gate::open_files;
use landfall_session::Connection;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Of each of the five ways.
const EACH: usize = 1000;
/// Attackers that knock at once.
const AT_ONCE: usize = 256;
/// A good client waits for the quiet ones before it in the kernel's queue: some batches of [`ANONYMOUS`] places, each of
/// which is free after [`QUIET`]. Ten times that.
const WAIT: Duration = QUIET.saturating_mul(30);
/// What five thousand of them may cost. A handshake without its end takes about 20 KiB.
const MEMORY: u64 = 128 << 20;

/// A connection that will say no more than it has said.
#[expect(dead_code, reason = "what is in it is only held open")]
enum HalfOpen {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

struct Attack {
    site: Arc<Site>,
    http1: TlsConnector,
    http2: TlsConnector,
}

impl Attack {
    async fn open(&self, n: usize) -> std::io::Result<HalfOpen> {
        let site = &self.site;
        let tls = async |client: &TlsConnector, said: &[u8]| {
            let mut stream = site.handshake(client).await?;
            stream.write_all(said).await?;
            stream.flush().await?;
            Ok(HalfOpen::Tls(Box::new(stream)))
        };
        match n % 5 {
            // No TLS.
            0 => Ok(HalfOpen::Plain(TcpStream::connect(site.tls_address()).await?)),
            // TLS, and nothing.
            1 => tls(&self.http1, b"").await,
            // HTTP/2's preface, and no frame.
            2 => tls(&self.http2, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await,
            // Headers without an end.
            3 => tls(&self.http1, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-").await,
            _ => {
                let mut stream = TcpStream::connect((site.address, site.http)).await?;
                stream.write_all(b"GET /boot/ipxe?mac=52:54:00:00:00:01 HTTP/1.1\r\nHost: x\r\nX-").await?;
                Ok(HalfOpen::Plain(stream))
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_half_open_connections_cost_bounded_memory() {
    open_files::raise();
    let site = Arc::new(Site::loopback());
    let mut coordinator = site.start(&[]);
    let run = site.run().await;
    let mut agent = site.agent().await;
    let assignment = agent.assigned().await;
    let action = ActionRef { workflow_uid: assignment.workflow_uid, action_index: 0, attempt: 1 };
    agent.handle.report(action, EventBody::Started).await.unwrap();
    agent.handle.flush(LIMIT).await.unwrap();
    let operator = site.tls_client(&[b"http/1.1"], true);
    assert_eq!(site.operator(&operator, &format!("{}/machines", super::besieged::API)).await, 200);
    let before = coordinator.memory("VmRSS");

    // The machine's session must not break for an instant.
    let mut connection = agent.handle.connection();
    connection.borrow_and_update();
    let broken = tokio::spawn(async move {
        loop {
            if connection.changed().await.is_err() || !matches!(*connection.borrow(), Connection::Connected { .. }) {
                return;
            }
        }
    });
    let attack = Arc::new(Attack {
        site: site.clone(),
        http1: site.tls_client(&[b"http/1.1"], false),
        http2: site.tls_client(&[b"h2"], false),
    });
    let attackers = tokio::spawn(async move {
        let open = |n| {
            let attack = attack.clone();
            async move { timeout(LIMIT, attack.open(n)).await.ok()?.ok() }
        };
        let opened: Vec<_> = stream::iter(0..5 * EACH).map(open).buffer_unordered(AT_ONCE).collect().await;
        opened.into_iter().flatten().collect::<Vec<_>>()
    });

    // New connections of every good kind, one after another, while the attack comes in and once more when all of it is there.
    let mut slowest = Duration::ZERO;
    let (mut rounds, mut most_files) = (0, 0);
    loop {
        let last = attackers.is_finished();
        let begun = Instant::now();
        assert_eq!(site.operator(&operator, &format!("{}/workflows/{run}", super::besieged::API)).await, 200);
        slowest = slowest.max(begun.elapsed());
        let begun = Instant::now();
        assert!(site.script().await.contains("#!ipxe"));
        slowest = slowest.max(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(site.api("GET", "/machines/m1", &Value::Null).await["metadata"]["name"], "m1");
        slowest = slowest.max(begun.elapsed());
        most_files = most_files.max(coordinator.open_files());
        rounds += 1;
        if last {
            break;
        }
    }
    let opened = attackers.await.unwrap();
    // A quiet connection gives way to a new one, so many are gone before they are half open.
    assert!(opened.len() >= ANONYMOUS, "only {} connections were opened", opened.len());
    let (now, peak) = (coordinator.memory("VmRSS"), coordinator.memory("VmHWM"));
    println!(
        "half open: {} opened, {} rounds of good requests, the slowest took {slowest:?}; memory {} MiB before, {} MiB with \
         them, {} MiB at most; {most_files} files open at most",
        opened.len(),
        rounds,
        mib(before),
        mib(now),
        mib(peak)
    );
    assert!(slowest < WAIT, "a good request took {slowest:?}");
    assert!(peak < before + MEMORY, "{} MiB before, {} MiB at most", mib(before), mib(peak));
    assert!(most_files < ANONYMOUS + MAX_CONNECTIONS + 200, "{most_files} open files");
    assert!(!broken.is_finished(), "the machine's session broke");

    // The machine goes on, and those who were silent are gone by themselves.
    agent.handle.report(action, EventBody::Failed { problem: problem(), retryable: false }).await.unwrap();
    agent.handle.flush(LIMIT).await.unwrap();
    let ended = site.api("GET", &format!("/workflows/{run}"), &Value::Null).await;
    assert_eq!(ended["status"]["phase"], "Failed", "{ended:#}");
    for held in opened {
        let HalfOpen::Plain(mut stream) = held else { continue };
        let mut rest = Vec::new();
        // An end or a reset, both are fine; being held open is not.
        let _ended = timeout(LIMIT, stream.read_to_end(&mut rest)).await.expect("a silent connection is closed");
    }
    coordinator.require_sound();
}

fn problem() -> landfall_api::Problem {
    landfall_api::Problem::new(landfall_api::ErrorCode::DeviceIo, "no more")
}
