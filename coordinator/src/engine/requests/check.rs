//! Whether a list would begin on a machine: its agent looks, and writes nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use landfall_api::{Machine, MachineCheck, Problem, message::ToAgent};
use landfall_proto::revision::CHECKS;
use tokio::{sync::oneshot, time::timeout};
use uuid::Uuid;

use super::{super::telemetry::without_secrets, Requests, believed};
use crate::workflow::Plan;

/// How long a person waits for the agent; the operator's command waits for 60 s.
const LIMIT: Duration = Duration::from_secs(45);

type Answer = Option<Problem>;

/// Who waits for an agent's answer, by the uid of the list. As many as dry runs are under way.
#[derive(Default)]
pub(super) struct Checks(Mutex<HashMap<Uuid, (Uuid, oneshot::Sender<Answer>)>>);

/// One who waits; forgotten when dropped.
struct Waiting<'a> {
    checks: &'a Checks,
    list_uid: Uuid,
}

impl Checks {
    fn wait(&self, machine_uid: Uuid, list_uid: Uuid) -> (Waiting<'_>, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(list_uid, (machine_uid, answer));
        (Waiting { checks: self, list_uid }, answered)
    }

    fn forget(&self, list_uid: Uuid) -> Option<(Uuid, oneshot::Sender<Answer>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&list_uid)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.checks.forget(self.list_uid);
    }
}

impl Requests {
    /// An agent answered a check. An answer that no person waits for any more, or of another machine, is dropped.
    pub fn checked(&self, machine_uid: Uuid, list_uid: Uuid, problem: Option<Problem>) {
        if let Some((asked, answer)) = self.checks.forget(list_uid)
            && asked == machine_uid
        {
            // The person has gone.
            let _ = answer.send(problem);
        }
    }

    /// What the machine's agent says of the list, if one is there.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` for a secret that is gone, or the store's.
    pub(super) async fn check_on_machine(
        &self, machine: &Machine, plan: &Plan, force: bool,
    ) -> Result<MachineCheck, Problem> {
        let not_made = |why: &str| Ok(MachineCheck::NotMade(why.to_owned()));
        let Some(machine_uid) = machine.metadata.uid else { return not_made("the machine has no uid yet") };
        let list_uid = Uuid::new_v4();
        let (_waiting, answered) = {
            let mut live = self.fleet.machines().lock(machine_uid).await;
            let protocol = live.session.as_ref().map_or(0, landfall_machine::Session::protocol);
            if !live.is_connected() {
                return not_made("no agent of the machine is connected");
            }
            let needed = plan.actions.iter().map(|action| action.protocol()).fold(CHECKS, u32::max);
            if protocol < needed {
                return not_made("the machine's agent is of an older release; netboot it again");
            }
            let receipts = believed(&live, machine, force);
            let assigned = self.assignments.to_check(machine, machine_uid, plan, list_uid, receipts, force).await?;
            let waiting = self.checks.wait(machine_uid, list_uid);
            live.send(ToAgent::Check(Box::new(assigned)));
            waiting
        };
        match timeout(LIMIT, answered).await {
            Ok(Ok(None)) => Ok(MachineCheck::Passed),
            // It may repeat what it was given: a header, or a URL.
            Ok(Ok(Some(problem))) => {
                let secrets = self.vault.of_actions(plan.actions.iter()).await?;
                Ok(MachineCheck::Failed(without_secrets(problem, secrets)))
            }
            _ => not_made("the machine's agent did not answer within 45 s"),
        }
    }
}
