//! The audit log and the grants in the same database.

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::AuditEntry;

use super::PostgresStore;
use super::job::{Job, Note};
use super::load::{as_stored, number};
use crate::access::{GrantKind, GrantStore};
use crate::audit::{AuditLog, Ring};
use crate::error::StoreError;

/// Entries over the bound are dropped once in so many, together.
const DROP_EVERY: u64 = 64;

impl PostgresStore {
    async fn note(&self, entry: &AuditEntry, is_intent: bool, instead_of: Option<u64>) -> Result<u64, StoreError> {
        let corrupt = |source| StoreError::Corrupt { what: "an audit entry".to_owned(), source };
        let json = serde_json::to_string(entry).map_err(corrupt)?;
        let note = Note { ring: Ring::of(entry) as i16, is_intent, json, instead_of: instead_of.map(as_stored) };
        let position = self.writer.submit(|reply| Job::Note { note, reply }).await?;
        if position.is_multiple_of(DROP_EVERY) {
            self.drop_over_bound().await?;
        }
        Ok(position)
    }

    async fn drop_over_bound(&self) -> Result<(), StoreError> {
        let delete = "DELETE FROM audit WHERE ring = $1 AND NOT is_intent AND position <= (SELECT position FROM audit
            WHERE ring = $1 AND NOT is_intent ORDER BY position DESC LIMIT 1 OFFSET $2)";
        for ring in Ring::ALL {
            self.reader.count(delete, &[&(ring as i16), &as_stored(ring.kept())]).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl AuditLog for PostgresStore {
    async fn append(&self, entry: AuditEntry, instead_of: Option<u64>) -> Result<u64, StoreError> {
        self.note(&entry, false, instead_of).await
    }

    async fn intend(&self, entry: AuditEntry) -> Result<u64, StoreError> {
        self.note(&entry, true, None).await
    }

    async fn withdraw(&self, intent: u64) -> Result<(), StoreError> {
        let delete = "DELETE FROM audit WHERE position = $1 AND is_intent";
        self.reader.count(delete, &[&as_stored(intent)]).await.map(drop)
    }

    async fn reveal(&self, time: Timestamp) -> Result<(), StoreError> {
        let reveal = "UPDATE audit SET is_intent = false
            WHERE is_intent AND extract(epoch FROM (json::json ->> 'time')::timestamptz) * 1000 < $1::bigint";
        self.reader.count(reveal, &[&time.as_millisecond()]).await.map(drop)
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let select =
            "SELECT position, json FROM audit WHERE position > $1 AND NOT is_intent ORDER BY position LIMIT $2";
        let rows = self.reader.rows(select, &[&as_stored(after), &as_stored(limit as u64)]).await?;
        let entry = |row: &tokio_postgres::Row| {
            let position = number(row.get(0));
            let corrupt = |source| StoreError::Corrupt { what: format!("audit entry {position}"), source };
            let entry: AuditEntry = serde_json::from_str(row.get(1)).map_err(corrupt)?;
            Ok(AuditEntry { position, ..entry })
        };
        rows.iter().map(entry).collect()
    }
}

#[async_trait]
impl GrantStore for PostgresStore {
    async fn add(&self, kind: GrantKind, name: &str, json: &str) -> Result<bool, StoreError> {
        let add = "INSERT INTO grants (kind, name, json) VALUES ($1, $2, $3) ON CONFLICT (kind, name) DO NOTHING";
        Ok(self.reader.count(add, &[&kind.as_str(), &name, &json]).await? > 0)
    }

    async fn put(&self, kind: GrantKind, name: &str, json: &str) -> Result<(), StoreError> {
        let put = "INSERT INTO grants (kind, name, json) VALUES ($1, $2, $3)
            ON CONFLICT (kind, name) DO UPDATE SET json = excluded.json";
        self.reader.count(put, &[&kind.as_str(), &name, &json]).await.map(drop)
    }

    async fn replace(&self, kind: GrantKind, name: &str, old: &str, json: &str) -> Result<(), StoreError> {
        let update = "UPDATE grants SET json = $4 WHERE kind = $1 AND name = $2 AND json = $3";
        self.reader.count(update, &[&kind.as_str(), &name, &old, &json]).await.map(drop)
    }

    async fn remove(&self, kind: GrantKind, name: &str, old: Option<&str>) -> Result<(), StoreError> {
        let delete = "DELETE FROM grants WHERE kind = $1 AND name = $2 AND json = coalesce($3, json)";
        self.reader.count(delete, &[&kind.as_str(), &name, &old]).await.map(drop)
    }

    async fn all(&self, kind: GrantKind) -> Result<Vec<(String, String)>, StoreError> {
        let select = "SELECT name, json FROM grants WHERE kind = $1 ORDER BY name";
        let rows = self.reader.rows(select, &[&kind.as_str()]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}
