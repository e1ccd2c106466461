//! The audit log and the grants in the same file, and in the same group commit.

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::AuditEntry;
use rusqlite::{Connection, params};

use super::{SqliteStore, writer::Batch};
use crate::access::{GrantKind, GrantStore};
use crate::audit::{AuditLog, Ring};
use crate::error::StoreError;

/// The tables. A migration of the store. `refusal` is the entry's [`Ring`], of which there were two at first, or [`INTENT`].
pub(super) const SCHEMA: &str = "
    CREATE TABLE audit (position INTEGER PRIMARY KEY AUTOINCREMENT, refusal INTEGER NOT NULL, json TEXT NOT NULL);
    CREATE INDEX audit_refusals ON audit (refusal, position);
    CREATE TABLE grants (kind TEXT NOT NULL, name TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (kind, name))
        WITHOUT ROWID;
";

/// Entries over the bound are dropped once in so many, together.
const DROP_EVERY: u64 = 64;

/// In the place of a ring: what is not an entry yet.
const INTENT: u8 = 100;

fn append(batch: &mut Batch<'_>, entry: &AuditEntry, ring: u8) -> Result<u64, StoreError> {
    let corrupt = |source| StoreError::Corrupt { what: "an audit entry".to_owned(), source };
    let json = serde_json::to_string(entry).map_err(corrupt)?;
    batch
        .transaction
        .prepare_cached("INSERT INTO audit (refusal, json) VALUES (?1, ?2)")?
        .execute(params![ring, json])?;
    // Positions are rowids: positive.
    let position = batch.transaction.last_insert_rowid().unsigned_abs();
    if position.is_multiple_of(DROP_EVERY) {
        for ring in Ring::ALL {
            batch
                .transaction
                .prepare_cached(
                    "DELETE FROM audit WHERE refusal = ?1 AND position <= (SELECT position FROM audit \
                     WHERE refusal = ?1 ORDER BY position DESC LIMIT 1 OFFSET ?2)",
                )?
                .execute(params![ring as u8, ring.kept()])?;
        }
    }
    Ok(position)
}

fn withdraw(batch: &mut Batch<'_>, intent: u64) -> Result<(), StoreError> {
    let intent = i64::try_from(intent).unwrap_or(i64::MAX);
    let delete = "DELETE FROM audit WHERE position = ?1 AND refusal = ?2";
    batch.transaction.prepare_cached(delete)?.execute(params![intent, INTENT])?;
    Ok(())
}

fn reveal(batch: &mut Batch<'_>, time: Timestamp) -> Result<(), StoreError> {
    let intents = {
        let mut select = batch.transaction.prepare("SELECT position, json FROM audit WHERE refusal = ?1")?;
        let rows = select.query_map([INTENT], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
        rows.collect::<Result<Vec<_>, _>>()?
    };
    for (position, json) in intents {
        // One that does not read stands among the deeds: it says that something was there.
        let entry = serde_json::from_str::<AuditEntry>(&json).ok();
        if entry.as_ref().is_some_and(|entry| entry.time >= time) {
            continue;
        }
        let ring = entry.as_ref().map_or(Ring::Deeds, Ring::of);
        let update = "UPDATE audit SET refusal = ?2 WHERE position = ?1";
        batch.transaction.execute(update, params![position, ring as u8])?;
    }
    Ok(())
}

fn list(connection: &Connection, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
    let mut select = connection.prepare_cached(
        "SELECT position, json FROM audit WHERE position > ?1 AND refusal <> ?3 ORDER BY position LIMIT ?2",
    )?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = select.query_map(params![after, limit, INTENT], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (position, json): (u64, String) = row?;
        let corrupt = |source| StoreError::Corrupt { what: format!("audit entry {position}"), source };
        let entry: AuditEntry = serde_json::from_str(&json).map_err(corrupt)?;
        Ok(AuditEntry { position, ..entry })
    })
    .collect()
}

#[async_trait]
impl AuditLog for SqliteStore {
    async fn append(&self, entry: AuditEntry, instead_of: Option<u64>) -> Result<u64, StoreError> {
        let both = move |batch: &mut Batch<'_>| {
            instead_of.map_or(Ok(()), |intent| withdraw(batch, intent))?;
            append(batch, &entry, Ring::of(&entry) as u8)
        };
        self.writer.submit(both).await
    }

    async fn intend(&self, entry: AuditEntry) -> Result<u64, StoreError> {
        self.writer.submit(move |batch| append(batch, &entry, INTENT)).await
    }

    async fn withdraw(&self, intent: u64) -> Result<(), StoreError> {
        self.writer.submit(move |batch| withdraw(batch, intent)).await
    }

    async fn reveal(&self, time: Timestamp) -> Result<(), StoreError> {
        self.writer.submit(move |batch| reveal(batch, time)).await
    }

    async fn list(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.reader.read(move |connection| list(connection, after, limit)).await
    }
}

#[async_trait]
impl GrantStore for SqliteStore {
    async fn add(&self, kind: GrantKind, name: &str, json: &str) -> Result<bool, StoreError> {
        let (name, json) = (name.to_owned(), json.to_owned());
        self.writer
            .submit(move |batch| {
                let insert = "INSERT OR IGNORE INTO grants (kind, name, json) VALUES (?1, ?2, ?3)";
                Ok(batch.transaction.execute(insert, params![kind.as_str(), name, json])? > 0)
            })
            .await
    }

    async fn put(&self, kind: GrantKind, name: &str, json: &str) -> Result<(), StoreError> {
        let (name, json) = (name.to_owned(), json.to_owned());
        self.writer
            .submit(move |batch| {
                let insert = "INSERT OR REPLACE INTO grants (kind, name, json) VALUES (?1, ?2, ?3)";
                batch.transaction.execute(insert, params![kind.as_str(), name, json])?;
                Ok(())
            })
            .await
    }

    async fn replace(&self, kind: GrantKind, name: &str, old: &str, json: &str) -> Result<(), StoreError> {
        let (name, old, json) = (name.to_owned(), old.to_owned(), json.to_owned());
        self.writer
            .submit(move |batch| {
                let update = "UPDATE grants SET json = ?4 WHERE kind = ?1 AND name = ?2 AND json = ?3";
                batch.transaction.execute(update, params![kind.as_str(), name, old, json])?;
                Ok(())
            })
            .await
    }

    async fn remove(&self, kind: GrantKind, name: &str, old: Option<&str>) -> Result<(), StoreError> {
        let (name, old) = (name.to_owned(), old.map(str::to_owned));
        self.writer
            .submit(move |batch| {
                let delete = "DELETE FROM grants WHERE kind = ?1 AND name = ?2 AND json = coalesce(?3, json)";
                batch.transaction.execute(delete, params![kind.as_str(), name, old])?;
                Ok(())
            })
            .await
    }

    async fn all(&self, kind: GrantKind) -> Result<Vec<(String, String)>, StoreError> {
        self.reader
            .read(move |connection| {
                let mut select =
                    connection.prepare_cached("SELECT name, json FROM grants WHERE kind = ?1 ORDER BY name")?;
                let rows = select.query_map([kind.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use landfall_api::AuditOutcome;

    use super::*;

    fn entry(outcome: AuditOutcome) -> AuditEntry {
        AuditEntry {
            position: 0,
            time: Timestamp::UNIX_EPOCH,
            who: "admin/ann".into(),
            from: "unix".into(),
            action: "Approve".into(),
            subject: String::new(),
            outcome,
            code: String::new(),
            detail: String::new(),
        }
    }

    #[tokio::test]
    async fn entries_and_grants_are_there_after_reopening_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        for outcome in [AuditOutcome::Done, AuditOutcome::Refused, AuditOutcome::Failed] {
            AuditLog::append(&store, entry(outcome), None).await.unwrap();
        }
        GrantStore::put(&store, GrantKind::Token, "b", "{}").await.unwrap();
        GrantStore::put(&store, GrantKind::Token, "a", "[1]").await.unwrap();
        GrantStore::put(&store, GrantKind::Token, "a", "[2]").await.unwrap();
        GrantStore::remove(&store, GrantKind::Token, "b", None).await.unwrap();
        drop(store);
        let store = SqliteStore::open(dir.path()).unwrap();
        let read = AuditLog::list(&store, 1, 10).await.unwrap();
        let found: Vec<_> = read.iter().map(|e| (e.position, e.outcome)).collect();
        assert_eq!(found, [(2, AuditOutcome::Refused), (3, AuditOutcome::Failed)]);
        assert_eq!(AuditLog::list(&store, 0, 1).await.unwrap().len(), 1);
        assert!(AuditLog::list(&store, u64::MAX, 10).await.unwrap().is_empty());
        assert_eq!(store.all(GrantKind::Token).await.unwrap(), [("a".to_owned(), "[2]".to_owned())]);
        assert!(store.all(GrantKind::RevokedOperator).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_intent_is_an_entry_only_if_it_was_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        let of = |action: &str| AuditEntry { action: action.into(), ..entry(AuditOutcome::Failed) };
        let mut intents = Vec::new();
        for action in ["ended", "withdrawn", "interrupted"] {
            intents.push(store.intend(of(action)).await.unwrap());
        }
        AuditLog::append(&store, of("its end"), Some(intents[0])).await.unwrap();
        store.withdraw(intents[1]).await.unwrap();
        let listed = async |store: &SqliteStore| {
            let entries = AuditLog::list(store, 0, 10).await.unwrap();
            entries.iter().map(|entry| (entry.position, entry.action.clone())).collect::<Vec<_>>()
        };
        assert_eq!(listed(&store).await, [(4, "its end".into())]);
        drop(store);
        let store = SqliteStore::open(dir.path()).unwrap();
        assert_eq!(listed(&store).await.len(), 1, "it is under way for all that the store knows");
        for _ in 0..2 {
            store.reveal(Timestamp::MAX).await.unwrap();
            assert_eq!(listed(&store).await, [(3, "interrupted".into()), (4, "its end".into())]);
        }
        // It is no intent any more.
        store.withdraw(intents[2]).await.unwrap();
        assert_eq!(listed(&store).await.len(), 2);
    }

    #[tokio::test]
    async fn a_flood_pushes_out_entries_of_its_own_ring_only() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        AuditLog::append(&store, entry(AuditOutcome::Done), None).await.unwrap();
        let renewed = |who: &str| AuditEntry { who: who.into(), ..entry(AuditOutcome::Done) };
        let mut flooded = Vec::new();
        for flood in [entry(AuditOutcome::Refused), renewed("machine/m1")] {
            flooded.push(Ring::of(&flood));
            // Written straight, many in one transaction: the bound is the same.
            let over = Ring::of(&flood).kept() + 3 * DROP_EVERY;
            store
                .writer
                .submit(move |batch| {
                    (0..over).try_for_each(|_| append(batch, &flood, Ring::of(&flood) as u8).map(drop))
                })
                .await
                .unwrap();
            let all = AuditLog::list(&store, 0, 100_000).await.unwrap();
            assert_eq!((all[0].position, Ring::of(&all[0])), (1, Ring::Deeds), "older than all of them, and kept");
            for ring in &flooded {
                let own = all.iter().filter(|entry| Ring::of(entry) == *ring).count() as u64;
                assert!((ring.kept()..ring.kept() + DROP_EVERY).contains(&own), "{ring:?}: {own}");
            }
        }
        let rings =
            ["anonymous", "machine/m1", "admin/ann", "local/root", "coordinator"].map(|who| Ring::of(&renewed(who)));
        assert_eq!(rings, [Ring::Machines, Ring::Machines, Ring::Deeds, Ring::Deeds, Ring::Deeds]);
    }
}
