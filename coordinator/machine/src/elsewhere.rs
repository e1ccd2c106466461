//! Of several coordinators with one database, one has a machine's session: the one that the newest agent's hello reached. The
//! machine's document names it, and the others go by that document.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use landfall_api::message::Hello;
use landfall_api::{ConditionType as Type, ErrorCode, Machine, Problem, Reason, WorkflowPhase};
use uuid::Uuid;

use crate::context::Step;
use crate::effect::Refusal;
use crate::session::Session;
use crate::state::MachineState;
use crate::time::{Now, Steady};
use crate::{Epoch, Limits, derive};

/// An agent that another coordinator may still hear of asks again after so long.
const AGAIN: Duration = Duration::from_secs(5);

/// The URL of the coordinator that has the machine's session, where that is another one than `own`. `own` is absent where a store
/// has one coordinator.
pub fn other<'m>(machine: &'m Machine, own: Option<&str>) -> Option<&'m str> {
    let holder = machine.status.as_ref()?.session.as_ref()?.coordinator.as_deref()?;
    own.filter(|own| *own != holder).map(|_| holder)
}

/// Whether the agent is connected, as the document has it.
pub fn is_connected(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|status| derive::holds(&status.conditions, &Type::Connected))
}

/// Machines of other coordinators whose agents are not heard there, and when that was first seen here: the hosts' clocks may differ.
#[derive(Debug, Default)]
pub struct Unheard(HashMap<String, ((u64, Option<Timestamp>), Steady)>);

impl Unheard {
    /// Whether no agent works on the machine that another coordinator has: for one lease none was heard there.
    pub fn rests(&mut self, machine: &Machine, limits: &Limits, now: Steady) -> bool {
        let (name, Some(status)) = (&machine.metadata.name, &machine.status) else { return false };
        if is_connected(machine) {
            self.0.remove(name);
            return false;
        }
        let heard = (status.epoch, status.last_heard);
        let (known, seen) = self.0.entry(name.clone()).or_insert((heard, now));
        if *known != heard {
            (*known, *seen) = (heard, now);
        }
        let promised = status.session.as_ref().and_then(|holder| holder.lease).map(|lease| lease.get());
        now.since(*seen) > promised.unwrap_or_default().max(limits.lease)
    }

    /// Forgets the other machines.
    pub fn retain(&mut self, such: impl Fn(&str) -> bool) {
        self.0.retain(|machine, _| such(machine));
    }
}

/// What `own` knows of the machine's session now: what its last step left, or what the document says.
pub fn known(
    machine: &Machine, session: Option<Session>, own: Option<&str>, limits: &Limits, now: Now,
) -> Option<Session> {
    let Some(status) = &machine.status else { return session };
    let since = |since| Session::remembered(status, limits, since);
    let remembered = || since(now.steady);
    if other(machine, own).is_none() {
        // Beside others, what this process promised may be known to the document alone: an answer of the store was lost.
        return session.or_else(|| if own.is_some() { remembered() } else { since(Steady::START) });
    }
    if is_connected(machine) {
        // It is heard there, and its lease renewed, whatever was known here.
        return remembered().map(|session| Session { is_elsewhere: true, ..session });
    }
    // It is not heard there any more: what was promised ends so long after this was seen, or sooner. If it was heard again meanwhile,
    // that was promised anew.
    let is_seen = |session: &Session| {
        session.epoch == Epoch::new(status.epoch) && !session.is_elsewhere && session.seen == status.last_heard
    };
    session.filter(is_seen).or_else(remembered)
}

/// Refuses an agent while another coordinator hears another one of the machine: that coordinator alone knows until when.
pub(crate) fn refuse_second(step: &Step<'_>, hello: &Hello) -> Result<(), Refusal> {
    let has_it = other(&step.state.machine, step.state.coordinator.as_deref());
    let older = step.state.session.as_ref().filter(|older| older.is_elsewhere && older.boot_id != hello.boot_id);
    let (Some(older), Some(at)) = (older, has_it) else { return Ok(()) };
    let message = format!(
        "machine \"{}\" has a session at {at}: the agent at {} (boot {}) is connected there",
        step.state.machine.metadata.name, older.address, older.boot_id
    );
    let problem = Problem::new(ErrorCode::MachineBusy, message)
        .hint("the machine is accepted when that coordinator has not heard that agent for a while");
    Err(Refusal { problem, retry_after: Some(AGAIN) })
}

/// The coordinator that had the machine's session is gone, or was this one in an earlier process: this one goes on with it. What was
/// promised at last ends one lease after this is stored and that one knows it ([`taken_over`]).
pub(crate) fn take_over(step: &mut Step<'_>, gone: &str) {
    let Some(own) = step.state.coordinator.clone() else { return };
    // The agent may have come to a third one since.
    if other(&step.state.machine, Some(&own)).unwrap_or(&own) != gone {
        return;
    }
    let was_connected = is_connected(&step.state.machine);
    let Some(status) = step.state.machine.status.as_mut() else { return };
    // Should it come back, its session is an older one.
    let Ok(epoch) = Epoch::following(Epoch::new(status.epoch), Epoch::default()) else { return };
    status.epoch = epoch.get();
    if let Some(holder) = &mut status.session {
        holder.coordinator = Some(own.to_string());
    }
    if let Some(session) = &mut step.state.session {
        (session.is_elsewhere, session.epoch) = (false, epoch);
    }
    step.stores_machine();
    if was_connected {
        step.sets(Type::Connected, false, Reason::Disconnected, format!("its coordinator {gone} has ended"));
    }
}

/// The session of a machine that was taken over: what its former coordinator promised at last ends one lease after `since`, at which that
/// one promises nothing more.
pub fn taken_over(machine: &Machine, limits: &Limits, since: Steady) -> Option<Session> {
    Session::remembered(machine.status.as_ref()?, limits, since)
}

/// What an agent's instructions follow from, of its machine's documents. Where another coordinator has changed that, the agent is to be
/// instructed anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grounds {
    machine: (Option<Uuid>, u64),
    is_going: bool,
    is_held: bool,
    revocations: u64,
    epoch: u64,
    /// The newest workflow's uid and generation: requests of persons are in its spec.
    workflow: Option<(Option<Uuid>, u64)>,
    phase: Option<(WorkflowPhase, Option<WorkflowPhase>)>,
}

impl Grounds {
    /// The machine's spec may be as it is in `newer`: its agent goes by it without hearing of it.
    pub const fn accept_spec(&mut self, newer: &Self) {
        self.machine = newer.machine;
    }

    /// Whether the machine's document is to go.
    pub const fn is_going(&self) -> bool {
        self.is_going
    }

    /// Those that the machine has now.
    pub fn of(state: &MachineState) -> Self {
        let (metadata, status) = (&state.machine.metadata, state.machine.status.as_ref());
        let run = state.newest.as_ref();
        Self {
            machine: (metadata.uid, metadata.generation),
            is_going: metadata.deletion_timestamp.is_some(),
            is_held: status.is_some_and(|status| derive::held(&status.conditions).is_some()),
            revocations: status.map_or(0, |status| status.enrolment.revocations),
            epoch: status.map_or(0, |status| status.epoch),
            workflow: run.map(|run| (run.metadata.uid, run.metadata.generation)),
            phase: run.and_then(|run| run.status.as_ref()).map(|status| (status.phase, status.ending)),
        }
    }
}
