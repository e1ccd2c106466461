//! What agent and coordinator say to each other, and again after a break.

use std::time::Duration;

use landfall_api::message::{ActionResult, EventBody, LogLevel};
use landfall_api::{ErrorCode, Problem};
use landfall_coordinator::tls::Peer;
use landfall_proto::v1::session_request::Message as Up;
use landfall_proto::v1::session_response::Message as Down;
use landfall_proto::{PROTOCOL, v1};
use landfall_session::{Connection, Instruction};
use tokio::time::timeout;
use uuid::Uuid;

use super::scripted::{Fixture, LIMIT, Line, action, assigned, assignment, connection, instruction, serve};

#[tokio::test]
async fn an_agent_enrols_says_hello_works_and_is_acknowledged() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let (peer, from) = fixture.service.enrolled_by.lock().unwrap().pop_front().unwrap();
    assert_eq!(peer, Some(Peer::Anonymous));
    assert_eq!(from.unwrap().ip(), fixture.address.ip());

    let mut line = fixture.line().await;
    let Peer::Machine(machine) = &line.peer else { panic!("{:?}", line.peer) };
    assert_eq!((machine.name.as_str(), machine.uid), ("node-1", Uuid::from_u128(7)));
    let hello = line.hello().await;
    assert_eq!((hello.last_epoch, hello.boot_id.as_str(), hello.enrolled_boottime_ms), (0, "boot-1", 3000));
    assert_eq!(hello.disks[0].serial, "d1");
    line.welcome(1).await;
    let (mut facts, mut heartbeats) = (0, 0);
    while facts == 0 || heartbeats < 3 {
        match line.next().await {
            Up::Facts(v1::Facts { json }) => {
                facts += 1;
                assert!(json.contains("\"memoryBytes\":5"));
            }
            Up::Heartbeat(beat) => {
                heartbeats += 1;
                assert!(beat.uptime_ms > 1000 && beat.peak_rss_bytes == 2, "by the clock of its leases: {beat:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(facts, 1);

    line.say(assignment(1, Duration::from_secs(600))).await;
    let lease = assigned(&mut instructions).await;
    assert!(lease.is_valid() && handle.lease().remaining() > Some(Duration::from_secs(500)));
    handle.report(action(), EventBody::Started).await.unwrap();
    handle.progress(action(), landfall_api::Progress { raw_bytes: 7, ..Default::default() });
    handle.log(action(), LogLevel::Info, "going down");
    handle.report(action(), EventBody::Finished { result: ActionResult::Reboot }).await.unwrap();
    assert!(handle.flush(Duration::from_millis(50)).await.is_err(), "nothing is acked yet");
    let (first, second) = (line.event().await, line.event().await);
    assert_eq!((first.seq, second.seq), (1, 2));
    line.ack(&second).await;
    handle.flush(LIMIT).await.unwrap();
    let item = timeout(LIMIT, fixture.telemetry.recv()).await.unwrap().unwrap().item.unwrap();
    assert!(matches!(item, v1::telemetry_request::Item::Progress(p) if p.raw_bytes == 7));
    let item = timeout(LIMIT, fixture.telemetry.recv()).await.unwrap().unwrap().item.unwrap();
    assert!(matches!(item, v1::telemetry_request::Item::Log(l) if l.message == "going down"));

    line.say(Down::Cancel(v1::Cancel { workflow_uid: action().workflow_uid.to_string(), reason: "person".into() }))
        .await;
    let got = instruction(&mut instructions).await;
    assert!(matches!(got, Instruction::Cancel { workflow_uid, reason }
        if workflow_uid == action().workflow_uid && reason == "person"));
    line.say(Down::Idle(v1::Idle { boot_disk: true, ended: None })).await;
    assert!(matches!(instruction(&mut instructions).await, Instruction::Idle { boot_disk: true, .. }));

    let Down::Assignment(list) = assignment(0, Duration::from_secs(600)) else { panic!("not an assignment") };
    line.say(Down::Check(v1::Check { list: Some(list) })).await;
    let Instruction::Check(list) = instruction(&mut instructions).await else { panic!("not a check") };
    let problem = Problem::new(ErrorCode::NoDiskMatches, "no disk matches");
    handle.checked(list.workflow_uid, Some(problem));
    let checked = line.checked().await;
    assert_eq!(checked.list_uid, list.workflow_uid.to_string());
    assert_eq!(checked.problem.unwrap().code, "NoDiskMatches");

    handle.close().await;
    assert_eq!(*handle.connection().borrow(), Connection::Ended);
    assert!(handle.report(action(), EventBody::Started).await.is_err());
}

#[tokio::test]
async fn other_facts_are_sent_while_a_list_is_held() {
    let (mut fixture, handle, _instructions, mut line) = Fixture::welcomed().await;
    handle.holds(Some(action().workflow_uid));
    let facts_of = async |line: &mut Line, memory: &str| {
        let wanted = async {
            loop {
                match line.next().await {
                    Up::Facts(v1::Facts { json }) if json.contains(memory) => return,
                    Up::DiskReport(disks) => panic!("disks of a machine that holds a list: {disks:?}"),
                    _ => {}
                }
            }
        };
        // Heartbeats come all the time, so that each of them alone ends in time.
        timeout(LIMIT, wanted).await.unwrap_or_else(|_| panic!("no facts with {memory} within {LIMIT:?}"));
    };
    facts_of(&mut line, "\"memoryBytes\":5").await;
    fixture.memory.send_replace(6);
    facts_of(&mut line, "\"memoryBytes\":6").await;
    handle.holds(None);
    while !matches!(line.next().await, Up::DiskReport(_)) {}
    // Asked, it looks again although nothing changed, but not while it holds a list.
    handle.holds(Some(action().workflow_uid));
    let uid = Uuid::from_u128(5).to_string();
    line.say(Down::Inspect(v1::Inspect { uid: uid.clone() })).await;
    fixture.memory.send_replace(7);
    facts_of(&mut line, "\"memoryBytes\":7").await;
    handle.holds(None);
    facts_of(&mut line, "\"memoryBytes\":7").await;
    assert_eq!(line.checked().await.list_uid, uid);
    while !matches!(line.next().await, Up::DiskReport(_)) {}
    // While it works, a new connection asks busy disks nothing that they answer late.
    handle.holds(Some(action().workflow_uid));
    drop(line);
    let mut line = fixture.line().await;
    line.hello().await;
    line.welcome(2).await;
    facts_of(&mut line, "glanced at").await;
}

#[tokio::test]
async fn unacknowledged_events_are_resent_after_a_break() {
    let (mut fixture, handle, mut instructions, mut line) = Fixture::welcomed().await;
    line.say(assignment(1, Duration::from_secs(600))).await;
    let lease = assigned(&mut instructions).await;
    handle.report(action(), EventBody::Started).await.unwrap();
    let started = line.event().await;

    // The coordinator dies with the ack unsent, and the agent goes on.
    let address = fixture.address;
    fixture.server.abort();
    drop(line);
    connection(&handle, |c| matches!(c, Connection::Disconnected { .. })).await;
    assert!(lease.is_valid());
    handle.report(action(), EventBody::Finished { result: ActionResult::Reboot }).await.unwrap();

    let (again, server) = serve(&fixture.service, address).await;
    assert_eq!(again, address);
    fixture.server = server;
    let mut line = fixture.line().await;
    let hello = line.hello().await;
    assert_eq!(hello.last_epoch, 1);
    assert_eq!(hello.running, None, "it has finished meanwhile");
    line.welcome(2).await;
    let (first, second) = (line.event().await, line.event().await);
    assert_eq!(first, started, "the same event, number and time included");
    assert_eq!(second.seq, 2);
    line.ack(&first).await;
    line.ack(&first).await;
    line.ack(&second).await;
    handle.flush(LIMIT).await.unwrap();
    // A repeat of the assignment renews the very lease that work goes on under.
    line.say(assignment(2, Duration::from_secs(6000))).await;
    drop(assigned(&mut instructions).await);
    assert!(lease.remaining() > Some(Duration::from_secs(5000)));
}

#[tokio::test]
async fn an_invalid_assignment_fails_its_workflow() {
    let (_fixture, _handle, _instructions, mut line) = Fixture::welcomed().await;
    let Down::Assignment(mut wire) = assignment(1, Duration::from_secs(600)) else { unreachable!() };
    wire.actions[0].kind = None;
    line.say(Down::Assignment(wire)).await;
    let event = line.event().await;
    assert_eq!(event.workflow_uid, action().workflow_uid.to_string());
    let Some(v1::event::Event::Failed(failed)) = event.event else { panic!("{event:?}") };
    let problem = failed.problem.unwrap();
    assert_eq!((problem.code.as_str(), failed.retryable), ("VersionSkew", false));
    assert_eq!(problem.subject, "assignment.actions[0].kind");
}

#[tokio::test]
async fn newer_and_older_coordinator_protocols_are_handled() {
    for protocol in [1, PROTOCOL, PROTOCOL + 1] {
        let mut fixture = Fixture::new().await;
        let (handle, mut instructions) = fixture.start().await;
        let mut line = fixture.line().await;
        assert_eq!(line.hello().await.versions.unwrap().protocol, PROTOCOL);
        line.welcome_as(1, protocol).await;
        line.say(assignment(1, Duration::from_secs(600))).await;
        assigned(&mut instructions).await;
        handle.report(action(), EventBody::Started).await.unwrap();
        let event = line.event().await;
        line.ack(&event).await;
        handle.flush(LIMIT).await.unwrap();
    }
    let mut fixture = Fixture::new().await;
    let (handle, _instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    drop(line.hello().await);
    line.welcome_as(1, 0).await;
    let lost = connection(&handle, |c| matches!(c, Connection::Disconnected { .. })).await;
    let Connection::Disconnected { problem, .. } = lost else { unreachable!() };
    assert_eq!(problem.code, ErrorCode::VersionSkew);
    assert!(problem.hint.contains("landfall-coordinator"), "{problem}");
}

#[tokio::test]
async fn requests_of_persons_reach_the_agent() {
    let mut fixture = Fixture::new().await;
    let (handle, mut instructions) = fixture.start().await;
    let mut line = fixture.line().await;
    assert_eq!(line.hello().await.holds, "");
    line.welcome(1).await;
    let uid = action().workflow_uid;
    let wire = v1::RunControl { workflow_uid: uid.to_string(), paused: true, released_holds: vec![2, 5] };
    line.say(Down::RunControl(wire)).await;
    match instruction(&mut instructions).await {
        Instruction::Control { workflow_uid, control } => {
            assert_eq!((workflow_uid, control.paused, control.released), (uid, true, vec![2, 5]));
        }
        other => panic!("{other:?}"),
    }
    // Nothing of the run is under way, and still the list is the agent's: it must not be handed out again.
    handle.holds(Some(uid));
    drop(line);
    let hello = fixture.line().await.hello().await;
    assert_eq!((hello.holds, hello.running), (uid.to_string(), None));
}
