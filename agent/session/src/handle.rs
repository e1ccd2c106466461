//! The agent's handle of its session: start, report, check the lease, flush.

use std::{pin::Pin, sync::Arc, time::Duration};

use landfall_api::message::{ActionRef, EventBody, LogLevel};
use landfall_api::{Problem, Progress};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::clock::wall_time;
use crate::session::{Host, Runner, SessionConfig};
use crate::shared::Shared;
use crate::{Connection, Credentials, Instruction, LeaseWatch, StillRuns, Surroundings};

/// How long an ended session (for example with an expired certificate) may take to be restarted. Enrolling again takes
/// seconds, or as long as the coordinator is away.
const RETURN_LIMIT: Duration = Duration::from_secs(600);
/// How long a closing session may take to end.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The session is over, and nothing can be reported over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session with the coordinator has ended")]
pub struct SessionEnded;

/// The coordinator did not acknowledge everything in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} events are not yet acknowledged by the coordinator")]
pub struct Unflushed(pub usize);

/// Starts sessions.
#[derive(Debug)]
pub struct Session;

impl Session {
    /// Starts the session's task on the present tokio runtime. It ends when the last handle or the receiver is
    /// dropped, or after [`Instruction::Fenced`] or an [`Instruction::Refused`] that names no time.
    pub fn start(config: SessionConfig, host: Arc<dyn Host>) -> (SessionHandle, mpsc::Receiver<Instruction>) {
        Self::start_in(Surroundings::default(), config, host)
    }

    /// [`Self::start`] in a world of one's own.
    pub fn start_in(
        world: Surroundings, config: SessionConfig, host: Arc<dyn Host>,
    ) -> (SessionHandle, mpsc::Receiver<Instruction>) {
        let closing = CancellationToken::new();
        let credentials = config.credentials.clone();
        let runner = Arc::new(Runner::new(config, host, world));
        let handle = SessionHandle::new(runner.clone(), closing.clone());
        let instructions = runner.spawn(credentials, closing, &Handle::current());
        (handle, instructions)
    }
}

/// What the work on an assignment needs of its session: [`SessionHandle`], or a test's own.
pub trait Report: Send + Sync + 'static {
    /// [`SessionHandle::report`]
    fn report(&self, action: ActionRef, body: EventBody) -> Reporting<'_, SessionEnded>;
    /// The same from a thread that may block (the write pipeline's). Panics in an asynchronous one.
    ///
    /// # Errors
    /// [`SessionEnded`], as [`SessionHandle::report`].
    fn report_blocking(&self, action: ActionRef, body: EventBody) -> Result<(), SessionEnded>;
    /// [`SessionHandle::still_runs`]
    fn still_runs(&self) -> Box<dyn Send>;
    /// [`SessionHandle::progress`]
    fn progress(&self, action: ActionRef, progress: Progress);
    /// [`SessionHandle::log`]
    fn log(&self, action: ActionRef, level: LogLevel, line: String);
    /// [`SessionHandle::flush`]
    fn flush(&self, limit: Duration) -> Reporting<'_, Unflushed>;
}

/// A report that waits for its place, or for its ack.
pub type Reporting<'a, E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>>;

/// The agent's handle of its session. Cheap to clone; the session ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    shared: Arc<Shared>,
    runner: Arc<Runner>,
    runtime: Handle,
    closing: CancellationToken,
    _close_on_drop: Arc<DropGuard>,
}

impl SessionHandle {
    pub(crate) fn new(runner: Arc<Runner>, closing: CancellationToken) -> Self {
        Self {
            shared: runner.shared.clone(),
            runner,
            runtime: Handle::current(),
            _close_on_drop: Arc::new(closing.clone().drop_guard()),
            closing,
        }
    }

    /// Reports an event: it is numbered, kept until the coordinator acknowledges it, and sent again after every
    /// reconnect. Waits only while very many events are unacknowledged, and for at most 10 minutes where the session has
    /// ended and [`Self::restart`] may let it go on, which it may not after a fence. Returns its number.
    ///
    /// The library takes `Started`, `Finished` and `Failed` as the word on whether something runs: it answers a fence
    /// only once nothing does, see also [`Self::still_runs`]. So report `Started` before an action's first step, and its end after its last.
    ///
    /// # Errors
    /// [`SessionEnded`] if it was closed or did not go on in time; the event is not kept.
    pub async fn report(&self, action: ActionRef, body: EventBody) -> Result<u64, SessionEnded> {
        let mut unacked = self.shared.unacked.subscribe();
        let mut connection = self.shared.connection.subscribe();
        loop {
            if *connection.borrow_and_update() == Connection::Ended {
                self.restarted(&mut connection).await?;
            }
            unacked.mark_unchanged();
            if let Some(seq) = self.try_report(action, &body) {
                return Ok(seq);
            }
            // Both senders live as long as `self`, so neither wait can fail; either way the loop looks again.
            tokio::select! { biased; _ = unacked.changed() => {}, _ = connection.changed() => {} }
        }
    }

    /// Waits until an ended session goes on. One that was fenced never does.
    async fn restarted(&self, connection: &mut watch::Receiver<Connection>) -> Result<(), SessionEnded> {
        if self.shared.lock().fenced {
            return Err(SessionEnded);
        }
        let back = timeout(RETURN_LIMIT, connection.wait_for(|c| *c != Connection::Ended));
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(SessionEnded),
            back = back => if matches!(back, Ok(Ok(_))) { Ok(()) } else { Err(SessionEnded) },
        }
    }

    /// Numbers an event, keeps it and wakes the session's task; nothing where no more events fit.
    fn try_report(&self, action: ActionRef, body: &EventBody) -> Option<u64> {
        let mut state = self.shared.lock();
        let seq = state.outbox.report(action, wall_time(), body.clone()).ok()?;
        if matches!(body, EventBody::Started) {
            state.running.retain(|known| known.action_index != action.action_index);
            state.running.push(action);
        } else if body.ends_attempt() {
            state.running.retain(|known| *known != action);
        }
        drop(state);
        self.shared.publish_unacked();
        self.shared.wake.notify_one();
        Some(seq)
    }

    /// Says which run's list the agent works on from now on, until it says another or none. The coordinator hears of it in
    /// the next hello: an agent that holds a list is not handed it again, also where nothing of it runs just then.
    pub fn holds(&self, workflow_uid: Option<Uuid>) {
        self.shared.lock().holds = workflow_uid;
    }

    /// Answers [`Instruction::Check`]: `problem` is why an action of the list would not begin.
    pub fn checked(&self, list_uid: Uuid, problem: Option<Problem>) {
        self.shared.lock().checked.push_back((list_uid, problem.map(Box::new)));
        self.shared.wake.notify_one();
    }

    /// Says that an attempt does not stop, to be called before its end is reported. Its code may write at any moment until
    /// what is answered here is dropped.
    pub fn still_runs(&self) -> StillRuns {
        StillRuns::begin(self.shared.clone())
    }

    /// Says that nothing of a run goes on, where that could not be reported because the session had ended: neither the next
    /// hello nor a fence is to wait for it.
    pub fn is_over(&self, workflow_uid: Uuid) {
        self.shared.lock().running.retain(|known| known.workflow_uid != workflow_uid);
        self.shared.wake.notify_one();
    }

    /// Says how far an action is. Never waits; only the newest counts.
    pub fn progress(&self, action: ActionRef, progress: Progress) {
        self.shared.telemetry.progress(action, progress);
    }

    /// Sends a log line. Never waits; the oldest lines are dropped when too many wait.
    pub fn log(&self, action: ActionRef, level: LogLevel, line: impl Into<String>) {
        self.shared.telemetry.log(action, level, line.into());
    }

    /// The newest lease. Prefer the one that came with the assignment: it stays that term's.
    pub fn lease(&self) -> LeaseWatch {
        self.shared.lock().lease.watch()
    }

    /// How the connection stands, and why not.
    pub fn connection(&self) -> watch::Receiver<Connection> {
        self.shared.connection.subscribe()
    }

    /// Waits until every reported event is acknowledged, for at most `limit`.
    ///
    /// # Errors
    /// [`Unflushed`] with how many are not.
    pub async fn flush(&self, limit: Duration) -> Result<(), Unflushed> {
        let mut unacked = self.shared.unacked.subscribe();
        // A full minute's outage or a closed sender end alike: what counts is the number afterwards.
        drop(timeout(limit, unacked.wait_for(|n| *n == 0)).await);
        match self.shared.lock().outbox.unacked() {
            0 => Ok(()),
            n => Err(Unflushed(n)),
        }
    }

    /// Ends the session, saying goodbye within a bounded time. What is unacknowledged stays so; flush first.
    pub async fn close(&self) {
        self.closing.cancel();
        let mut connection = self.shared.connection.subscribe();
        // Whether it ended in time changes nothing for the caller: the task is bounded by itself.
        drop(timeout(CLOSE_LIMIT, connection.wait_for(|c| *c == Connection::Ended)).await);
    }

    /// Goes on with new credentials after the session ended because the old ones were refused: unacknowledged events,
    /// running action, lease and clones of this handle stay good.
    ///
    /// # Errors
    /// [`SessionEnded`] if it was fenced or closed (a newer session owns the machine), or has not ended at all.
    pub fn restart(&self, credentials: Credentials) -> Result<mpsc::Receiver<Instruction>, SessionEnded> {
        let fenced = self.shared.lock().fenced;
        let mut was_ended = false;
        self.shared.connection.send_if_modified(|connection| {
            was_ended = *connection == Connection::Ended;
            let again = was_ended && !fenced && !self.closing.is_cancelled();
            if again {
                *connection = Connection::Connecting;
            }
            again
        });
        if !was_ended || fenced || self.closing.is_cancelled() {
            return Err(SessionEnded);
        }
        Ok(self.runner.clone().spawn(credentials, self.closing.clone(), &self.runtime))
    }
}

impl Report for SessionHandle {
    fn report(&self, action: ActionRef, body: EventBody) -> Reporting<'_, SessionEnded> {
        Box::pin(async move { self.report(action, body).await.map(drop) })
    }
    fn report_blocking(&self, action: ActionRef, body: EventBody) -> Result<(), SessionEnded> {
        self.runtime.block_on(self.report(action, body)).map(drop)
    }
    fn still_runs(&self) -> Box<dyn Send> {
        Box::new(self.still_runs())
    }
    fn progress(&self, action: ActionRef, progress: Progress) {
        self.progress(action, progress);
    }
    fn log(&self, action: ActionRef, level: LogLevel, line: String) {
        self.log(action, level, line);
    }
    fn flush(&self, limit: Duration) -> Reporting<'_, Unflushed> {
        Box::pin(self.flush(limit))
    }
}

#[cfg(test)]
mod tests;
