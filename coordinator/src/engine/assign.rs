//! What an agent is sent: the pinned list, and for `cloudInit` the seed and the secret, made only now.

use std::time::Duration;

use landfall_api::{ActionSpec, CloudInitSpec, ErrorCode, Problem, RetrySpec, Workflow};
use landfall_machine::run::{Start, policy};
use uuid::Uuid;

use super::{AssignedAction, Assignment, Engine, PhoneHomeUnit, Seed};
use landfall_store::access::random;

use crate::workflow::seed_files;

/// A run's phone-home token outlives its deadline by far: a late one still sets the machine right.
const BEARER_TTL: Duration = Duration::from_secs(90 * 24 * 3600);

fn bearer_name(workflow_uid: Uuid) -> String {
    format!("phone-home/{workflow_uid}")
}

impl Engine {
    pub(super) async fn assignment(
        &self,
        workflow: &Workflow,
        epoch: u64,
        starts: Vec<Start>,
    ) -> Result<Assignment, Problem> {
        let missing =
            |what: &str| Problem::new(ErrorCode::Internal, format!("the workflow or its machine has no {what}"));
        let workflow_uid = workflow.metadata.uid.ok_or_else(|| missing("uid"))?;
        let status = workflow.status.as_ref().ok_or_else(|| missing("status"))?;
        let machine = self.inner.store.machine(&workflow.spec.machine).await?.ok_or_else(|| missing("document"))?;
        // A retry has its first run's token: whichever of them put the seed in place, the system can phone home.
        let token_run = status.takes_over.last().copied().unwrap_or(workflow_uid);
        let mut actions = Vec::with_capacity(status.actions.len());
        for (pinned, index) in status.actions.iter().chain(&status.on_failure).zip(0u32..) {
            let mut action = self.with_secrets(&machine, pinned.action.clone()).await?;
            if let Some(start) = starts.iter().find(|start| start.index == index) {
                // The agent counts attempts by number; interrupted ones used up no retry.
                let left = policy::max_attempts(&action).saturating_sub(pinned.failures).max(1);
                let none = RetrySpec { max_attempts: 1, initial_backoff: None, max_backoff: None };
                action.retry.get_or_insert(none).max_attempts = left.saturating_add(start.attempt - 1);
            }
            let seed = match &action.spec {
                ActionSpec::CloudInit(spec) => {
                    Some(self.seed(spec, &workflow.spec.machine, workflow_uid, token_run).await?)
                }
                _ => None,
            };
            actions.push(AssignedAction { action, seed });
        }
        let first = starts.first().copied().ok_or_else(|| missing("action to start"))?;
        // What follows a failure is a list of its own behind the other, and neither runs on into the other.
        let main = u32::try_from(status.actions.len()).unwrap_or(u32::MAX);
        if first.index < main {
            actions.truncate(status.actions.len());
        }
        Ok(Assignment {
            epoch,
            workflow_uid,
            workflow_name: workflow.metadata.name.clone(),
            machine_uid: machine.metadata.uid.ok_or_else(|| missing("uid"))?,
            generation: status.machine_generation,
            lease: self.inner.settings.lease,
            actions,
            start_index: first.index,
            start_attempt: first.attempt,
            starts,
            earlier_runs: status.takes_over.clone(),
            expected_receipts: status.expected_receipts.clone(),
            person_authorised: workflow.spec.authority.is_some(),
            force: workflow.spec.authority.as_ref().is_some_and(|a| a.force),
        })
    }

    async fn seed(
        &self,
        spec: &CloudInitSpec,
        machine: &str,
        workflow_uid: Uuid,
        token_run: Uuid,
    ) -> Result<Seed, Problem> {
        let files = seed_files(spec, machine, &workflow_uid.to_string());
        let phone_home = if spec.phone_home.as_ref().is_none_or(|unit| unit.enabled) {
            Some(PhoneHomeUnit {
                url: self.inner.settings.phone_home_url.clone(),
                bearer: self.bearer(token_run).await?,
                ca_pins: self.inner.authority.pins(),
            })
        } else {
            None
        };
        Ok(Seed {
            user_data: files.user_data,
            meta_data: files.meta_data,
            network_config: files.network_config,
            phone_home,
        })
    }

    /// The run's bearer token: the same for its whole life, so that whichever attempt's seed survives can phone home.
    pub(super) async fn bearer(&self, workflow_uid: Uuid) -> Result<String, Problem> {
        if let Some(known) = self.known_bearer(workflow_uid).await? {
            return Ok(known);
        }
        let bearer = format!("{workflow_uid}.{}", random()?);
        let expires = self.after(BEARER_TTL);
        self.inner.store.secrets().put(&bearer_name(workflow_uid), bearer.as_bytes(), expires).await?;
        Ok(bearer)
    }

    pub(super) async fn known_bearer(&self, workflow_uid: Uuid) -> Result<Option<String>, Problem> {
        let known = self.inner.store.secrets().get(&bearer_name(workflow_uid), self.now()).await?;
        Ok(known.and_then(|bytes| String::from_utf8(bytes).ok()))
    }
}
