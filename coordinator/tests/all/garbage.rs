//! Garbage on every port of a running coordinator: it stays up, panics nowhere, keeps no memory, and serves the next good
//! request. The same garbage in every run.

use std::{net::UdpSocket, time::Duration};

use super::besieged::{API, Dice, LIMIT, Site, mib, request, word};
use landfall_api::{Digest, Pin, SecretText, message::PhoneHomeReport};
use landfall_proto::v1;
use landfall_session::{https_client, phone_home};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Rounds; each has one of every kind on every port, and then good requests.
const ROUNDS: u64 = 40;
/// What all of it may leave behind: buffers that the allocator keeps.
const MEMORY: u64 = 64 << 20;
/// How long one piece of garbage is given before its sender turns to the next: the coordinator may well wait for the rest.
const PATIENCE: Duration = Duration::from_millis(100);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const AGENTS: &str = "/landfall.agent.v1.AgentService";

/// Says it, reads what there is to read for a moment, and goes.
async fn throw(mut stream: impl AsyncRead + AsyncWrite + Unpin, garbage: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let thrown = async {
        // Being cut off in the middle is as good an answer as any.
        if stream.write_all(garbage).await.is_ok() && stream.flush().await.is_ok() {
            let _broken = stream.read_to_end(&mut answer).await;
        }
    };
    let _elapsed = timeout(PATIENCE, thrown).await;
    answer
}

/// Frames of HTTP/2 with a head that fits and a content that does not.
fn frames(dice: &mut Dice) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    // Settings, as a client begins.
    out.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for _ in 0..dice.below(12) {
        let length = dice.below(200);
        let claimed = if dice.below(4) == 0 { dice.below(1 << 24) } else { length };
        out.extend_from_slice(&(claimed as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&[dice.below(12) as u8, dice.below(256) as u8]);
        out.extend_from_slice(&(dice.below(8) as u32).to_be_bytes());
        out.extend_from_slice(&dice.bytes(length));
    }
    out
}

/// Requests of HTTP/1 that are too large, cut, or contradict themselves.
fn requests(dice: &mut Dice) -> Vec<u8> {
    let path = ["/", "/boot/ipxe?mac=", "/apis/landfall.dev/v1alpha1/machines", AGENTS, "/phone-home"][dice.below(5)];
    match dice.below(8) {
        0 => dice.bytes(3000),
        1 => format!("GET {path}{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20)).into_bytes(),
        2 => format!("GET {path} HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "b".repeat(1 << 20)).into_bytes(),
        3 => format!("GET {path} HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(10_000)).into_bytes(),
        4 => format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n{{").into_bytes(),
        5 => format!("POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\nx")
            .into_bytes(),
        6 => {
            format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx").into_bytes()
        }
        _ => [b"GET /\0\xff ".as_slice(), &dice.bytes(40), b" HTTP/1.1\r\nHost: x\r\n\r\n"].concat(),
    }
}

struct Ports {
    site: Site,
    odd: TlsConnector,
    http1: TlsConnector,
    http2: TlsConnector,
    admin: TlsConnector,
    udp: UdpSocket,
}

impl Ports {
    async fn round(&self, dice: &mut Dice) {
        let site = &self.site;
        let tcp = || TcpStream::connect(site.tls_address());
        // The TLS port, before TLS: noise, a record that promises more, another protocol.
        let noise = dice.bytes(600);
        throw(tcp().await.unwrap(), &noise).await;
        throw(tcp().await.unwrap(), &[&[22, 3, 1, 0xff, 0xff, 1][..], &noise[..50]].concat()).await;
        throw(tcp().await.unwrap(), b"GET / HTTP/1.1\r\n\r\n").await;
        // Behind TLS.
        assert!(site.handshake(&self.odd).await.is_err(), "a protocol that this port does not speak is refused");
        let garbage = frames(dice);
        throw(site.handshake(&self.http2).await.unwrap(), &garbage).await;
        let noise = dice.bytes(2000);
        throw(site.handshake(&self.http2).await.unwrap(), &noise).await;
        let garbage = requests(dice);
        throw(site.handshake(&self.http1).await.unwrap(), &garbage).await;
        // With an operator's certificate no less.
        let garbage = requests(dice);
        throw(site.handshake(&self.admin).await.unwrap(), &garbage).await;
        // Plain HTTP, and the socket on the host.
        let garbage = requests(dice);
        throw(TcpStream::connect((site.address, site.http)).await.unwrap(), &garbage).await;
        let garbage = requests(dice);
        throw(UnixStream::connect(site.dir.path().join("data/api.sock")).await.unwrap(), &garbage).await;
        // TFTP.
        for _ in 0..20 {
            let mut packet = dice.bytes(600);
            packet[..2].copy_from_slice(&[0, dice.below(8) as u8]);
            let length = dice.below(600);
            self.udp.send(&packet[..length]).unwrap();
        }
    }

    async fn good(&self) {
        let site = &self.site;
        assert_eq!(site.operator(&self.admin, &format!("{API}/machines/m1")).await, 200);
        assert!(site.script().await.contains("landfall.token="));
        assert_eq!(site.api("GET", "/machines/m1", &Value::Null).await["metadata"]["name"], "m1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_every_port_leaves_nothing_behind() {
    let site = Site::loopback();
    let mut coordinator = site.start(&[]);
    site.run().await;
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect(("127.0.0.1", site.tftp)).unwrap();
    let ports = Ports {
        odd: site.tls_client(&[b"spdy/1"], false),
        http1: site.tls_client(&[b"http/1.1"], false),
        http2: site.tls_client(&[b"h2"], false),
        admin: site.tls_client(&[b"http/1.1"], true),
        udp,
        site,
    };
    let mut dice = Dice::new(2026);
    ports.round(&mut dice).await;
    ports.good().await;
    let before = coordinator.memory("VmRSS");
    for _ in 0..ROUNDS {
        ports.round(&mut dice).await;
        ports.good().await;
    }
    let peak = coordinator.memory("VmHWM");
    println!("garbage: {ROUNDS} rounds; memory {} MiB after the first, {} MiB at most", mib(before), mib(peak));
    assert!(peak < before + MEMORY, "{} MiB before, {} MiB at most", mib(before), mib(peak));
    coordinator.require_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_or_mistyped_requests_are_refused() {
    let site = Site::loopback();
    let mut coordinator = site.start(&[]);
    site.run().await;
    let script = site.script().await;
    let pins: Vec<Pin> = vec![word(&script, "landfall.ca=").parse().unwrap()];
    let server = word(&script, "landfall.coordinator=");
    let client = https_client(&pins, None).unwrap();
    let before = coordinator.memory("VmRSS");
    let call = |method: &str, kind: &'static str, body: Vec<u8>| {
        client.post(format!("{server}{AGENTS}/{method}")).header("content-type", kind).body(body).send()
    };
    let status =
        |answer: &reqwest::Response| answer.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());

    // gRPC's path, but not gRPC.
    for kind in ["application/json", "text/html", ""] {
        let answer = timeout(LIMIT, call("Enroll", kind, b"{}".to_vec())).await.unwrap().unwrap();
        assert_eq!(answer.status(), 415, "content type {kind:?}");
    }
    let (code, _) = request(
        site.handshake(&site.tls_client(&[b"http/1.1"], false)).await.unwrap(),
        "POST",
        &format!("{AGENTS}/Enroll"),
        "{}",
    )
    .await;
    assert_eq!(code, 415, "HTTP/1.1 without gRPC's content type");
    // A method there is none of, a frame that promises four gigabytes, one that is cut, one that is no message.
    let framed = |claimed: u32, body: &[u8]| [&[0][..], &claimed.to_be_bytes(), body].concat();
    let wrong = [
        // Not in the table of calls: the sides are of two versions.
        ("Nothing", framed(0, b""), "3"),
        ("Enroll", framed(u32::MAX, b"x"), "11"),
        ("Enroll", framed(5, &[0xff; 5]), "13"),
        ("Session", framed(0, b""), "16"),
        ("Telemetry", framed(0, b""), "16"),
    ];
    for (method, body, expected) in wrong {
        let answer = timeout(LIMIT, call(method, "application/grpc", body)).await.unwrap().unwrap();
        assert_eq!((answer.status().as_u16(), status(&answer).as_deref()), (200, Some(expected)), "{method}");
    }
    // An enrolment of a megabyte, from a caller without a certificate.
    let giant = v1::EnrollRequest { csr_der: vec![7; 1 << 20], ..v1::EnrollRequest::default() }.encode_to_vec();
    let body = framed(giant.len() as u32, &giant);
    // Refused, or cut off while it still talks.
    if let Ok(answer) = timeout(LIMIT, call("Enroll", "application/grpc", body)).await.unwrap() {
        assert!(!matches!(status(&answer).as_deref(), None | Some("0")), "{answer:?}");
    }
    let report = PhoneHomeReport { hostname: "h".repeat(1 << 20), ..PhoneHomeReport::default() };
    let refused = phone_home(&client, &format!("{server}/phone-home"), &SecretText::new("x.y"), &report).await;
    assert!(refused.is_err());
    // A document of two megabytes, from an operator.
    let digest: Digest = format!("sha256:{}", "0a".repeat(32)).parse().unwrap();
    let document = json!({"kind": "Template", "x": "y".repeat(2 << 20), "digest": digest.to_string()}).to_string();
    let admin = site.handshake(&site.tls_client(&[b"http/1.1"], true)).await.unwrap();
    let (code, answer) = request(admin, "POST", &format!("{API}/apply"), &document).await;
    assert_eq!(code, 413, "{answer}");

    let peak = coordinator.memory("VmHWM");
    assert!(peak < before + MEMORY, "{} MiB before, {} MiB at most", mib(before), mib(peak));
    assert_eq!(site.api("GET", "/machines/m1", &Value::Null).await["metadata"]["name"], "m1");
    coordinator.require_sound();
}
