//! The back end in memory.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use landfall_api::AuditEntry;

use super::{AuditLog, Ring};
use crate::error::StoreError;

/// For tests and simulation.
#[derive(Default)]
pub struct MemoryAudit(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    newest: u64,
    /// In the order of [`Ring::ALL`].
    rings: [VecDeque<AuditEntry>; Ring::ALL.len()],
}

#[async_trait]
impl AuditLog for MemoryAudit {
    async fn append(&self, mut entry: AuditEntry) -> Result<u64, StoreError> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.newest += 1;
        entry.position = entries.newest;
        let ring = Ring::of(&entry);
        let kept = &mut entries.rings[ring as usize];
        kept.push_back(entry);
        if kept.len() as u64 > ring.kept() {
            kept.pop_front();
        }
        Ok(entries.newest)
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = entries.rings.iter().flatten().filter(|e| e.position > after).cloned().collect();
        all.sort_by_key(|e| e.position);
        all.truncate(limit);
        Ok(all)
    }
}
