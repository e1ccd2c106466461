//! What persons do to a running workflow: pause and resume it.

use std::time::Duration;

use landfall_api::{ActionStatus, Authority, Pause, WorkflowPhase};

use super::frontier::frontier;
use super::policy;
use super::state::{Effect, Run, after};

impl Run<'_> {
    /// The action under way goes on to its end; no other begins, and the time of what has not begun stands still.
    pub(super) fn paused(&mut self, authority: &Authority) {
        let pausable = matches!(self.state.phase, WorkflowPhase::Pending | WorkflowPhase::Running)
            && self.state.ending.is_none()
            && self.state.paused.is_none();
        if !pausable {
            return;
        }
        self.state.paused =
            Some(Pause { by: authority.person.clone(), since: self.now, until: after(self.now, policy::MAX_PAUSE) });
        for index in frontier(&self.state) {
            if let Some(action) = self.state.action_mut(index).filter(|a| !a.is_under_way()) {
                action.deadline = None;
            }
        }
        self.tell();
    }

    /// Ends the pause; without one, resumes the workflow after the holds at which it waits.
    pub(super) fn resumed(&mut self) {
        if self.state.phase.is_terminal() {
            return;
        }
        let Some(pause) = self.state.paused.take() else {
            // A person's word is what a hold waits for, so it is over at once, whether the agent has heard of it or not.
            for index in frontier(&self.state) {
                if self.state.action(index).is_some_and(ActionStatus::holds) {
                    self.finished(index);
                }
            }
            return self.tell();
        };
        if self.state.phase != WorkflowPhase::Running {
            return;
        }
        // A clock that went back paused nothing.
        let stood = Duration::try_from(self.now.duration_since(pause.since)).unwrap_or_default();
        self.state.end_by = self.state.end_by.map(|end| after(end, stood));
        if self.state.held_under == 0 {
            return self.assign();
        }
        for index in frontier(&self.state) {
            if self.state.action(index).is_some_and(|a| !a.is_under_way()) {
                self.allow(index);
            }
        }
        self.tell();
    }

    fn tell(&mut self) {
        if self.state.epoch != 0 {
            self.effects.push(Effect::Control);
        }
    }
}
