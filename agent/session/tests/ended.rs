//! Reports while a session has ended: they wait for its restart, for a bounded time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use landfall_api::message::{ActionRef, EventBody, Identity, Vitals};
use landfall_session::{
    AgentKey, BootClock, ConnectError, Connection, Credentials, Dial, Dialling, Host, Instruction, Looking, Seen,
    Session, SessionConfig, SessionEnded, SessionHandle, Surroundings, Target, Validity,
};
use tokio::{sync::mpsc, time::Instant};
use uuid::Uuid;

/// A coordinator that refuses the first certificate that it sees, and is silent to every other.
#[derive(Default)]
struct Refusing(AtomicBool);

impl Dial for Refusing {
    fn dial<'a>(&'a self, _: &'a Target, _: Validity, _: Option<&'a Credentials>) -> Dialling<'a> {
        if self.0.swap(true, Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        let address = ([127, 0, 0, 1], 1).into();
        let source = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired);
        Box::pin(async move { Err(ConnectError::CredentialsRefused { address, source }) })
    }
}

impl Host for Refusing {
    fn look(&self) -> Looking<'_> {
        Seen::disks(vec![], vec![]).at_once()
    }
    fn vitals(&self) -> Vitals {
        Vitals { uptime: Duration::ZERO, peak_rss_bytes: 0 }
    }
}

fn credentials() -> Credentials {
    Credentials::new(AgentKey::generate().unwrap(), Vec::new())
}

/// A session that has ended, for its certificate was refused.
async fn ended() -> (SessionHandle, mpsc::Receiver<Instruction>) {
    let pin = format!("sha256:{}", "00".repeat(32)).parse().unwrap();
    let config = SessionConfig {
        target: Target::new("https://127.0.0.1:1", vec![pin]).unwrap(),
        credentials: credentials(),
        software: String::new(),
        identity: Identity::default(),
        boot_id: String::new(),
        enrolled_at: Duration::ZERO,
    };
    let world = Surroundings {
        dial: Arc::new(Refusing::default()),
        clock: BootClock::new(landfall_session::boot_time),
        chance: Arc::new(|| 0),
    };
    let (handle, instructions) = Session::start_in(world, config, Arc::new(Refusing::default()));
    handle.connection().wait_for(|connection| *connection == Connection::Ended).await.unwrap();
    (handle, instructions)
}

fn action() -> ActionRef {
    ActionRef { workflow_uid: Uuid::from_u128(1), action_index: 0, attempt: 1 }
}

#[tokio::test(start_paused = true)]
async fn a_report_waits_until_an_ended_session_is_restarted() {
    let (handle, _instructions) = ended().await;
    let (reporter, began) = (handle.clone(), Instant::now());
    let report = tokio::spawn(async move { reporter.report(action(), EventBody::Started).await });
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert!(!report.is_finished());
    let _instructions = handle.restart(credentials()).unwrap();
    assert_eq!(report.await.unwrap(), Ok(1));
    assert!(began.elapsed() < Duration::from_secs(600));
}

#[tokio::test(start_paused = true)]
async fn a_report_waits_ten_minutes_and_no_longer() {
    let (handle, _instructions) = ended().await;
    let began = Instant::now();
    assert_eq!(handle.report(action(), EventBody::Started).await, Err(SessionEnded));
    assert_eq!(began.elapsed().as_secs(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_closed_session_refuses_a_report_at_once() {
    let (handle, _instructions) = ended().await;
    let (reporter, began) = (handle.clone(), Instant::now());
    let waiting = tokio::spawn(async move { reporter.report(action(), EventBody::Started).await });
    tokio::task::yield_now().await;
    handle.close().await;
    assert_eq!(waiting.await.unwrap(), Err(SessionEnded));
    assert_eq!(handle.report(action(), EventBody::Started).await, Err(SessionEnded));
    assert!(began.elapsed() < Duration::from_secs(1));
}
