//! Machines whose parts are tested.

use landfall_api::{DiskFacts, HealthReport, HealthTestKind, HealthTestResult, MachineFacts};

use super::fleet::Computer;
use super::*;

/// A template that tests, and nothing else.
async fn tests(world: &World, actions: serde_json::Value) {
    let spec = json!({"successOn": "reboot", "actions": actions});
    world.apply(document("Template", "os", spec)).await.unwrap();
}

fn report(test: HealthTestKind, disk: Option<&str>, fault: Option<&str>) -> HealthReport {
    HealthReport {
        disk: disk.map(self::disk),
        faults: fault.into_iter().map(str::to_owned).collect(),
        ..HealthReport::begun(test, disk.unwrap_or("part"), Timestamp::UNIX_EPOCH)
    }
}

/// The machine's agent does one run: it reports these parts of action 0, and that it failed or not.
async fn run(agent: &mut Agent<'_>, run: Uuid, reports: &[HealthReport]) {
    // After a failure it also gets a cancel.
    let heard: Vec<_> = std::iter::from_fn(|| agent.received()).collect();
    assert!(heard.iter().any(|message| matches!(message, ToAgent::Assign(_))), "{heard:?}");
    agent.report(run, 0, 1, EventBody::Started).await.unwrap();
    for report in reports {
        agent.report(run, 0, 1, EventBody::HealthTested { report: report.clone() }).await.unwrap();
    }
    if reports.iter().all(HealthReport::passed) {
        let parts = u32::try_from(reports.len()).unwrap();
        let result = ActionResult::HealthTest(HealthTestResult { parts });
        agent.report(run, 0, 1, EventBody::Finished { result }).await.unwrap();
        agent.does(run, 1, 1, ActionResult::Reboot).await;
    } else {
        let problem = Problem::new(ErrorCode::HealthTestFailed, "a part failed");
        agent.report(run, 0, 1, EventBody::Failed { problem, retryable: false }).await.unwrap();
    }
}

#[tokio::test]
async fn a_machine_is_healthy_again_once_the_test_passes() {
    use HealthTestKind::{DiskRead, Memory};
    let world = World::new().await;
    tests(&world, json!([{"name": "test", "healthTest": {"diskRead": {}}}, {"name": "go", "reboot": {}}])).await;
    let provision = async || world.provision(false).await.unwrap().metadata.uid.unwrap();
    let mut workflow = Some(provision().await);
    world.enroll(b"key").await.unwrap();
    let mut agent = world.connect(hello("b1", "D1", vec![])).await;
    let facts =
        MachineFacts { disks: vec![DiskFacts { id: disk("D1"), ..DiskFacts::default() }], ..MachineFacts::default() };
    world.engine.sessions().facts(agent.uid, agent.opened.epoch, facts).await.unwrap();
    let healthy = async || world.condition("Healthy").await;
    for (reports, phase, condition) in [
        (vec![report(Memory, None, None)], MachinePhase::Available, (ConditionStatus::True, "Passed")),
        (
            vec![report(DiskRead, Some("D1"), Some("slow")), report(DiskRead, Some("D2"), None)],
            MachinePhase::Unhealthy,
            (ConditionStatus::False, "Failed"),
        ),
        // The other test says nothing of the disk.
        (vec![report(Memory, None, None)], MachinePhase::Unhealthy, (ConditionStatus::False, "Failed")),
        (vec![report(DiskRead, Some("D1"), None)], MachinePhase::Available, (ConditionStatus::True, "Passed")),
    ] {
        let uid = match workflow.take() {
            Some(first) => first,
            None => provision().await,
        };
        run(&mut agent, uid, &reports).await;
        assert_eq!(world.phase().await, phase, "{reports:?}");
        let (status, reason) = healthy().await.unwrap();
        assert_eq!((status, reason.as_str()), condition);
    }
    assert_eq!(
        world.machine().await.status.unwrap().tested.len(),
        2,
        "one of each part, and of the disk that is there"
    );
}

#[tokio::test]
async fn a_test_that_writes_nothing_leaves_the_system_provisioned() {
    let world = World::new().await;
    let mut computer = Computer::described(&world, 1).await;
    computer.install(&world).await;
    let before = computer.condition(&world, "Provisioned").await;
    tests(&world, json!([{"name": "test", "healthTest": {"memory": {}}}, {"name": "go", "reboot": {}}])).await;
    computer.provision(&world, false).await.unwrap();
    let mut session = computer.netboot(&world).await.unwrap();
    let assignment = session.assigned().unwrap();
    computer.work(&world, &mut session, &assignment, fleet::Until::Home).await;
    assert_eq!(computer.condition(&world, "Provisioned").await, before);
    assert_eq!(computer.phase(&world).await, MachinePhase::Provisioned);
}
