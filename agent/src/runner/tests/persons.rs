//! Pauses and holds.

use landfall_api::HoldSpec;

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn hold(timeout: Duration) -> AssignedAction {
    step(ActionKind::Hold(HoldSpec { message: "look".into() }), timeout, 1, "")
}

fn control(paused: bool, released: &[u32]) -> Control {
    Control { paused, released: released.to_vec() }
}

impl Scene {
    /// Waits until so many reports have come.
    async fn reports(&self, count: usize) -> Vec<String> {
        let enough = async {
            while self.reports.all().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), enough).await.expect("it goes on");
        self.reports.all()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_lets_the_current_action_end() {
    let scene = play_within(Duration::from_millis(500), &[1, 1], (0, 1), vec![Act::Late, Act::Succeed, Act::Succeed]);
    scene.reports(1).await;
    scene.control.send_replace(control(true, &[]));
    // It is under way, and goes on to its end in spite of the pause.
    assert_eq!(scene.reports(2).await, ["0.1 started", "0.1 finished"]);
    tokio::time::sleep(BACKOFF * 10).await;
    assert_eq!(scene.reports.all().len(), 2, "{:?}", scene.reports.all());
    scene.control.send_replace(control(false, &[]));
    assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
}

#[tokio::test(start_paused = true)]
async fn a_pause_between_two_attempts_begins_no_other() {
    let scene = play(&[3], (0, 1), vec![Act::Fail(ErrorCode::Truncated, true), Act::Succeed, Act::Succeed]);
    scene.reports(2).await;
    scene.control.send_replace(control(true, &[]));
    tokio::time::sleep(BACKOFF * 10).await;
    assert_eq!(scene.reports.all().len(), 2, "{:?}", scene.reports.all());
    scene.control.send_replace(control(false, &[]));
    assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_can_be_cancelled() {
    let run = run_of(vec![hold(LONG), step(seed(), LONG, 1, "")], &[(0, 1)]);
    let scene = stage(run, vec![]);
    scene.reports(1).await;
    scene.control.send_replace(control(true, &[0]));
    scene.reports(2).await;
    scene.stop.send_replace(Some(Stop::Cancelled("enough".into())));
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(p) if p.message == "enough"));
}

#[tokio::test(start_paused = true)]
async fn a_hold_waits_for_its_own_release_and_no_other() {
    let scene = stage(run_of(vec![hold(LONG), hold(LONG)], &[(0, 1)]), vec![]);
    assert_eq!(scene.reports(1).await, ["0.1 started"]);
    scene.control.send_replace(control(false, &[7]));
    scene.control.send_replace(control(false, &[0]));
    assert_eq!(scene.reports(3).await, ["0.1 started", "0.1 finished", "1.1 started"]);
    scene.control.send_replace(control(false, &[0, 1]));
    assert_eq!(scene.task.await.unwrap(), Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn an_unreleased_hold_fails_at_its_timeout_without_retry() {
    let mut action = hold(Duration::from_millis(20));
    action.retry.max_attempts = 5;
    let scene = stage(run_of(vec![action], &[(0, 1)]), vec![]);
    assert!(matches!(scene.task.await.unwrap(), Outcome::Failed(p) if p.code == ErrorCode::Timeout));
    assert_eq!(scene.reports.all(), ["0.1 started", "0.1 failed Timeout false"]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_with_the_lease_and_with_a_fence() {
    let scene = stage(run_of(vec![hold(LONG)], &[(0, 1)]), vec![]);
    scene.reports(1).await;
    scene.lease.0.send_replace(false);
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(p) if p.code == ErrorCode::LeaseExpired));
    let scene = stage(run_of(vec![hold(LONG)], &[(0, 1)]), vec![]);
    scene.reports(1).await;
    scene.stop.send_replace(Some(Stop::Fenced("newer".into())));
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(p) if p.code == ErrorCode::Fenced));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_during_a_timeout_is_not_retried() {
    let scene = play_within(Duration::from_millis(50), &[3], (0, 1), vec![Act::Break]);
    let outcome = scene.task.await.unwrap();
    assert!(matches!(&outcome, Outcome::Failed(p) if p.code == ErrorCode::Timeout), "{outcome:?}");
    assert_eq!(scene.reports.all(), ["0.1 started", "0.1 failed Timeout false"]);
}
