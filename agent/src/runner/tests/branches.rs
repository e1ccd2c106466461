//! Branches that run at once.

use landfall_api::PowerOffSpec;

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn list(branches: &[&str]) -> Vec<AssignedAction> {
    let actions = branches.iter().map(|branch| step(seed(), LONG, 2, branch));
    actions.chain([step(ActionKind::PowerOff(PowerOffSpec {}), LONG, 1, "")]).collect()
}

#[tokio::test(start_paused = true)]
async fn branches_run_in_parallel_and_the_next_stage_waits() {
    // Each goes on until the other has begun as well: one after the other, this would never end.
    let scene = stage(run_of(list(&["a", "b"]), &[(0, 1), (1, 1)]), vec![Act::Meet(2), Act::Meet(2), Act::Succeed]);
    assert_eq!(scene.task.await.unwrap(), Outcome::PowerOff);
    let reports = scene.reports.all();
    assert_eq!(reports[..2], ["0.1 started", "1.1 started"]);
    assert_eq!(reports[4..], ["2.1 started", "2.1 finished", "flush 30"]);
}

#[tokio::test(start_paused = true)]
async fn a_branch_that_the_coordinator_does_not_start_has_ended() {
    let scene = stage(run_of(list(&["a", "b", "a"]), &[(2, 3)]), vec![Act::Succeed, Act::Succeed]);
    assert_eq!(scene.task.await.unwrap(), Outcome::PowerOff);
    assert_eq!(scene.reports.all()[..4], ["2.3 started", "2.3 finished", "3.1 started", "3.1 finished"]);
}

#[tokio::test(start_paused = true)]
async fn the_actions_of_one_branch_are_done_in_order() {
    let acts = (0..4).map(|_| Act::Succeed).collect();
    let scene = stage(run_of(list(&["a", "b", "a"]), &[(0, 1), (1, 1)]), acts);
    assert_eq!(scene.task.await.unwrap(), Outcome::PowerOff);
    let reports = scene.reports.all();
    let at = |what: &str| reports.iter().position(|t| t == what).unwrap();
    assert!(at("0.1 finished") < at("2.1 started"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_branch_stops_the_others() {
    let acts = vec![Act::Hang, Act::Fail(ErrorCode::DiskInUse, false)];
    let scene = stage(run_of(list(&["a", "b"]), &[(0, 1), (1, 1)]), acts);
    assert!(matches!(scene.task.await.unwrap(), Outcome::Failed(p) if p.code == ErrorCode::DiskInUse));
    let reports = scene.reports.all();
    assert_eq!(reports[2..], ["1.1 failed DiskInUse false", "0.1 failed Cancelled false"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_stops_every_branch() {
    let mut scene = stage(run_of(list(&["a", "b"]), &[(0, 1), (1, 1)]), vec![Act::Hang, Act::Hang]);
    scene.begun.wait_for(|n| *n == 2).await.unwrap();
    scene.stop.send_replace(Some(Stop::Cancelled("not today".into())));
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(p) if p.message == "not today"));
    assert_eq!(scene.reports.all().iter().filter(|t| t.ends_with("failed Cancelled false")).count(), 2);
}
