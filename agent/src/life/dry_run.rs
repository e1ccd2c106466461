//! A coordinator's question whether a list would begin to write on this machine. Answered while no workflow is under way.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use landfall_api::message::{ActionRef, Assignment};
use landfall_api::{ErrorCode, Problem};
use landfall_disk::CancelFlag;
use landfall_session::SessionHandle;
use tokio::time::timeout;

use crate::actions::Machine;
use crate::runner::{Doing, Job, Term};

/// The person who asks waits; the coordinator itself waits for 45 s.
const LIMIT: Duration = Duration::from_secs(40);

/// The checks of lists, one at a time: the newest counts.
#[derive(Default)]
pub(super) struct DryRuns {
    newest: Option<CancelFlag>,
}

/// A check writes nothing, so it needs no lease.
struct NoLease;

impl Term for NoLease {
    fn is_valid(&self) -> bool {
        true
    }
    fn expired(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

impl DryRuns {
    /// Ends the check that is under way, so that its disks are free soon.
    pub(super) fn stop(&mut self) {
        if let Some(newest) = self.newest.take() {
            newest.cancel();
        }
    }

    /// Begins a check; the answer goes to the session.
    pub(super) fn begin(&mut self, list: Assignment, machine: &Machine, session: &SessionHandle) {
        self.stop();
        let cancel = CancelFlag::new();
        self.newest = Some(cancel.clone());
        let uid = list.workflow_uid;
        let Some(kind) = list.actions.get(list.start_index as usize).map(|first| first.kind.clone()) else {
            return session.checked(uid, None);
        };
        let job = Job {
            action: ActionRef { workflow_uid: uid, action_index: list.start_index, attempt: 1 },
            kind,
            run: Arc::new(list),
            lease: Arc::new(NoLease),
            cancel: cancel.clone(),
            report: Arc::new(session.clone()),
            doing: Doing::default(),
        };
        // A task of its own: it keeps actions away from the disks until its thread has let go of them.
        let mut work = tokio::spawn(machine.clone().check_all(job));
        let session = session.clone();
        tokio::spawn(async move {
            let problem = match timeout(LIMIT, &mut work).await {
                Ok(Ok(checked)) => checked.err().map(|failure| failure.problem),
                Ok(Err(panic)) => Some(
                    Problem::new(ErrorCode::Internal, format!("the check's code panicked: {panic}"))
                        .hint("report this with the machine's console log"),
                ),
                Err(_) => {
                    cancel.cancel();
                    let message = format!("the check took longer than {} s", LIMIT.as_secs());
                    Some(
                        Problem::new(ErrorCode::Timeout, message)
                            .hint("a server or a disk does not answer; the agent's console shows which"),
                    )
                }
            };
            session.checked(uid, problem);
        });
    }
}

/// The answer of an agent that has no time for a check.
pub(super) fn busy() -> Problem {
    Problem::new(ErrorCode::MachineBusy, "the agent works on a workflow").hint("ask again when it has ended")
}
