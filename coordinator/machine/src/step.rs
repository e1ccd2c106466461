//! One step of one machine: what happened goes in, the machine and what is to be done come out. No I/O, no clock.

use crate::advance::advance;
use crate::context::Step;
use crate::effect::{Effect, Refusal, Which};
use crate::input::Input;
use crate::limits::Limits;
use crate::state::MachineState;
use crate::time::Now;
use crate::{advance, connect, deletion, disks, elsewhere, heard, hello, persons, restore, run, tick};

/// Applies one input.
///
/// It may be made again with the same session and newer documents where a compare-and-swap lost: it keeps nothing.
pub fn step(limits: &Limits, state: MachineState, input: Input, now: Now) -> (MachineState, Vec<Effect>) {
    let mut step = Step::new(limits, state, now);
    let (session, own) = (step.state.session.take(), step.state.coordinator.clone());
    step.state.session = elsewhere::known(&step.state.machine, session, own.as_deref(), limits, now);
    advance::catches_up(&mut step);
    if let Err(refusal) = take(&mut step, input) {
        step.effects.push(Effect::Refuse(refusal));
    }
    deletion::finish_deletion(&mut step);
    step.done()
}

fn take(step: &mut Step<'_>, input: Input) -> Result<(), Refusal> {
    let is_elsewhere = elsewhere::other(&step.state.machine, step.state.coordinator.as_deref()).is_some();
    match input {
        Input::Hello { hello, address, known } => hello::hello(step, &hello, &address, &known),
        Input::Disks { epoch, report, known } => disks::reported(step, epoch, &report, &known),
        Input::Heartbeat { epoch, vitals } => heard::heartbeat(step, epoch, vitals),
        Input::Reported { epoch, of, events } => {
            heard::at_work(step, epoch, of)?;
            advance::reported(step, epoch, of, events);
            Ok(())
        }
        Input::Replayed(events) => {
            advance::replayed(step, events);
            Ok(())
        }
        Input::Closed { epoch, why } => {
            heard::closed(step, epoch, &why);
            Ok(())
        }
        Input::FenceAcknowledged { epoch } => {
            heard::fence_acknowledged(step, epoch);
            Ok(())
        }
        Input::ReadsOff(so_long) => {
            heard::reads_off(step, so_long);
            Ok(())
        }
        Input::Settled { epoch } => {
            connect::settled(step, epoch);
            Ok(())
        }
        Input::Turn(begins) => {
            connect::turn(step, begins);
            Ok(())
        }
        Input::LookAgain => {
            connect::look_again(step);
            Ok(())
        }
        Input::MakeWay(by) => persons::make_way(step, by.as_ref()),
        Input::Launched => {
            connect::launched(step);
            Ok(())
        }
        // Another coordinator has taken the session since this one looked: time passes for the machine there, by its clock.
        Input::Tick | Input::ClockSet(_) | Input::Started if is_elsewhere => Ok(()),
        Input::Tick => {
            tick::tick(step);
            Ok(())
        }
        Input::PhonedHome(of) => {
            for which in of {
                advance(step, which, vec![run::Event::PhonedHome]);
            }
            Ok(())
        }
        Input::Cancel(which, by) => persons::cancel(step, which, &by),
        Input::Pause(which, by) => persons::pause(step, which, by),
        Input::Resume(which, by) => persons::resume(step, which, by),
        Input::Confirm(which, by) => persons::confirm(step, which, by),
        Input::ConfirmIdentity(by) => persons::confirm_identity(step, &by),
        Input::Adopt(by) => persons::adopt(step, &by),
        Input::Delete(by) => {
            deletion::delete(step, &by);
            Ok(())
        }
        Input::GiveUp(problem) => {
            advance(step, Which::Newest, vec![run::Event::GivenUp(problem)]);
            Ok(())
        }
        Input::CannotAssign(which, problem) => {
            advance::cannot_assign(step, which, problem);
            Ok(())
        }
        Input::EventsMissing(of) => {
            if let Some(workflow) = step.state.newest.as_ref().filter(|w| w.metadata.uid == Some(of)) {
                restore::mark_events_missing(&mut step.state.machine, workflow, step.now.wall);
                step.stores_machine();
            }
            Ok(())
        }
        Input::ClockSet(by) => {
            if step.is_under_way() {
                advance(step, Which::Newest, vec![run::Event::ClockSet(by)]);
            }
            Ok(())
        }
        Input::TakeOver(from) => {
            elsewhere::take_over(step, &from);
            Ok(())
        }
        Input::Started => {
            started(step);
            Ok(())
        }
    }
}

/// The coordinator was away. A machine could not report meanwhile, so its deadlines leave room for that time; after too
/// long a time nothing that was asked for counts.
fn started(step: &mut Step<'_>) {
    let last_heard = step.state.machine.status.as_ref().and_then(|status| status.last_heard);
    if step.is_under_way()
        && let Some(away) = step.limits.horizon.away(last_heard)
    {
        advance(step, Which::Newest, vec![run::Event::ClockSet(away)]);
    }
    let Some(workflow) = &step.state.newest else { return };
    if restore::mark_behind(&mut step.state.machine, workflow, &step.limits.horizon, step.now.wall) {
        step.stores_machine();
    }
}
