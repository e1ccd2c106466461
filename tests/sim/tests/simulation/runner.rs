//! A small version of the agent's runner: one action after another under lease and cancel, on a fake disk.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_api::message::{
    ActionKind, ActionRef, ActionResult, AssignedAction, Assignment, EventBody, LogLevel, WriteImageResult,
};
use landfall_api::{ErrorCode, Problem, Progress, ReceiptState};
use landfall_session::{LeaseWatch, SessionEnded, SessionHandle};
use landfall_sim::chance::Chance;
use tokio::{sync::watch, time::sleep};
use uuid::Uuid;

use super::disk::{Decision, Disk};
use super::truth::{Truth, word};

/// The restart waits so long for the last acks.
const FLUSH_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stop {
    Cancelled,
    Fenced,
}

pub(crate) enum Ended {
    Restart,
    Stays,
}

/// A workflow under way.
pub(crate) struct Runner {
    work: Work,
    stop: watch::Sender<Option<Stop>>,
    /// Begun, and not to be begun again when its driver is asked a second time.
    running: Option<std::pin::Pin<Box<dyn Future<Output = Ended> + Send>>>,
}

impl Runner {
    pub(crate) fn new(
        run: Assignment, lease: LeaseWatch, session: SessionHandle, disk: Arc<Mutex<Disk>>, truth: Truth,
        computer: u64, chance: Chance,
    ) -> Self {
        let work = Work { run: Arc::new(run), lease, session, disk, truth, computer, reported: Arc::default() };
        let (stop, stopped) = watch::channel(None);
        work.truth.works(work.run.workflow_uid, computer, Some(work.lease.clone()));
        let running = Box::pin(work.clone().all(stopped, chance));
        Self { work, stop, running: Some(running) }
    }
    pub(crate) fn workflow(&self) -> Uuid {
        self.work.run.workflow_uid
    }
    pub(crate) fn lease_holds(&self) -> bool {
        self.work.lease.is_valid()
    }
    pub(crate) fn stop(&self, why: Stop) {
        self.stop.send_replace(Some(why));
    }
    /// Continues until it ends; may be dropped and called again.
    pub(crate) async fn run(&mut self) -> Ended {
        match self.running.as_mut() {
            Some(running) => running.await,
            None => Ended::Stays,
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.work.truth.works(self.workflow(), self.work.computer, None);
    }
}

/// An event, and what it said.
type Reported = (ActionRef, u64, &'static str);

#[derive(Clone)]
struct Work {
    run: Arc<Assignment>,
    lease: LeaseWatch,
    session: SessionHandle,
    disk: Arc<Mutex<Disk>>,
    truth: Truth,
    computer: u64,
    /// Reported, and not known to be acknowledged.
    reported: Arc<Mutex<Vec<Reported>>>,
}

impl Work {
    async fn all(self, stop: watch::Receiver<Option<Stop>>, mut chance: Chance) -> Ended {
        let run = self.run.clone();
        for (index, action) in run.actions.iter().enumerate().skip(run.start_index as usize) {
            let index = u32::try_from(index).unwrap();
            let mut attempt = if index == run.start_index { run.start_attempt.max(1) } else { 1 };
            loop {
                let reference = ActionRef { workflow_uid: run.workflow_uid, action_index: index, attempt };
                match self.attempt(action, reference, stop.clone(), &mut chance).await {
                    Err(SessionEnded) => return Ended::Stays,
                    Ok(Ok(ActionResult::Reboot)) => {
                        self.flush(FLUSH_LIMIT).await;
                        return Ended::Restart;
                    }
                    Ok(Ok(_)) => break,
                    Ok(Err((retryable, stopped))) => {
                        if stopped || !retryable || attempt >= action.retry.max_attempts {
                            return Ended::Stays;
                        }
                        sleep(action.retry.initial_backoff).await;
                        attempt += 1;
                    }
                }
            }
        }
        Ended::Stays
    }

    /// One attempt: its result, or whether it may be retried and whether it was stopped.
    async fn attempt(
        &self, action: &AssignedAction, reference: ActionRef, mut stop: watch::Receiver<Option<Stop>>,
        chance: &mut Chance,
    ) -> Result<Result<ActionResult, (bool, bool)>, SessionEnded> {
        self.tell(reference, EventBody::Started).await?;
        let problem = |code| Problem::new(code, "simulated");
        let outcome = tokio::select! {
            biased;
            stopped = stop.wait_for(Option::is_some) => match stopped.map(|stop| *stop) {
                Ok(Some(Stop::Cancelled)) => Err((problem(ErrorCode::Cancelled), false, true)),
                _ => Err((problem(ErrorCode::Fenced), false, true)),
            },
            () = self.lease.expired() => Err((problem(ErrorCode::LeaseExpired), true, true)),
            done = self.perform(action, reference, chance) => match done {
                Ok(result) => Ok(result),
                Err(problem) => {
                    let retryable = problem.code == ErrorCode::SourceUnreachable;
                    Err((problem, retryable, false))
                }
            },
        };
        match outcome {
            Ok(result) => {
                self.tell(reference, EventBody::Finished { result: result.clone() }).await?;
                if chance.percent(50) {
                    self.flush(Duration::from_secs(5)).await;
                }
                Ok(Ok(result))
            }
            Err((problem, retryable, stopped)) => {
                self.tell(reference, EventBody::Failed { problem, retryable }).await?;
                if chance.percent(50) {
                    self.flush(Duration::from_secs(5)).await;
                }
                Ok(Err((retryable, stopped)))
            }
        }
    }

    async fn perform(
        &self, action: &AssignedAction, reference: ActionRef, chance: &mut Chance,
    ) -> Result<ActionResult, Problem> {
        match &action.kind {
            ActionKind::WriteImage(_) => self.write(reference, chance).await,
            ActionKind::CloudInit(seed) => {
                sleep(Duration::from_secs(1 + chance.below(10))).await;
                let bearer = seed.phone_home.as_ref().map(|unit| unit.bearer_token.expose().to_owned());
                self.disk.lock().unwrap().installed = Some((self.run.workflow_uid, bearer));
                Ok(ActionResult::CloudInit(landfall_api::message::CloudInitResult { root_device: "vda1".into() }))
            }
            _ => Ok(ActionResult::Reboot),
        }
    }

    async fn write(&self, reference: ActionRef, chance: &mut Chance) -> Result<ActionResult, Problem> {
        let index = reference.action_index;
        sleep(Duration::from_secs(1 + chance.below(5))).await;
        if chance.percent(10) {
            return Err(Problem::new(ErrorCode::SourceUnreachable, "the image's server is down"));
        }
        let decision = self.disk.lock().unwrap().authorise(&self.run, index)?;
        let result = |receipt, written| {
            let (stored_bytes, raw_bytes, written_bytes, elapsed_ms) = (7, 7, 7, 1000);
            let receipt = Some(receipt);
            ActionResult::WriteImage(WriteImageResult {
                receipt,
                written,
                stored_bytes,
                raw_bytes,
                written_bytes,
                elapsed_ms,
            })
        };
        if decision == Decision::AlreadyDone {
            return Ok(result(self.disk.lock().unwrap().mark(&self.run, index, ReceiptState::Done), false));
        }
        let writing = self.truth.writing(self.run.machine_uid, self.computer);
        self.leased()?;
        let intent = {
            let mut disk = self.disk.lock().unwrap();
            let intent = disk.mark(&self.run, index, ReceiptState::Intent);
            disk.receipt = Some(intent.clone());
            disk.installed = None;
            intent
        };
        self.say(reference, EventBody::ReceiptWritten { receipt: intent }).await?;
        for step in 0..chance.below(20) {
            sleep(Duration::from_secs(1 + chance.below(12))).await;
            self.leased()?;
            self.overwrite();
            self.session.progress(reference, Progress { raw_bytes: step, ..Progress::default() });
            self.session.log(reference, LogLevel::Info, format!("step {step}"));
        }
        self.leased()?;
        let done = {
            let mut disk = self.disk.lock().unwrap();
            let done = disk.mark(&self.run, index, ReceiptState::Done);
            disk.receipt = Some(done.clone());
            disk.installed = Some((self.run.workflow_uid, None));
            let installs = disk.installs.entry(self.run.workflow_uid).or_default();
            *installs += 1;
            if *installs > 1 {
                self.truth
                    .violated(format!("computer {} was installed {installs} times by one workflow", self.computer));
            }
            done
        };
        self.truth.with(|known| known.commits += 1);
        drop(writing);
        self.truth.saw(format!("computer {} committed", self.computer));
        self.say(reference, EventBody::ReceiptWritten { receipt: done.clone() }).await?;
        Ok(result(done, true))
    }

    /// A block goes to the disk.
    fn overwrite(&self) {
        let mut disk = self.disk.lock().unwrap();
        disk.written += 1;
        let done = disk.receipt.as_ref().is_some_and(|mark| mark.receipt.state == ReceiptState::Done);
        if done {
            self.truth.violated(format!("computer {} writes over a finished install", self.computer));
        }
    }

    fn leased(&self) -> Result<(), Problem> {
        if self.lease.is_valid() { Ok(()) } else { Err(Problem::new(ErrorCode::LeaseExpired, "simulated")) }
    }

    async fn say(&self, action: ActionRef, kind: EventBody) -> Result<(), Problem> {
        self.tell(action, kind).await.map_err(|SessionEnded| Problem::new(ErrorCode::Fenced, "the session ended"))
    }

    async fn tell(&self, action: ActionRef, kind: EventBody) -> Result<(), SessionEnded> {
        let what = word(&kind);
        let seq = self.session.report(action, kind).await?;
        self.reported.lock().unwrap().push((action, seq, what));
        Ok(())
    }

    /// Everything reported before a successful flush is acknowledged.
    async fn flush(&self, limit: Duration) {
        let reported = std::mem::take(&mut *self.reported.lock().unwrap());
        if self.session.flush(limit).await.is_ok() {
            self.truth.with(|known| {
                for (action, seq, what) in reported {
                    known.acked.entry(action).or_default().insert(seq, what);
                }
            });
        } else {
            // Before what was reported meanwhile.
            self.reported.lock().unwrap().splice(0..0, reported);
        }
    }
}
