//! Enrolments, sessions and clients that are refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_api::{ErrorCode, SecretText, message::Proof};
use landfall_proto::v1::{self, session_response::Message as Down};
use landfall_session::{AgentKey, Connection, Instruction, Session, SessionConfig, Target, enroll};
use tokio::time::{sleep, timeout};

use super::scripted::{Bench, Fixture, LIMIT, identity, instruction, pki, serve, span};

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
    let config = SessionConfig {
        target: fixture.target(),
        credentials,
        software: "0.1.0".into(),
        identity: identity(),
        boot_id: "boot-1".into(),
        enrolled_at: Duration::ZERO,
    };
    let (_handle, mut instructions) = Session::start(config, Arc::new(Bench(fixture.memory.subscribe())));
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
