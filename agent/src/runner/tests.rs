mod branches;
mod conditions;
mod interference;
mod log;
mod persons;

use std::{collections::VecDeque, sync::Mutex};

use landfall_api::message::{AssignedAction, CloudInit, CloudInitResult, EventBody, KexecResult, LogLevel, Retry};
use landfall_api::{ErrorCode, HttpResult, KexecSpec, Progress, RebootSpec, SecretText};
use landfall_session::{Reporting, SessionEnded, Unflushed};
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::actions::testing::run_of;

const BACKOFF: Duration = Duration::from_millis(20);

/// A lease that a test ends when it likes.
struct Lease(watch::Sender<bool>);

impl Lease {
    fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(true)))
    }
}

impl Term for Lease {
    fn is_valid(&self) -> bool {
        *self.0.borrow()
    }
    fn expired(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { drop(self.0.subscribe().wait_for(|valid| !valid).await) })
    }
}

/// Records the reports.
#[derive(Default)]
struct Reports(Mutex<Vec<String>>, watch::Sender<bool>);

/// What the acts of a script say they are at.
const AT: (&str, &str) = ("write", "/dev/sdx");

struct OnDrop(Box<dyn Fn() + Send>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Reports {
    fn say(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Report for Reports {
    fn report(&self, action: ActionRef, kind: EventBody) -> Reporting<'_, SessionEnded> {
        let what = match kind {
            EventBody::Started => "started".to_owned(),
            EventBody::Finished { .. } => "finished".to_owned(),
            EventBody::Failed { problem, retryable } => {
                assert!(!problem.last_log_lines.is_empty());
                format!("failed {} {retryable}", problem.code)
            }
            EventBody::ReceiptWritten { .. } => "receipt".to_owned(),
            EventBody::DiskWiped { .. } => "wiped".into(),
            EventBody::HealthTested { .. } => "tested".into(),
            EventBody::Skipped => "skipped".into(),
        };
        self.say(format!("{}.{} {what}", action.action_index, action.attempt));
        Box::pin(async { Ok(()) })
    }
    fn report_blocking(&self, _: ActionRef, _: EventBody) -> Result<(), SessionEnded> {
        Ok(())
    }
    fn still_runs(&self) -> Box<dyn Send> {
        self.say("still runs".into());
        let reports = self.1.clone();
        Box::new(OnDrop(Box::new(move || {
            reports.send_replace(true);
        })))
    }
    fn progress(&self, _: ActionRef, _: Progress) {}
    fn log(&self, action: ActionRef, _: LogLevel, line: String) {
        self.say(format!("{}.{} logged {line}", action.action_index, action.attempt));
    }
    fn flush(&self, limit: Duration) -> Reporting<'_, Unflushed> {
        self.say(format!("flush {}", limit.as_secs()));
        Box::pin(async { Err(Unflushed(1)) })
    }
}

/// A log of one line.
fn tail() -> Tail {
    let tail = Tail::default();
    let subscriber = tracing_subscriber::registry().with(tail.clone());
    tracing::subscriber::with_default(subscriber, || tracing::info!("line"));
    tail
}

/// What one attempt does.
enum Act {
    Succeed,
    Fail(ErrorCode, bool),
    /// Goes on until it is cancelled, and then fails.
    Hang,
    /// Goes on until it is cancelled, and turns out to have succeeded.
    Late,
    Panic,
    /// Continues until so many attempts of the workflow have begun, then succeeds.
    Meet(u32),
    /// Goes on until it is cancelled, and then fails by itself for good.
    Break,
    /// Ignores every cancel and continues until the lease ends.
    Stick,
    /// Ignores a cancel for a minute, because a disk erases itself, and succeeds.
    EraseItself,
}

struct Script {
    acts: Mutex<VecDeque<Act>>,
    /// Notified when an attempt is under way.
    begun: watch::Sender<u32>,
}

impl Perform for Script {
    fn perform(&self, job: Job) -> BoxFuture<'static, Result<ActionResult, Failure>> {
        job.doing.begin(AT.0, AT.1);
        let act = self.acts.lock().unwrap().pop_front().expect("an attempt too many");
        self.begun.send_modify(|n| *n += 1);
        let mut begun = self.begun.subscribe();
        Box::pin(async move {
            let success = match &job.kind {
                ActionKind::Reboot(_) => ActionResult::Reboot,
                ActionKind::PowerOff(_) => ActionResult::PowerOff,
                ActionKind::Kexec(_) => ActionResult::Kexec(KexecResult {
                    root_device: "/dev/vda2".into(),
                    kernel: "/boot/vmlinuz".into(),
                    initramfs: "/boot/initrd.img".into(),
                    cmdline: "root=/dev/vda2".into(),
                }),
                ActionKind::Http(_) => ActionResult::Http(HttpResult { status: 201, body: "go".into(), cut: false }),
                _ => ActionResult::CloudInit(CloudInitResult { root_device: "/dev/vda2".into() }),
            };
            let failure = |code, retryable| Failure { problem: Problem::new(code, "why"), retryable };
            let cancelled = async {
                while !job.cancel.is_cancelled() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            match act {
                Act::Succeed => Ok(success),
                Act::Fail(code, retryable) => Err(failure(code, retryable)),
                Act::Hang => {
                    cancelled.await;
                    Err(failure(ErrorCode::Cancelled, false))
                }
                Act::EraseItself => {
                    job.doing.cannot_stop(true);
                    cancelled.await;
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    job.doing.cannot_stop(false);
                    Ok(success)
                }
                Act::Late => {
                    cancelled.await;
                    Ok(success)
                }
                Act::Panic => panic!("on purpose"),
                Act::Meet(others) => {
                    drop(begun.wait_for(|n| *n >= others).await);
                    Ok(success)
                }
                Act::Stick => {
                    job.lease.expired().await;
                    Err(failure(ErrorCode::Cancelled, false))
                }
                Act::Break => {
                    cancelled.await;
                    Err(failure(ErrorCode::DeviceIo, false))
                }
            }
        })
    }
}

struct Scene {
    reports: Arc<Reports>,
    lease: Arc<Lease>,
    tail: Tail,
    stop: watch::Sender<Option<Stop>>,
    control: watch::Sender<Control>,
    begun: watch::Receiver<u32>,
    task: tokio::task::JoinHandle<Outcome>,
}

fn seed() -> ActionKind {
    ActionKind::CloudInit(CloudInit {
        user_data: SecretText::default(),
        vendor_data: SecretText::default(),
        meta_data: String::new(),
        network_config: SecretText::default(),
        phone_home: None,
        disk: None,
    })
}

/// A workflow that never ends fails the test instead of blocking it.
async fn in_time(runner: Runner) -> Outcome {
    tokio::time::timeout(Duration::from_secs(120), runner.run()).await.expect("the run ends")
}

/// A workflow of one `cloudInit` for each count of attempts, then a reboot; nothing in it ever takes too long.
fn play(attempts: &[u32], start: (u32, u32), acts: Vec<Act>) -> Scene {
    play_within(Duration::from_secs(600), attempts, start, acts)
}

fn play_within(timeout: Duration, attempts: &[u32], start: (u32, u32), acts: Vec<Act>) -> Scene {
    let actions = attempts.iter().map(|n| step(seed(), timeout, *n, ""));
    let actions = actions.chain([step(ActionKind::Reboot(RebootSpec {}), timeout, 1, "")]).collect();
    stage(run_of(actions, &[start]), acts)
}

fn step(kind: ActionKind, timeout: Duration, max_attempts: u32, branch: &str) -> AssignedAction {
    AssignedAction {
        name: "step".into(),
        timeout,
        retry: Retry { max_attempts, initial_backoff: BACKOFF, max_backoff: BACKOFF * 3 },
        branch: Some(branch.to_owned()).filter(|b| !b.is_empty()),
        when: None,
        kind,
    }
}

fn stage(run: Assignment, acts: Vec<Act>) -> Scene {
    let (stop, stopped) = watch::channel(None);
    let (control, controlled) = watch::channel(Control::default());
    let begun = watch::Sender::new(0);
    let (reports, lease, tail, watching) = (Arc::new(Reports::default()), Lease::new(), tail(), begun.subscribe());
    let runner = Runner {
        run: Arc::new(run),
        lease: lease.clone(),
        stop: stopped,
        control: controlled,
        report: reports.clone(),
        tail: tail.clone(),
        perform: Arc::new(Script { acts: Mutex::new(acts.into()), begun }),
    };
    Scene { reports, lease, tail, stop, control, begun: watching, task: tokio::spawn(in_time(runner)) }
}

#[tokio::test(start_paused = true)]
async fn actions_run_in_order_and_the_final_flush_is_bounded() {
    let scene = play(&[1, 1], (0, 1), vec![Act::Succeed, Act::Succeed, Act::Succeed]);
    assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
    let want =
        ["0.1 started", "0.1 finished", "1.1 started", "1.1 finished", "2.1 started", "2.1 finished", "flush 30"];
    assert_eq!(scene.reports.all(), want);
}

#[tokio::test(start_paused = true)]
async fn a_kernel_is_reported_before_the_jump() {
    let jump = || vec![step(ActionKind::Kexec(KexecSpec::default()), BACKOFF * 1000, 1, "")];
    let scene = stage(run_of(jump(), &[(0, 1)]), vec![Act::Succeed]);
    assert_eq!(scene.task.await.unwrap(), Outcome::Kexec);
    assert_eq!(scene.reports.all(), ["0.1 started", "0.1 finished", "flush 30"]);
    let scene = stage(run_of(jump(), &[(0, 1)]), vec![Act::Fail(ErrorCode::KexecRefused, false)]);
    assert!(matches!(scene.task.await.unwrap(), Outcome::Failed(p) if p.code == ErrorCode::KexecRefused));
    assert_eq!(scene.reports.all(), ["0.1 started", "0.1 failed KexecRefused false"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_where_the_coordinator_says() {
    let scene = play(&[1, 3], (1, 2), vec![Act::Succeed, Act::Succeed]);
    assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
    assert_eq!(scene.reports.all()[..2], ["1.2 started", "1.2 finished"]);
}

#[tokio::test(start_paused = true)]
async fn a_retryable_failure_is_retried_as_the_policy_says() {
    let fail = || Act::Fail(ErrorCode::Truncated, true);
    let begin = tokio::time::Instant::now();
    let scene = play(&[3], (0, 1), vec![fail(), fail(), fail()]);
    assert!(matches!(scene.task.await.unwrap(), Outcome::Failed(p) if p.code == ErrorCode::Truncated));
    assert_eq!(scene.reports.all().iter().filter(|t| t.ends_with("failed Truncated true")).count(), 3);
    // Once, then twice the first wait.
    assert!(begin.elapsed() >= BACKOFF * 3);
}

#[tokio::test(start_paused = true)]
async fn a_final_failure_is_not_tried_again() {
    let scene = play(&[3], (0, 1), vec![Act::Fail(ErrorCode::DiskInUse, false)]);
    assert!(matches!(scene.task.await.unwrap(), Outcome::Failed(_)));
    assert_eq!(scene.reports.all(), ["0.1 started", "0.1 failed DiskInUse false"]);
}

/// Otherwise the agent would acknowledge a fence while an action may still write.
#[tokio::test(start_paused = true)]
async fn an_action_that_does_not_stop_is_reported_as_running() {
    let mut scene = play(&[1], (0, 1), vec![Act::Stick]);
    scene.begun.wait_for(|n| *n == 1).await.unwrap();
    let mut stopped = scene.reports.1.subscribe();
    scene.stop.send_replace(Some(Stop::Cancelled("x".into())));
    let Outcome::Stopped(problem) = scene.task.await.unwrap() else { panic!("it was not stopped") };
    assert_eq!((problem.code, problem.subject.as_str()), (ErrorCode::Timeout, AT.1));
    assert!(problem.message.ends_with("does not stop, in step \"write\" on /dev/sdx"), "{problem}");
    assert_eq!(scene.reports.all(), ["0.1 started", "still runs", "0.1 failed Timeout false"]);
    assert!(!*stopped.borrow());
    scene.lease.0.send_replace(false);
    stopped.wait_for(|stopped| *stopped).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_action_over_its_time_is_stopped_and_tried_again() {
    // The second attempt may take as short as it likes; only the first outlasts any limit.
    let scene = play_within(Duration::from_millis(500), &[2], (0, 1), vec![Act::Hang, Act::Succeed, Act::Succeed]);
    assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
    assert_eq!(scene.reports.all()[1..4], ["0.1 failed Timeout true", "0.2 started", "0.2 finished"]);
}

#[tokio::test(start_paused = true)]
async fn what_succeeded_while_being_stopped_has_succeeded() {
    let scene = play_within(Duration::from_millis(500), &[1], (0, 1), vec![Act::Late, Act::Succeed]);
    assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
    assert_eq!(scene.reports.all()[1], "0.1 finished");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_disk_that_erases_itself_is_awaited() {
    let scene = play_within(Duration::from_millis(500), &[1], (0, 1), vec![Act::EraseItself, Act::Succeed]);
    assert_eq!(scene.task.await.unwrap(), Outcome::Reboot);
    assert_eq!(scene.reports.all()[1], "0.1 finished");
}

#[tokio::test(start_paused = true)]
async fn cancelling_stops_the_action_and_the_run() {
    let mut scene = play(&[3, 1], (0, 1), vec![Act::Hang]);
    scene.begun.wait_for(|n| *n == 1).await.unwrap();
    scene.stop.send_replace(Some(Stop::Cancelled("not today".into())));
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(p) if p.message == "not today"));
    assert_eq!(scene.reports.all(), ["0.1 started", "0.1 failed Cancelled false"]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_between_attempts_makes_no_further_one() {
    let mut scene = play(&[3], (0, 1), vec![Act::Fail(ErrorCode::Truncated, true)]);
    scene.begun.wait_for(|n| *n == 1).await.unwrap();
    scene.stop.send_replace(Some(Stop::Fenced("newer".into())));
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(p) if p.code == ErrorCode::Fenced));
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_stops_the_workflow() {
    let mut scene = play(&[3, 1], (0, 1), vec![Act::Hang]);
    scene.begun.wait_for(|n| *n == 1).await.unwrap();
    scene.lease.0.send_replace(false);
    assert!(matches!(scene.task.await.unwrap(), Outcome::Stopped(p) if p.code == ErrorCode::LeaseExpired));
    assert_eq!(scene.reports.all(), ["0.1 started", "0.1 failed LeaseExpired true"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_action_fails_only_the_action() {
    let scene = play(&[3], (0, 1), vec![Act::Panic]);
    assert!(matches!(scene.task.await.unwrap(), Outcome::Failed(p) if p.code == ErrorCode::Internal));
    assert_eq!(scene.reports.all()[1], "0.1 failed Internal false");
}
