//! Inputs that no message brings: the end of the time to settle, and what other parts of the engine hand in.

use landfall_api::{ErrorCode, Problem};
use landfall_machine::{Epoch, Input, MachineState, Refusal, SETTLE};
use uuid::Uuid;

use super::{super::fleet::Live, Steps};

impl Steps {
    pub(super) fn settle_later(&self, state: &MachineState) {
        let (Some(uid), Some(session)) = (state.machine.metadata.uid, &state.session) else { return };
        let (engine, epoch) = (self.clone(), session.epoch().get());
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE).await;
            if let Err(problem) = engine.settle(uid, epoch).await {
                tracing::error!(%problem, "a session did not settle; it is closed, and its agent reconnects");
            }
        });
    }

    /// The time to settle is over.
    pub(in crate::engine) async fn settle(&self, machine_uid: Uuid, epoch: u64) -> Result<(), Problem> {
        let mut live = self.fleet.machines().lock(machine_uid).await;
        let name = match self.fleet.machine_name(machine_uid) {
            Ok(name) => name,
            Err(problem) => {
                live.cut();
                return Err(problem);
            }
        };
        let settled = self.drive(&mut live, &name, Input::Settled { epoch: Epoch::new(epoch) }).await;
        self.or_cut(&mut live, settled)
    }

    /// What became of a step that is to tell an agent something: an agent that could not be informed is cut off, since nothing
    /// would tell it later.
    pub(in crate::engine) fn or_cut<T>(&self, live: &mut Live, stepped: Result<T, Refusal>) -> Result<(), Problem> {
        stepped.map(drop).map_err(|refused| {
            tracing::warn!(problem = %refused.problem, "the session is closed; its agent reconnects");
            live.cut();
            refused.problem
        })
    }

    /// Hands one input to a machine that no lock is held of; one that is gone needs none.
    pub(in crate::engine) async fn hand_in(&self, machine: &str, input: Input) -> Result<(), Problem> {
        let Some(uid) = self.fleet.store().machine(machine).await?.and_then(|machine| machine.metadata.uid) else {
            return Ok(());
        };
        let mut live = self.fleet.machines().lock(uid).await;
        match self.drive(&mut live, machine, input).await {
            Err(refused) if refused.problem.code != ErrorCode::NotFound => Err(refused.problem),
            _ => Ok(()),
        }
    }
}
