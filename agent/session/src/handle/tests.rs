//! Reports while a session has ended: they wait for its restart, for a bounded time.

use tokio::time::Instant;

use super::*;
use crate::testing::{credentials, session};

/// A session that has ended, for its certificate was refused.
async fn ended() -> (SessionHandle, mpsc::Receiver<Instruction>) {
    let (handle, instructions) = session(1);
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

#[tokio::test(start_paused = true)]
async fn a_fenced_session_refuses_a_report_at_once() {
    let (handle, _instructions) = ended().await;
    handle.shared.lock().fenced = true;
    let began = Instant::now();
    assert_eq!(handle.report(action(), EventBody::Started).await, Err(SessionEnded));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}
