//! What only this back end can get wrong: its files, its locks, its log, its key.

use std::sync::atomic::{AtomicBool, Ordering};

use landfall_api::ErrorCode;
use rusqlite::Connection;

use super::*;
use crate::KEY_FILE;
use crate::conformance::{event, machine, with_serial};

#[tokio::test]
async fn answered_writes_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let first = store.create(machine("m1")).await.unwrap();
    store.create(machine("m2")).await.unwrap();
    DocumentStore::delete(&store, Kind::Machine, "m2").await.unwrap();
    drop(store);

    let store = SqliteStore::open(dir.path()).unwrap();
    let (all, revision) = DocumentStore::list(&store, Kind::Machine).await.unwrap();
    assert_eq!((all, revision), (vec![first], 3));
    assert!(matches!(store.watch(None, 1), Err(WatchError::Expired { asked: 1, oldest: 3 })));
    assert!(store.watch(None, 3).is_ok());
}

#[test]
fn a_second_opener_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let _first = SqliteStore::open(dir.path()).unwrap();
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
}

#[test]
fn a_newer_schema_and_a_damaged_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(dir.path()).unwrap());
    let file = dir.path().join("landfall.db");
    let raw = rusqlite::Connection::open(&file).unwrap();
    raw.pragma_update(None, "user_version", 999).unwrap();
    drop(raw);
    assert!(matches!(SqliteStore::open(dir.path()).err().unwrap(), OpenError::Newer { found: 999, .. }));

    std::fs::write(&file, b"this is no database, whatever its name says".repeat(100)).unwrap();
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(error.to_string().contains("landfall.db"), "{error}");
}

#[tokio::test]
async fn the_end_of_the_writing_thread_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let limit = std::time::Duration::from_secs(60);
    let ended = DocumentStore::ended(&store);
    let refused = store.writer.submit(|_| -> Result<(), StoreError> { panic!("on purpose") }).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    tokio::time::timeout(limit, ended).await.expect("its end is heard of");
}

#[tokio::test]
async fn one_refused_write_leaves_its_neighbours_in_the_batch_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let writes = (0..200).map(|n| {
        let store = store.clone();
        // Every name twice: one of each pair must be refused, whichever batch they fall into.
        tokio::spawn(async move { store.create(machine(&format!("m{}", n / 2))).await })
    });
    let mut refused = 0;
    for write in writes.collect::<Vec<_>>() {
        refused += usize::from(write.await.unwrap().is_err());
    }
    assert_eq!(refused, 100);
    let (all, revision) = DocumentStore::list(&*store, Kind::Machine).await.unwrap();
    assert_eq!((all.len(), revision), (100, 100));
}

/// The schema as version 1 wrote it, with one of each.
const VERSION_1: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('revision', 41);
    CREATE TABLE documents (kind TEXT NOT NULL, name TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (kind, name));
    CREATE TABLE events (
        position INTEGER PRIMARY KEY AUTOINCREMENT, workflow TEXT NOT NULL, action_index INTEGER NOT NULL,
        attempt INTEGER NOT NULL, seq INTEGER NOT NULL, json TEXT NOT NULL,
        UNIQUE (workflow, action_index, attempt, seq));
    CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO secrets VALUES ('phone-home/a', CAST('hunter2-in-plain' AS BLOB), 9223372036854);
    INSERT INTO documents VALUES ('Machine', 'm1', '{\"apiVersion\":\"landfall.dev/v1alpha1\",\"kind\":\"Machine\",
        \"metadata\":{\"name\":\"m1\",\"uid\":\"7c9f7f5e-4a57-4d9b-b0c8-93a7b1a2a001\",\"generation\":3,\"resourceVersion\":41},
        \"spec\":{\"identity\":{\"macs\":[\"52:54:00:00:00:01\"]}}}');
    PRAGMA user_version = 1;
";

fn holds(dir: &Path, needle: &[u8]) -> bool {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    files.into_iter().any(|bytes| bytes.windows(needle.len()).any(|part| part == needle))
}

#[tokio::test]
async fn an_older_database_opens_and_its_secrets_become_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let old = Connection::open(dir.path().join(DATABASE)).unwrap();
    old.pragma_update(None, "journal_mode", "WAL").unwrap();
    old.execute_batch(VERSION_1).unwrap();
    drop(old);
    assert!(holds(dir.path(), b"hunter2-in-plain"));

    let store = SqliteStore::open(dir.path()).unwrap();
    let (all, revision) = DocumentStore::list(&store, Kind::Machine).await.unwrap();
    assert_eq!((all[0].metadata().generation, revision), (3, 41));
    let value = SecretStore::get(&store, "phone-home/a", Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"hunter2-in-plain"[..]));
    assert!(!holds(dir.path(), b"hunter2-in-plain"), "neither in the file nor in its log");
    // It has no history from before, and has one from now on.
    assert!(store.history(Kind::Machine, "m1", 9).await.unwrap().is_empty());
    store.update(with_serial(&all[0], "A")).await.unwrap();
    assert_eq!(store.history(Kind::Machine, "m1", 9).await.unwrap().len(), 1);
    drop(store);
    SqliteStore::open(dir.path()).unwrap();
}

#[tokio::test]
async fn no_secret_is_readable_or_usable_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store.put("a", b"correct horse battery", Timestamp::MAX).await.unwrap();
    store.put("b", b"staple", Timestamp::MAX).await.unwrap();
    drop(store);
    assert!(!holds(dir.path(), b"correct horse battery"));
    let raw = Connection::open(dir.path().join(DATABASE)).unwrap();
    raw.execute("UPDATE secrets SET value = (SELECT value FROM secrets WHERE name = 'a') WHERE name = 'b'", [])
        .unwrap();
    drop(raw);
    let store = SqliteStore::open(dir.path()).unwrap();
    let kept = SecretStore::get(&store, "a", Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(kept.as_deref(), Some(&b"correct horse battery"[..]));
    let moved = SecretStore::get(&store, "b", Timestamp::UNIX_EPOCH).await.unwrap_err();
    assert!(matches!(moved, StoreError::Sealed { .. }), "{moved}");
}

#[tokio::test]
async fn a_missing_or_invalid_secrets_key_is_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(dir.path()).unwrap());
    drop(SqliteStore::open(other.path()).unwrap());
    let key = dir.path().join(KEY_FILE);
    let good = std::fs::read(&key).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);

    let wrong = std::fs::read(other.path().join(KEY_FILE)).unwrap();
    for (content, said) in
        [(&wrong[..], "another database's"), (b"landfall-secrets-key-1 00ff", "does not contain a key")]
    {
        std::fs::write(&key, content).unwrap();
        let error = SqliteStore::open(dir.path()).err().unwrap();
        assert!(error.to_string().contains(said) && error.to_string().contains(KEY_FILE), "{error}");
    }
    std::fs::remove_file(&key).unwrap();
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(error.to_string().contains("missing") && !key.exists(), "{error}");
    std::fs::write(&key, &good).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(error.to_string().contains("other users may read it"), "{error}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    SqliteStore::open(dir.path()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_write_ahead_log_stays_bounded_under_constant_readers() {
    let dir = tempfile::tempdir().unwrap();
    let bounds = Bounds { soft: 2 << 20, hard: 64 << 20 };
    let store = SqliteStore::open_within(dir.path(), bounds).unwrap();
    let (path, stop) = (dir.path().join(DATABASE), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let reader = std::thread::spawn(move || {
        // Two connections by turns: at each instant one is reading.
        let open = || {
            let connection = Connection::open(&path).unwrap();
            connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
            connection
        };
        let connections = [open(), open()];
        let begin = |n: usize| {
            let connection: &Connection = &connections[n % 2];
            connection.execute_batch("BEGIN").unwrap();
            let _rows: i64 = connection.query_row("SELECT COUNT(*) FROM documents", [], |row| row.get(0)).unwrap();
        };
        begin(0);
        let mut n = 0;
        while !stopped.load(Ordering::Relaxed) {
            begin(n + 1);
            connections[n % 2].execute_batch("COMMIT").unwrap();
            n += 1;
        }
        n
    });
    let (mut stored, mut largest) = (store.create(machine("m1")).await.unwrap(), 0);
    for n in 0..300 {
        stored = store.update(with_serial(&stored, &filler(n))).await.unwrap();
        largest = largest.max(store.sizes().await.unwrap().wal);
    }
    stop.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
    // 60 MB were written.
    assert!(largest < 16 << 20, "the log grew to {largest} bytes");
}

/// 200 kB of which no page is like another number's: SQLite writes only pages that change.
fn filler(n: u64) -> String {
    format!("{n:08}").repeat(25_000)
}

#[tokio::test]
async fn an_endless_reader_stops_writes_only_while_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let bounds = Bounds { soft: 1 << 20, hard: 4 << 20 };
    let store = SqliteStore::open_within(dir.path(), bounds).unwrap();
    let mut stored = store.create(machine("m1")).await.unwrap();
    let reader = Connection::open(dir.path().join(DATABASE)).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _rows: i64 = reader.query_row("SELECT COUNT(*) FROM documents", [], |row| row.get(0)).unwrap();
    let refused = loop {
        let n = stored.metadata().resource_version;
        assert!(n < 100, "100 documents of 200 kB and no bound");
        match store.update(with_serial(&stored, &filler(n))).await {
            Ok(document) => stored = document,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), ErrorCode::StoreUnavailable, "{refused}");
    assert!(store.sizes().await.unwrap().wal < 5 << 20);
    assert_eq!(DocumentStore::get(&store, Kind::Machine, "m1").await.unwrap().as_ref(), Some(&stored));
    drop(reader);
    store.update(with_serial(&stored, "B")).await.unwrap();
    assert!(store.sizes().await.unwrap().wal < 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_under_load_is_complete_and_opens() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    // Large enough for many steps.
    for n in 0..40 {
        store.create(with_serial(&machine(&format!("old{n}")), &"x".repeat(200_000))).await.unwrap();
    }
    let writer = store.clone();
    let load = tokio::spawn(async move {
        let run = Uuid::new_v4();
        for seq in 1..=400 {
            writer.create(machine(&format!("new{seq}"))).await.unwrap();
            writer.append(1, vec![event(run, 1, seq)]).await.unwrap();
        }
    });
    let copy = tempfile::tempdir().unwrap();
    store.snapshot(&copy.path().join(DATABASE)).await.unwrap();
    load.await.unwrap();
    assert!(store.snapshot(&copy.path().join(DATABASE)).await.is_err(), "what is there is not written over");
    std::fs::copy(dir.path().join(KEY_FILE), copy.path().join(KEY_FILE)).unwrap();
    let restored = SqliteStore::open(copy.path()).unwrap();
    let (all, _) = DocumentStore::list(&restored, Kind::Machine).await.unwrap();
    assert_eq!(all.iter().filter(|d| d.metadata().name.starts_with("old")).count(), 40);
    // One instant: of the documents that came meanwhile it has the first ones, without gaps.
    let new = all.iter().filter(|d| d.metadata().name.starts_with("new")).count();
    assert!((1..=new).all(|n| all.iter().any(|d| d.metadata().name == format!("new{n}"))));
}

#[tokio::test]
async fn a_failed_snapshot_does_not_stop_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let error = store.snapshot(&dir.path().join("nowhere/copy.db")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::StoreUnavailable, "{error}");
    store.create(machine("m1")).await.unwrap();
}

#[tokio::test]
async fn after_a_rollback_the_rest_of_the_batch_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let (go, wait) = std::sync::mpsc::channel();
    let (begins, began) = tokio::sync::oneshot::channel();
    // The writer waits in a batch of its own until the next one is queued whole.
    let hold = store.writer.submit(move |_| {
        begins.send(()).unwrap();
        wait.recv().unwrap();
        Ok(())
    });
    let batch = async {
        began.await.unwrap();
        let before = store.create(machine("m1"));
        // As SQLite does on a full or failing disk.
        let lost = store.writer.submit(|batch| Ok(batch.transaction.execute_batch("ROLLBACK")?));
        let after = store.create(machine("m2"));
        tokio::join!(biased; before, lost, after, async { go.send(()).unwrap() })
    };
    let (held, (before, lost, after, ())) = tokio::join!(hold, batch);
    held.unwrap();
    for refused in [before.map(drop), lost, after.map(drop)] {
        assert_eq!(refused.unwrap_err().code(), ErrorCode::StoreUnavailable);
    }
    let third = store.create(machine("m3")).await.unwrap();
    assert_eq!(third.metadata().resource_version, 1);
    drop(store);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(DocumentStore::list(&store, Kind::Machine).await.unwrap(), (vec![third], 1));
}

/// The data directory as a crash at this moment leaves it.
fn crashed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in [DATABASE, "landfall.db-wal", KEY_FILE] {
        std::fs::copy(dir.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

fn with_epoch(document: &Document, epoch: u64) -> Document {
    let Document::Machine(mut machine) = document.clone() else { panic!("a machine") };
    machine.status.get_or_insert_default().epoch = epoch;
    machine.into()
}

async fn epoch(store: &SqliteStore) -> u64 {
    let Some(Document::Machine(machine)) = DocumentStore::get(store, Kind::Machine, "m1").await.unwrap() else {
        panic!("a machine")
    };
    machine.status.as_ref().unwrap().epoch
}

#[tokio::test]
async fn only_a_crash_takes_a_later_write_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let created = store.create(machine("m1")).await.unwrap();
    // A phase is what people see: written at once.
    let first = store.update_later(with_epoch(&created, 1)).await.unwrap();
    let mut watch = DocumentStore::watch(&store, None, first.metadata().resource_version).unwrap();
    let later = store.update_later(with_epoch(&first, 7)).await.unwrap();
    assert_eq!(epoch(&store).await, 7, "seen at once");
    let change = watch.next().await.unwrap();
    assert_eq!(change.json().unwrap().get(), serde_json::to_string(&later).unwrap());
    let stale = store.update_later(with_epoch(&first, 8)).await.unwrap_err();
    assert!(matches!(stale, StoreError::Conflict { .. }), "{stale}");

    let copy = crashed(dir.path());
    let after = SqliteStore::open(copy.path()).unwrap();
    assert_eq!(epoch(&after).await, 1);
    let next = after.create(machine("m2")).await.unwrap().metadata().resource_version;
    assert!(next > later.metadata().resource_version, "revision {next} was in use before the crash");

    store.write_older(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(epoch(&SqliteStore::open(crashed(dir.path()).path()).unwrap()).await, 1, "it is not due");
    store.write_older(Duration::ZERO).await.unwrap();
    assert_eq!(epoch(&SqliteStore::open(crashed(dir.path()).path()).unwrap()).await, 7);

    let last = store.update_later(with_epoch(&later, 9)).await.unwrap();
    drop(store);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(epoch(&store).await, 9, "a stop writes everything");
    let next = store.create(machine("m2")).await.unwrap().metadata().resource_version;
    assert_eq!(next, last.metadata().resource_version + 1);
    // What people decide is written at once, and takes the rest along.
    let newest = store.update_later(with_epoch(&last, 10)).await.unwrap();
    store.update_later(with_serial(&newest, "A")).await.unwrap();
    assert_eq!(epoch(&SqliteStore::open(crashed(dir.path()).path()).unwrap()).await, 10);
}

#[tokio::test]
async fn machine_and_workflow_are_written_as_of_one_step() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let first = store.create(machine("m1")).await.unwrap();
    let machine = store.update(with_epoch(&first, 1)).await.unwrap();
    let workflow = serde_json::json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "w"}, "spec": {"machine": "m1", "template": "t"}});
    let workflow = store.create(Document::from_value(workflow).unwrap()).await.unwrap();
    let applied = |document: &Document, position| {
        let Document::Workflow(mut workflow) = document.clone() else { panic!("a workflow") };
        workflow.status.get_or_insert_default().applied = position;
        Document::from(workflow)
    };
    let workflow = store.update(applied(&workflow, 1)).await.unwrap();
    let both_later = async |machine, workflow| {
        let stored =
            store.write(ChangeSet { changed: vec![machine, workflow], is_later: true, ..ChangeSet::default() }).await?;
        Ok::<[Document; 2], StoreError>(stored.try_into().unwrap())
    };
    let on_disk = async || {
        let copy = crashed(dir.path());
        let store = SqliteStore::open(copy.path()).unwrap();
        let Some(Document::Workflow(run)) = DocumentStore::get(&store, Kind::Workflow, "w").await.unwrap() else {
            panic!("a workflow")
        };
        (epoch(&store).await, run.status.as_ref().unwrap().applied)
    };
    let both = both_later(with_epoch(&machine, 2), applied(&workflow, 2)).await.unwrap();
    assert_eq!((on_disk().await, epoch(&store).await), ((1, 1), 2));
    let stale = both_later(with_epoch(&both[0], 3), applied(&workflow, 3)).await.unwrap_err();
    assert!(matches!(stale, StoreError::Conflict { .. }), "{stale}");
    assert_eq!(epoch(&store).await, 2, "both or neither");

    // Whatever writes the workflow writes the machine before it.
    let Document::Workflow(mut labelled) = both[1].clone() else { panic!("a workflow") };
    labelled.metadata.labels.insert("a".into(), "b".into());
    let labelled = store.update(labelled.into()).await.unwrap();
    assert_eq!(on_disk().await, (2, 2));
    let both = both_later(with_epoch(&both[0], 3), applied(&labelled, 3)).await.unwrap();
    let due = store.writer.submit(|batch| ops::write_older(batch, Instant::now(), 1)).await.unwrap();
    assert_eq!((due, on_disk().await.0), (1, 3));
    // In one batch: written, changed again, and then its workflow.
    let (machine, workflow) = (with_epoch(&both[0], 4), applied(&both[1], 4));
    let newest = move |batch: &mut Batch<'_>| {
        ops::write_older(batch, Instant::now(), 9)?;
        ops::update_later(batch, machine, By::now())?;
        let Document::Workflow(mut decided) = ops::update_later(batch, workflow, By::now())? else { panic!() };
        decided.metadata.labels.clear();
        ops::change(batch, Asked::Update(decided.into()), By::now())
    };
    store.writer.submit(newest).await.unwrap();
    assert_eq!(on_disk().await, (4, 4));

    // And whatever writes the machine writes its workflow.
    let of = async |kind, name: &str| DocumentStore::get(&store, kind, name).await.unwrap().unwrap();
    let Document::Machine(mut works) = of(Kind::Machine, "m1").await else { panic!("a machine") };
    works.status.get_or_insert_default().workflow = Some("w".into());
    let machine = store.update(works.into()).await.unwrap();
    let workflow = of(Kind::Workflow, "w").await;
    let both = both_later(with_epoch(&machine, 5), applied(&workflow, 5)).await.unwrap();
    assert_eq!(on_disk().await, (4, 4));
    let [Document::Machine(mut labelled), _] = both else { panic!("a machine") };
    labelled.metadata.labels.insert("a".into(), "b".into());
    store.update(labelled.into()).await.unwrap();
    assert_eq!(on_disk().await, (5, 5));
}
