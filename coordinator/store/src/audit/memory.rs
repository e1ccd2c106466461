//! The back end in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
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
    intents: Vec<AuditEntry>,
}

impl Entries {
    fn put(&mut self, entry: AuditEntry) {
        let ring = Ring::of(&entry);
        let kept = &mut self.rings[ring as usize];
        kept.push_back(entry);
        if kept.len() as u64 > ring.kept() {
            kept.pop_front();
        }
    }
}

impl MemoryAudit {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl AuditLog for MemoryAudit {
    async fn append(&self, mut entry: AuditEntry, instead_of: Option<u64>) -> Result<u64, StoreError> {
        let mut entries = self.entries();
        entries.intents.retain(|intent| Some(intent.position) != instead_of);
        entries.newest += 1;
        entry.position = entries.newest;
        entries.put(entry);
        Ok(entries.newest)
    }

    async fn intend(&self, mut entry: AuditEntry) -> Result<u64, StoreError> {
        let mut entries = self.entries();
        entries.newest += 1;
        entry.position = entries.newest;
        entries.intents.push(entry);
        Ok(entries.newest)
    }

    async fn withdraw(&self, intent: u64) -> Result<(), StoreError> {
        self.entries().intents.retain(|known| known.position != intent);
        Ok(())
    }

    async fn reveal(&self, time: Timestamp) -> Result<(), StoreError> {
        let mut entries = self.entries();
        let (due, left) = std::mem::take(&mut entries.intents).into_iter().partition(|intent| intent.time < time);
        entries.intents = left;
        for intent in Vec::from_iter::<Vec<AuditEntry>>(due) {
            entries.put(intent);
        }
        Ok(())
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let entries = self.entries();
        let mut all: Vec<_> = entries.rings.iter().flatten().filter(|e| e.position > after).cloned().collect();
        all.sort_by_key(|e| e.position);
        all.truncate(limit);
        Ok(all)
    }
}
