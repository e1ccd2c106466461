//! A coordinator whose store may be another one's by now promises nothing, and lets its agents go. One that had not heard of what another
//! one stored goes by that.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::faulty::faulty_world;
use super::fleet::{Computer, Session};
use super::mends::shown;
use super::*;
use landfall_api::{ApprovedKey, WaitingKey};

/// For so long a coordinator may go on; one moment more and it may not.
const SURE: Duration = Duration::from_millis(3999);
const UNSURE: Duration = Duration::from_secs(4);

async fn renewed(world: &World, session: &mut Session) -> bool {
    world.later(10);
    world.engine.sessions().heartbeat(session.uid, session.opened.epoch, vitals(1)).await.unwrap();
    session.received().iter().any(|received| matches!(received, ToAgent::LeaseRenewal { .. }))
}

#[tokio::test]
async fn no_lease_is_renewed_in_doubt() {
    let (faulty, world) = faulty_world().await;
    let (_computer, _name, run, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    session.report(&world, run, (0, 1), EventBody::Started).await;
    for (unconfirmed, expected) in [(SURE, true), (UNSURE, false), (Duration::MAX, false), (Duration::ZERO, true)] {
        faulty.leave_unconfirmed(unconfirmed);
        assert_eq!(renewed(&world, &mut session).await, expected, "{unconfirmed:?}");
    }
}

#[tokio::test]
async fn nothing_is_assigned_in_doubt() {
    let (faulty, world) = faulty_world().await;
    let mut computer = Computer::described(&world, 1).await;
    computer.provision(&world, false).await.unwrap();
    faulty.leave_unconfirmed(UNSURE);
    let hello = computer.hello();
    let uid = computer.machine(&world).await.metadata.uid.unwrap();
    let refused = world.open(uid, hello).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::StoreUnavailable, "{}", refused.problem);
    faulty.leave_unconfirmed(SURE);
    assert!(computer.netboot(&world).await.unwrap().assigned().is_some());
}

#[tokio::test]
async fn no_certificate_is_refused_for_good_in_doubt() {
    let (faulty, world) = faulty_world().await;
    let computer = Computer::described(&world, 1).await;
    let machine = computer.machine(&world).await;
    let described = machine.metadata.uid.unwrap();
    world.engine.certificates().revoke_machine(&machine.metadata.name).await.unwrap();
    for (uid, known) in [(described, ErrorCode::Revoked), (Uuid::from_u128(9), ErrorCode::Unauthenticated)] {
        // Another coordinator may have given it since this one has heard of the others.
        for (unconfirmed, expected) in [(SURE, known), (UNSURE, ErrorCode::StoreUnavailable)] {
            faulty.leave_unconfirmed(unconfirmed);
            let refused = world.engine.certificates().check_certificate(&certificate(uid)).unwrap_err();
            assert_eq!(refused.code, expected, "{unconfirmed:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn agents_are_let_go_in_long_doubt() {
    let (faulty, world) = faulty_world().await;
    let (computer, _name, _run, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    let (stop, engine) = (CancellationToken::new(), world.engine.clone());
    let looks = tokio::spawn({
        let stop = stop.clone();
        async move { engine.sessions().let_go_in_doubt(stop).await }
    });
    // A database that restarts disturbs no agent.
    faulty.leave_unconfirmed(Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(session.opened.to_agent.try_recv().is_err_and(|e| e == mpsc::error::TryRecvError::Empty));
    faulty.leave_unconfirmed(Duration::from_secs(11));
    assert!(session.opened.to_agent.recv().await.is_none(), "its stream ends");
    // Once it is sure again it takes them back, and keeps them.
    faulty.leave_unconfirmed(Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut back = computer.connect(&world, computer.hello()).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(back.opened.to_agent.try_recv() != Err(mpsc::error::TryRecvError::Disconnected));
    stop.cancel();
    looks.await.unwrap();
}

#[tokio::test]
async fn no_certificate_outlives_a_revocation_at_another_coordinator() {
    let (faulty, world) = faulty_world().await;
    world.provision(false).await.unwrap();
    let Decision::RunAgent { token, .. } = world.boot().await else { panic!("the agent is wanted") };
    let enrolled = world.enroll_with(token.clone(), b"key").await.unwrap();
    let listed = async || world.machine().await.status.unwrap().enrolment.certificates.len();
    let revoke = |machine: &mut Machine| {
        let enrolment = &mut machine.status.as_mut().unwrap().enrolment;
        (enrolment.certificates, enrolment.approved) = (Vec::new(), None);
        enrolment.revocations += 1;
    };
    faulty.overtake(revoke);
    let by = || Asker { address: None, shown: Some(shown(&enrolled)) };
    let refused = world.engine.enrolments().enroll(request(Proof::Renewal, b"key"), by()).await.unwrap_err();
    assert_eq!((refused.code, listed().await), (ErrorCode::StoreUnavailable, 0), "{refused}");

    let Decision::RunAgent { token, .. } = world.boot().await else { panic!("the agent is wanted") };
    faulty.overtake(revoke);
    let refused = world.enroll_with(token.clone(), b"key").await.unwrap_err();
    assert_eq!((refused.code, listed().await), (ErrorCode::StoreUnavailable, 0), "{refused}");
    let refused = world.enroll_with(token, b"key").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TokenRefused, "it is judged by the newest document");

    // An approval, and what an approved key gets.
    let key = format!("sha256:{}", "7".repeat(64));
    let waits = WaitingKey {
        fingerprint: key.clone(),
        address: "10.77.0.9".to_owned(),
        since: Timestamp::UNIX_EPOCH,
        last_asked: Timestamp::UNIX_EPOCH,
    };
    let wait = |machine: &mut Machine| machine.status.as_mut().unwrap().enrolment.waiting = vec![waits.clone()];
    world.engine.fleet().mutate_machine("m1", wait).await.unwrap();
    faulty.overtake(revoke);
    let refused = world.engine.enrolments().approve("m1", &key, "ann").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::StoreUnavailable, "{refused}");
    assert_eq!(world.machine().await.status.unwrap().enrolment.approved, None);
    let key = hex::encode(b"other");
    let approved = ApprovedKey { fingerprint: key.clone(), by: "ann".to_owned(), at: Timestamp::UNIX_EPOCH };
    let approve = |machine: &mut Machine| machine.status.as_mut().unwrap().enrolment.approved = Some(approved.clone());
    world.engine.fleet().mutate_machine("m1", approve).await.unwrap();
    faulty.overtake(revoke);
    let ask = request(Proof::Approval { fingerprint: key }, b"other");
    let refused = world.engine.enrolments().enroll(ask, Asker::default()).await.unwrap_err();
    assert_eq!((refused.code, listed().await), (ErrorCode::StoreUnavailable, 0), "{refused}");
}
