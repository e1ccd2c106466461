//! A step's effects, after its documents are stored: what agents are sent, and what other parts of the engine do about it.

use futures::future::BoxFuture;
use landfall_api::message::{Assignment, Control, ToAgent};
use landfall_api::{ErrorCode, Problem};
use landfall_machine::{Effect, Input, MachineState, Refusal, Tell, Which, has_begun, run::Start};

use super::{super::fleet::Live, Driven, Steps};
use landfall_store::Alone;

impl Steps {
    /// Does what is not storing, in its order.
    pub(super) async fn carry_out(
        &self, live: &mut Live, state: MachineState, effects: Vec<Effect>,
    ) -> Result<Driven, Refusal> {
        let name = state.machine.metadata.name.clone();
        let mut driven = Driven { state, opened: None, deleted: None };
        let mut refusal = None;
        for effect in effects {
            match effect {
                Effect::StoreMachine | Effect::StoreWorkflow(_) => {}
                Effect::Refuse(refused) => refusal = Some(refused),
                Effect::Alarm { reason, message } => self.alarms.alarm(&name, reason, message).await?,
                Effect::Fence { epoch, reason } => live.send(ToAgent::Fenced { epoch: epoch.get(), reason }),
                Effect::Open(epoch) => driven.opened = Some((epoch.get(), live.open())),
                // The next heartbeat that finds it sure renews the lease.
                Effect::Send(Tell::LeaseRenewal { .. }) if !self.fleet.may_promise() => {}
                Effect::Send(tell) => live.send(message_of(tell)),
                Effect::Assign { of, starts } => {
                    if let Some(ended) = self.assign(live, &driven.state, of, starts).await? {
                        driven.state = ended;
                    }
                }
                Effect::Settle(_) => self.settle_later(&driven.state),
                Effect::AskTurn => driven.state = self.ask_turn(live, &driven.state).await?,
                Effect::LeaveQueue => {
                    self.fleet.index().admission.absent(&name);
                    self.wake_queue();
                }
                Effect::MarkDeleted => driven.deleted = Some(self.removals.mark_deleted(&driven.state.machine).await?),
                Effect::Remove => {
                    driven.deleted = Some(self.removals.remove_machine(live, &driven.state.machine).await?)
                }
            }
        }
        refusal.map_or(Ok(driven), Err)
    }

    /// Gives the agent its list. One that cannot be made, for a secret of it is gone, ends the workflow with that reason:
    /// another request would get the same answer.
    async fn assign(
        &self, live: &mut Live, state: &MachineState, of: Which, starts: Vec<Start>,
    ) -> Result<Option<MachineState>, Problem> {
        let (Some(workflow), Some(session)) = (state.workflow(of), &state.session) else { return Ok(None) };
        let epoch = session.epoch().get();
        let (name, machine) = (&workflow.metadata.name, &workflow.spec.machine);
        let made = match self.assignments.assignment(workflow, epoch, starts).await {
            // Only now is the workflow's own token there, which is one of its secrets.
            Ok(assignment) => self.telemetry.conceal_secrets_of(workflow).await.map(|()| assignment),
            Err(problem) => Err(problem),
        };
        let assignment = match made {
            Ok(assignment) => Assignment { counts_from: session.counts_from(), ..assignment },
            Err(problem) if problem.code == ErrorCode::StoreUnavailable => return Err(problem),
            Err(problem) => {
                tracing::error!(workflow = %name, %machine, %problem, "cannot build the list of actions");
                let ended = self.again(live, machine, Input::CannotAssign(of, Box::new(problem))).await;
                return ended.map(Some).map_err(|refused| refused.problem);
            }
        };
        self.fleet.is_sure()?;
        tracing::info!(
            workflow = %name, workflow_uid = %assignment.workflow_uid, %machine, epoch, starts = ?assignment.starts, "assigned"
        );
        live.send(ToAgent::Assign(Box::new(assignment)));
        Ok(None)
    }

    /// Whether the machine's workflow may begin beside all others; it is informed, and its place given back if it did not begin.
    async fn ask_turn(&self, live: &mut Live, state: &MachineState) -> Result<MachineState, Refusal> {
        let (Some(workflow), machine) = (&state.newest, &state.machine.metadata.name) else { return Ok(state.clone()) };
        let name = &workflow.metadata.name;
        let turn = self.fleet.beside().alone(Alone::Beginning).await?;
        let begins = self.fleet.index().admission.begin(name);
        if !begins {
            tracing::info!(workflow = %name, %machine, "its agent waits for its turn");
        }
        let stepped = turn.during(self.again(live, machine, Input::Turn(begins))).await;
        let began = match &stepped {
            Ok(state) => state.newest.as_ref().is_some_and(|workflow| has_begun(workflow)),
            // It may have been stored as begun, and only the agent could not be informed.
            Err(_) => self.fleet.store().workflow(name).await.ok().flatten().is_some_and(|stored| has_begun(&stored)),
        };
        if begins && !began {
            self.fleet.index().admission.did_not_begin(name);
            if stepped.is_ok() {
                // It waits for a person, not for its turn.
                self.fleet.index().admission.absent(machine);
            }
            self.wake_queue();
        }
        stepped
    }

    /// Boxed, for it is a step that a step leads to.
    fn again<'e>(
        &'e self, live: &'e mut Live, machine: &'e str, input: Input,
    ) -> BoxFuture<'e, Result<MachineState, Refusal>> {
        Box::pin(async move { self.drive(live, machine, input).await.map(|driven| driven.state) })
    }
}

/// The message that says it.
fn message_of(tell: Tell) -> ToAgent {
    match tell {
        Tell::LeaseRenewal { epoch, lease, counts_from } => {
            ToAgent::LeaseRenewal { epoch: epoch.get(), lease, counts_from }
        }
        Tell::Control { workflow_uid, paused, released } => {
            ToAgent::Control { workflow_uid, control: Control { paused, released } }
        }
        Tell::Cancel { workflow_uid, reason } => ToAgent::Cancel { workflow_uid, reason },
        Tell::Fenced { epoch, reason } => ToAgent::Fenced { epoch: epoch.get(), reason },
        Tell::Idle { boot_disk, ended } => ToAgent::Idle { boot_disk, ended },
    }
}
