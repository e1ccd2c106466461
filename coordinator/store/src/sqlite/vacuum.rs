//! Room that deleted rows leave in the file goes back to the file system, a little at a time.

use rusqlite::Connection;

/// Free pages that stay for what is written next: a MiB.
const SPARE: u32 = 256;
/// An older database of at most so many pages (32 MiB) is rebuilt at a stop; it takes a moment.
const REBUILT: u32 = 8192;
/// `auto_vacuum`: pages are given back when asked for.
const INCREMENTAL: u8 = 2;

/// Gives back at most a MiB, which takes milliseconds. After a commit.
pub(super) fn give_back(connection: &Connection) -> Result<(), rusqlite::Error> {
    let free: u32 = connection.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))?;
    if free <= SPARE {
        return Ok(());
    }
    let pages = (free - SPARE).min(SPARE);
    let mut step = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = step.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Lets a database that was made without it give pages back. At a stop, when no request waits.
pub(super) fn rebuild(connection: &Connection) -> Result<(), rusqlite::Error> {
    let mode: u8 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    let pages: u32 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if mode == INCREMENTAL || pages > REBUILT {
        return Ok(());
    }
    connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    connection.execute_batch("VACUUM")
}

#[cfg(test)]
mod tests {
    use landfall_api::Kind;

    use super::super::{DATABASE, SqliteStore};
    use super::*;
    use crate::conformance::{machine, with_serial};
    use crate::traits::{DocumentStore, Upkeep as _};

    #[tokio::test]
    async fn a_database_shrinks_after_its_documents_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        for n in 0..40 {
            store.create(with_serial(&machine(&format!("m{n}")), &"x".repeat(200_000))).await.unwrap();
        }
        for n in 0..40 {
            DocumentStore::delete(&store, Kind::Machine, &format!("m{n}")).await.unwrap();
        }
        // The history of the deleted ones is no smaller than they were.
        assert!(store.trim_history(jiff::Timestamp::MAX, 0).await.unwrap() > 0);
        for n in 0..40 {
            store.create(machine(&format!("small{n}"))).await.unwrap();
        }
        drop(store);
        let store = SqliteStore::open(dir.path()).unwrap();
        let bytes = store.sizes().await.unwrap().database;
        assert!(bytes < 3 << 20, "8 MB of documents went, and the file still has {bytes} bytes");
    }

    #[tokio::test]
    async fn an_older_database_learns_to_shrink_at_a_stop() {
        let dir = tempfile::tempdir().unwrap();
        let old = Connection::open(dir.path().join(DATABASE)).unwrap();
        old.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE older (x);").unwrap();
        drop(old);
        let store = SqliteStore::open(dir.path()).unwrap();
        let kept = store.create(machine("m1")).await.unwrap();
        drop(store);
        let raw = Connection::open(dir.path().join(DATABASE)).unwrap();
        let mode: u8 = raw.pragma_query_value(None, "auto_vacuum", |row| row.get(0)).unwrap();
        drop(raw);
        let store = SqliteStore::open(dir.path()).unwrap();
        let found = DocumentStore::get(&store, Kind::Machine, "m1").await.unwrap();
        assert_eq!((mode, found.is_some_and(|found| found == kept)), (INCREMENTAL, true));
    }
}
