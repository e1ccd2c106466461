//! What persons ask of a workflow: stop it, pause it, let it go on. Each request is recorded in the workflow's document.

use landfall_api::{
    ActionStatus, Authority, ConditionType as Type, ErrorCode, Problem, Reason, RunRequest, RunRequestKind,
    WorkflowPhase, WorkflowStatus,
};

use crate::{
    advance::{CONTROL_PROTOCOL, is_running},
    derive,
    effect::{Refusal, Which, refused},
    identity, life, run,
    step::Step,
};

/// Requests a workflow's document remembers.
const KEPT_REQUESTS: usize = 16;

impl Step<'_> {
    /// Stops a workflow.
    pub(crate) fn cancel(&mut self, which: Which, by: &Authority) -> Result<(), Refusal> {
        self.under_way(which)?;
        self.cancels(which, by);
        Ok(())
    }

    fn cancels(&mut self, which: Which, by: &Authority) {
        if let Some(workflow) = self.state.workflow_mut(which) {
            workflow.spec.cancel = Some(by.clone());
        }
        self.advance(which, vec![run::Event::Cancelled(by.clone())]);
    }

    /// Ends the newest workflow in this person's name, if it has not ended.
    pub(crate) fn cancel_newest(&mut self, by: &Authority) {
        if self.is_under_way() {
            self.cancels(Which::Newest, by);
        }
    }

    /// Ends a workflow that a hold keeps from beginning; any other that has not ended is a reason to refuse.
    pub(crate) fn make_way(&mut self, by: Option<&Authority>) -> Result<(), Refusal> {
        if !self.is_under_way() {
            return Ok(());
        }
        let held = self.state.machine.status.as_ref().is_some_and(|s| derive::held(&s.conditions).is_some());
        if let Some(by) = by.filter(|_| held) {
            self.cancel_newest(by);
            return Ok(());
        }
        let workflow = self.state.newest.as_ref().map_or("", |workflow| workflow.metadata.name.as_str());
        Err(refused(life::busy(&self.state.machine.metadata.name, workflow)))
    }

    /// The action under way goes on to its end, and no other begins.
    pub(crate) fn pause(&mut self, which: Which, by: Authority) -> Result<(), Refusal> {
        let status = self.under_way(which)?;
        let workflow = self.name(which);
        let refuse = |message: String| {
            Err(refused(Problem::new(ErrorCode::Conflict, message).at(format!("Workflow/{workflow}"))))
        };
        if let Some(pause) = &status.paused {
            return refuse(format!("workflow \"{workflow}\" was already paused by {} at {}", pause.by, pause.since));
        }
        if status.phase == WorkflowPhase::Rebooting {
            return refuse(format!("every action of workflow \"{workflow}\" is done, so it cannot be paused"));
        }
        if status.ending.is_some() {
            return refuse(format!("workflow \"{workflow}\" has failed and runs its onFailure actions"));
        }
        let protocol = self.state.session.as_ref().filter(|s| s.connected).map(|s| s.protocol);
        if is_running(status)
            && let Some(protocol) = protocol.filter(|p| *p < CONTROL_PROTOCOL)
        {
            let message = format!("the machine's agent speaks protocol {protocol}, which does not support a pause");
            let hint = "build a new boot image; to stop this workflow use landfall cancel";
            return Err(refused(Problem::new(ErrorCode::VersionSkew, message).hint(hint)));
        }
        self.records(which, RunRequestKind::Pause, &by);
        self.advance(which, vec![run::Event::Paused(by)]);
        Ok(())
    }

    /// Lifts the pause, or without one lets the workflow go past the hold it stands at.
    pub(crate) fn resume(&mut self, which: Which, by: Authority) -> Result<(), Refusal> {
        let status = self.under_way(which)?;
        let holds = status.actions.iter().chain(&status.on_failure).any(ActionStatus::holds);
        if status.paused.is_none() && !holds {
            let workflow = self.name(which);
            let message = format!("workflow \"{workflow}\" is neither paused nor waiting at a hold");
            return Err(refused(Problem::new(ErrorCode::Conflict, message).at(format!("Workflow/{workflow}"))));
        }
        self.records(which, RunRequestKind::Resume, &by);
        self.advance(which, vec![run::Event::Resumed]);
        // An agent that came while the workflow was paused before its beginning waits to hear of it.
        self.look_again();
        Ok(())
    }

    /// Lets a workflow begin that is held because it was requested before a time of which the store knows nothing. Nothing is
    /// forced: the receipts on the disks are compared as always, and an unknown one still holds the machine.
    pub(crate) fn confirm(&mut self, which: Which, by: Authority) -> Result<(), Refusal> {
        let pending = self.under_way(which)?.phase == WorkflowPhase::Pending && which == Which::Newest;
        let holds = |kind: &Type| {
            self.state.machine.status.as_ref().is_some_and(|status| derive::holds(&status.conditions, kind))
        };
        let (workflow, machine) = (self.name(which), self.state.machine.metadata.name.clone());
        let refuse = |message: String, hint: String| {
            Err(refused(Problem::new(ErrorCode::Conflict, message).hint(hint).at(format!("Workflow/{workflow}"))))
        };
        if holds(&Type::ReceiptConflict) {
            let message = format!("machine \"{machine}\" carries a receipt that this store does not know");
            return refuse(message, format!("adopt the machine, or use landfall provision {machine} --force"));
        }
        if !pending || !holds(&Type::StoreBehind) {
            let message = format!("workflow \"{workflow}\" does not wait for a confirmation");
            return refuse(message, format!("landfall describe workflow {workflow} shows what it waits for"));
        }
        let message = format!("{} confirmed workflow \"{workflow}\" {}", by.person, by.at);
        self.records(which, RunRequestKind::Confirm, &Authority { force: false, ..by });
        self.stores_workflow(which);
        self.sets(Type::StoreBehind, false, Reason::Confirmed, message);
        derive::phase(&mut self.state.machine);
        if let Some(session) = &mut self.state.session {
            session.held = false;
        }
        self.look_again();
        Ok(())
    }

    /// Clears the identity alarm. The next one is raised at once.
    pub(crate) fn confirm_identity(&mut self, by: &Authority) -> Result<(), Refusal> {
        if !identity::has_alarm(&self.state.machine) {
            let machine = &self.state.machine.metadata.name;
            let message = format!("machine \"{machine}\" has no identity alarm");
            return Err(refused(Problem::new(ErrorCode::Conflict, message).at(format!("Machine/{machine}"))));
        }
        let message = format!("{} confirmed its identity {}", by.person, by.at);
        self.sets(Type::IdentityAmbiguous, false, Reason::Confirmed, message);
        Ok(())
    }

    fn records(&mut self, which: Which, what: RunRequestKind, by: &Authority) {
        let Some(workflow) = self.state.workflow_mut(which) else { return };
        let requests = &mut workflow.spec.requests;
        requests.push(RunRequest { what, by: by.clone() });
        let excess = requests.len().saturating_sub(KEPT_REQUESTS);
        requests.drain(..excess);
    }

    fn name(&self, which: Which) -> String {
        self.state.workflow(which).map_or_else(String::new, |workflow| workflow.metadata.name.clone())
    }

    /// The status of a workflow that has not ended.
    fn under_way(&self, which: Which) -> Result<&WorkflowStatus, Refusal> {
        match self.state.workflow(which).and_then(|workflow| workflow.status.as_ref()) {
            Some(status) if !status.phase.is_terminal() => Ok(status),
            status => {
                let (workflow, how) =
                    (self.name(which), status.map(|s| format!(": {:?}", s.phase)).unwrap_or_default());
                let message = format!("workflow \"{workflow}\" has ended already{how}");
                Err(refused(Problem::new(ErrorCode::WorkflowEnded, message).at(format!("Workflow/{workflow}"))))
            }
        }
    }
}
