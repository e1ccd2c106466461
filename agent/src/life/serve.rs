//! One session: takes instructions, keeps at most one run going, and says how it ended.

use std::{future::Future, sync::Arc};

use landfall_api::{ErrorCode, Problem};
use landfall_session::{Assignment, Backoff, Control, EnrollError, Enrolled, Instruction, LeaseWatch, SessionHandle};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use uuid::Uuid;

use super::{End, FIRST_WAIT, LONGEST_WAIT};
use crate::{
    actions::Machine,
    logging::Tail,
    runner::{Outcome, Runner, Stop, ToSession},
};

/// How a session ended.
pub(super) enum Ending {
    /// The machine should restart.
    Restart(End),
    /// It is over, and enrolling again is all that is left.
    Over(Problem),
}

/// A run under way.
struct Running {
    uid: Uuid,
    lease: LeaseWatch,
    stop: watch::Sender<Option<Stop>>,
    control: watch::Sender<Control>,
    task: JoinHandle<Outcome>,
}

impl Running {
    /// Whether it still works on that run and may.
    fn goes_on(&self, uid: Uuid) -> bool {
        self.uid == uid && self.lease.is_valid() && self.stop.borrow().is_none()
    }
}

/// Follows instructions until the machine should restart or the session is over for good. `renew` enrols again with the
/// same key, when the coordinator takes the certificate no more: the run goes on meanwhile.
pub(super) async fn serve<F>(
    session: &SessionHandle,
    mut instructions: mpsc::Receiver<Instruction>,
    tail: &Tail,
    renew: &impl Fn() -> F,
) -> Ending
where
    F: Future<Output = Result<Enrolled, EnrollError>>,
{
    let mut server = Server { session, tail, machine: Machine::default(), running: None, next: None, refused: None };
    loop {
        tokio::select! {
            instruction = instructions.recv() => match instruction {
                Some(instruction) => {
                    if let Some(end) = server.follow(instruction) {
                        return Ending::Restart(end);
                    }
                }
                None => match server.session_ended(renew).await {
                    Ok(again) => instructions = again,
                    Err(problem) => return server.stop_and_leave(problem).await,
                },
            },
            outcome = finished(&mut server.running) => {
                server.running = None;
                if let Some(end) = server.run_ended(outcome) {
                    return Ending::Restart(end);
                }
            }
        }
    }
}

/// The outcome of the run under way; for ever pending without one.
async fn finished(running: &mut Option<Running>) -> Outcome {
    let Some(running) = running else { return std::future::pending().await };
    match (&mut running.task).await {
        Ok(outcome) => outcome,
        Err(e) => {
            let problem = Problem::new(ErrorCode::Internal, format!("the runner's code panicked: {e}"));
            Outcome::Failed(problem.hint("report this with the machine's console log"))
        }
    }
}

struct Server<'a> {
    session: &'a SessionHandle,
    tail: &'a Tail,
    machine: Machine,
    running: Option<Running>,
    /// Handed out while an earlier run was still stopping.
    next: Option<(Box<Assignment>, LeaseWatch, Control)>,
    refused: Option<Problem>,
}

impl Server<'_> {
    fn follow(&mut self, instruction: Instruction) -> Option<End> {
        match instruction {
            Instruction::Assign { assignment, lease } => match &self.running {
                // A repeat after a reconnect: the library has taken its lease, and the action goes on. What was told to
                // stop goes on no more: after it comes what follows a failure.
                Some(running) if running.goes_on(assignment.workflow_uid) => {}
                Some(_) => self.next = Some((assignment, lease, Control::default())),
                None => self.start(*assignment, lease, Control::default()),
            },
            Instruction::Control { workflow_uid, control } => {
                if let Some((_, _, next)) = self.next.as_mut().filter(|(next, ..)| next.workflow_uid == workflow_uid) {
                    *next = control;
                } else if let Some(running) = self.running.as_ref().filter(|r| r.uid == workflow_uid) {
                    running.control.send_replace(control);
                }
            }
            Instruction::Cancel { workflow_uid, reason } => {
                tracing::warn!("the run is cancelled: {reason}");
                self.next.take_if(|(assignment, ..)| assignment.workflow_uid == workflow_uid);
                if let Some(running) = self.running.as_ref().filter(|r| r.uid == workflow_uid) {
                    running.stop.send_replace(Some(Stop::Cancelled(reason)));
                }
            }
            Instruction::Fenced { reason } => {
                tracing::error!("a newer session of this machine exists: {reason}; stopping");
                self.next = None;
                if let Some(running) = &self.running {
                    running.stop.send_replace(Some(Stop::Fenced(reason.clone())));
                }
                let hint = "power off the other computer that claims this identity, if there is one";
                self.refused = Some(Problem::new(ErrorCode::Fenced, reason).hint(hint));
            }
            Instruction::Idle { boot_disk: true } if self.running.is_none() => {
                tracing::info!("nothing to do: booting the own disk");
                return Some(End::BootDisk);
            }
            Instruction::Idle { .. } => tracing::info!("nothing to do; waiting for a run"),
            Instruction::Refused { problem, retry_after } => {
                let again = retry_after.map_or_else(String::new, |t| format!("; asking again in {} s", t.as_secs()));
                tracing::error!("the coordinator refuses this session: {problem}{again}");
                self.refused = retry_after.is_none().then_some(problem);
            }
        }
        None
    }

    fn start(&mut self, assignment: Assignment, lease: LeaseWatch, wanted: Control) {
        let (stop, stopped) = watch::channel(None);
        let (control, controlled) = watch::channel(wanted);
        let uid = assignment.workflow_uid;
        let runner = Runner {
            run: Arc::new(assignment),
            lease: Arc::new(lease.clone()),
            stop: stopped,
            control: controlled,
            report: Arc::new(ToSession::new(self.session.clone(), self.tail.clone())),
            perform: Arc::new(self.machine.clone()),
        };
        self.session.holds(Some(uid));
        self.running = Some(Running { uid, lease, stop, control, task: tokio::spawn(runner.run()) });
    }

    fn run_ended(&mut self, outcome: Outcome) -> Option<End> {
        self.session.holds(None);
        match outcome {
            Outcome::Reboot => return Some(End::Reboot),
            Outcome::PowerOff => return Some(End::PowerOff),
            Outcome::Kexec => return Some(End::Kexec),
            Outcome::Done => tracing::info!("the run is done; waiting for the coordinator"),
            Outcome::Failed(problem) => tracing::error!("the run failed: {problem}"),
            Outcome::Stopped(problem) => tracing::warn!("the run stopped: {problem}"),
            Outcome::Untold => tracing::error!("the run stopped: its session ended and nobody could be told"),
        }
        if let Some((assignment, lease, control)) = self.next.take() {
            self.start(*assignment, lease, control);
        }
        None
    }

    /// The session ended by itself. A refused certificate is mended by another; anything else is a person's to mend.
    async fn session_ended<F>(&mut self, renew: &impl Fn() -> F) -> Result<mpsc::Receiver<Instruction>, Problem>
    where
        F: Future<Output = Result<Enrolled, EnrollError>>,
    {
        let ended = || Problem::new(ErrorCode::Internal, "the session ended");
        let problem = self.refused.take().unwrap_or_else(ended);
        if problem.code != ErrorCode::Unauthenticated {
            return Err(problem);
        }
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        loop {
            match renew().await {
                Ok(enrolled) => return self.session.restart(enrolled.credentials).map_err(|_| problem),
                Err(e) if !e.retryable => return Err(e.problem),
                Err(e) => {
                    let wait = e.retry_after.unwrap_or_else(|| backoff.step());
                    tracing::warn!("not enrolled again: {}; asking again in {} s", e.problem, wait.as_secs().max(1));
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Waits until what runs has stopped (bounded by the runner), then gives up.
    async fn stop_and_leave(mut self, problem: Problem) -> Ending {
        if let Some(running) = &self.running {
            running.stop.send_if_modified(|stop| {
                let unset = stop.is_none();
                if unset {
                    *stop = Some(Stop::Fenced(problem.message.clone()));
                }
                unset
            });
            match finished(&mut self.running).await {
                Outcome::Reboot => return Ending::Restart(End::Reboot),
                Outcome::PowerOff => return Ending::Restart(End::PowerOff),
                Outcome::Kexec => return Ending::Restart(End::Kexec),
                _ => {}
            }
        }
        Ending::Over(problem)
    }
}
