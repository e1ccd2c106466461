//! What ends an agent's right to act: the end of its lease, and a fence, which it answers once nothing of it runs.

use std::time::Duration;

use landfall_api::ErrorCode;
use landfall_api::message::{ActionRef, EventBody};
use landfall_proto::v1::{self, session_request::Message as Up, session_response::Message as Down};
use landfall_session::{Connection, Instruction};
use tokio::time::timeout;

use super::scripted::{Fixture, LIMIT, action, assigned, assignment, connection, instruction, renewal};

#[tokio::test]
async fn an_expired_lease_cannot_be_renewed() {
    let (_fixture, handle, mut instructions, line) = Fixture::welcomed().await;
    line.say(assignment(1, Duration::from_millis(300))).await;
    let lease = assigned(&mut instructions).await;
    timeout(LIMIT, lease.expired()).await.unwrap();
    line.say(renewal(600)).await;
    line.say(Down::Idle(v1::Idle { boot_disk: false, ended: None })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Idle { .. }), "the renewal has been taken");
    assert!(!lease.is_valid() && !handle.lease().is_valid());
    // Only another assignment starts another term.
    line.say(assignment(1, Duration::from_secs(600))).await;
    let second = assigned(&mut instructions).await;
    assert!(second.is_valid() && !lease.is_valid());
    line.say(renewal(6000)).await;
    line.say(Down::Idle(v1::Idle { boot_disk: false, ended: None })).await;
    drop(instruction(&mut instructions).await);
    assert!(second.remaining() > Some(Duration::from_secs(5000)));
}

#[tokio::test]
async fn a_fence_ends_the_lease_and_waits_for_the_workflow() {
    let (fixture, handle, mut instructions, mut line) = Fixture::welcomed().await;
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
    connection(&handle, |c| *c == Connection::Ended).await;
    let credentials = fixture.credentials().await;
    assert!(handle.restart(credentials).is_err(), "the machine is another session's now");
}

#[tokio::test]
async fn a_fence_is_answered_only_when_no_branch_runs() {
    let (_fixture, handle, _instructions, mut line) = Fixture::welcomed().await;
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
    let (_fixture, handle, mut instructions, mut line) = Fixture::welcomed().await;
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
    let (mut fixture, handle, mut instructions, line) = Fixture::welcomed().await;
    handle.report(action(), EventBody::Started).await.unwrap();
    line.say(Down::Fenced(v1::Fenced { epoch: 9, reason: "newer".into() })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Fenced { .. }));
    // Nonsense, which otherwise is a reason to connect again.
    line.welcome(1).await;
    connection(&handle, |c| *c == Connection::Ended).await;
    assert!(instructions.recv().await.is_none() && fixture.lines.try_recv().is_err());
}
