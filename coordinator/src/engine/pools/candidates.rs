//! Which machines a pool could claim.

use std::sync::PoisonError;

use landfall_api::{Machine, Pool, PoolSpec, Problem, facts_match};
use landfall_machine::pool::is_free;

use super::{LOOKS_AGAIN, Pools};

impl Pools {
    /// The machines that are free and suit the pool: those first that were never used, then the one whose last use ended first. None
    /// where fewer than are missing were found a moment ago.
    pub(super) async fn free_for(&self, pool: &Pool, missing: usize) -> Result<Vec<String>, Problem> {
        let (uid, now) = (pool.metadata.uid.unwrap_or_default(), self.fleet.moment().steady);
        let lacked = || self.lacked.lock().unwrap_or_else(PoisonError::into_inner);
        if lacked().get(&uid).is_some_and(|last| now.since(*last) < LOOKS_AGAIN) {
            return Ok(Vec::new());
        }
        let mut free = Vec::new();
        for machine in self.fleet.store().machines().await? {
            if !suits(&pool.spec, &machine) {
                continue;
            }
            let workflow = self.fleet.current_workflow(&machine).await?;
            if is_free(&machine, workflow.as_deref()) {
                let used = workflow.and_then(|workflow| workflow.status.as_ref()?.ended_at);
                free.push((used, machine.metadata.name.clone()));
            }
        }
        match free.len() < missing {
            true => lacked().insert(uid, now),
            false => lacked().remove(&uid),
        };
        free.sort();
        Ok(free.into_iter().map(|(_, name)| name).collect())
    }
}

/// Whether the machine is one that the pool asks for.
pub(super) fn suits(spec: &PoolSpec, machine: &Machine) -> bool {
    let labels = &machine.metadata.labels;
    if !spec.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    if spec.when.is_empty() {
        return true;
    }
    let facts = machine.status.as_ref().and_then(|status| status.facts.as_ref());
    let Some(facts) = facts.and_then(|facts| serde_json::to_value(facts).ok()) else { return false };
    // What a document says was checked when it was applied.
    facts_match(&spec.when, &facts).unwrap_or(false)
}
