//! What an agent is sent: the pinned list, and for `cloudInit` the seed and the secret, made only now.

use std::time::Duration;

use landfall_api::{ActionSpec, CloudInitSpec, ErrorCode, Problem, Workflow};
use uuid::Uuid;

use super::{AssignedAction, Assignment, Engine, PhoneHomeUnit, Seed, secret};
use crate::workflow::{policy, seed_files};

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
        start_index: u32,
        start_attempt: u32,
    ) -> Result<Assignment, Problem> {
        let missing =
            |what: &str| Problem::new(ErrorCode::Internal, format!("the workflow or its machine has no {what}"));
        let workflow_uid = workflow.metadata.uid.ok_or_else(|| missing("uid"))?;
        let status = workflow.status.as_ref().ok_or_else(|| missing("status"))?;
        let machine = self.inner.store.machine(&workflow.spec.machine).await?.ok_or_else(|| missing("document"))?;
        let mut actions = Vec::with_capacity(status.actions.len());
        for (index, pinned) in status.actions.iter().enumerate() {
            let mut action = pinned.action.clone();
            if index == start_index as usize
                && let Some(retry) = &mut action.retry
            {
                // The agent counts attempts by number; interrupted ones used up no retry.
                retry.max_attempts = retry.max_attempts.saturating_sub(pinned.failures).max(1) + start_attempt - 1;
            } else if index == start_index as usize && start_attempt > 1 {
                let left = policy::max_attempts(&action).saturating_sub(pinned.failures).max(1);
                action.retry = Some(landfall_api::RetrySpec {
                    max_attempts: left + start_attempt - 1,
                    initial_backoff: None,
                    max_backoff: None,
                });
            }
            let seed = match &action.spec {
                ActionSpec::CloudInit(spec) => Some(self.seed(spec, &workflow.spec.machine, workflow_uid).await?),
                _ => None,
            };
            actions.push(AssignedAction { action, seed });
        }
        Ok(Assignment {
            epoch,
            workflow_uid,
            workflow_name: workflow.metadata.name.clone(),
            machine_uid: machine.metadata.uid.ok_or_else(|| missing("uid"))?,
            generation: status.machine_generation,
            lease: self.inner.settings.lease,
            actions,
            start_index,
            start_attempt,
            expected_receipts: status.expected_receipts.clone(),
            person_authorised: workflow.spec.authority.is_some(),
            force: workflow.spec.authority.as_ref().is_some_and(|a| a.force),
        })
    }

    async fn seed(&self, spec: &CloudInitSpec, machine: &str, workflow_uid: Uuid) -> Result<Seed, Problem> {
        let files = seed_files(spec, machine, &workflow_uid.to_string());
        let phone_home = if spec.phone_home.as_ref().is_none_or(|unit| unit.enabled) {
            Some(PhoneHomeUnit {
                url: self.inner.settings.phone_home_url.clone(),
                bearer: self.bearer(workflow_uid).await?,
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
        let bearer = format!("{workflow_uid}.{}", secret::random()?);
        let expires = self.after(BEARER_TTL);
        self.inner.store.secrets().put(&bearer_name(workflow_uid), bearer.as_bytes(), expires).await?;
        Ok(bearer)
    }

    pub(super) async fn known_bearer(&self, workflow_uid: Uuid) -> Result<Option<String>, Problem> {
        let known = self.inner.store.secrets().get(&bearer_name(workflow_uid), self.now()).await?;
        Ok(known.and_then(|bytes| String::from_utf8(bytes).ok()))
    }
}
