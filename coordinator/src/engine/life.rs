//! A machine's life beyond its runs: whether anything may begin on it, taken over as it is, let go, deleted.

use std::{future::Future, pin::Pin};

use jiff::Timestamp;
use landfall_api::{
    Authority, Document, ErrorCode, Kind, Machine, Management, Problem, ReceiptState, Workflow, WorkflowPhase,
};

use super::{Engine, ToAgent, derive, live::Live};
use landfall_machine::run::Event;
use landfall_store::StoreError;

/// What keeps a machine's document while an agent may be acting on it.
const AGENT: &str = "landfall.dev/agent";

/// Whether anything may begin on the machine.
///
/// # Errors
/// [`Problem`] with code `Conflict` (it is being deleted), `Unmanaged` or `Maintenance`.
pub(super) fn may_begin(machine: &Machine) -> Result<(), Problem> {
    let name = &machine.metadata.name;
    let refused =
        |code, message: String, hint: String| Err(Problem::new(code, message).at(format!("Machine/{name}")).hint(hint));
    if machine.metadata.deletion_timestamp.is_some() {
        let hint = format!("wait for it with: landfall wait machine/{name} --for=delete, then apply it anew");
        return refused(ErrorCode::Conflict, format!("machine \"{name}\" is being deleted"), hint);
    }
    if machine.spec.management == Management::External {
        let hint = "remove spec.management from its document to let Landfall install it".to_owned();
        return refused(ErrorCode::Unmanaged, format!("machine \"{name}\" is watched only, never installed"), hint);
    }
    if machine.spec.maintenance {
        let hint = "remove spec.maintenance from its document when the work on it is done".to_owned();
        return refused(ErrorCode::Maintenance, format!("machine \"{name}\" is in maintenance"), hint);
    }
    Ok(())
}

/// Whether a machine that netboots is to run the agent; else it boots its own disk.
pub(super) fn wants_agent(machine: &Machine, workflow: Option<&Workflow>) -> bool {
    let Some(run) = workflow.and_then(|w| w.status.as_ref()) else { return false };
    let conditions = machine.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let untouchable = machine.metadata.deletion_timestamp.is_some() || machine.spec.management == Management::External;
    if untouchable || derive::held(conditions).is_some() {
        return false;
    }
    match run.phase {
        WorkflowPhase::Pending => may_begin(machine).is_ok(),
        // What is under way goes on, maintenance or not.
        WorkflowPhase::Running => true,
        _ => false,
    }
}

/// What a machine's disks carry, in sentences for people.
fn what_stays(machine: &Machine, run: Option<&Workflow>) -> Vec<String> {
    let Some(status) = &machine.status else { return Vec::new() };
    let mut stays: Vec<String> = status
        .receipts
        .iter()
        .map(|found| {
            let (disk, run) = (&found.disk, &found.receipt.workflow_name);
            let name = [&disk.name, &disk.serial, &disk.wwn, &disk.path].into_iter().find(|s| !s.is_empty());
            let name = name.map_or("?", String::as_str);
            match found.receipt.state {
                ReceiptState::Done => format!("disk {name} keeps what run \"{run}\" installed, with its receipt"),
                ReceiptState::Intent => {
                    format!("disk {name} does not boot: run \"{run}\" began to write it and did not end")
                }
            }
        })
        .collect();
    if let Some(run) = run {
        let name = &run.metadata.name;
        stays.push(format!("run \"{name}\" is cancelled where it stands; the disk it was writing does not boot"));
    }
    if stays.is_empty() && derive::holds(&status.conditions, "Provisioned") {
        stays.push("the installed system stays; it carries no receipt".to_owned());
    }
    if stays.is_empty() {
        stays.push("nothing is known to be on its disks".to_owned());
    }
    stays
}

impl Engine {
    /// Takes a machine over as it is: it counts as provisioned, whatever receipts it carries are taken as they are, and
    /// nothing is run on it unless a person asks. A hold ends with it, and a run that the hold kept from beginning.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `MachineBusy` (a run is under way) or `Conflict` (it is being deleted).
    pub async fn adopt(&self, name: &str, by: Authority) -> Result<Machine, Problem> {
        let by = Authority { force: false, ..by };
        let uid = self.described(name).await?.metadata.uid.unwrap_or_default();
        let mut live = self.inner.machines.lock(uid).await;
        let machine = self.described(name).await?;
        if machine.metadata.deletion_timestamp.is_some() {
            return may_begin(&machine).map(|()| machine);
        }
        self.end_held_run(&mut live, &machine, &by).await?;
        let (now, seen) = (self.now(), live.session.as_ref().map(|s| s.receipts.clone()));
        let workflow = self.current_workflow(&machine).await?;
        let adopted = self
            .mutate_machine(name, |machine| {
                let at = (now, machine.metadata.generation);
                let status = machine.status.get_or_insert_with(derive::new_machine_status);
                status.adopted = Some(by.clone());
                if let Some(seen) = &seen {
                    status.receipts.clone_from(seen);
                }
                let conditions = &mut status.conditions;
                let message = format!("{} took it over as it was, {}", by.person, by.at);
                derive::set(conditions, "Provisioned", true, "Adopted", &message, at);
                for kind in ["ReceiptConflict", "StoreBehind"] {
                    if derive::find(conditions, kind).is_some() {
                        derive::set(conditions, kind, false, "Adopted", &message, at);
                    }
                }
                derive::conditions(machine, workflow.as_ref(), now);
            })
            .await?;
        if let Some(session) = &mut live.session {
            session.held = false;
            live.send(ToAgent::Idle { boot_disk: true });
        }
        tracing::info!(machine = name, person = %by.person, "adopted");
        Ok(adopted)
    }

    /// Stops managing a machine: what runs is cancelled, its disks stay as they are, and the document goes as soon as no
    /// agent can still be acting. Answers the document and what stays, for people.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`.
    pub async fn detach(&self, name: &str, by: Authority) -> Result<(Document, Vec<String>), Problem> {
        let machine = self.described(name).await?;
        let run = self.current_workflow(&machine).await?;
        let acting = run.filter(|w| w.status.as_ref().is_some_and(super::drive::is_running));
        let stays = what_stays(&machine, acting.as_ref());
        let document = self.delete_machine(name, &by).await?;
        Ok((document, stays))
    }

    /// Deletes a machine at whatever moment. While an agent may be acting, the document stays, says so, and goes with the
    /// agent's acknowledgement or its lease.
    pub(super) async fn delete_machine(&self, name: &str, by: &Authority) -> Result<Document, Problem> {
        let uid = self.described(name).await?.metadata.uid.unwrap_or_default();
        let mut live = self.inner.machines.lock(uid).await;
        let machine = self.described(name).await?;
        self.remember_session(&mut live, &machine);
        self.cancel_current(&mut live, &machine, by).await?;
        let now = self.now();
        let reason = format!("the machine was deleted by {}", by.person);
        if let Some(epoch) = live.session.as_ref().map(|s| s.epoch) {
            live.send(ToAgent::Fenced { epoch, reason });
        }
        if !live.may_act(now) {
            return self.remove_machine(&mut live, &machine).await;
        }
        let until = live.session.as_ref().map(|s| s.lease_until);
        self.mutate_machine(name, |machine| {
            let at = (now, machine.metadata.generation);
            if !machine.metadata.finalizers.iter().any(|f| f == AGENT) {
                machine.metadata.finalizers.push(AGENT.to_owned());
            }
            let status = machine.status.get_or_insert_with(derive::new_machine_status);
            let until = until.map_or_else(String::new, |until| format!(", or for its lease to end at {until}"));
            let message = format!("deleted by {}; waits for the agent to say that it has stopped{until}", by.person);
            derive::set(&mut status.conditions, "Deleting", true, "AgentMayAct", message, at);
        })
        .await?;
        // It carries a finalizer, so this only marks it.
        self.inner.store.documents().delete(Kind::Machine, name).await?;
        let marked = self.mutate_machine(name, derive::phase).await?;
        self.index().put_machine(&marked);
        tracing::info!(machine = name, by = %by.person, "to be deleted as soon as its agent has stopped");
        Ok(Document::Machine(Box::new(marked)))
    }

    /// The document goes, and with it whatever its certificate was good for.
    async fn remove_machine(&self, live: &mut Live, machine: &Machine) -> Result<Document, Problem> {
        let name = &machine.metadata.name;
        let mut last = machine.clone();
        let mut is_there = true;
        if !machine.metadata.finalizers.is_empty() {
            let uid = machine.metadata.uid;
            let unbind = |found: &mut Machine| {
                if found.metadata.uid == uid {
                    found.metadata.finalizers.retain(|f| f != AGENT);
                }
            };
            match self.mutate_machine(name, unbind).await {
                Ok(machine) => {
                    // With its last finalizer a document that is to go has gone; whatever has its name now is another.
                    let ended = machine.metadata.deletion_timestamp.is_some() && machine.metadata.finalizers.is_empty();
                    is_there = machine.metadata.uid == uid && !ended;
                    if machine.metadata.uid == uid {
                        last = machine;
                    }
                }
                Err(problem) if problem.code == ErrorCode::NotFound => is_there = false,
                Err(problem) => return Err(problem),
            }
        }
        if is_there {
            match self.inner.store.documents().delete(Kind::Machine, name).await {
                // Somebody was faster.
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        {
            let mut index = self.index();
            index.drop_machine(machine);
            index.admission.absent(name);
        }
        if let Some(session) = &mut live.session {
            session.to_agent = None;
        }
        if let Some(uid) = machine.metadata.uid {
            self.inner.machines.forget(uid);
        }
        tracing::info!(machine = %name, "deleted");
        Ok(Document::Machine(Box::new(last)))
    }

    /// If the machine is to go and no agent can be acting any more, it goes.
    pub(super) fn finish_deletion<'e>(
        &'e self,
        live: &'e mut Live,
        name: &'e str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Problem>> + Send + 'e>> {
        Box::pin(async move {
            let Some(machine) = self.inner.store.machine(name).await? else { return Ok(()) };
            if machine.metadata.deletion_timestamp.is_none() {
                return Ok(());
            }
            self.remember_session(live, &machine);
            if !live.may_act(self.now()) {
                self.remove_machine(live, &machine).await?;
            }
            Ok(())
        })
    }

    /// What time does for machines that are to go.
    pub(super) async fn finish_deletions(&self) -> Result<(), Problem> {
        // On a line of its own: in the loop's head the index would stay locked.
        let names = self.index().deleting();
        let mut outcome = Ok(());
        for name in names {
            let Some(machine) = self.inner.store.machine(&name).await? else { continue };
            let mut live = self.inner.machines.lock(machine.metadata.uid.unwrap_or_default()).await;
            outcome = outcome.and(self.finish_deletion(&mut live, &name).await);
        }
        outcome
    }

    /// Ends the machine's run, if it has one that has not ended, in this person's name.
    pub(super) async fn cancel_current(
        &self,
        live: &mut Live,
        machine: &Machine,
        by: &Authority,
    ) -> Result<(), Problem> {
        let Some(mut run) = self.current_workflow(machine).await? else { return Ok(()) };
        if run.status.as_ref().is_none_or(|s| s.phase.is_terminal()) {
            return Ok(());
        }
        let name = run.metadata.name.clone();
        run.spec.cancel = Some(by.clone());
        match self.inner.store.documents().update(Document::Workflow(Box::new(run))).await {
            // The event below says the same.
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.advance(live, &name, Event::Cancelled(by.clone())).await.map(drop)
    }

    /// Ends a run that a hold keeps from beginning; any other that has not ended is a reason to refuse.
    pub(super) async fn end_held_run(&self, live: &mut Live, machine: &Machine, by: &Authority) -> Result<(), Problem> {
        let Some(run) = self.current_workflow(machine).await? else { return Ok(()) };
        if run.status.as_ref().is_none_or(|s| s.phase.is_terminal()) {
            return Ok(());
        }
        let held = machine.status.as_ref().is_some_and(|s| derive::held(&s.conditions).is_some());
        if held {
            return self.cancel_current(live, machine, by).await;
        }
        Err(busy(&machine.metadata.name, &run.metadata.name))
    }

    /// The machine of that name.
    pub(super) async fn described(&self, name: &str) -> Result<Machine, Problem> {
        match self.inner.store.machine(name).await? {
            Some(machine) => Ok(machine),
            None => Err(self.not_found(Kind::Machine, name).await),
        }
    }
}

impl Live {
    /// Whether an agent may be acting on the machine.
    pub(super) fn may_act(&self, now: Timestamp) -> bool {
        self.session.as_ref().is_some_and(|s| s.leased && s.lease_until > now)
    }
}

/// Another run has not ended.
pub(super) fn busy(machine: &str, workflow: &str) -> Problem {
    Problem::new(ErrorCode::MachineBusy, format!("machine \"{machine}\" is busy with workflow \"{workflow}\""))
        .hint(format!("wait for it, or stop it with: landfall cancel {workflow}"))
        .at(format!("Machine/{machine}"))
}
