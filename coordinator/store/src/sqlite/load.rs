//! Documents as they are read at the start, from rows that this version or another one wrote.
//!
//! Each row has the number of the document schema it was written in. A row of a newer one may have fields that this version
//! would drop at the next write, so the store does not open. A row of a known one that cannot be read stays as it is and
//! is reported; the others are served.

use std::path::Path;

use landfall_api::{Document, Kind};
use rusqlite::Connection;

use super::open_error::OpenError;
use crate::{memory::Row, traits::Unreadable};

/// The schema in which documents are stored. Rises when a document gets a field or a word that the version released last
/// does not know: with the first change of `tests/golden/schemas/` after a release.
pub(super) const DOCUMENT_SCHEMA: u32 = 1;

/// What the rows hold.
pub(super) struct Loaded {
    pub(super) documents: Vec<Row>,
    pub(super) unreadable: Vec<Unreadable>,
}

/// Every document.
pub(super) fn documents(connection: &Connection, path: &Path) -> Result<Loaded, OpenError> {
    let database = |source| OpenError::of_database(path, source);
    let mut select = connection.prepare("SELECT kind, name, json, schema FROM documents").map_err(database)?;
    let mut rows = select.query([]).map_err(database)?;
    let mut loaded = Loaded { documents: Vec::new(), unreadable: Vec::new() };
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
        let row = |json: String| read(&kind, &json).map(|document| Row { document, bytes: json.len() });
        match text(2).map_err(|error| error.to_string()).and_then(row) {
            Ok(row) if row.document.kind().as_str() == kind && row.document.metadata().name == name => {
                loaded.documents.push(row);
            }
            Ok(row) => {
                let why = format!("its row holds {}", row.document.reference());
                loaded.unreadable.push(Unreadable { kind, name, why });
            }
            Err(why) => loaded.unreadable.push(Unreadable { kind, name, why }),
        }
    }
    Ok(loaded)
}

/// Straight into its type: there are hundreds of thousands. Only one that is refused is read as a tree, for the words.
fn read(kind: &str, json: &str) -> Result<Document, String> {
    let typed = match Kind::ALL.into_iter().find(|known| known.as_str() == kind) {
        Some(Kind::Machine) => serde_json::from_str(json).map(Document::Machine),
        Some(Kind::Template) => serde_json::from_str(json).map(Document::Template),
        Some(Kind::Workflow) => serde_json::from_str(json).map(Document::Workflow),
        Some(Kind::Secret) => serde_json::from_str(json).map(Document::Secret),
        Some(Kind::EnrolmentRule) => serde_json::from_str(json).map(Document::EnrolmentRule),
        Some(Kind::Pool) => serde_json::from_str(json).map(Document::Pool),
        None => return Err("this version has no such kind".to_owned()),
    };
    if let Ok(document) = typed {
        return Ok(document);
    }
    let value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Document::from_value(value).map_err(|problem| problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::{DATABASE, SqliteStore, open::examine};
    use super::*;
    use crate::conformance::machine;
    use crate::error::StoreError;
    use crate::traits::{DocumentStore, Upkeep as _};

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
        let [bad] = store.unreadable() else { panic!("{:?}", store.unreadable()) };
        assert!((bad.kind.as_str(), bad.name.as_str()) == ("Machine", "m2") && bad.why.contains("speck"), "{bad}");
        assert_eq!(examine(dir.path()).unwrap(), store.unreadable(), "beside the coordinator that runs");
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
