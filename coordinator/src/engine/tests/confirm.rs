//! A person's word on what the coordinator alone cannot judge.

use super::{fleet::Computer, *};

#[tokio::test]
async fn a_confirmed_workflow_begins_and_forces_nothing() {
    let (dir, clock, world) = described_on_disk().await;
    let (mut blank, mut marked) = (Computer::described(&world, 1).await, Computer::described(&world, 2).await);
    let mut runs = Vec::new();
    for computer in [&blank, &marked] {
        runs.push(computer.provision(&world, false).await.unwrap().metadata.name);
    }
    let early = world.engine.requests().confirm(&runs[0], world.ann(false)).await.unwrap_err();
    assert!(early.code == ErrorCode::Conflict && early.message.contains("does not wait"), "{early}");
    drop(world);
    clock.fetch_add(10 * 3600, std::sync::atomic::Ordering::SeqCst);
    let world = sqlite_world(dir.path(), &clock).await;
    assert!(blank.netboot(&world).await.is_none(), "held: it boots its own disk");
    let message = world.store.machine("c1").await.unwrap().unwrap().into_inner().status.unwrap().conditions;
    assert!(message.iter().any(|c| c.message.contains(&format!("landfall confirm {}", runs[0]))), "{message:?}");

    for run in &runs {
        let confirmed = world.engine.requests().confirm(run, world.ann(true)).await.unwrap();
        let request = confirmed.spec.requests.last().unwrap();
        assert!(
            request.what == landfall_api::RunRequestKind::Confirm && request.by.person == "ann" && !request.by.force
        );
        assert!(!confirmed.spec.authority.as_ref().unwrap().force, "a confirmation permits no more than was asked for");
    }
    assert_eq!(blank.phase(&world).await, MachinePhase::Provisioning);
    let assignment = blank.netboot(&world).await.unwrap().assigned().unwrap();
    assert!(assignment.person_authorised && !assignment.force);
    // A disk of which the store knows nothing still holds its machine, and no confirmation changes that.
    marked.receipts = vec![receipt(Uuid::from_u128(5), Uuid::from_u128(99), ReceiptState::Done)];
    assert!(marked.netboot(&world).await.unwrap().assigned().is_none());
    assert_eq!(marked.phase(&world).await, MachinePhase::Held);
    let refused = world.engine.requests().confirm(&runs[1], world.ann(true)).await.unwrap_err();
    assert!(refused.code == ErrorCode::Conflict && refused.hint.contains("--force"), "{refused}");
    assert_eq!(marked.phase(&world).await, MachinePhase::Held);
}

#[tokio::test]
async fn an_agent_that_waits_begins_with_the_confirmation() {
    let (dir, clock, world) = described_on_disk().await;
    let computer = Computer::described(&world, 1).await;
    let run = computer.provision(&world, false).await.unwrap().metadata.name;
    drop(world);
    clock.fetch_add(10 * 3600, std::sync::atomic::Ordering::SeqCst);
    let world = sqlite_world(dir.path(), &clock).await;
    let mut session = computer.connect(&world, computer.hello()).await;
    assert!(session.assigned().is_none());
    world.engine.requests().confirm(&run, world.ann(false)).await.unwrap();
    assert!(session.assigned().is_some());
}

#[tokio::test]
async fn a_confirmation_clears_an_identity_alarm_once() {
    let world = World::new().await;
    world.provision(false).await.unwrap();
    let none = world.engine.requests().confirm_identity("m1", world.ann(false)).await.unwrap_err();
    assert_eq!(none.code, ErrorCode::Conflict);
    let Decision::RunAgent { token, .. } = world.boot().await else { panic!("the agent is wanted") };
    world.enroll_with(token.clone(), b"key").await.unwrap();
    for _ in 0..2 {
        world.enroll_with(token.clone(), b"other").await.unwrap_err();
        let alarm = (ConditionStatus::True, "TokenReused".to_owned());
        assert_eq!(world.condition("IdentityAmbiguous").await.unwrap(), alarm, "raised at once");
        let machine = world.engine.requests().confirm_identity("m1", world.ann(false)).await.unwrap();
        let cleared = machine
            .into_inner()
            .status
            .unwrap()
            .conditions
            .into_iter()
            .find(|c| c.kind == "IdentityAmbiguous")
            .unwrap();
        assert_eq!((cleared.status, cleared.reason.as_str()), (ConditionStatus::False, "Confirmed"));
        assert!(cleared.message.contains("ann"), "{}", cleared.message);
    }
    assert_eq!(world.phase().await, MachinePhase::Provisioning, "its workflow is as it was");
}
