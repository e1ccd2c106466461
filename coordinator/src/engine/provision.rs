//! A person's requests: run this there; stop that.

use std::collections::BTreeMap;

use landfall_api::{
    API_VERSION, ActionState, ActionStatus, Authority, Document, ErrorCode, Kind, Metadata, Problem, Workflow,
    WorkflowPhase, WorkflowSpec, WorkflowStatus,
};
use uuid::Uuid;

use super::{Engine, derive};
use crate::workflow::{Event, render};

/// Terminal runs kept for each machine; older ones are dropped, with their events.
const KEPT_RUNS: usize = 20;

impl Engine {
    /// Starts a run of a template on a machine: renders and pins the list, asks each image's server, and hands the list
    /// to the agent if one is there; otherwise it waits for the machine to netboot.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` (names that are near), `MachineBusy` (the run that is), `InvalidTemplate`,
    /// `SourceUnreachable`.
    pub async fn provision(
        &self,
        machine: &str,
        template: &str,
        parameters: BTreeMap<String, serde_json::Value>,
        authority: Authority,
    ) -> Result<Workflow, Problem> {
        let Some(found) = self.inner.store.machine(machine).await? else {
            return Err(self.not_found(Kind::Machine, machine).await);
        };
        let Some(described) = self.inner.store.template(template).await? else {
            return Err(self.not_found(Kind::Template, template).await);
        };
        let actions = render(&found, &described, &parameters)?;
        self.inner.sources.check_all(&actions).await?;
        let Some(machine_uid) = found.metadata.uid else {
            return Err(Problem::new(ErrorCode::Internal, format!("machine \"{machine}\" was stored without a uid")));
        };
        let mut live = self.inner.machines.lock(machine_uid).await;
        // Read again under the lock: somebody may have been faster.
        let Some(found) = self.inner.store.machine(machine).await? else {
            return Err(self.not_found(Kind::Machine, machine).await);
        };
        if let Some(busy) =
            self.current_workflow(&found).await?.filter(|w| w.status.as_ref().is_some_and(|s| !s.phase.is_terminal()))
        {
            let name = &busy.metadata.name;
            return Err(Problem::new(
                ErrorCode::MachineBusy,
                format!("machine \"{machine}\" is busy with workflow \"{name}\""),
            )
            .hint(format!("wait for it, or stop it with: landfall cancel {name}"))
            .at(format!("Machine/{machine}")));
        }
        let status = found.status.clone().unwrap_or_else(derive::new_machine_status);
        if derive::holds(&status.conditions, "ReceiptConflict") && !authority.force {
            let why = status.conditions.iter().find(|c| c.kind == "ReceiptConflict").map(|c| c.message.clone());
            return Err(Problem::new(ErrorCode::ReceiptMismatch, why.unwrap_or_default())
                .hint("provision with --force to write the disk whatever receipt it carries")
                .at(format!("Machine/{machine}")));
        }
        let now = self.now();
        let mut workflow = Workflow {
            api_version: API_VERSION.to_owned(),
            kind: Kind::Workflow,
            metadata: Metadata { name: run_name(machine), creation_timestamp: Some(now), ..Metadata::default() },
            spec: WorkflowSpec {
                machine: machine.to_owned(),
                template: template.to_owned(),
                parameters,
                authority: Some(authority.clone()),
                cancel: None,
            },
            status: Some(WorkflowStatus {
                phase: WorkflowPhase::Pending,
                conditions: Vec::new(),
                actions: actions.into_iter().map(pending).collect(),
                machine_generation: found.metadata.generation,
                expected_receipts: status.receipts,
                problem: None,
                started_at: None,
                rebooted_at: None,
                phoned_home_at: None,
                ended_at: None,
                deadline: None,
                epoch: 0,
                applied: 0,
            }),
        };
        derive::workflow(&mut workflow, now);
        let created = self.inner.store.documents().create(Document::Workflow(Box::new(workflow))).await?;
        let Document::Workflow(mut workflow) = created else {
            return Err(Problem::new(ErrorCode::Internal, "the store answered another kind of document"));
        };
        self.index().put_workflow(&workflow);
        self.mutate_machine(machine, |machine| {
            let at = (now, machine.metadata.generation);
            let status = machine.status.get_or_insert_with(derive::new_machine_status);
            status.workflow = Some(workflow.metadata.name.clone());
            if authority.force {
                let message = format!("{} said --force", authority.person);
                derive::set(&mut status.conditions, "ReceiptConflict", false, "Forced", message, at);
            }
            derive::machine(machine, Some(&workflow), now);
        })
        .await?;
        tracing::info!(machine, template, workflow = %workflow.metadata.name, person = %authority.person, "provisioning asked for");
        // An agent that is there and idle need not netboot again.
        if let Some(session) = live.session.as_mut().filter(|s| s.to_agent.is_some()) {
            session.held &= !authority.force;
            self.connect(&mut live, Some(&workflow), false).await?;
            if let Some(newer) = self.inner.store.workflow(&workflow.metadata.name).await? {
                *workflow = newer;
            }
        }
        drop(live);
        self.drop_old_runs(machine).await?;
        Ok(*workflow)
    }

    /// Stops a run; the agent is told at once.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` or `WorkflowEnded`.
    pub async fn cancel(&self, workflow: &str, authority: Authority) -> Result<Workflow, Problem> {
        let Some(found) = self.inner.store.workflow(workflow).await? else {
            return Err(self.not_found(Kind::Workflow, workflow).await);
        };
        let machine = self.inner.store.machine(&found.spec.machine).await?;
        let uid = machine.and_then(|m| m.metadata.uid).or(found.metadata.uid).unwrap_or_default();
        let mut live = self.inner.machines.lock(uid).await;
        let Some(mut found) = self.inner.store.workflow(workflow).await? else {
            return Err(self.not_found(Kind::Workflow, workflow).await);
        };
        if let Some(status) = found.status.as_ref().filter(|s| s.phase.is_terminal()) {
            return Err(Problem::new(
                ErrorCode::WorkflowEnded,
                format!("workflow \"{workflow}\" has ended already: {:?}", status.phase),
            )
            .at(format!("Workflow/{workflow}")));
        }
        found.spec.cancel = Some(authority.clone());
        self.inner.store.documents().update(Document::Workflow(Box::new(found))).await?;
        self.advance(&mut live, workflow, Event::Cancelled(authority)).await
    }

    /// `NotFound`, with the names that are near, or all if there are few.
    pub(super) async fn not_found(&self, kind: Kind, name: &str) -> Problem {
        let problem =
            Problem::new(ErrorCode::NotFound, format!("there is no {kind} \"{name}\"")).at(format!("{kind}/{name}"));
        let names = match self.inner.store.documents().list(kind).await {
            Ok((documents, _)) => documents.iter().map(|d| d.metadata().name.clone()).collect::<Vec<_>>(),
            Err(error) => return error.into(),
        };
        let mut near: Vec<_> = names.iter().map(|known| (distance(name, known), known)).collect();
        near.sort();
        let limit = name.len() / 3 + 1;
        let close: Vec<_> = near.iter().filter(|(d, _)| *d <= limit).take(5).map(|(_, n)| n.as_str()).collect();
        if !close.is_empty() {
            problem.hint(format!("did you mean {}?", close.join(" or ")))
        } else if names.is_empty() {
            problem.hint(format!("there are no {} yet; make one with: landfall apply -f FILE", kind.plural()))
        } else {
            let some: Vec<_> = near.iter().take(8).map(|(_, n)| n.as_str()).collect();
            problem.hint(format!("there are: {}", some.join(", ")))
        }
    }

    async fn drop_old_runs(&self, machine: &str) -> Result<(), Problem> {
        let ended = |w: &Workflow| w.status.as_ref().is_some_and(|s| s.phase.is_terminal());
        let mut runs = self.inner.store.workflows().await?;
        runs.retain(|w| w.spec.machine == machine && ended(w));
        runs.sort_by_key(|w| w.metadata.creation_timestamp);
        let excess = runs.len().saturating_sub(KEPT_RUNS);
        for old in runs.into_iter().take(excess) {
            self.forget_workflow(&old).await?;
        }
        Ok(())
    }

    pub(super) async fn forget_workflow(&self, workflow: &Workflow) -> Result<Document, Problem> {
        let gone = self.inner.store.documents().delete(Kind::Workflow, &workflow.metadata.name).await?;
        self.index().drop_workflow(workflow);
        if let Some(uid) = workflow.metadata.uid {
            self.inner.store.events().forget(uid).await?;
            self.inner.logs.forget(uid);
        }
        Ok(gone)
    }
}

fn pending(action: landfall_api::Action) -> ActionStatus {
    ActionStatus {
        action,
        state: ActionState::Pending,
        attempt: 0,
        failures: 0,
        started_at: None,
        ended_at: None,
        problem: None,
        progress: None,
    }
}

/// The machine's name and something that no other run of it has; a DNS label.
fn run_name(machine: &str) -> String {
    let unique = Uuid::new_v4().simple().to_string();
    // Names are ASCII; 63 characters at most, 9 of them the dash and the unique part.
    format!("{}-{}", machine[..machine.len().min(54)].trim_end_matches('-'), &unique[..8])
}

/// Levenshtein's distance: how many letters differ.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let cost = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}
