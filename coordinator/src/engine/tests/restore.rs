//! Claims about a store that was put back from a copy: it re-provisions nothing.

use landfall_api::WipeSpec;

use super::fleet::{Computer, Until};
use super::*;
use crate::engine::requests::Asker as By;
use landfall_store::MemoryStore;

const DAY: i64 = 24 * 3600;

/// Machines in every state there is; a copy is taken by `copy`, everything goes on, the copy is put back. Whatever asks for
/// installs asks again, every machine restarts, and none is given an assignment, until a person says `--force`.
async fn nothing_is_provisioned_again(world: World, copy: impl AsyncFnOnce(World) -> (World, Store), later: i64) {
    let mut fleet = Vec::new();
    for number in 0..14 {
        fleet.push(Computer::described(&world, number).await);
    }
    let mut all = fleet.iter_mut();
    let mut next = || all.next().unwrap();
    let (blank, installed, pending, forced) = (next(), next(), next(), next());
    let (writing, written, rebooting, failed) = (next(), next(), next(), next());
    let (adopted, waiting, clearing, half_cleared) = (next(), next(), next(), next());
    let (watched, cleared) = (next(), next());

    installed.install(&world).await;
    pending.provision(&world, false).await.unwrap();
    forced.install(&world).await;
    forced.provision(&world, true).await.unwrap();
    writing.provision(&world, false).await.unwrap();
    writing.run(&world, Until::Intent).await;
    written.provision(&world, false).await.unwrap();
    written.run(&world, Until::Written).await;
    rebooting.provision(&world, false).await.unwrap();
    rebooting.run(&world, Until::Rebooted).await;
    let run = failed.provision(&world, false).await.unwrap();
    failed.run(&world, Until::Intent).await;
    world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
    world.engine.requests().adopt(&adopted.name, world.ann(false)).await.unwrap();
    waiting.provision(&world, false).await.unwrap();
    clearing.install(&world).await;
    world.engine.requests().deprovision(&clearing.name, WipeSpec::default(), world.ann(false), None).await.unwrap();
    half_cleared.install(&world).await;
    world.engine.requests().deprovision(&half_cleared.name, WipeSpec::default(), world.ann(false), None).await.unwrap();
    half_cleared.run(&world, Until::Intent).await;
    let mut document = watched.document();
    document["spec"]["management"] = json!("external");
    world.apply(document.clone()).await.unwrap();
    cleared.install(&world).await;
    world.engine.upkeep().tick().await.unwrap();

    let (world, copied) = copy(world).await;
    // Everything goes on, and none of it is in the copy.
    world.later(600);
    for computer in [&mut *blank, &mut *installed] {
        computer.install(&world).await;
    }
    for computer in [pending, forced, writing, written, waiting] {
        computer.run(&world, Until::Home).await;
        assert_eq!(computer.phase(&world).await, MachinePhase::Provisioned, "{}", computer.name);
    }
    for computer in [failed, adopted] {
        computer.provision(&world, true).await.unwrap();
        computer.run(&world, Until::Home).await;
    }
    for computer in [clearing, half_cleared] {
        computer.run(&world, Until::Home).await;
        assert_eq!(computer.phase(&world).await, MachinePhase::Available, "{}", computer.name);
        computer.install(&world).await;
    }
    world.engine.requests().deprovision(&cleared.name, WipeSpec::default(), world.ann(false), None).await.unwrap();
    cleared.run(&world, Until::Home).await;
    let clock = world.clock.clone();
    drop(world);

    clock.fetch_add(later, std::sync::atomic::Ordering::SeqCst);
    let world = World::over_with(copied, clock, 64).await;
    for round in 0..3 {
        for computer in &mut fleet {
            let document = if computer.name == "c12" { document.clone() } else { computer.document() };
            world.apply(document).await.unwrap();
            // A rule that fires again: refused, or nothing comes of it.
            let _either =
                world.engine.requests().provision_by(&computer.name, "os", BTreeMap::new(), By::Rule("all")).await;
        }
        world.apply(template("http://10.77.0.1:7480/images/os.zst")).await.unwrap();
        for computer in &mut fleet {
            let Some(mut session) = computer.netboot(&world).await else { continue };
            let received = session.received();
            let held = computer.condition(&world, "ReceiptConflict").await;
            let behind = computer.condition(&world, "StoreBehind").await;
            let says = format!("round {round}, {}: {received:?}, {held:?}, {behind:?}", computer.name);
            assert!(!received.iter().any(|message| matches!(message, ToAgent::Assign(_))), "{says}");
            assert!(received.iter().any(|message| matches!(message, ToAgent::Idle { boot_disk: true, .. })), "{says}");
            assert_eq!(computer.phase(&world).await, MachinePhase::Held, "{says}");
            session.power_off(&world).await;
        }
        world.engine.upkeep().tick().await.unwrap();
        world.later(60);
    }
    // By then no agent acts on a lease that the copy does not have.
    world.later(600);
    for computer in fleet.iter_mut().filter(|computer| computer.name != "c12") {
        let current = world.current(&computer.name).await;
        if let Some(run) = current.filter(|w| w.status.as_ref().unwrap().phase == WorkflowPhase::Rebooting) {
            // It is not held, for nothing of it can begin any more; it waits for a phone-home that was here already.
            world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
        }
        let run = match computer.provision(&world, true).await {
            Ok(run) => run,
            Err(problem) => panic!("{}: {problem}", computer.name),
        };
        let by = run.spec.authority.unwrap();
        assert!(by.force && by.person == "ann" && by.at == world.engine.fleet().now(), "who and when stand in the run");
        let mut session = computer.netboot(&world).await.expect("a person's force counts");
        let assignment = session.assigned().unwrap_or_else(|| panic!("{}", computer.name));
        assert!(assignment.force && assignment.person_authorised && assignment.start_index == 0);
        computer.work(&world, &mut session, &assignment, Until::Home).await;
        assert_eq!(computer.phase(&world).await, MachinePhase::Provisioned, "{}", computer.name);
    }
}

#[tokio::test]
async fn an_old_memory_store_reprovisions_nothing_without_force() {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let memory = Arc::new(MemoryStore::default());
    let store = Store::new(memory.clone(), memory.clone(), memory.clone());
    let world = World::over_with(store, clock, 64).await.described().await;
    let copy = async |world| {
        let copied = Arc::new(memory.copy());
        (world, Store::new(copied.clone(), copied.clone(), copied))
    };
    nothing_is_provisioned_again(world, copy, DAY).await;
}

#[tokio::test]
async fn an_old_database_copy_reprovisions_nothing_without_force() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let world = World::over_with(Store::open(dir.path()).unwrap(), clock.clone(), 64).await.described().await;
    let copy = async |world: World| {
        drop(world);
        copy_files(dir.path(), kept.path());
        let store = Store::open(dir.path()).unwrap();
        (World::over_with(store, clock.clone(), 64).await, Store::open(kept.path()).unwrap())
    };
    nothing_is_provisioned_again(world, copy, DAY).await;
}

#[tokio::test]
async fn a_restored_store_always_waits_for_a_person() {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let memory = Arc::new(MemoryStore::default());
    let store = Store::new(memory.clone(), memory.clone(), memory.clone());
    let world = World::over_with(store, clock, 64).await.described().await;
    let copy = async |world| {
        let copied = Arc::new(memory.copy());
        let store = Store::new(copied.clone(), copied.clone(), copied);
        forget_last_beat(&store).await.unwrap();
        (world, store)
    };
    nothing_is_provisioned_again(world, copy, 60).await;
}

/// Another computer may be writing on a lease that was given after the copy was made.
#[tokio::test(start_paused = true)]
async fn a_restored_store_gives_no_list_for_one_lease() {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let memory = Arc::new(MemoryStore::default());
    let over = |memory: &Arc<MemoryStore>| Store::new(memory.clone(), memory.clone(), memory.clone());
    let world = World::over_with(over(&memory), clock.clone(), 64).await.described().await;
    let computer = Computer::described(&world, 1).await;
    let copied = Arc::new(memory.copy());
    drop(world);
    forget_last_beat(&over(&copied)).await.unwrap();

    let world = World::over_with(over(&copied), clock.clone(), 64).await;
    let run = computer.provision(&world, false).await.unwrap().metadata.name;
    assert!(computer.connect(&world, computer.hello()).await.assigned().is_none());
    world.later(599);
    world.engine.upkeep().tick().await.unwrap();
    drop(world);
    // It starts again before the end, and knows as little.
    let world = World::over_with(over(&copied), clock, 64).await;
    let mut session = computer.connect(&world, computer.hello()).await;
    world.engine.requests().confirm(&run, world.ann(false)).await.unwrap();
    tokio::time::sleep(2 * landfall_machine::SETTLE).await;
    assert!(session.assigned().is_none());
    world.later(600);
    tokio::time::sleep(2 * landfall_machine::SETTLE).await;
    assert!(session.assigned().is_some());
    world.engine.upkeep().tick().await.unwrap();
    drop(world);
    let world = World::over_with(over(&copied), Arc::new(AtomicI64::new(1_000_700)), 64).await;
    assert!(world.engine.fleet().limits().horizon.as_of.is_some(), "from then on it says when it was written");
}

fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_files(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_night_offline_voids_requests_but_minutes_do_not() {
    for (away, goes_on) in [(30 * 60, true), (10 * 3600, false)] {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(1_000_000)));
        let world = sqlite_world(dir.path(), &clock).await.described().await;
        let (mut asked, mut begun) = (Computer::described(&world, 1).await, Computer::described(&world, 2).await);
        let run = asked.provision(&world, false).await.unwrap();
        begun.provision(&world, false).await.unwrap();
        begun.run(&world, Until::Intent).await;
        drop(world);
        clock.fetch_add(away, std::sync::atomic::Ordering::SeqCst);
        let world = sqlite_world(dir.path(), &clock).await;
        // An install that was interrupted is known by its own mark, and goes on however long it took.
        let mut session = begun.netboot(&world).await.expect("its disk does not boot");
        assert_eq!(session.assigned().unwrap().start_attempt, 2, "away for {away} s");
        assert_eq!(asked.netboot(&world).await.is_some(), goes_on, "away for {away} s");
        if !goes_on {
            let (status, reason) = asked.condition(&world, "StoreBehind").await.unwrap();
            assert_eq!((status, reason.as_str()), (ConditionStatus::True, "AskedBefore"));
            // Saying no is enough to be asked nothing again.
            world.engine.requests().cancel(&run.metadata.name, world.ann(false)).await.unwrap();
            assert_eq!(asked.phase(&world).await, MachinePhase::Available);
            asked.provision(&world, false).await.unwrap();
            assert!(asked.netboot(&world).await.unwrap().assigned().is_some());
        }
    }
}

#[tokio::test]
async fn a_commit_during_a_short_outage_is_accepted() {
    for (away, goes_on) in [(40, true), (30 * 60, false)] {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(1_000_000)));
        let world = sqlite_world(dir.path(), &clock).await.described().await;
        let mut computer = Computer::described(&world, 1).await;
        computer.provision(&world, false).await.unwrap();
        computer.run(&world, Until::Intent).await;
        drop(world);
        // On its lease it goes on, commits, and loses power with everything unsent.
        clock.fetch_add(away / 2, std::sync::atomic::Ordering::SeqCst);
        let written_at = Timestamp::from_second(clock.load(std::sync::atomic::Ordering::SeqCst)).unwrap();
        let mark = &mut computer.receipts[0].receipt;
        (mark.state, mark.written_at) = (ReceiptState::Done, written_at);
        clock.fetch_add(away / 2, std::sync::atomic::Ordering::SeqCst);

        let world = sqlite_world(dir.path(), &clock).await;
        let mut session = computer.netboot(&world).await.expect("its run is open");
        let (status, reason) = computer.condition(&world, "ReceiptConflict").await.unwrap();
        assert_eq!(status == ConditionStatus::False, goes_on, "away for {away} s: {reason}");
        let assignment = session.assigned();
        assert_eq!(assignment.is_some(), goes_on, "away for {away} s");
        if let Some(assignment) = assignment {
            assert_eq!((assignment.start_index, assignment.start_attempt), (1, 1), "written once is enough");
            computer.work(&world, &mut session, &assignment, Until::Home).await;
            assert_eq!(computer.phase(&world).await, MachinePhase::Provisioned);
        } else {
            assert_eq!(reason, "NewerThanStore");
        }
    }
}

#[tokio::test]
async fn an_agent_with_an_unknown_epoch_is_held() {
    let world = World::new().await;
    let (computer, _, _, mut session) = Computer::begins(&world).await;
    session.assigned().unwrap();
    let again = Hello { last_epoch: 41, ..computer.hello() };
    let mut session = computer.connect(&world, again).await;
    assert_eq!(session.opened.epoch, 42);
    assert!(session.assigned().is_none());
    let (status, reason) = computer.condition(&world, "StoreBehind").await.unwrap();
    assert_eq!((status, reason.as_str()), (ConditionStatus::True, "EpochNeverGiven"));
    let uid = computer.machine(&world).await.metadata.uid.unwrap();
    let nonsense = Hello { last_epoch: u64::MAX, ..computer.hello() };
    let refused = world.open(uid, nonsense).await.unwrap_err();
    assert_eq!(refused.problem.code, ErrorCode::InvalidDocument);
}

#[tokio::test]
async fn an_agent_marks_an_older_copy_of_the_store() {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let memory = Arc::new(MemoryStore::default());
    let store = Store::new(memory.clone(), memory.clone(), memory.clone());
    let world = World::over_with(store, clock.clone(), 2).await.described().await;
    let (mut computer, name, run, mut session) = Computer::begins(&world).await;
    let assignment = session.assigned().unwrap();
    let bearer = bearer_of(&assignment.actions[1]);
    session.report(&world, run, (0, 1), EventBody::Started).await;
    let copied = Arc::new(memory.copy());
    // Acknowledged, and not in the copy.
    let intent = computer.mark(&world, &assignment, 0, ReceiptState::Intent);
    session.report(&world, run, (0, 1), EventBody::ReceiptWritten { receipt: intent.clone() }).await;
    computer.receipts = vec![intent];
    drop(world);

    let store = Store::new(copied.clone(), copied.clone(), copied);
    let world = World::over_with(store, clock, 2).await;
    let running = Some(ActionRef { workflow_uid: run, action_index: 0, attempt: 1 });
    let back = Hello { running, holds: Some(run), last_epoch: session.opened.epoch, ..computer.hello() };
    session.opened = computer.connect(&world, back).await.opened;
    let done = computer.mark(&world, &assignment, 0, ReceiptState::Done);
    computer.receipts = vec![done.clone()];
    session.report(&world, run, (0, 1), EventBody::ReceiptWritten { receipt: done.clone() }).await;
    let (status, reason) = computer.condition(&world, "StoreBehind").await.unwrap();
    assert_eq!((status, reason.as_str()), (ConditionStatus::True, "EventsMissing"));
    assert_eq!(computer.phase(&world).await, MachinePhase::Held, "nothing else begins on it");
    session.report(&world, run, (0, 1), EventBody::Finished { result: written(done) }).await;
    for (index, result) in [(1, seeded()), (2, ActionResult::Reboot)] {
        session.report(&world, run, (index, 1), EventBody::Started).await;
        session.report(&world, run, (index, 1), EventBody::Finished { result }).await;
    }
    session.power_off(&world).await;
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Rebooting);
    assert!(computer.netboot(&world).await.is_none(), "what was installed starts");
    world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default()).await.unwrap();
    assert_eq!(computer.phase(&world).await, MachinePhase::Provisioned);
    assert_eq!(computer.condition(&world, "StoreBehind").await.unwrap().0, ConditionStatus::False);
}
