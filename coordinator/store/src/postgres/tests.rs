//! What only this back end can get wrong: two coordinators on one database, a server that dies, a server that is not safe.

use std::time::{Duration, Instant};

use landfall_api::{API_VERSION, ErrorCode, Metadata, Workflow, WorkflowSpec};
use landfall_postgres::Server;
use uuid::Uuid;

use super::server::{Databases as _, database};
use super::*;
use crate::ChangeOp;
use crate::audit::AuditLog;
use crate::conformance::{audit_entry as entry, event, machine, with_serial};

/// Generous: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);

fn workflow(name: &str) -> Document {
    Document::from(Workflow {
        api_version: API_VERSION.into(),
        kind: Kind::Workflow,
        metadata: Metadata { name: name.into(), ..Metadata::default() },
        spec: WorkflowSpec { machine: "m1".into(), ..WorkflowSpec::default() },
        status: None,
    })
}

/// The machine, at work on a workflow in a session of that epoch.
fn in_session(document: &Document, workflow: &str, epoch: u64) -> Document {
    let Document::Machine(mut machine) = document.clone() else { panic!("a machine") };
    let status = machine.status.get_or_insert_default();
    (status.workflow, status.epoch) = (Some(workflow.into()), epoch);
    Document::Machine(machine)
}

async fn two() -> (PostgresStore, PostgresStore) {
    let options = database();
    (PostgresStore::open(options.clone()).await.unwrap(), PostgresStore::open(options).await.unwrap())
}

pub(super) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("it takes for ever")
}

/// The next changes of a watch: revision, operation, name, serial.
async fn changes(watch: &mut Watch, count: usize) -> Vec<(u64, ChangeOp, String, String)> {
    let mut found = Vec::new();
    for _ in 0..count {
        let change = within(watch.next()).await.unwrap();
        let Document::Machine(machine) = &change.document else { panic!("a machine") };
        let serial = machine.spec.identity.serial.clone().unwrap_or_default();
        found.push((change.revision, change.op, machine.metadata.name.clone(), serial));
    }
    found
}

#[tokio::test]
async fn a_write_is_seen_at_the_other_within_a_second() {
    let (a, b) = two().await;
    let mut watch = b.watch(None, 0).unwrap();
    let mut longest = Duration::ZERO;
    for n in 0..20 {
        let written = a.create(machine(&format!("m{n}"))).await.unwrap();
        let begun = Instant::now();
        assert_eq!(within(watch.next()).await.unwrap().document, written);
        longest = longest.max(begun.elapsed());
        assert_eq!(DocumentStore::get(&b, Kind::Machine, &format!("m{n}")).await.unwrap(), Some(written));
    }
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}

#[tokio::test]
async fn few_hints_are_given_and_none_is_needed() {
    let server = Server::start(&[]);
    let options = server.database();
    // Found before PostgreSQL's own: it counts the hints, and gives none.
    server.sql(
        "test0",
        "CREATE SCHEMA quiet; ALTER DATABASE test0 SET search_path = quiet, pg_catalog, public;
         CREATE TABLE quiet.hints (at timestamptz);
         CREATE FUNCTION quiet.pg_notify(text, text) RETURNS void LANGUAGE sql
         AS 'INSERT INTO quiet.hints VALUES (pg_catalog.clock_timestamp())'",
    );
    let [a, b] = [PostgresStore::open(options.clone()).await.unwrap(), PostgresStore::open(options).await.unwrap()];
    let mut watch = b.watch(None, 0).unwrap();
    let begun = Instant::now();
    for n in 0..500 {
        a.create(machine(&format!("m{n}"))).await.unwrap();
    }
    let (last, took) = (Instant::now(), begun.elapsed());
    changes(&mut watch, 500).await;
    let waited = last.elapsed();
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    let hints: u32 = server.sql("test0", "SELECT count(*) FROM quiet.hints").parse().unwrap();
    let most = (took + waited).as_secs_f64() * 20.0 + 1.0;
    assert!(hints > 1 && f64::from(hints) <= most, "{hints} of at most {most}");
}

#[tokio::test]
async fn of_two_writers_of_one_version_one_wins() {
    let (a, b) = two().await;
    let mut stored = a.create(machine("m1")).await.unwrap();
    for n in 0..50 {
        let (one, other) = tokio::join!(
            a.update(with_serial(&stored, &format!("a{n}"))),
            b.update(with_serial(&stored, &format!("b{n}"))),
        );
        let (won, lost) = if one.is_ok() { (one, other) } else { (other, one) };
        stored = won.unwrap();
        assert!(matches!(lost, Err(StoreError::Conflict { .. })), "{lost:?}");
        assert_eq!(stored.metadata().resource_version, n + 2);
    }
}

#[tokio::test]
async fn watchers_of_both_see_one_order_without_gaps() {
    let (a, b) = two().await;
    let (mut of_a, mut of_b) = (a.watch(None, 0).unwrap(), b.watch(None, 0).unwrap());
    let (a, b) = (Arc::new(a), Arc::new(b));
    let writes = (0..400).map(|n| {
        let store = if n % 2 == 0 { a.clone() } else { b.clone() };
        // Each name at both: one of each pair is refused.
        tokio::spawn(async move {
            let created = store.create(machine(&format!("m{}", n / 2))).await?;
            store.update(with_serial(&created, "A")).await
        })
    });
    let mut written = 0;
    for write in writes.collect::<Vec<_>>() {
        written += usize::from(write.await.unwrap().is_ok());
    }
    assert_eq!(written, 200);
    let (seen, too) = (changes(&mut of_a, 400).await, changes(&mut of_b, 400).await);
    assert_eq!(seen, too);
    assert!(seen.iter().map(|change| change.0).eq(1..=400));
}

#[tokio::test]
async fn two_appenders_of_one_event_store_it_once() {
    let (a, b) = two().await;
    let run = Uuid::new_v4();
    for seq in 1..=40 {
        let (one, other) = tokio::join!(
            EventLog::append(&a, 1, vec![event(run, 1, seq)]),
            EventLog::append(&b, 1, vec![event(run, 1, seq)])
        );
        assert_eq!(one.unwrap(), other.unwrap());
    }
    assert_eq!(EventLog::list(&a, run, 0, 100).await.unwrap().len(), 40);
    let runs = b.runs().await.unwrap();
    assert_eq!((runs.len(), runs[0].events), (1, 40));
    assert_eq!(runs[0].newest, EventLog::list(&b, run, 0, 100).await.unwrap().last().unwrap().position);
}

#[tokio::test]
async fn what_an_older_session_reports_is_refused_at_any() {
    let (a, b) = two().await;
    let run = a.create(workflow("w1")).await.unwrap().metadata().uid.unwrap();
    let mut stored = a.create(machine("m1")).await.unwrap();
    let mut seq = 0;
    for epoch in 1..=40 {
        // Its machine comes to the other coordinator in the same moment: the event is stored before that, or refused.
        let taken_up = a.update(in_session(&stored, "w1", epoch + 1));
        let report = |of| EventLog::append(&b, of, vec![event(run, 1, seq + 1)]);
        let (taken_up, reported) = tokio::join!(taken_up, report(epoch));
        stored = taken_up.unwrap();
        let is_stored = match reported {
            Ok(_) => true,
            Err(StoreError::NewerEpoch { newest, given, .. }) => {
                assert_eq!((newest, given), (epoch + 1, epoch));
                false
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(EventLog::list(&a, run, seq, 10).await.unwrap().len(), usize::from(is_stored));
        seq += u64::from(is_stored);
        let late = EventLog::append(&b, epoch, vec![event(run, 1, seq + 1)]).await.unwrap_err();
        assert_eq!(late.code(), ErrorCode::Fenced, "{late}");
        // A newer session whose events are all refused (this one skips a number) does not take the epoch away with them.
        EventLog::append(&a, epoch + 1, vec![event(run, 2, 2)]).await.unwrap_err();
        EventLog::append(&b, epoch, vec![event(run, 1, seq + 1)]).await.unwrap_err();
    }
    EventLog::append(&b, 41, vec![event(run, 1, seq + 1)]).await.unwrap();
    assert_eq!(a.runs().await.unwrap()[0].events, seq + 1);
    // A workflow that is deleted before its first event leaves no row.
    a.create(workflow("w2")).await.unwrap();
    a.update(in_session(&stored, "w2", 42)).await.unwrap();
    let rows = async || a.reader.rows("SELECT FROM runs", &[]).await.unwrap().len();
    assert_eq!(rows().await, 2);
    a.delete_if(Kind::Workflow, "w2", None).await.unwrap();
    assert_eq!(rows().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_server_that_crashes() {
    let mut server = Server::start(&[]);
    let store = Arc::new(PostgresStore::open(server.database()).await.unwrap());
    let mut watch = store.watch(None, 0).unwrap();
    let run = Uuid::new_v4();
    for round in 0..3 {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    let mut acknowledged = Vec::new();
                    for n in 0.. {
                        let name = format!("m{round}-{writer}-{n}");
                        match store.create(machine(&name)).await {
                            Ok(_) => acknowledged.push(name),
                            Err(error) => {
                                assert!(matches!(error, StoreError::Postgres(_)), "{error}");
                                break;
                            }
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        while DocumentStore::list(&*store, Kind::Machine).await.unwrap().1 < 100 * (round + 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::task::block_in_place(|| server.crash());
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.extend(within(writer).await.unwrap());
        }
        let begun = Instant::now();
        let refused = EventLog::append(&*store, 1, vec![event(run, 1, 1)]).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(2), "refused only after {:?}", begun.elapsed());
        assert!(refused.to_string().contains("database"), "{refused}");
        tokio::task::block_in_place(|| server.start_again());
        // It comes back by itself, and then has what it acknowledged.
        let back = format!("back{round}");
        within(async {
            while store.create(machine(&back)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        for name in &acknowledged {
            assert!(store.table.get(Kind::Machine, name).is_some(), "{name} was acknowledged, and is lost");
        }
        let database = server.sql("test0", "SELECT count(*) || ' ' || (SELECT revision FROM landfall) FROM documents");
        let (all, revision) = DocumentStore::list(&*store, Kind::Machine).await.unwrap();
        assert_eq!(database, format!("{} {revision}", all.len()), "memory and database differ");
    }
    let revision = store.table.revision();
    let seen = changes(&mut watch, usize::try_from(revision).unwrap()).await;
    assert!(seen.iter().map(|change| change.0).eq(1..=revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_lose_and_double_nothing() {
    let server = Server::start(&[]);
    let options = server.database();
    let open = || PostgresStore::open(options.clone());
    let (a, b) = (Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap()));
    let (mut of_a, mut of_b) = (a.watch(None, 0).unwrap(), b.watch(None, 0).unwrap());
    let begun = Instant::now();
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let store = if writer % 2 == 0 { a.clone() } else { b.clone() };
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for n in 0.. {
                    let name = format!("m{writer}-{n}");
                    match store.create(machine(&name)).await {
                        Ok(_) => acknowledged.push(name),
                        // In the commit itself it may be stored all the same.
                        Err(StoreError::Postgres(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                        Err(error) => panic!("{error}"),
                    }
                    if begun.elapsed() > Duration::from_secs(3) {
                        break;
                    }
                }
                acknowledged
            })
        })
        .collect();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'test0' AND pid <> pg_backend_pid()";
    while begun.elapsed() < Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(150)).await;
        tokio::task::block_in_place(|| server.sql("test0", cut));
    }
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(within(writer).await.unwrap());
    }
    within(async {
        while a.create(machine("last")).await.is_err() && a.table.get(Kind::Machine, "last").is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let revision: u64 = server.sql("test0", "SELECT revision FROM landfall").parse().unwrap();
    let (seen, too) = (changes(&mut of_a, revision as usize).await, changes(&mut of_b, revision as usize).await);
    assert!(seen == too && seen.iter().map(|change| change.0).eq(1..=revision), "of {revision}");
    assert!(acknowledged.len() > 100, "only {} writes", acknowledged.len());
    for name in &acknowledged {
        assert!(
            a.table.get(Kind::Machine, name).is_some() && b.table.get(Kind::Machine, name).is_some(),
            "{name} is lost"
        );
    }
    let stored: usize = server.sql("test0", "SELECT count(*) FROM documents").parse().unwrap();
    assert_eq!((a.table.page(Kind::Machine, "", 0).total, stored as u64), (stored as u64, revision));
}

#[tokio::test]
async fn nothing_is_acknowledged_before_its_commit() {
    let server = Server::start(&[]);
    let store = PostgresStore::open(server.database()).await.unwrap();
    server.sql(
        "test0",
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.name = 'cut' THEN PERFORM pg_terminate_backend(pg_backend_pid()); ELSE RAISE 'on purpose'; END IF;
             RETURN NEW;
         END $$;
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON changes DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.name IN ('late', 'cut')) EXECUTE FUNCTION fail();
         CREATE TRIGGER at_once BEFORE INSERT ON changes
             FOR EACH ROW WHEN (NEW.name = 'early') EXECUTE FUNCTION fail();
         CREATE FUNCTION fail_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'on purpose'; END $$;
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION fail_event()",
    );
    let append = || EventLog::append(&store, 1, vec![event(Uuid::from_u128(1), 1, 1)]);
    let Err(StoreError::Postgres(refused)) = append().await else { panic!("an event was acknowledged") };
    assert!(refused.to_string().contains("on purpose"), "{refused}");
    server.sql("test0", "DROP TRIGGER at_commit ON events");
    assert_eq!(append().await.unwrap().len(), 1, "nothing was there before");
    for (name, said) in [("early", "on purpose"), ("late", "on purpose"), ("cut", "terminating connection")] {
        let Err(StoreError::Postgres(refused)) = store.create(machine(name)).await else {
            panic!("{name} was acknowledged")
        };
        assert!(refused.to_string().contains(said), "{name}: {refused}");
        assert_eq!(store.table.get(Kind::Machine, name), None);
    }
    within(async {
        while store.create(machine("m1")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let (all, revision) = DocumentStore::list(&store, Kind::Machine).await.unwrap();
    assert_eq!((all.len(), revision, server.sql("test0", "SELECT count(*) FROM documents").as_str()), (1, 1, "1"));
}

#[tokio::test]
async fn what_is_no_longer_kept_is_loaded_again() {
    let server = Server::start(&[]);
    let store = PostgresStore::open(server.database()).await.unwrap();
    let first = store.create(machine("m1")).await.unwrap();
    let mut watch = store.watch(None, 1).unwrap();
    // As if another had written three changes, and trimmed the first two.
    server.sql(
        "test0",
        "BEGIN; UPDATE landfall SET revision = 4; UPDATE changes SET revision = 4;
         INSERT INTO documents SELECT kind, 'm2', replace(json, '\"m1\"', '\"m2\"'), schema FROM documents; COMMIT",
    );
    let expired = within(watch.next()).await.unwrap_err();
    assert_eq!(expired, WatchError::Expired { asked: 1, oldest: 4 });
    let (all, revision) = DocumentStore::list(&store, Kind::Machine).await.unwrap();
    assert_eq!((all.len(), revision), (2, 4));
    // And within a write.
    server.sql("test0", "BEGIN; UPDATE landfall SET revision = 6; DELETE FROM documents WHERE name = 'm2'; COMMIT");
    let second = store.update(with_serial(&first, "A")).await.unwrap();
    assert_eq!(second.metadata().resource_version, 7);
    assert_eq!(DocumentStore::list(&store, Kind::Machine).await.unwrap().0, [second]);
}

#[tokio::test]
async fn one_that_hangs_in_a_transaction_delays_the_others_shortly() {
    let options = database();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let hung = Link::new(options).connect(Arc::default()).await.unwrap();
    hung.batch_execute("BEGIN; SELECT * FROM landfall FOR UPDATE").await.unwrap();
    let begun = Instant::now();
    within(store.create(machine("m1"))).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let ended = hung.batch_execute("COMMIT").await.unwrap_err();
    assert!(ended.is_closed() || ended.as_db_error().is_some(), "{ended}");
}

/// Takes the lock of revisions, and waits until the store waits for it with what it is asked.
async fn locked<T>(options: &PostgresOptions, ask: impl FnOnce() -> T) -> (tokio_postgres::Client, T) {
    let link = Link::new(options.clone());
    let [holder, looker] = [link.connect(Arc::default()).await.unwrap(), link.connect(Arc::default()).await.unwrap()];
    holder.batch_execute("BEGIN; SELECT * FROM landfall FOR UPDATE").await.unwrap();
    let asked = ask();
    within(async {
        let waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while looker.query(waits, &[]).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    (holder, asked)
}

#[tokio::test]
async fn a_write_goes_by_all_that_others_wrote_meanwhile() {
    let options = database();
    let store = Arc::new(PostgresStore::open(options.clone()).await.unwrap());
    let stored = store.create(machine("m1")).await.unwrap();
    let mut watch = store.watch(None, 1).unwrap();
    let ask = |document: Document, creates: bool| {
        let store = store.clone();
        tokio::spawn(async move { if creates { store.create(document).await } else { store.update(document).await } })
    };
    let update = with_serial(&stored, "mine");
    let (other, asked) = locked(&options, || [ask(update, false), ask(machine("new"), true)]).await;
    // Another one writes more than is read at once, and m1 last.
    let others = "INSERT INTO changes SELECT n + 1, 0, kind, 'x' || n, replace(json, '\"m1\"', '\"x' || n || '\"'), schema
            FROM documents, generate_series(1, 2500) n;
        INSERT INTO changes SELECT 2502, 1, kind, name, replace(json, '\"resourceVersion\":1', '\"resourceVersion\":2502'), schema
            FROM documents;
        INSERT INTO documents SELECT kind, name, json, schema FROM changes WHERE revision BETWEEN 2 AND 2501;
        UPDATE documents d SET json = c.json FROM changes c WHERE c.revision = 2502 AND d.name = c.name;
        UPDATE landfall SET revision = 2502; COMMIT";
    other.batch_execute(others).await.unwrap();
    let [updated, created] = asked;
    let conflict = within(updated).await.unwrap().unwrap_err();
    assert!(matches!(conflict, StoreError::Conflict { stored: 2502, given: 1, .. }), "{conflict}");
    assert_eq!(within(created).await.unwrap().unwrap().metadata().resource_version, 2503);
    let revisions = changes(&mut watch, 2502).await.into_iter().map(|change| change.0);
    assert!(revisions.eq(2..=2503));

    // It knows now that others write: what comes while it waits goes with the same transaction.
    let (other, first) = locked(&options, || ask(machine("first"), true)).await;
    let second = ask(machine("second"), true);
    within(async {
        while store.writer.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    other.batch_execute("COMMIT").await.unwrap();
    for (asked, revision) in [(first, 2504), (second, 2505)] {
        assert_eq!(within(asked).await.unwrap().unwrap().metadata().resource_version, revision);
    }
    let transactions = "SELECT count(DISTINCT xmin::text) FROM documents WHERE name IN ('first', 'second')";
    assert_eq!(other.query_one(transactions, &[]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn large_documents_are_compressed_with_lz4() {
    let server = Server::start(&[]);
    let store = PostgresStore::open(server.database()).await.unwrap();
    let small = store.create(machine("m1")).await.unwrap();
    store.update(with_serial(&small, &"serial".repeat(1000))).await.unwrap();
    for table in ["documents", "changes"] {
        let methods = format!("SELECT string_agg(DISTINCT pg_column_compression(json), ' ') FROM {table}");
        assert_eq!(server.sql("test0", &methods), "lz4", "{table}");
    }
}

#[tokio::test]
async fn changes_are_kept_within_a_bound() {
    let server = Server::start(&[]);
    let store = PostgresStore::open(server.database()).await.unwrap();
    let revision = "UPDATE landfall SET revision = 20479";
    let fill = "INSERT INTO changes SELECT n, 1, 'Machine', 'm', '{}', 1 FROM generate_series(1, 20479) n";
    server.sql("test0", &format!("BEGIN; {revision}; {fill}; COMMIT"));
    store.create(machine("m1")).await.unwrap();
    let kept = || server.sql("test0", "SELECT count(*) || ' ' || max(revision) FROM changes");
    within(async {
        while kept() != "8192 20480" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn audit_entries_of_both_have_one_order() {
    let (a, b) = two().await;
    let intent = a.intend(entry("interrupted")).await.unwrap();
    let ended = b.intend(entry("ended")).await.unwrap();
    let of_both = (0..20).map(|_| async {
        tokio::join!(AuditLog::append(&a, entry("a"), None), AuditLog::append(&b, entry("b"), None))
    });
    futures::future::join_all(of_both).await;
    AuditLog::append(&b, entry("end"), Some(ended)).await.unwrap();
    let all = AuditLog::list(&a, 0, 100).await.unwrap();
    assert!(all.iter().map(|entry| entry.position).eq(3..=43));
    a.reveal(Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(AuditLog::list(&b, 0, 100).await.unwrap().len(), 41, "another one may be at it");
    a.reveal(Timestamp::MAX).await.unwrap();
    let all = AuditLog::list(&b, 0, 100).await.unwrap();
    assert_eq!((all.len(), all[0].position, all[0].who.as_str()), (42, intent, "interrupted"));
}
