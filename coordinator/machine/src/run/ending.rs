//! How a run ends: by itself, by a failure, by a person; and what is done after a failure.

use landfall_api::{Action, ActionSpec, ActionState, ActionStatus, Authority, ErrorCode, Problem, WorkflowPhase};

use super::frontier::frontier;
use super::policy;
use super::receipts::{open_at_phone_home, proven};
use super::state::{Effect, Run, after};

impl Run<'_> {
    /// Every action has been done.
    pub(super) fn nothing_left(&mut self) {
        if let Some(phase) = self.state.ending {
            return self.end(phase);
        }
        if self.state.actions.last().is_some_and(|a| a.action.spec.info().is_last_step()) {
            self.state.rebooted_at = Some(self.now);
        }
        match policy::phone_home(&self.state, self.context.phone_home_deadline) {
            Some(deadline) => {
                self.state.phase = WorkflowPhase::Rebooting;
                self.state.held_under = 0;
                self.state.paused = None;
                let deadline = after(self.now, deadline);
                self.state.deadline = Some(self.state.end_by.map_or(deadline, |end| end.min(deadline)));
            }
            None => self.end(WorkflowPhase::Succeeded),
        }
    }

    pub(super) fn cancelled(&mut self, authority: &Authority) {
        if self.state.phase.is_terminal() {
            return;
        }
        let reason = format!("cancelled by {}", authority.person);
        if let Some(phase) = self.state.ending {
            // The first reason stays; what is done after it is cut short.
            self.end(phase);
            return self.effects.push(Effect::StopAgent { reason });
        }
        let problem = Problem::new(ErrorCode::Cancelled, reason);
        self.finish_as(WorkflowPhase::Cancelled, ActionState::Skipped, problem, true);
    }

    /// It failed, and the agent is there to do what follows.
    pub(super) fn fail(&mut self, problem: Problem) {
        self.finish_as(WorkflowPhase::Failed, ActionState::Failed, problem, true);
    }

    /// It failed, and no agent can run what follows.
    pub(super) fn fail_unheard(&mut self, problem: Problem) {
        self.finish_as(WorkflowPhase::Failed, ActionState::Failed, problem, false);
    }

    /// It cannot continue with any agent. Nothing follows: that would need the same list.
    pub(super) fn given_up(&mut self, problem: Problem) {
        if self.state.phase.is_terminal() {
            return;
        }
        self.fail_unheard(problem);
        self.effects.push(Effect::Idle { boot_disk: false });
    }

    fn finish_as(&mut self, phase: WorkflowPhase, under_way: ActionState, problem: Problem, heard: bool) {
        if let Some(phase) = self.state.ending {
            return self.end(phase);
        }
        let had_agent = self.state.phase == WorkflowPhase::Running;
        let reason = problem.message.clone();
        self.skip_rest(under_way, &problem, had_agent && phase == WorkflowPhase::Failed);
        self.state.problem = Some(problem);
        self.state.paused = None;
        if had_agent {
            self.effects.push(Effect::StopAgent { reason });
        }
        if had_agent && heard && !self.state.on_failure.is_empty() {
            self.state.ending = Some(phase);
            self.state.held_under = 0;
            return self.assign();
        }
        self.end(phase);
    }

    /// The actions under way become `under_way`, those after them are skipped.
    fn skip_rest(&mut self, under_way: ActionState, problem: &Problem, blame: bool) {
        let at = frontier(&self.state);
        let now = self.now;
        // Where several branches were under way, the one that failed has said why already.
        let blamed =
            at.iter().any(|index| self.state.action(*index).is_some_and(|a| a.problem.as_ref() == Some(problem)));
        for (index, action) in self.state.actions.iter_mut().enumerate() {
            if action.is_over() {
                continue;
            }
            action.deadline = None;
            action.state = ActionState::Skipped;
            if at.contains(&index) {
                if action.attempt > 0 {
                    action.state = under_way;
                }
                action.ended_at = Some(now);
                if blame && !blamed {
                    action.problem.get_or_insert_with(|| problem.clone());
                }
            }
        }
    }

    /// This agent cannot do what the run needs, and nothing was begun by it.
    pub(super) fn too_old(&mut self, protocol: u32) {
        let problem = Problem::new(
            ErrorCode::VersionSkew,
            format!("the machine's agent speaks protocol {protocol}, which does not support this workflow's actions"),
        )
        .hint(format!(
            "{}: build the boot image from the coordinator's release, and request the workflow again",
            protocols()
        ));
        self.fail_unheard(problem);
        self.effects.push(Effect::Idle { boot_disk: false });
    }

    /// An agent came while what follows a failure was due or under way.
    pub(super) fn connected_while_ending(&mut self, still_running: bool) {
        let begun = self.state.on_failure.iter().any(|a| a.started_at.is_some());
        match (still_running, begun, self.state.ending) {
            (true, true, _) => {
                self.state.held_under = self.state.epoch;
                self.effects.extend([Effect::RenewLease, Effect::Control]);
            }
            // It still works on what has failed here meanwhile.
            (true, false, _) => {
                let reason = self.state.problem.as_ref().map(|p| p.message.clone()).unwrap_or_default();
                self.effects.push(Effect::StopAgent { reason });
                self.assign();
            }
            (false, false, _) => self.assign(),
            // It restarted, which may be what it was to do; it is done once.
            (false, true, ending) => {
                let restart =
                    |a: &ActionStatus| matches!(a.action.spec, ActionSpec::Reboot(_)) && a.started_at.is_some();
                let boot_disk = self.state.on_failure.iter().any(restart);
                self.end(ending.unwrap_or(WorkflowPhase::Failed));
                self.effects.push(Effect::Idle { boot_disk });
            }
        }
    }

    /// The reports of the commit and of the reboot may have been lost, and only a system that this run installed has its
    /// token. That proves what [`proven`] says, and that the machine has restarted; any other action is still to be done.
    pub(super) fn phoned_home(&mut self) {
        match self.state.phase {
            WorkflowPhase::Rebooting => {}
            WorkflowPhase::Running if self.state.ending.is_none() => {
                succeed_open(self, proven(&self.state));
                if open_at_phone_home(&self.state, self.now).is_some() {
                    self.state.phoned_home_at.get_or_insert(self.now);
                    return;
                }
                succeed_open(self, self.state.actions.len());
            }
            _ if open_at_phone_home(&self.state, self.now).is_some() => {
                self.state.phoned_home_at.get_or_insert(self.now);
                return;
            }
            // For the last time.
            _ => {
                self.state.phoned_home_at = Some(self.now);
                return;
            }
        }
        self.state.phoned_home_at = Some(self.now);
        self.state.rebooted_at.get_or_insert(self.now);
        self.end(WorkflowPhase::Succeeded);
    }

    pub(super) fn end(&mut self, phase: WorkflowPhase) {
        self.state.phase = phase;
        self.state.ending = None;
        self.state.paused = None;
        self.state.held_under = 0;
        self.state.ended_at = Some(self.now);
        let now = self.now;
        for action in &mut self.state.on_failure {
            action.deadline = None;
            match action.state {
                ActionState::Pending => action.state = ActionState::Skipped,
                // A restart that was begun has no other end to be seen.
                ActionState::Running if action.action.spec.info().is_last_step() && action.started_at.is_some() => {
                    action.state = ActionState::Succeeded;
                    action.ended_at = Some(now);
                }
                ActionState::Running => {
                    action.state = ActionState::Failed;
                    action.ended_at = Some(now);
                }
                _ => {}
            }
        }
    }
}

/// What is open of the first actions has succeeded.
fn succeed_open(run: &mut Run<'_>, count: usize) {
    for index in 0..count {
        if run.state.actions.get(index).is_some_and(|action| !action.is_over()) {
            run.succeed(index);
        }
    }
}

/// What needs which protocol revision, in words.
fn protocols() -> String {
    let second = ActionSpec::keys_where(|info| info.protocol == 2).join(", ");
    let mut out = format!("branches, onFailure, retry, {second} need an agent of protocol 2");
    for (key, info) in ActionSpec::ALL.iter().filter(|(_, info)| info.protocol > 2) {
        out.push_str(&format!(", {key} one of protocol {}", info.protocol));
    }
    out.push_str(&format!(", conditions over results one of protocol {}", Action::WHEN_PROTOCOL));
    for (key, field, protocol) in ActionSpec::later_fields() {
        out.push_str(&format!(", {field} of {key} one of protocol {protocol}"));
    }
    out
}
