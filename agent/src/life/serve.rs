//! One session: takes instructions, runs at most one workflow at a time, and returns how it ended.

use std::{future::Future, pin::Pin, sync::Arc};

use landfall_api::message::{Assignment, Control, Ended};
use landfall_api::{ErrorCode, Problem};
use landfall_session::{Backoff, EnrollError, Enrolled, Instruction, LeaseWatch, SessionHandle};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::dry_run::DryRuns;
use super::once::Once;
use super::{End, FIRST_WAIT, LONGEST_WAIT, dry_run};
use crate::actions::Machine;
use crate::disks::Disks;
use crate::logging::Tail;
use crate::runner::{FLUSH_LIMIT, Outcome, Runner, Stop};
use crate::status::Board;

/// How a session ended.
pub(super) enum Ending {
    /// The machine should restart.
    Restart(End),
    /// It has ended, and the agent must enrol again.
    Over(Problem),
}

/// A workflow under way.
struct Running {
    uid: Uuid,
    lease: LeaseWatch,
    stop: watch::Sender<Option<Stop>>,
    control: watch::Sender<Control>,
    task: JoinHandle<Outcome>,
}

impl Running {
    /// Whether it still works on that workflow and is allowed to.
    fn goes_on(&self, uid: Uuid) -> bool {
        self.uid == uid && self.lease.is_valid() && self.stop.borrow().is_none()
    }
}

/// Follows instructions until the machine should restart or the session is over for good. `renew` enrols again with the
/// same key when the coordinator refuses the certificate: the workflow continues meanwhile.
pub(super) async fn serve<F>(
    session: &SessionHandle, instructions: mpsc::Receiver<Instruction>, disks: &Disks, says: (&Board, &Tail),
    once: &Once, renew: &(impl Fn() -> F + Sync),
) -> Ending
where
    F: Future<Output = Result<Enrolled, EnrollError>> + Send,
{
    Server::new(session, disks, says, once).serve(instructions, renew).await
}

/// Enrolling again, while the workflow continues.
type Renewal<'a> = Pin<Box<dyn Future<Output = Result<mpsc::Receiver<Instruction>, Problem>> + Send + 'a>>;

/// The outcome of the workflow under way; pending for ever without one.
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

/// The answer to an enrolment under way; pending for ever without one.
async fn renewed(renewal: &mut Option<Renewal<'_>>) -> Result<mpsc::Receiver<Instruction>, Problem> {
    match renewal {
        Some(renewal) => renewal.await,
        None => std::future::pending().await,
    }
}

/// Enrols until that succeeds or is refused for good, then continues the session. `refused`: why it ended.
async fn enrolled_again<F>(
    session: &SessionHandle, renew: &(impl Fn() -> F + Sync), refused: Problem,
) -> Result<mpsc::Receiver<Instruction>, Problem>
where
    F: Future<Output = Result<Enrolled, EnrollError>> + Send,
{
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        match renew().await {
            Ok(enrolled) => return session.restart(enrolled.credentials).map_err(|_| refused),
            Err(e) if !e.retryable => return Err(e.problem),
            Err(e) => {
                let wait = e.retry_after.unwrap_or_else(|| backoff.step());
                tracing::warn!(
                    "renewal of the enrolment failed: {}; next attempt in {} s",
                    e.problem,
                    wait.as_secs().max(1)
                );
                tokio::time::sleep(wait).await;
            }
        }
    }
}

struct Server<'a> {
    session: &'a SessionHandle,
    board: &'a Board,
    tail: &'a Tail,
    machine: Machine,
    running: Option<Running>,
    /// Assigned while an earlier workflow was still stopping.
    next: Option<(Box<Assignment>, LeaseWatch, Control)>,
    refused: Option<Problem>,
    dry_runs: DryRuns,
    once: &'a Once,
}

impl<'a> Server<'a> {
    fn new(session: &'a SessionHandle, disks: &Disks, (board, tail): (&'a Board, &'a Tail), once: &'a Once) -> Self {
        let (machine, dry_runs) = (Machine::new(disks.clone()), DryRuns::default());
        Self { session, board, tail, machine, running: None, next: None, refused: None, dry_runs, once }
    }

    async fn serve<F>(
        mut self, mut instructions: mpsc::Receiver<Instruction>, renew: &(impl Fn() -> F + Sync),
    ) -> Ending
    where
        F: Future<Output = Result<Enrolled, EnrollError>> + Send,
    {
        let mut renewal: Option<Renewal<'_>> = None;
        loop {
            if self.once.is_over() {
                if let Err(e) = self.session.flush(FLUSH_LIMIT).await {
                    tracing::warn!("{e}; the agent ends all the same");
                }
                self.once.tell();
            }
            tokio::select! {
                instruction = instructions.recv(), if renewal.is_none() => match instruction {
                    Some(instruction) => {
                        if let Some(end) = self.follow(instruction) {
                            return self.leave(end).await;
                        }
                    }
                    None => match self.session_ended() {
                        Ok(refused) => renewal = Some(Box::pin(enrolled_again(self.session, renew, refused))),
                        Err(problem) => return self.stop_and_leave(problem).await,
                    },
                },
                // This may take long: a workflow that ends meanwhile must not wait for it.
                again = renewed(&mut renewal) => {
                    renewal = None;
                    match again {
                        Ok(again) => instructions = again,
                        Err(problem) => return self.stop_and_leave(problem).await,
                    }
                }
                outcome = finished(&mut self.running) => {
                    if let Some(ended) = self.running.take() {
                        self.session.is_over(ended.uid);
                        self.once.ended(ended.uid, &outcome);
                    }
                    if let Some(end) = self.run_ended(outcome) {
                        return self.leave(end).await;
                    }
                }
            }
        }
    }

    /// The runner has waited for the acks of its reports; but a machine that boots its own disk may have sent reports
    /// before.
    async fn leave(&self, end: End) -> Ending {
        if end == End::BootDisk
            && let Err(e) = self.session.flush(FLUSH_LIMIT).await
        {
            tracing::warn!("{e}; the machine boots its own disk anyway");
        }
        Ending::Restart(end)
    }

    fn follow(&mut self, instruction: Instruction) -> Option<End> {
        match instruction {
            Instruction::Assign { assignment, lease } => match &self.running {
                // A repetition after a reconnect: the library has taken its lease, and the action continues. A workflow
                // that is stopping does not continue: the steps after a failure follow.
                Some(running) if running.goes_on(assignment.workflow_uid) => {}
                Some(_) => self.next = Some((assignment, lease, Control::default())),
                None => self.start(*assignment, lease, Control::default()),
            },
            Instruction::Check(list) if self.running.is_none() => {
                self.dry_runs.begin(*list, &self.machine, self.session);
            }
            Instruction::Check(list) => self.session.checked(list.workflow_uid, Some(dry_run::busy())),
            Instruction::Control { workflow_uid, control } => {
                if let Some((_, _, next)) = self.next.as_mut().filter(|(next, ..)| next.workflow_uid == workflow_uid) {
                    *next = control;
                } else if let Some(running) = self.running.as_ref().filter(|r| r.uid == workflow_uid) {
                    running.control.send_replace(control);
                }
            }
            Instruction::Cancel { workflow_uid, reason } => {
                tracing::warn!("the workflow is cancelled: {reason}");
                self.next.take_if(|(assignment, ..)| assignment.workflow_uid == workflow_uid);
                if let Some(running) = self.running.as_ref().filter(|r| r.uid == workflow_uid) {
                    running.stop.send_replace(Some(Stop::Cancelled(reason)));
                }
            }
            Instruction::Fenced { reason } => {
                tracing::error!("a newer session of this machine exists: {reason}; this agent stops");
                self.next = None;
                if let Some(running) = &self.running {
                    running.stop.send_replace(Some(Stop::Fenced(reason.clone())));
                }
                let hint = "if another computer claims this identity, power it off";
                self.refused = Some(Problem::new(ErrorCode::Fenced, reason).hint(hint));
            }
            Instruction::Idle { ended: Some(ended), .. } if self.once.hears(&ended, self.running.is_none()) => {}
            Instruction::Idle { boot_disk: true, .. } if self.running.is_none() && !self.once.waits() => {
                tracing::info!("no workflow: the machine boots its own disk");
                return Some(End::BootDisk);
            }
            Instruction::Idle { .. } if self.running.is_some() => {}
            Instruction::Idle { ended, .. } => {
                let says = match ended {
                    None => "no workflow; waiting for one".to_owned(),
                    Some(Ended { problem: None, .. }) => "the workflow has succeeded; waiting for another".to_owned(),
                    Some(Ended { problem: Some(why), .. }) => format!("the workflow ended: {why}; waiting for another"),
                };
                tracing::info!("{says}");
                self.board.say(&says);
            }
            Instruction::Refused { problem, retry_after } => {
                let again = retry_after.map_or_else(String::new, |t| format!("; next attempt in {} s", t.as_secs()));
                tracing::error!("the coordinator refuses this session: {problem}{again}");
                self.refused = retry_after.is_none().then_some(problem);
            }
        }
        None
    }

    fn start(&mut self, assignment: Assignment, lease: LeaseWatch, wanted: Control) {
        if !self.once.takes(assignment.workflow_uid) {
            return;
        }
        self.dry_runs.stop();
        let (stop, stopped) = watch::channel(None);
        let (control, controlled) = watch::channel(wanted);
        let (uid, run) = (assignment.workflow_uid, Arc::new(assignment));
        let report = Arc::new(self.board.of_run(&run, self.session.clone()));
        let runner = Runner {
            run,
            lease: Arc::new(lease.clone()),
            stop: stopped,
            control: controlled,
            report,
            tail: self.tail.clone(),
            perform: Arc::new(self.machine.clone()),
        };
        self.session.holds(Some(uid));
        self.running = Some(Running { uid, lease, stop, control, task: tokio::spawn(runner.run()) });
    }

    fn run_ended(&mut self, outcome: Outcome) -> Option<End> {
        self.session.holds(None);
        let (now, error) = match outcome {
            Outcome::Reboot => return Some(End::Reboot),
            Outcome::PowerOff => return Some(End::PowerOff),
            Outcome::Kexec => return Some(End::Kexec),
            Outcome::Done => {
                tracing::info!("the workflow is done; waiting for the coordinator");
                ("the workflow is done; waiting for the coordinator", None)
            }
            Outcome::Failed(problem) => {
                tracing::error!("the workflow failed: {problem}");
                ("the workflow failed", Some(problem))
            }
            Outcome::Stopped(problem) => {
                tracing::warn!("the workflow stopped: {problem}");
                ("the workflow stopped", Some(problem))
            }
            Outcome::Untold => {
                let what = "the workflow stopped: its session ended, so its reports could not be sent";
                tracing::error!("{what}");
                (what, None)
            }
        };
        self.board.change(|status| {
            status.now = now.to_owned();
            status.actions.clear();
            // An action's own error says more: it names the action.
            status.error = status.error.take().or(error.map(|problem| problem.to_string()));
        });
        if let Some((assignment, lease, control)) = self.next.take() {
            self.start(*assignment, lease, control);
        }
        self.once.rests(self.running.is_none());
        None
    }

    /// The session ended without a request. A new certificate cures a refused one; every other cause needs a person.
    fn session_ended(&mut self) -> Result<Problem, Problem> {
        let ended = || Problem::new(ErrorCode::Internal, "the session ended");
        let problem = self.refused.take().unwrap_or_else(ended);
        if problem.code == ErrorCode::Unauthenticated { Ok(problem) } else { Err(problem) }
    }

    /// Waits until the workflow has stopped (bounded by the runner), then gives up.
    async fn stop_and_leave(mut self, problem: Problem) -> Ending {
        if let Some(running) = &self.running {
            running.stop.send_if_modified(|stop| {
                let unset = stop.is_none();
                if unset {
                    *stop = Some(Stop::Fenced(problem.message.clone()));
                }
                unset
            });
            let uid = running.uid;
            let outcome = finished(&mut self.running).await;
            self.once.ended(uid, &outcome);
            match outcome {
                Outcome::Reboot => return Ending::Restart(End::Reboot),
                Outcome::PowerOff => return Ending::Restart(End::PowerOff),
                Outcome::Kexec => return Ending::Restart(End::Kexec),
                _ => {}
            }
        }
        Ending::Over(problem)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::message::{ActionRef, EventBody};
    use landfall_session::testing;
    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    /// Generous, because a loaded machine must not fail the test.
    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_workflow_may_end_during_a_new_enrolment() {
        let (session, _instructions) = testing::session(0);
        let (board, tail, once) = (Board::default(), Tail::default(), Once::default());
        let mut server = Server::new(&session, &Disks::watch(None), (&board, &tail), &once);
        let (ends, ended) = oneshot::channel();
        let task = tokio::spawn(async move { ended.await.unwrap() });
        let (stop, control) = (watch::Sender::new(None), watch::Sender::new(Control::default()));
        server.running = Some(Running { uid: Uuid::from_u128(1), lease: session.lease(), stop, control, task });
        server.refused = Some(Problem::new(ErrorCode::Unauthenticated, "it ran out"));
        let (gone, instructions) = mpsc::channel(1);
        drop(gone);
        let (asks, mut asked) = mpsc::unbounded_channel();
        let renew = || {
            asks.send(()).unwrap();
            std::future::pending::<Result<Enrolled, EnrollError>>()
        };
        let outcome = async {
            asked.recv().await.unwrap();
            ends.send(Outcome::Reboot).unwrap();
            std::future::pending::<()>().await;
        };
        let ending = async {
            tokio::select! {
                ending = server.serve(instructions, &renew) => ending,
                () = outcome => unreachable!(),
            }
        };
        assert!(matches!(timeout(LIMIT, ending).await.unwrap(), Ending::Restart(End::Reboot)));
    }

    #[tokio::test]
    async fn one_workflow_is_over_with_its_runner_and_its_word() {
        let uid = Uuid::from_u128(1);
        let (session, _instructions) = testing::session(0);
        let (board, tail, once) = (Board::default(), Tail::default(), Once::watched());
        assert!(once.waits() && once.takes(uid));
        let mut server = Server::new(&session, &Disks::watch(None), (&board, &tail), &once);
        let (ends, ended) = oneshot::channel();
        let task = tokio::spawn(async move { ended.await.unwrap() });
        let (stop, control) = (watch::Sender::new(None), watch::Sender::new(Control::default()));
        server.running = Some(Running { uid, lease: session.lease(), stop, control, task });
        let (out, instructions) = mpsc::channel(1);
        let word = Some(Ended { workflow_uid: uid, problem: None });
        out.send(Instruction::Idle { boot_disk: true, ended: word }).await.unwrap();
        let never = std::future::pending::<Result<Enrolled, EnrollError>>;
        let story = async {
            // Taken in: the room for one instruction is free again.
            out.reserve().await.unwrap();
            assert!(!once.is_over(), "its runner is at work");
            ends.send(Outcome::Done).unwrap();
            timeout(LIMIT, once.over()).await.unwrap();
        };
        tokio::select! {
            _ = server.serve(instructions, &never) => panic!("it boots its disk"),
            () = story => {}
        }
        assert_eq!(once.verdict(), Some(crate::life::Verdict::Succeeded));
    }

    #[tokio::test]
    async fn the_own_disk_boots_only_after_all_acks() {
        for informed in [true, false] {
            let (session, _instructions) = testing::session(0);
            let (board, tail, once) = (Board::default(), Tail::default(), Once::default());
            if informed {
                let action = ActionRef { workflow_uid: Uuid::from_u128(1), action_index: 0, attempt: 1 };
                session.report(action, EventBody::Started).await.unwrap();
            }
            let (out, instructions) = mpsc::channel(1);
            out.send(Instruction::Idle { boot_disk: true, ended: None }).await.unwrap();
            let never = std::future::pending::<Result<Enrolled, EnrollError>>;
            let disks = Disks::watch(None);
            let serving = serve(&session, instructions, &disks, (&board, &tail), &once, &never);
            if informed {
                assert!(timeout(Duration::from_secs(2), serving).await.is_err(), "it did not wait");
            } else {
                assert!(matches!(timeout(LIMIT, serving).await.unwrap(), Ending::Restart(End::BootDisk)));
            }
        }
    }
}
