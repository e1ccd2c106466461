//! What a failure leaves behind for people: the last lines, in time, without secrets, past a restart.

use landfall_api::{ErrorCode, Problem, Progress};

use super::*;

fn line(attempt: u32, message: &str) -> LogLine {
    let time = Timestamp::from_second(1_000_000).unwrap();
    LogLine { time, level: LogLevel::Info, action_index: 0, attempt, message: message.into() }
}

fn failed(message: &str, retryable: bool) -> EventBody {
    let mut problem = Problem::new(ErrorCode::DigestMismatch, message);
    problem.last_log_lines = vec!["info sent along".into()];
    EventBody::Failed { problem, retryable }
}

async fn tail(world: &World, name: &str) -> Vec<String> {
    world.run(name).await.status.unwrap().actions[0].log_tail.clone()
}

#[tokio::test]
async fn the_failed_attempts_last_lines_are_in_the_status() {
    let world = World::new().await;
    let (name, uid, mut agent) = world.begins().await;
    agent.assigned();
    world.engine.telemetry().prepare_logs(uid).await.unwrap();
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    for n in 0..80 {
        world.engine.telemetry().log(uid, line(1, &format!("line {n}")));
    }
    world.engine.telemetry().log(uid, line(2, "of another attempt"));
    world.engine.telemetry().log(uid, line(1, &"ü".repeat(600)));
    agent.report(uid, 0, 1, failed("wrong", false)).await.unwrap();
    let lines = tail(&world, &name).await;
    assert_eq!(lines.len(), 50);
    assert!(lines.iter().all(|line| line.len() <= 512 && !line.contains("another")), "{lines:?}");
    assert!(lines[48].ends_with("info line 79"), "{lines:?}");

    // A line that was slower than the failure is there after one tick, and one that is far too late is not.
    world.later(1);
    world.engine.telemetry().log(uid, line(1, "late"));
    world.engine.upkeep().tick().await.unwrap();
    let lines = tail(&world, &name).await;
    assert!(lines.len() == 50 && lines[49].ends_with("late"), "{lines:?}");
    world.later(60);
    world.engine.upkeep().tick().await.unwrap();
    world.engine.telemetry().log(uid, line(1, "much too late"));
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(tail(&world, &name).await, lines);
}

#[tokio::test]
async fn a_retry_keeps_the_failed_attempts_log_lines() {
    let world = World::new().await;
    let (name, uid, agent) = world.under_way().await;
    // Nothing came over the log's own stream: what the agent sent along stands in.
    agent.report(uid, 0, 1, failed("first", true)).await.unwrap();
    assert_eq!(tail(&world, &name).await, ["info sent along"]);
    agent.report(uid, 0, 2, EventBody::Started).await.unwrap();
    world.engine.telemetry().log(uid, line(2, "second try"));
    world.engine.upkeep().tick().await.unwrap();
    assert_eq!(tail(&world, &name).await, ["info sent along"]);
    agent.report(uid, 0, 2, failed("second", false)).await.unwrap();
    assert!(tail(&world, &name).await[0].ends_with("second try"));
}

#[tokio::test]
async fn no_secret_reaches_status_events_or_followers() {
    let (dir, clock, world) = described_on_disk().await;
    let (name, uid, mut agent) = world.begins().await;
    let bearer = bearer_of(&agent.assigned().actions[1]);
    let secret = bearer.split_once('.').unwrap().1.to_owned();
    agent.report(uid, 0, 1, EventBody::Started).await.unwrap();
    drop(agent);
    drop(world);

    let world = sqlite_world(dir.path(), &clock).await;
    let mut again = hello("b1", "D1", vec![]);
    again.running = Some(ActionRef { workflow_uid: uid, action_index: 0, attempt: 1 });
    let agent = world.connect(again).await;
    world.engine.telemetry().prepare_logs(uid).await.unwrap();
    world.engine.telemetry().log(uid, line(1, &format!("the unit has {bearer}")));
    world.engine.telemetry().log(uid, line(1, &format!("or {secret} alone")));
    *agent.seq.lock().unwrap() = BTreeMap::from([((0, 1), 1)]);
    agent.report(uid, 0, 1, failed(&format!("cannot post with {bearer}"), false)).await.unwrap();
    let run = world.run(&name).await;
    let events = world.store.events().list(uid, 0, 100).await.unwrap();
    let (kept, _live) = world.engine.telemetry().logs(uid);
    let shown = [
        serde_json::to_string(&run).unwrap(),
        serde_json::to_string(&events).unwrap(),
        serde_json::to_string(&kept).unwrap(),
    ];
    assert!(shown.iter().all(|text| !text.contains(&secret) && text.contains("[secret]")), "{shown:#?}");
    assert_eq!(run.status.unwrap().actions[0].log_tail.len(), 2);
}

#[tokio::test]
async fn lines_outlive_the_process_where_an_attempt_failed() {
    let (dir, clock, world) = described_on_disk().await;
    let (name, uid, agent) = world.under_way().await;
    world.engine.telemetry().log(uid, line(1, "last words"));
    agent.report(uid, 0, 1, failed("wrong", false)).await.unwrap();
    drop(agent);
    drop(world);
    let world = sqlite_world(dir.path(), &clock).await;
    assert!(tail(&world, &name).await[0].ends_with("last words"));
}

#[tokio::test]
async fn progress_never_waits_and_only_the_newest_is_shown() {
    let world = World::new().await;
    let (name, uid, agent) = world.under_way().await;
    // Whether it is slow or silent is written down once, at the first look.
    world.engine.upkeep().tick().await.unwrap();
    // The holder of the machine's lock is not waited for.
    let held = world.engine.fleet().machines().lock(agent.uid).await;
    for n in 1..=10_000 {
        let progress = Progress { raw_bytes: n, stage: "write".into(), ..Progress::default() };
        let of = ActionRef { workflow_uid: uid, action_index: 0, attempt: 1 };
        world.engine.telemetry().progress(agent.uid, of, progress);
    }
    drop(held);
    let before = world.run(&name).await.metadata.resource_version;
    world.engine.upkeep().tick().await.unwrap();
    let run = world.run(&name).await;
    assert_eq!(run.status.unwrap().actions[0].progress.as_ref().unwrap().raw_bytes, 10_000);
    assert_eq!(run.metadata.resource_version, before + 1, "one write for all of them");
}

#[tokio::test]
async fn a_workflows_secrets_never_appear_in_its_log() {
    let world = World::new().await;
    let spec = json!({"data": {"pw": "hunter2-hunter2"}, "machines": ["m1"]});
    world.apply(document("Secret", "db", spec)).await.unwrap();
    let mut template = template("http://10.77.0.1:7480/images/os.zst");
    template["spec"]["actions"][1]["cloudInit"]["userData"] = json!({"password": "{{ secrets.db.pw }}"});
    world.apply(template).await.unwrap();
    let (name, uid, agent) = world.under_way().await;
    world.engine.telemetry().log(uid, line(1, "user-data: hunter2-hunter2"));
    agent.report(uid, 0, 1, failed("cannot write hunter2-hunter2", false)).await.unwrap();
    let shown = serde_json::to_string(&world.run(&name).await).unwrap();
    assert!(!shown.contains("hunter2") && shown.contains("cannot write [secret]"), "{shown}");
}
