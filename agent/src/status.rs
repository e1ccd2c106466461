//! What the agent does right now, for a person who stands at the machine. The rest of the agent says it here; `pid1::screen` shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::Progress;
use landfall_api::message::{ActionRef, Assignment, EventBody, LogLevel};
use landfall_session::{Connection, Report, Reporting, SessionEnded, Unflushed};
use tokio::sync::watch;

/// What is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Status {
    /// The machine's name, once the agent is enrolled.
    pub(crate) machine: Option<String>,
    /// The coordinator's address.
    pub(crate) coordinator: String,
    /// The port to it, with its addresses.
    pub(crate) port: String,
    /// How the session stands.
    pub(crate) connection: String,
    /// What the agent does, or waits for.
    pub(crate) now: String,
    /// The fingerprint of a key that waits for its approval.
    pub(crate) fingerprint: Option<String>,
    /// Actions under way, by their index in the list.
    pub(crate) actions: BTreeMap<u32, Action>,
    /// What failed last.
    pub(crate) error: Option<String>,
}

/// One action under way.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Action {
    /// Its number in the list, from 1, and how many there are.
    pub(crate) number: (u32, usize),
    /// Its name.
    pub(crate) name: String,
    /// Which attempt, from 1.
    pub(crate) attempt: u32,
    /// How far it is, where it says so.
    pub(crate) progress: Option<Progress>,
}

/// Where each part of the agent says what it does. Cloning it shares it.
#[derive(Clone, Default)]
pub(crate) struct Board(Arc<watch::Sender<Status>>);

impl Board {
    /// Says anything.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Status)) {
        self.0.send_modify(change);
    }

    /// Says what the agent does, or waits for.
    pub(crate) fn say(&self, now: impl Into<String>) {
        self.change(|status| status.now = now.into());
    }

    /// Says what failed.
    pub(crate) fn failed(&self, error: impl Into<String>) {
        self.change(|status| status.error = Some(error.into()));
    }

    /// Follows it.
    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.0.subscribe()
    }

    /// Says how a session stands, until it ends.
    pub(crate) async fn follow(&self, mut connection: watch::Receiver<Connection>) {
        loop {
            let stands = match &*connection.borrow_and_update() {
                Connection::Connecting => "connecting".to_owned(),
                Connection::Connected { .. } => "connected".to_owned(),
                Connection::Disconnected { problem, .. } => format!("not connected: {}", problem.message),
                Connection::Ended => "the session has ended".to_owned(),
            };
            self.change(|status| status.connection = stands);
            if connection.changed().await.is_err() {
                return;
            }
        }
    }

    /// A workflow begins: what it reports is shown on its way to `inner`.
    pub(crate) fn of_run<R: Report>(&self, run: &Arc<Assignment>, inner: R) -> Watched<R> {
        self.change(|status| {
            status.now = format!("workflow {}, {} actions", run.workflow_name, run.actions.len());
            status.actions.clear();
            status.error = None;
        });
        Watched { inner, board: self.clone(), run: run.clone() }
    }
}

/// Reports that are shown on their way.
pub(crate) struct Watched<R> {
    inner: R,
    board: Board,
    run: Arc<Assignment>,
}

impl<R> Watched<R> {
    fn show(&self, of: ActionRef, body: &EventBody) {
        let (index, run) = (of.action_index, &self.run);
        let name = || run.actions.get(index as usize).map(|action| action.name.clone()).unwrap_or_default();
        self.board.change(|status| match body {
            EventBody::Started => {
                let number = (index.saturating_add(1), run.actions.len());
                let action = Action { number, name: name(), attempt: of.attempt, progress: None };
                status.actions.insert(index, action);
            }
            EventBody::Finished { .. } | EventBody::Skipped => {
                status.actions.remove(&index);
            }
            EventBody::Failed { problem, .. } => {
                status.actions.remove(&index);
                status.error = Some(format!("action {} ({}): {problem}", index.saturating_add(1), name()));
            }
            EventBody::ReceiptWritten { .. } | EventBody::DiskWiped { .. } | EventBody::HealthTested { .. } => {}
        });
    }
}

impl<R: Report> Report for Watched<R> {
    fn report(&self, action: ActionRef, body: EventBody) -> Reporting<'_, SessionEnded> {
        self.show(action, &body);
        self.inner.report(action, body)
    }
    fn report_blocking(&self, action: ActionRef, body: EventBody) -> Result<(), SessionEnded> {
        self.show(action, &body);
        self.inner.report_blocking(action, body)
    }
    fn still_runs(&self) -> Box<dyn Send> {
        self.inner.still_runs()
    }
    fn progress(&self, action: ActionRef, progress: Progress) {
        self.board.change(|status| {
            if let Some(shown) = status.actions.get_mut(&action.action_index) {
                shown.progress = Some(progress.clone());
            }
        });
        self.inner.progress(action, progress);
    }
    fn log(&self, action: ActionRef, level: LogLevel, line: String) {
        self.inner.log(action, level, line);
    }
    fn flush(&self, limit: Duration) -> Reporting<'_, Unflushed> {
        self.inner.flush(limit)
    }
}
