//! Documents as they are read at the start.

use std::path::Path;

use rusqlite::Connection;

use crate::open_error::OpenError;
use crate::stored::{DOCUMENT_SCHEMA, Loaded};

/// Every document.
pub(super) fn documents(connection: &Connection, path: &Path) -> Result<Loaded, OpenError> {
    let database = |source| OpenError::of_database(path, source);
    let mut select = connection.prepare("SELECT kind, name, json, schema FROM documents").map_err(database)?;
    let mut rows = select.query([]).map_err(database)?;
    let mut loaded = Loaded::default();
    while let Some(row) = rows.next().map_err(database)? {
        let text = |column| row.get::<_, String>(column).map_err(database);
        let (kind, name, schema) = (text(0)?, text(1)?, row.get::<_, u32>(3).map_err(database)?);
        if schema > DOCUMENT_SCHEMA {
            let what = format!("{kind} {name}");
            return Err(OpenError::NewerDocument {
                path: path.to_owned(),
                what,
                found: schema,
                known: DOCUMENT_SCHEMA,
            });
        }
        loaded.take(kind, name, text(2).map_err(|error| error.to_string()));
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::super::{DATABASE, SqliteStore, open::examine};
    use landfall_api::Kind;

    use super::*;
    use crate::conformance::machine;
    use crate::error::StoreError;
    use crate::traits::DocumentStore;

    async fn with_rows(change: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        for name in ["m1", "m2", "m3"] {
            store.create(machine(name)).await.unwrap();
        }
        drop(store);
        let raw = Connection::open(dir.path().join(DATABASE)).unwrap();
        raw.execute_batch(change).unwrap();
        dir
    }

    #[tokio::test]
    async fn one_unreadable_document_is_kept_and_the_others_served() {
        let dir =
            with_rows("UPDATE documents SET json = replace(json, '\"spec\"', '\"speck\"') WHERE name = 'm2'").await;
        let store = SqliteStore::open(dir.path()).unwrap();
        let (all, _) = DocumentStore::list(&store, Kind::Machine).await.unwrap();
        assert_eq!(all.iter().map(|d| d.metadata().name.as_str()).collect::<Vec<_>>(), ["m1", "m3"]);
        let unreadable = store.unreadable();
        let [bad] = unreadable.as_slice() else { panic!("{unreadable:?}") };
        assert!((bad.kind.as_str(), bad.name.as_str()) == ("Machine", "m2") && bad.why.contains("speck"), "{bad}");
        assert_eq!(examine(dir.path()).unwrap(), *store.unreadable(), "beside the coordinator that runs");
        let refused = store.create(machine("m2")).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unreadable { .. }), "{refused}");
        store.create(machine("m4")).await.unwrap();
        drop(store);
        let raw = Connection::open(dir.path().join(DATABASE)).unwrap();
        raw.execute_batch("UPDATE documents SET json = replace(json, '\"speck\"', '\"spec\"')").unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        assert!(store.unreadable().is_empty());
        assert!(DocumentStore::get(&store, Kind::Machine, "m2").await.unwrap().is_some(), "it was lost");
    }

    #[tokio::test]
    async fn a_newer_document_refuses_the_older_version_by_name() {
        let dir = with_rows("UPDATE documents SET schema = 999 WHERE name = 'm2'").await;
        let error = SqliteStore::open(dir.path()).err().unwrap();
        assert!(matches!(&error, OpenError::NewerDocument { what, .. } if what == "Machine m2"), "{error}");
    }

    #[tokio::test]
    async fn a_start_leaves_the_long_check_to_doctor() {
        // As if a row were missing from the index.
        let damage = "CREATE INDEX by_name ON documents (name); PRAGMA writable_schema = ON;
            UPDATE sqlite_schema SET sql = 'CREATE INDEX by_name ON documents (kind)' WHERE name = 'by_name';";
        let dir = with_rows(damage).await;
        let error = examine(dir.path()).err().unwrap();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        SqliteStore::open(dir.path()).unwrap();
    }
}
