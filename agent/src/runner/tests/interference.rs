//! A person, a fence or the lease may interfere at any point of a workflow: the agent still reports consistently,
//! begins no forbidden action, and leaves no action running.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall_api::{HoldSpec, stages};
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Succeed,
    Fail(bool),
    /// Only ends when it is stopped.
    Hang,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Cancel,
    Fence,
    EndLease,
    Pause,
    Release,
}

#[derive(Debug, Clone)]
struct Story {
    /// A branch, whether it is a hold, what each attempt does.
    actions: Vec<(usize, bool, Vec<Act>)>,
    /// What happens at the how-many-th point.
    happens: BTreeMap<usize, What>,
}

fn story() -> impl Strategy<Value = Story> {
    let act = prop_oneof![5 => Just(Act::Succeed), 2 => any::<bool>().prop_map(Act::Fail), 1 => Just(Act::Hang)];
    let action = (0..4usize, prop::bool::weighted(0.2), prop::collection::vec(act, 3));
    let what = prop::sample::select(vec![
        What::Cancel,
        What::Fence,
        What::EndLease,
        What::Pause,
        What::Release,
        What::Release,
    ]);
    (prop::collection::vec(action, 1..6), prop::collection::btree_map(0..24usize, what, 0..5))
        .prop_map(|(actions, happens)| Story { actions, happens })
}

/// The world of one workflow: every call is a point at which something may interfere.
struct World {
    story: Story,
    points: AtomicUsize,
    running: AtomicUsize,
    reports: Mutex<Vec<(u32, u32, &'static str)>>,
    wrong: Mutex<Vec<String>>,
    lease: Arc<Lease>,
    stop: watch::Sender<Option<Stop>>,
    control: watch::Sender<Control>,
}

impl World {
    fn point(&self) {
        let at = self.points.fetch_add(1, Ordering::SeqCst);
        match self.story.happens.get(&at) {
            Some(What::Cancel) => drop(self.stop.send_replace(Some(Stop::Cancelled("x".into())))),
            Some(What::Fence) => drop(self.stop.send_replace(Some(Stop::Fenced("x".into())))),
            Some(What::EndLease) => drop(self.lease.0.send_replace(false)),
            Some(What::Pause) => self.control.send_modify(|control| control.paused = true),
            Some(What::Release) => self.release(),
            None => {}
        }
    }
    fn release(&self) {
        self.control.send_replace(Control { paused: false, released: (0..8).collect() });
    }
    fn stopped(&self) -> bool {
        self.stop.borrow().is_some() || !self.lease.is_valid()
    }
    fn complain(&self, text: String) {
        self.wrong.lock().unwrap().push(text);
    }
}

impl Report for World {
    fn report(&self, action: ActionRef, kind: EventBody) -> Reporting<'_, SessionEnded> {
        let what = match kind {
            EventBody::Started => "started",
            EventBody::Finished { .. } => "finished",
            _ => "failed",
        };
        if what == "started" && self.control.borrow().paused && !self.stopped() && !self.elsewhere() {
            self.complain(format!("{action} began in a pause"));
        }
        self.reports.lock().unwrap().push((action.action_index, action.attempt, what));
        self.point();
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }
    fn report_blocking(&self, _: ActionRef, _: EventBody) -> Result<(), SessionEnded> {
        Ok(())
    }
    fn still_runs(&self) -> Box<dyn Send> {
        self.complain("something did not stop".into());
        Box::new(())
    }
    fn progress(&self, _: ActionRef, _: Progress) {}
    fn log(&self, _: ActionRef, _: LogLevel, _: String) {}
    fn flush(&self, _: Duration) -> Reporting<'_, Unflushed> {
        self.point();
        Box::pin(async { Ok(()) })
    }
}

impl World {
    /// Another branch has failed for good, which stops this one as a person would.
    fn elsewhere(&self) -> bool {
        let reports = self.reports.lock().unwrap();
        reports.iter().any(|(_, _, what)| *what == "failed")
    }
}

struct Doer(Arc<World>);

impl Perform for Doer {
    fn perform(&self, job: Job) -> BoxFuture<'static, Result<ActionResult, Failure>> {
        let world = self.0.clone();
        if world.stopped() {
            world.complain(format!("{} was begun although the workflow was stopped", job.action));
        }
        world.running.fetch_add(1, Ordering::SeqCst);
        world.point();
        let (_, _, acts) = &world.story.actions[job.action.action_index as usize];
        let act = acts.get(job.action.attempt as usize - 1).copied().unwrap_or(Act::Succeed);
        Box::pin(async move {
            tokio::task::yield_now().await;
            let failure = |code, retryable| Failure { problem: Problem::new(code, "why"), retryable };
            let done = match act {
                Act::Succeed => Ok(ActionResult::CloudInit(CloudInitResult { root_device: "x".into() })),
                Act::Fail(retryable) => Err(failure(ErrorCode::Truncated, retryable)),
                Act::Hang => {
                    while !job.cancel.is_cancelled() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Err(failure(ErrorCode::Cancelled, false))
                }
            };
            world.running.fetch_sub(1, Ordering::SeqCst);
            done
        })
    }
}

fn list(story: &Story) -> Vec<AssignedAction> {
    let branch = |n: usize| ["", "", "a", "b"][n];
    let action = |(n, hold, _): &(usize, bool, Vec<Act>)| {
        let kind = if *hold { ActionKind::Hold(HoldSpec { message: "m".into() }) } else { seed() };
        let mut action = step(kind, Duration::from_millis(40), 3, branch(*n));
        action.retry.initial_backoff = Duration::from_millis(1);
        action.retry.max_backoff = Duration::from_millis(2);
        action
    };
    story.actions.iter().map(action).collect()
}

async fn live(story: Story) -> Result<(), TestCaseError> {
    let actions = list(&story);
    let all = stages(actions.iter().map(|a| a.branch.as_deref()));
    let starts: Vec<(u32, u32)> = all[0].lanes.iter().map(|lane| (lane[0] as u32, 1)).collect();
    let (stop, stopped) = watch::channel(None);
    let (control, controlled) = watch::channel(Control::default());
    let lease = Lease::new();
    let world = Arc::new(World {
        story,
        points: AtomicUsize::new(0),
        running: AtomicUsize::new(0),
        reports: Mutex::default(),
        wrong: Mutex::default(),
        lease: lease.clone(),
        stop,
        control,
    });
    let runner = Runner {
        run: Arc::new(run_of(actions, &starts)),
        lease,
        stop: stopped,
        control: controlled,
        report: world.clone(),
        tail: tail(),
        perform: Arc::new(Doer(world.clone())),
    };
    // A pause has its end at the coordinator; here, after everything else has come to rest.
    let resumes = world.clone();
    let resumer = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            resumes.release();
        }
    });
    let outcome = in_time(runner).await;
    resumer.abort();
    prop_assert_eq!(world.running.load(Ordering::SeqCst), 0, "something still runs");
    prop_assert!(world.wrong.lock().unwrap().is_empty(), "{:?}", world.wrong.lock().unwrap());
    let reports = world.reports.lock().unwrap().clone();
    let (mut open, mut seen, mut finished) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for (index, attempt, what) in &reports {
        if *what == "started" {
            prop_assert!(seen.insert((*index, *attempt)), "attempt {index}.{attempt} began twice");
            prop_assert!(*attempt == 1 || seen.contains(&(*index, attempt - 1)), "a number was left out");
            prop_assert!(open.insert(*index, *attempt).is_none(), "two attempts of {index} at once");
            for stage in &all {
                let lane = stage.lanes.iter().find(|lane| lane.contains(&(*index as usize)));
                let before: Vec<usize> = match lane {
                    Some(lane) => lane.iter().copied().filter(|n| *n < *index as usize).collect(),
                    None if stage.span().end <= *index as usize => stage.span().collect(),
                    None => Vec::new(),
                };
                prop_assert!(before.iter().all(|n| finished.contains(n)), "{index} began before {before:?} had ended");
            }
        } else {
            prop_assert_eq!(open.remove(index), Some(*attempt), "an end without a beginning");
            if *what == "finished" {
                prop_assert!(finished.insert(*index as usize), "{index} succeeded twice");
            }
        }
    }
    prop_assert!(open.is_empty(), "begun and never ended: {open:?}");
    let all_done = finished.len() == world.story.actions.len();
    prop_assert_eq!(outcome == Outcome::Done, all_done, "{:?}", outcome);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_run_makes_sense_whatever_happens_at_whatever_point(story in story()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(live(story))?;
    }
}
