//! Enrolments, sessions and clients that are refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_api::{ErrorCode, SecretText, message::Proof};
use landfall_proto::v1::{self, session_response::Message as Down};
use landfall_session::{AgentKey, BootToken, Connection, Instruction, Proxy, Target, enroll};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::scripted::{Fixture, connection, identity, instruction, pki, serve, span};

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

/// Connects each caller to this address, whatever it asks for; the lines that they asked with.
async fn proxy(to: SocketAddr) -> (Proxy, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (at, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let mut agent = BufStream::new(listener.accept().await.unwrap().0);
            let (mut coordinator, heard) = (TcpStream::connect(to).await.unwrap(), Arc::clone(&heard));
            tokio::spawn(async move {
                let mut first = String::new();
                agent.read_line(&mut first).await.unwrap();
                heard.lock().unwrap().push(first.trim_end().to_owned());
                while first.trim_end() != "" {
                    first.clear();
                    agent.read_line(&mut first).await.unwrap();
                }
                agent.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                agent.flush().await.unwrap();
                // Ends with either side.
                drop(copy_bidirectional(&mut agent, &mut coordinator).await);
            });
        }
    });
    (format!("http://{at}").parse().unwrap(), asked)
}

#[tokio::test]
async fn all_that_is_said_to_the_coordinator_passes_the_proxy() {
    let mut fixture = Fixture::new().await;
    let (proxy, asked) = proxy(fixture.address).await;
    let pin = fixture.pki.ca_pin().to_string().parse().unwrap();
    // A name that the proxy alone knows.
    let target = Target::new("https://boot.invalid:7443", vec![pin]).unwrap().with_proxy(Some(proxy));
    let (key, token) = (AgentKey::generate().unwrap(), Proof::BootToken(SecretText::new("right")));
    let enrolled = enroll(&target, "0.1.0", &identity(), "boot-1", &token, &key).await.unwrap();
    let (session, _instructions) = fixture.begin(target.clone(), enrolled.credentials);
    let mut line = fixture.line().await;
    line.hello().await;
    line.welcome(1).await;
    connection(&session, |connection| matches!(connection, Connection::Connected { .. })).await;
    // A route that this coordinator of the tests does not have.
    let asks = landfall_session::boot_token(&target, "52:54:00:00:00:01".parse().unwrap(), None).await.unwrap();
    assert!(matches!(asks, BootToken::None(_)), "{asks:?}");
    assert_eq!(*asked.lock().unwrap(), ["CONNECT boot.invalid:7443 HTTP/1.1"; 3]);
    session.close().await;

    let closed = "http://127.0.0.1:1".parse().unwrap();
    let target = target.with_proxy(Some(closed));
    let refused = enroll(&target, "0.1.0", &identity(), "boot-1", &token, &key).await.unwrap_err();
    assert!(refused.problem.message.contains("coordinator by the proxy http://127.0.0.1:1: "), "{}", refused.problem);
    assert!(refused.problem.hint.contains("landfall.proxy="), "{}", refused.problem);
}

#[tokio::test]
async fn an_expired_certificate_ends_the_session() {
    let mut fixture = Fixture::new().await;
    let real = fixture.service.pki.clone();
    fixture.service.pki = pki(fixture.data.path(), Duration::from_secs(1));
    fixture.server.abort();
    let (address, server) = serve(&fixture.service, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
    (fixture.address, fixture.server) = (address, server);
    assert_eq!(real.ca_pin(), fixture.pki.ca_pin());
    let credentials = fixture.credentials().await;
    // Until it has certainly run out: certificates count in whole seconds.
    sleep(Duration::from_millis(2100)).await;
    let (_handle, mut instructions) = fixture.begin(fixture.target(), credentials);
    let got = instruction(&mut instructions).await;
    assert!(
        matches!(&got, Instruction::Refused { problem, retry_after: None } if problem.code == ErrorCode::Unauthenticated),
        "{got:?}"
    );
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
    connection(&handle, |c| *c == Connection::Ended).await;
    // With new credentials the same handle goes on.
    let mut instructions = handle.restart(fixture.credentials().await).unwrap();
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome(5).await;
    line.say(Down::Idle(v1::Idle { boot_disk: true, ended: None })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Idle { boot_disk: true, .. }));
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
