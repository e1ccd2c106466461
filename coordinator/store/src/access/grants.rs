//! Where grants are kept: a few small records by kind and name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::error::StoreError;

/// The kinds of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrantKind {
    /// A bearer token, under its name.
    Token,
    /// An operator whose certificates were revoked, under the name in them.
    RevokedOperator,
}

impl GrantKind {
    /// As stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::RevokedOperator => "revoked-operator",
        }
    }
}

/// Where grants are kept. All of them are read at the start, so there are few.
#[async_trait]
pub trait GrantStore: Send + Sync {
    /// Stores a record, durable when this returns, unless there is one of that name. Answers whether it stored it.
    async fn add(&self, kind: GrantKind, name: &str, json: &str) -> Result<bool, StoreError>;
    /// Stores or replaces a record, durable when this returns.
    async fn put(&self, kind: GrantKind, name: &str, json: &str) -> Result<(), StoreError>;
    /// Replaces a record that is `old`, durable when this returns; another one, or none, stays.
    async fn replace(&self, kind: GrantKind, name: &str, old: &str, json: &str) -> Result<(), StoreError>;
    /// Drops a record; none of that name is fine. With `old` it drops that content alone: another one stays.
    async fn remove(&self, kind: GrantKind, name: &str, old: Option<&str>) -> Result<(), StoreError>;
    /// Every record of a kind, by name.
    async fn all(&self, kind: GrantKind) -> Result<Vec<(String, String)>, StoreError>;
}

/// For tests and simulation.
#[derive(Default)]
pub struct MemoryGrants(Mutex<BTreeMap<(GrantKind, String), String>>);

#[async_trait]
impl GrantStore for MemoryGrants {
    async fn add(&self, kind: GrantKind, name: &str, json: &str) -> Result<bool, StoreError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !all.contains_key(&(kind, name.to_owned()));
        all.entry((kind, name.to_owned())).or_insert_with(|| json.to_owned());
        Ok(is_new)
    }

    async fn put(&self, kind: GrantKind, name: &str, json: &str) -> Result<(), StoreError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert((kind, name.to_owned()), json.to_owned());
        Ok(())
    }

    async fn replace(&self, kind: GrantKind, name: &str, old: &str, json: &str) -> Result<(), StoreError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stored) = all.get_mut(&(kind, name.to_owned())).filter(|stored| *stored == old) {
            json.clone_into(stored);
        }
        Ok(())
    }

    async fn remove(&self, kind: GrantKind, name: &str, old: Option<&str>) -> Result<(), StoreError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|key, json| *key != (kind, name.to_owned()) || old.is_some_and(|old| old != json));
        Ok(())
    }

    async fn all(&self, kind: GrantKind) -> Result<Vec<(String, String)>, StoreError> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(all.iter().filter(|((k, _), _)| *k == kind).map(|((_, name), json)| (name.clone(), json.clone())).collect())
    }
}
