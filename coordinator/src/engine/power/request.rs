//! What a person asks of a machine's power.

use std::time::Duration;

use landfall_api::{ErrorCode, PowerAction, PowerReport, PowerRequest, PowerState, Problem};
use landfall_bmc::PowerChange;
use landfall_machine::is_open;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Power;
use super::control::Control;
use super::documents::Documents;

/// How long a person waits; the operator's command waits for 60 s.
const LIMIT: Duration = Duration::from_secs(58);

/// A request, on its way to the machine's task.
pub(super) struct Asked {
    pub(super) request: PowerRequest,
    answer: oneshot::Sender<Result<Option<PowerState>, Problem>>,
}

impl Asked {
    /// Whether the person does not wait any more. What was asked for long ago is not done now.
    pub(super) fn is_stale(&self) -> bool {
        self.answer.is_closed()
    }

    /// Answers it; the person may have gone.
    pub(super) fn answer(self, answer: Result<Option<PowerState>, Problem>) {
        drop(self.answer.send(answer));
    }
}

/// Whether the power reads what a change leads to.
pub(super) const fn is_as_asked(power: Option<PowerState>, change: PowerChange) -> bool {
    match change {
        PowerChange::On => matches!(power, Some(PowerState::On)),
        PowerChange::Off | PowerChange::Shutdown => matches!(power, Some(PowerState::Off)),
    }
}

/// Whether a person may change the power now.
///
/// # Errors
/// [`Problem`] with code `MachineBusy`: a workflow is under way, or an agent may still act; and the request does not say `force`.
pub(super) fn may_change(found: &Documents, request: PowerRequest) -> Result<(), Problem> {
    let name = &found.machine.metadata.name;
    let refused = |what: String, hint: String| {
        Err(Problem::new(ErrorCode::MachineBusy, what).at(format!("Machine/{name}")).hint(hint))
    };
    if request.action == PowerAction::Status || request.force {
        return Ok(());
    }
    if let Some(workflow) = found.workflow.as_ref().filter(|workflow| is_open(workflow)) {
        let run = &workflow.metadata.name;
        let hint = format!("cancel it first (landfall cancel {run}), or say --force");
        return refused(format!("machine \"{name}\" is busy with workflow \"{run}\""), hint);
    }
    if found.may_act {
        let hint = "ask again in a minute, or say --force".to_owned();
        return refused(format!("the agent of machine \"{name}\" has not said that it stopped"), hint);
    }
    Ok(())
}

/// The machine cannot be switched on now.
pub(super) fn busy(machine: &str) -> Problem {
    let why = "others are switched on before it";
    Problem::new(ErrorCode::MachineBusy, format!("machine \"{machine}\" cannot be switched on yet: {why}"))
        .at(format!("Machine/{machine}"))
        .hint("ask again, for fewer at a time (--max-parallel); limits.power_on_interval is the time between two machines")
}

/// The machine's BMC did not do it.
pub(super) fn failed(machine: &str, why: &str) -> Problem {
    Problem::new(
        ErrorCode::SourceUnreachable,
        format!("the power of machine \"{machine}\" cannot be controlled: {why}"),
    )
    .at(format!("Machine/{machine}"))
    .hint(format!("landfall describe machine {machine} shows its conditions"))
}

impl Power {
    /// Reads or changes a machine's power for a person.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` (no such machine, or no BMC), `MachineBusy` (a workflow is under way, and the request does not say
    /// `force`), `SourceUnreachable` (the BMC), `Timeout`; or the store's.
    pub async fn request(&self, name: &str, request: PowerRequest) -> Result<PowerReport, Problem> {
        let machine = self.shared.fleet.described(name).await?;
        let refused = |code, what: String| Problem::new(code, what).at(format!("Machine/{name}"));
        if Control::of(&machine.spec).is_none() {
            let by_hand = machine.prompt().unwrap_or_default();
            let what = format!("machine \"{name}\" has neither a BMC nor Wake-on-LAN: {by_hand}");
            let hint = "do that by hand, or state spec.bmc or spec.power in its document";
            return Err(refused(ErrorCode::NotFound, what).hint(hint));
        }
        let line = self.lines().get(name).map(|line| line.asked.clone());
        let line = line.ok_or_else(|| failed(name, "its document was applied just now; ask again in a moment"))?;
        let (answer, answered) = oneshot::channel();
        line.try_send(Asked { request, answer }).map_err(|_| {
            refused(ErrorCode::MachineBusy, format!("too many requests wait for the BMC of machine \"{name}\""))
                .hint("ask again when they are done")
        })?;
        match timeout(LIMIT, answered).await {
            Ok(Ok(power)) => Ok(PowerReport { power: power?, at: self.shared.fleet.now() }),
            Ok(Err(_)) => Err(failed(name, "its document has changed meanwhile; ask again")),
            Err(_) => {
                let what = format!("the BMC of machine \"{name}\" did not answer within {} s", LIMIT.as_secs());
                Err(refused(ErrorCode::Timeout, what).hint("what was asked for may still happen"))
            }
        }
    }
}
