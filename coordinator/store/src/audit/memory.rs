//! The back end in memory.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use landfall_api::{AuditEntry, AuditOutcome};

use super::{AuditLog, KEPT_DEEDS, KEPT_REFUSALS};
use crate::error::StoreError;

/// For tests and simulation.
#[derive(Default)]
pub struct MemoryAudit(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    newest: u64,
    deeds: VecDeque<AuditEntry>,
    refusals: VecDeque<AuditEntry>,
}

#[async_trait]
impl AuditLog for MemoryAudit {
    async fn append(&self, mut entry: AuditEntry) -> Result<u64, StoreError> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.newest += 1;
        entry.position = entries.newest;
        let (kept, most) = match entry.outcome {
            AuditOutcome::Refused => (&mut entries.refusals, KEPT_REFUSALS),
            AuditOutcome::Done | AuditOutcome::Failed => (&mut entries.deeds, KEPT_DEEDS),
        };
        kept.push_back(entry);
        if kept.len() as u64 > most {
            kept.pop_front();
        }
        Ok(entries.newest)
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let both = entries.deeds.iter().chain(&entries.refusals).filter(|e| e.position > after);
        let mut both: Vec<_> = both.cloned().collect();
        both.sort_by_key(|e| e.position);
        both.truncate(limit);
        Ok(both)
    }
}
