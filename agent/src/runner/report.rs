//! Where reports of a workflow go: to the session, or to a test.

use std::time::Duration;

use futures::future::BoxFuture;
use landfall_api::{
    Progress,
    message::{ActionRef, EventBody},
};
use landfall_session::{Connection, SessionHandle, Unflushed};

use crate::logging::Tail;

/// How long an ended session (for example with an expired certificate) may take to return.
const RETURN_LIMIT: Duration = Duration::from_secs(600);

/// The session ended and did not return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Untold;

/// Receives reports.
pub(crate) trait Report: Send + Sync + 'static {
    /// Reports an event that must not be lost.
    fn report(&self, action: ActionRef, kind: EventBody) -> BoxFuture<'_, Result<(), Untold>>;
    /// The same from a thread that may block.
    fn report_blocking(&self, action: ActionRef, kind: EventBody) -> Result<(), Untold>;
    /// Reports that an attempt does not stop, before its end is reported. Dropping the returned value reports that it
    /// has stopped.
    fn still_runs(&self) -> Box<dyn Send>;
    /// Reports the progress of an action; the report may be dropped.
    fn progress(&self, action: ActionRef, progress: Progress);
    /// Waits until everything reported is acknowledged.
    fn flush(&self, limit: Duration) -> BoxFuture<'_, Result<(), Unflushed>>;
    /// The newest lines of the agent's log, oldest first.
    fn last_lines(&self, count: usize) -> Vec<String>;
}

/// The session as a reporter.
pub(crate) struct ToSession {
    session: SessionHandle,
    runtime: tokio::runtime::Handle,
    tail: Tail,
}

impl ToSession {
    /// Reports over `session`; must be called inside the runtime.
    pub(crate) fn new(session: SessionHandle, tail: Tail) -> Self {
        Self { session, runtime: tokio::runtime::Handle::current(), tail }
    }

    async fn tell(&self, action: ActionRef, kind: EventBody) -> Result<(), Untold> {
        let mut connection = self.session.connection();
        while self.session.report(action, kind.clone()).await.is_err() {
            // Ended: the session's owner enrols again and restarts it; reports wait here meanwhile.
            let back = connection.wait_for(|c| *c != Connection::Ended);
            if !matches!(tokio::time::timeout(RETURN_LIMIT, back).await, Ok(Ok(_))) {
                return Err(Untold);
            }
        }
        if matches!(kind, EventBody::Started) {
            self.tail.follow(self.session.clone(), action);
        } else if kind.ends_attempt() {
            self.tail.unfollow(action);
        }
        Ok(())
    }
}

impl Report for ToSession {
    fn report(&self, action: ActionRef, kind: EventBody) -> BoxFuture<'_, Result<(), Untold>> {
        Box::pin(self.tell(action, kind))
    }
    fn report_blocking(&self, action: ActionRef, kind: EventBody) -> Result<(), Untold> {
        self.runtime.block_on(self.tell(action, kind))
    }
    fn still_runs(&self) -> Box<dyn Send> {
        Box::new(self.session.still_runs())
    }
    fn progress(&self, action: ActionRef, progress: Progress) {
        self.session.progress(action, progress);
    }
    fn flush(&self, limit: Duration) -> BoxFuture<'_, Result<(), Unflushed>> {
        Box::pin(self.session.flush(limit))
    }
    fn last_lines(&self, count: usize) -> Vec<String> {
        self.tail.last(count)
    }
}
