//! A store that goes to PostgreSQL and back is the same, down to the numbers that come next.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_api::Kind;
use landfall_postgres::Server;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::access::{GrantKind, GrantStore};
use crate::audit::AuditLog;
use crate::conformance::{audit_entry as entry, event, machine, with_serial};
use crate::postgres::server::database_of;
use crate::postgres::{PostgresError, PostgresOptions, PostgresStore};
use crate::sqlite::SqliteStore;
use crate::{DATABASE, DocumentStore, EventLog, KEY_FILE, MIGRATED, MigrateError, SecretStore, to_postgres, to_sqlite};

const RUNS: [Uuid; 2] = [Uuid::from_u128(1), Uuid::from_u128(2)];

trait Whole: DocumentStore + EventLog + SecretStore + AuditLog + GrantStore {}
impl<S: DocumentStore + EventLog + SecretStore + AuditLog + GrantStore> Whole for S {}

/// Something of everything, with what JSON and SQL write in another way, and gaps at the ends of what is counted.
async fn fill(store: &impl Whole) {
    for n in 0..700 {
        let created = store.create(machine(&format!("m{n}"))).await.unwrap();
        if n % 7 == 0 {
            store.update(with_serial(&created, "S'\\\"\n\u{1F6A2}é\u{7f}")).await.unwrap();
        }
    }
    store.delete(Kind::Machine, "m3").await.unwrap();
    for seq in 1..=300 {
        EventLog::append(store, 1, vec![event(RUNS[0], 1, seq), event(RUNS[1], 1, seq)]).await.unwrap();
    }
    store.forget(RUNS[1]).await.unwrap();
    for (name, value) in [("binary", &[0, 1, 255, b'\\'][..]), ("empty", b"")] {
        SecretStore::put(store, name, value, Timestamp::MAX).await.unwrap();
    }
    GrantStore::put(store, GrantKind::Token, "Zoë", r#"{"a":"\u00e9"}"#).await.unwrap();
    GrantStore::put(store, GrantKind::RevokedOperator, "ann", "{}").await.unwrap();
    AuditLog::append(store, entry("ann"), None).await.unwrap();
    store.intend(entry("interrupted")).await.unwrap();
    let last = store.intend(entry("withdrawn")).await.unwrap();
    store.withdraw(last).await.unwrap();
}

/// All of it.
async fn content(store: &impl Whole) -> Value {
    store.reveal(Timestamp::MAX).await.unwrap();
    let (machines, revision) = DocumentStore::list(store, Kind::Machine).await.unwrap();
    let events = EventLog::list(store, RUNS[0], 0, usize::MAX >> 1).await.unwrap();
    let runs = store.runs().await.unwrap();
    let runs: Vec<_> = runs.iter().map(|run| (run.workflow_uid, run.events, run.newest)).collect();
    let mut secrets = Vec::new();
    for name in ["binary", "empty", "none"] {
        secrets.push(SecretStore::get(store, name, Timestamp::MIN).await.unwrap());
    }
    let grants = [store.all(GrantKind::Token).await.unwrap(), store.all(GrantKind::RevokedOperator).await.unwrap()];
    json!({
        "machines": machines, "revision": revision, "events": events, "runs": runs, "secrets": secrets, "grants": grants,
        "history": store.history(Kind::Machine, "m7", 100).await.unwrap(),
        "gone": store.history(Kind::Machine, "m3", 100).await.unwrap(),
        "audit": AuditLog::list(store, 0, 100).await.unwrap(),
    })
}

/// The numbers that it gives out next.
async fn next(store: &impl Whole) -> [u64; 3] {
    numbers(store, "next", 2).await
}

/// The same once more.
async fn next_again(store: &impl Whole) -> [u64; 3] {
    numbers(store, "again", 3).await
}

async fn numbers(store: &impl Whole, name: &str, attempt: u32) -> [u64; 3] {
    let machine = store.create(machine(name)).await.unwrap();
    let version = machine.metadata().resource_version;
    let position = EventLog::append(store, 1, vec![event(RUNS[1], attempt, 1)]).await.unwrap()[0];
    [version, position, AuditLog::append(store, entry("next"), None).await.unwrap()]
}

#[tokio::test]
async fn a_store_is_the_same_there_and_back() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sqlite = SqliteStore::open(first.path()).unwrap();
    fill(&sqlite).await;
    drop(sqlite);
    let options = database_of(first.path());
    let copied = to_postgres(first.path(), options.clone()).await.unwrap();
    assert_eq!(copied.iter().map(|(_, rows)| *rows).collect::<Vec<_>>(), [699, 801, 300, 2, 2, 2], "{copied:?}");
    assert!(first.path().join(MIGRATED).exists() && !first.path().join(DATABASE).exists());

    // What there was, by the file that was put aside.
    fs::copy(first.path().join(MIGRATED), second.path().join(DATABASE)).unwrap();
    fs::copy(first.path().join(KEY_FILE), second.path().join(KEY_FILE)).unwrap();
    let before = SqliteStore::open(second.path()).unwrap();
    let expected = content(&before).await;
    let numbers = next(&before).await;
    drop(before);

    let store = PostgresStore::open(options.clone()).await.unwrap();
    assert_eq!(content(&store).await, expected);
    drop(store);
    let empty = to_sqlite(first.path(), database_of(first.path())).await.unwrap_err();
    assert!(matches!(empty, MigrateError::Postgres(PostgresError::Empty { .. })), "{empty}");
    to_sqlite(first.path(), options.clone()).await.unwrap();
    let back = SqliteStore::open(first.path()).unwrap();
    assert_eq!(content(&back).await, expected);
    assert_eq!(next(&back).await, numbers);
    drop(back);
    // And there again, into another database.
    fs::remove_file(first.path().join(MIGRATED)).unwrap();
    let third = database_of(first.path());
    to_postgres(first.path(), third.clone()).await.unwrap();
    let again = PostgresStore::open(third).await.unwrap();
    assert_eq!(next_again(&again).await, numbers.map(|number| number + 1));
    let moved = PostgresStore::open(options).await.err().unwrap();
    assert!(matches!(moved, PostgresError::Moved), "{moved}");
}

/// Why the store is not copied, once the server has noticed that the one that had the database is dropped.
async fn not_copied(dir: &Path, options: &PostgresOptions) -> MigrateError {
    let begun = Instant::now();
    loop {
        match to_postgres(dir, options.clone()).await.unwrap_err() {
            MigrateError::Postgres(PostgresError::InUse { .. }) if begun.elapsed() < Duration::from_secs(60) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return other,
        }
    }
}

#[tokio::test]
async fn nothing_is_written_over_and_nothing_taken() {
    let dir = tempfile::tempdir().unwrap();
    let options = database_of(dir.path());
    let missing = to_postgres(dir.path(), options.clone()).await.unwrap_err();
    assert!(matches!(missing, MigrateError::Missing { .. }), "{missing}");
    let sqlite = SqliteStore::open(dir.path()).unwrap();
    sqlite.create(machine("m1")).await.unwrap();
    assert!(matches!(to_postgres(dir.path(), options.clone()).await, Err(MigrateError::Sqlite(_))), "it is in use");
    drop(sqlite);
    let there = to_sqlite(dir.path(), options.clone()).await.unwrap_err();
    assert!(matches!(there, MigrateError::Exists { .. }), "{there}");
    let active = PostgresStore::open(options.clone().named("a")).await.unwrap();
    let refused = to_postgres(dir.path(), options.clone()).await.unwrap_err();
    assert!(matches!(refused, MigrateError::Postgres(PostgresError::InUse { .. })), "{refused}");
    active.create(machine("m2")).await.unwrap();
    drop(active);
    let full = not_copied(dir.path(), &options).await;
    assert!(matches!(full, MigrateError::NotEmpty { table: "documents", rows: 1 }), "{full}");
    let sqlite = SqliteStore::open(dir.path()).unwrap();
    assert!(DocumentStore::get(&sqlite, Kind::Machine, "m1").await.unwrap().is_some());
}

// The connection of the copy that failed ends while the test waits for psql.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_differs_leaves_all_as_it_was() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(dir.path()).unwrap();
    fill(&sqlite).await;
    drop(sqlite);
    let options = PostgresOptions::new(&server.create(), dir.path()).unwrap();
    drop(PostgresStore::open(options.clone()).await.unwrap());
    for (table, row, change) in [
        ("events", 7, "IF NEW.seq = 7 THEN NEW.json := NEW.json || ' '; END IF; RETURN NEW;"),
        ("secrets", 2, "IF NEW.name = 'empty' THEN RETURN NULL; END IF; RETURN NEW;"),
    ] {
        server.sql(
            "test0",
            &format!(
                "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {change} END $$;
                 CREATE TRIGGER spoils BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION spoil()"
            ),
        );
        let differs = not_copied(dir.path(), &options).await;
        let is_it = matches!(differs, MigrateError::Differs { table: of, row: at } if (of, at) == (table, row));
        assert!(is_it, "{differs}");
        assert!(dir.path().join(DATABASE).exists() && !dir.path().join(MIGRATED).exists());
        assert_eq!(server.sql("test0", &format!("DROP FUNCTION spoil CASCADE; SELECT count(*) FROM {table}")), "0");
    }
    to_postgres(dir.path(), options).await.unwrap();
}
