//! Persons' requests about a run there is, and agents of other versions.

use landfall_api::message::{ActionKind, AssignedAction};
use landfall_api::{RunRequestKind, Workflow};

use super::*;

fn ann() -> Authority {
    Authority { person: "ann".into(), at: Timestamp::UNIX_EPOCH, force: false }
}

/// A template `os` of this list and these other fields.
async fn described(fields: serde_json::Value, actions: serde_json::Value) -> World {
    let world = World::new().await;
    let mut spec = fields;
    spec["actions"] = actions;
    world.apply(document("Template", "os", spec)).await.unwrap();
    world
}

fn write() -> serde_json::Value {
    json!({"name": "write", "writeImage": {"image": {"url": "http://10.77.0.1:7480/images/os.zst", "digestWaived": true}}})
}

fn seed() -> serde_json::Value {
    json!({"name": "seed", "cloudInit": {}})
}

async fn begun(world: &World) -> (Workflow, Uuid) {
    let run = world.provision(false).await.unwrap();
    let uid = run.metadata.uid.unwrap();
    world.enroll(b"key").await.unwrap();
    (run, uid)
}

fn condition(run: &Workflow, kind: &str) -> (ConditionStatus, String) {
    let found = run.status.as_ref().unwrap().conditions.iter().find(|c| c.kind == kind);
    found.map(|c| (c.status, c.reason.to_string())).unwrap()
}

#[tokio::test]
async fn a_pause_reaches_the_agent_and_ends_with_a_resume() {
    let world = World::new().await;
    let (run, uid) = begun(&world).await;
    let name = run.metadata.name.as_str();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    agent.assigned();
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    let paused = world.engine.requests().pause(name, ann()).await.unwrap();
    assert!(matches!(agent.received(), Some(ToAgent::Control { control: Control { paused: true, .. }, .. })));
    assert_eq!(condition(&paused, "Paused"), (ConditionStatus::True, "ByPerson".into()));
    assert_eq!(
        (paused.spec.requests[0].what, paused.status.as_ref().unwrap().word()),
        (RunRequestKind::Pause, "Paused")
    );
    assert_eq!(world.engine.requests().pause(name, ann()).await.unwrap_err().code, ErrorCode::Conflict);
    // It came back and holds the list still: it hears of the pause again.
    let back = Hello { last_epoch: agent.opened.epoch, holds: Some(uid), ..hello("b1", "D1", vec![]) };
    let mut agent = world.connect(back).await;
    assert!(matches!(agent.received(), Some(ToAgent::LeaseRenewal { .. })));
    assert!(matches!(agent.received(), Some(ToAgent::Control { control: Control { paused: true, .. }, .. })));
    world.engine.requests().resume(name, ann()).await.unwrap();
    assert!(matches!(agent.received(), Some(ToAgent::Control { control: Control { paused: false, .. }, .. })));
    assert_eq!(world.engine.requests().resume(name, ann()).await.unwrap_err().code, ErrorCode::Conflict);
    world.engine.requests().cancel(name, ann()).await.unwrap();
    assert_eq!(world.engine.requests().pause(name, ann()).await.unwrap_err().code, ErrorCode::WorkflowEnded);
}

#[tokio::test]
async fn a_workflow_paused_before_its_agent_begins_after_the_resume() {
    let world = World::new().await;
    let (run, _) = begun(&world).await;
    world.engine.requests().pause(&run.metadata.name, ann()).await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    assert!(matches!(agent.received(), Some(ToAgent::Idle { boot_disk: false, ended: None })));
    world.engine.requests().resume(&run.metadata.name, ann()).await.unwrap();
    assert_eq!(agent.assigned().start_attempt, 1);
}

#[tokio::test]
async fn a_hold_shows_its_message_and_ends_with_a_resume() {
    let hold = json!({"name": "look", "hold": {"message": "check the cables"}});
    let world = described(json!({}), json!([hold, write()])).await;
    let (name, _, mut agent) = world.under_way().await;
    let held = world.run(&name).await;
    assert_eq!(condition(&held, "Progressing"), (ConditionStatus::False, "Holding".into()));
    assert_eq!(held.status.unwrap().word(), "Holding");
    world.engine.requests().resume(&name, ann()).await.unwrap();
    assert!(
        matches!(agent.received(), Some(ToAgent::Control { control: Control { paused: false, released }, .. }) if released == [0])
    );
}

#[tokio::test]
async fn a_retried_system_phones_home_with_the_first_token() {
    let world = World::new().await;
    let (name, uid, mut agent) = world.begins().await;
    let assignment = agent.assigned();
    let bearer = bearer_of(&assignment.actions[1]);
    let done = receipt(assignment.machine_uid, uid, ReceiptState::Done);
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    agent.report(uid, 0, 1, EventBody::ReceiptWritten { receipt: done.clone() }).await.unwrap();
    agent.report(uid, 0, 1, EventBody::Finished { result: written(done.clone()) }).await.unwrap();
    agent.does(uid, 1, 1, seeded()).await;
    let problem = Problem::new(ErrorCode::Internal, "no");
    agent.report(uid, 2, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
    while agent.received().is_some() {}

    // The agent is there still, and what it wrote since its hello counts as seen.
    let retried = world.engine.requests().retry(&name, ann()).await.unwrap();
    assert_eq!(retried.spec.retry_of.as_deref(), Some(name.as_str()));
    assert!(retried.spec.authority.is_some());
    let again = agent.assigned();
    // Events of another run are counted anew.
    agent.seq.lock().unwrap().clear();
    assert_eq!((again.start_index, again.start_attempt, again.earlier_runs.as_slice()), (2, 1, &[uid][..]));
    assert_eq!(bearer_of(&again.actions[1]), bearer);
    agent.does(retried.metadata.uid.unwrap(), 2, 1, ActionResult::Reboot).await;
    world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default()).await.unwrap();
    assert_eq!(world.run(&retried.metadata.name).await.status.unwrap().phase, WorkflowPhase::Succeeded);
    assert_eq!(world.run(&name).await.status.unwrap().phase, WorkflowPhase::Failed, "terminal is terminal");
    assert_eq!(world.phase().await, MachinePhase::Provisioned);
    let late = world.engine.requests().retry(&name, ann()).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::Conflict, "the machine has had another run since");
}

#[tokio::test]
async fn a_failed_runs_system_phones_home_until_its_retry_ends() {
    let command = json!({"name": "run", "exec": {"command": ["false"]}});
    let world = described(json!({}), json!([write(), seed(), command, {"name": "restart", "reboot": {}}])).await;
    let (name, uid, mut agent) = world.begins().await;
    let assignment = agent.assigned();
    let bearer = bearer_of(&assignment.actions[1]);
    let phone_home = || world.engine.sessions().phone_home(&bearer, PhoneHomeReport::default());
    let done = receipt(assignment.machine_uid, uid, ReceiptState::Done);
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    agent.report(uid, 0, 1, EventBody::ReceiptWritten { receipt: done.clone() }).await.unwrap();
    agent.report(uid, 0, 1, EventBody::Finished { result: written(done.clone()) }).await.unwrap();
    agent.does(uid, 1, 1, seeded()).await;
    agent.report(uid, 2, 1, EventBody::Started).await.unwrap();
    let problem = Problem::new(ErrorCode::ProgramFailed, "no");
    agent.report(uid, 2, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
    while agent.received().is_some() {}

    let again = phone_home().await.unwrap_err();
    assert_eq!(again.code, ErrorCode::MachineBusy, "the unit stays: {again}");
    assert!(again.to_string().contains("\"run\"") && again.to_string().contains("landfall retry"), "{again}");
    // The machine runs that system: no agent is there.
    let (machine, epoch) = (agent.uid, agent.opened.epoch);
    world.engine.sessions().close_session(machine, epoch, "its connection ended").await.unwrap();
    world.later(601);
    let retried = world.engine.requests().retry(&name, ann()).await.unwrap();
    assert_eq!(retried.status.as_ref().unwrap().phase, WorkflowPhase::Pending);
    assert_eq!(phone_home().await.unwrap_err().code, ErrorCode::MachineBusy);
    let found = Hello { last_epoch: epoch, ..hello("b2", "D1", vec![done]) };
    let mut agent = world.connect(found).await;
    agent.assigned();
    assert_eq!(phone_home().await.unwrap_err().code, ErrorCode::MachineBusy);
    let uid = retried.metadata.uid.unwrap();
    agent.does(uid, 2, 1, ActionResult::Exec(landfall_api::ExecResult { root_device: "vda1".into() })).await;
    agent.does(uid, 3, 1, ActionResult::Reboot).await;
    phone_home().await.unwrap();
    assert_eq!(world.run(&retried.metadata.name).await.status.unwrap().phase, WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn on_failure_actions_keep_the_machine_busy() {
    let after = json!([{"name": "off", "powerOff": {}}]);
    let world = described(json!({"onFailure": after}), json!([write(), seed()])).await;
    let (name, uid, mut agent) = world.begins().await;
    assert_eq!(agent.assigned().actions.len(), 2, "it stands behind the list, and the list does not run on into it");
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    let problem = Problem::new(ErrorCode::DiskInUse, "busy");
    agent.report(uid, 0, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
    assert!(matches!(agent.received(), Some(ToAgent::Cancel { .. })));
    let after = agent.assigned();
    assert_eq!((after.start_index, after.actions.len()), (2, 3));
    let nothing = |action: &AssignedAction| matches!(action.kind, ActionKind::Hold(_));
    assert!(after.actions[..2].iter().all(nothing), "it takes nothing of the failed list for a layout that is whole");
    assert_eq!(world.provision(false).await.unwrap_err().code, ErrorCode::MachineBusy);
    agent.does(uid, 2, 1, ActionResult::PowerOff).await;
    let status = world.run(&name).await.status.unwrap();
    assert_eq!((status.phase, status.problem.unwrap().code), (WorkflowPhase::Failed, ErrorCode::DiskInUse));
}

#[tokio::test]
async fn an_older_agent_works_within_its_protocol() {
    let world = World::new().await;
    let (run, _) = begun(&world).await;
    let mut agent = world.connect(Hello { protocol: 1, ..hello("b1", "D1", vec![]) }).await;
    assert!(!agent.assigned().actions.is_empty(), "nothing in this list is new");
    let refused = world.engine.requests().pause(&run.metadata.name, ann()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::VersionSkew);
    assert!(refused.hint.contains("boot image"), "{refused}");

    let world = described(json!({}), json!([{"name": "off", "powerOff": {}}])).await;
    let (run, _) = begun(&world).await;
    let mut agent = world.connect(Hello { protocol: 1, ..hello("b1", "D1", vec![]) }).await;
    assert!(matches!(agent.received(), Some(ToAgent::Idle { boot_disk: false, .. })));
    let status = world.run(&run.metadata.name).await.status.unwrap();
    assert_eq!(status.problem.unwrap().code, ErrorCode::VersionSkew);
}

#[tokio::test]
async fn a_newer_agent_is_accepted_and_a_versionless_one_refused() {
    let world = World::new().await;
    begun(&world).await;
    let uid = world.machine().await.metadata.uid.unwrap();
    let refused = world.open(uid, Hello { protocol: 0, ..hello("b1", "D1", vec![]) }).await.unwrap_err();
    assert_eq!((refused.problem.code, refused.retry_after), (ErrorCode::VersionSkew, None));
    assert!(refused.problem.hint.contains("boot image"), "{}", refused.problem);
    let mut agent = world.connect(Hello { protocol: 99, ..hello("b1", "D1", vec![]) }).await;
    agent.assigned();
}

#[tokio::test]
async fn each_branch_shows_its_progress_and_silence() {
    let branch = |name: &str, serial: &str| {
        json!({"name": name, "branch": name,
            "writeImage": {"disk": {"serial": serial}, "image": {"url": "http://10.77.0.1/i", "digestWaived": true}}})
    };
    let world = described(json!({}), json!([branch("a", "D1"), branch("b", "D2")])).await;
    let (name, uid, mut agent) = world.begins().await;
    assert_eq!(agent.assigned().starts.len(), 2);
    for index in [0, 1] {
        agent.report(uid, index, 1, EventBody::Started).await.unwrap();
        let progress = landfall_api::Progress { raw_bytes: 7 + u64::from(index), ..Default::default() };
        let of = ActionRef { workflow_uid: uid, action_index: index, attempt: 1 };
        world.engine.telemetry().progress(agent.uid, of, progress);
    }
    world.engine.upkeep().tick().await.unwrap();
    let shown = world.run(&name).await;
    let bytes = |n: usize| shown.status.as_ref().unwrap().actions[n].progress.as_ref().unwrap().raw_bytes;
    assert_eq!((bytes(0), bytes(1)), (7, 8));
    assert_eq!(condition(&shown, "Silent"), (ConditionStatus::False, "Heard".into()));
    world.later(60);
    world.engine.upkeep().tick().await.unwrap();
    let shown = world.run(&name).await;
    assert_eq!(condition(&shown, "Silent"), (ConditionStatus::True, "NoHeartbeat".into()));
    assert_eq!(condition(&shown, "Slow").0, ConditionStatus::False, "of a silent one nothing is known");
}

#[tokio::test]
async fn an_agent_hears_how_its_workflow_ended() {
    for end in ["succeeds", "fails", "is cancelled"] {
        let world = described(json!({}), json!([{"name": "off", "powerOff": {}}])).await;
        let (name, uid, mut agent) = world.begins().await;
        agent.assigned();
        agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
        match end {
            "succeeds" => {
                agent.report(uid, 0, 1, EventBody::Finished { result: ActionResult::PowerOff }).await.unwrap()
            }
            "fails" => {
                let problem = Problem::new(ErrorCode::ProgramFailed, "status 3");
                agent.report(uid, 0, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
            }
            _ => drop(world.engine.requests().cancel(&name, ann()).await.unwrap()),
        }
        if end != "succeeds" {
            assert!(matches!(agent.received(), Some(ToAgent::Cancel { .. })), "{end}");
        }
        let mut heard = vec![agent.received()];
        // One that comes back later hears it too.
        let back = Hello { last_epoch: agent.opened.epoch, ..hello("b1", "D1", vec![]) };
        heard.push(world.connect(back).await.received());
        for message in heard {
            let Some(ToAgent::Idle { ended: Some(ended), .. }) = message else { panic!("{end}: {message:?}") };
            assert_eq!(ended.workflow_uid, uid);
            let wanted = [("succeeds", None), ("fails", Some("status 3")), ("is cancelled", Some("cancelled by ann"))];
            let (_, why) = wanted.into_iter().find(|(of, _)| *of == end).unwrap();
            match (&ended.problem, why) {
                (None, None) => {}
                (Some(problem), Some(why)) => assert!(problem.contains(why), "{end}: {problem}"),
                other => panic!("{end}: {other:?}"),
            }
        }
    }
}
