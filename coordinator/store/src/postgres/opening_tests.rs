//! What a store asks of its database before it is opened, and of the role, the settings and the key with which it is.

use std::time::{Duration, Instant};

use landfall_postgres::{Pooler, Server};

use super::server::{Databases as _, database};
use super::tests::within;
use super::*;
use crate::KEY_FILE;
use crate::conformance::machine;

#[tokio::test]
async fn a_newer_schema_is_refused_by_name() {
    let server = Server::start(&[]);
    let options = server.database();
    PostgresStore::open(options.clone()).await.unwrap();
    server.sql("test0", "UPDATE landfall SET schema = 99");
    let refused = PostgresStore::open(options.clone()).await.err().unwrap();
    assert!(matches!(refused, PostgresError::Newer { found: 99, .. }), "{refused}");
    server.sql("test0", &format!("UPDATE landfall SET schema = {}", schema::SCHEMA));
    let store = PostgresStore::open(options.clone()).await.unwrap();
    store.create(machine("m1")).await.unwrap();
    server.sql("test0", "UPDATE documents SET schema = 99");
    let refused = PostgresStore::open(options).await.err().unwrap();
    assert!(matches!(&refused, PostgresError::NewerDocument { what, .. } if what == "Machine m1"), "{refused}");
}

#[tokio::test]
async fn a_newer_version_shuts_an_open_store_out() {
    let server = Server::start(&[]);
    let store = PostgresStore::open(server.database()).await.unwrap();
    store.create(machine("m1")).await.unwrap();
    // What a newer coordinator does at its start, while this one is at work.
    server.sql("test0", "UPDATE landfall SET schema = 99");
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'test0'";
    server.sql("test0", end);
    within(async {
        loop {
            match store.create(machine("m2")).await {
                Err(StoreError::Postgres(why)) if matches!(*why, PostgresError::Newer { found: 99, .. }) => break,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(_) => panic!("it was written by an older version"),
            }
        }
    })
    .await;
    assert_eq!(server.sql("test0", "SELECT count(*) FROM documents"), "1");
}

#[tokio::test]
async fn a_server_that_loses_writes_is_refused_unless_accepted() {
    for (setting, name) in [("fsync=off", "fsync"), ("full_page_writes=off", "full_page_writes")] {
        let server = Server::start(&[setting]);
        let options = server.database();
        let refused = PostgresStore::open(options.clone()).await.err().unwrap();
        assert!(matches!(&refused, PostgresError::Unsafe { setting, .. } if setting == name), "{refused}");
        PostgresStore::open(options.accepting(&[Risk::Settings])).await.unwrap();
    }
    let server = Server::start(&[]);
    let options = server.database();
    server.sql("test0", "ALTER DATABASE test0 SET synchronous_commit = off");
    let refused = PostgresStore::open(options.clone()).await.err().unwrap();
    assert!(refused.to_string().contains("synchronous_commit = off"), "{refused}");
    PostgresStore::open(options.clone().accepting(&[Risk::Settings])).await.unwrap();
    // This disk alone is enough, unless a standby is to have it too.
    server.sql("test0", "ALTER DATABASE test0 SET synchronous_commit = local");
    PostgresStore::open(options.clone()).await.unwrap();
    server.sql("test0", "ALTER SYSTEM SET synchronous_standby_names = 'b'");
    server.sql("test0", "SELECT pg_reload_conf()");
    within(async {
        loop {
            match PostgresStore::open(options.clone()).await {
                Err(refused) => break assert!(refused.to_string().contains("synchronous_commit = local"), "{refused}"),
                // The server has not read its settings again.
                Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    PostgresStore::open(options.accepting(&[Risk::Settings])).await.unwrap();
}

#[tokio::test]
async fn a_role_that_cannot_keep_the_tables_is_refused() {
    let server = Server::start(&[]);
    let options = server.database();
    server.sql("test0", "CREATE ROLE weak LOGIN");
    let url = format!("postgresql://weak@/test0?host={}", server.dir().display());
    let weak = PostgresOptions::new(&url, &options.key_dir).unwrap();
    let refused = async || {
        let refused = PostgresStore::open(weak.clone()).await.err().unwrap();
        assert!(matches!(&refused, PostgresError::Privileges { role, .. } if role == "weak"), "{refused}");
        refused.to_string()
    };
    assert!(refused().await.contains("may not make tables"));
    drop(PostgresStore::open(options.clone()).await.unwrap());
    server.sql("test0", "GRANT CREATE ON SCHEMA public TO weak; GRANT ALL ON ALL TABLES IN SCHEMA public TO weak");
    // As long as there is nothing to change it is enough, and people hear of it.
    let remarked = async || PostgresStore::examine(weak.clone()).await.unwrap().1.cannot_change_tables;
    assert!(remarked().await.unwrap().contains("does not own the tables"));
    let store = PostgresStore::open(weak.clone()).await.unwrap();
    store.create(machine("m1")).await.unwrap();
    store.begin_incarnation(b"second first").await.unwrap();
    drop(store);
    server.sql("test0", "UPDATE landfall SET schema = schema - 1");
    assert!(refused().await.contains("does not own the tables"));
    server.sql("test0", "UPDATE landfall SET schema = schema + 1");
    // A member of the owner's role may do what that one may.
    server.sql("test0", "GRANT landfall TO weak");
    assert_eq!(remarked().await, None);
}

#[tokio::test]
async fn a_clock_that_is_minutes_off_is_refused_unless_accepted() {
    let server = Server::start(&[]);
    let options = server.database();
    // Found before PostgreSQL's own.
    server.sql(
        "test0",
        "CREATE SCHEMA ahead; ALTER DATABASE test0 SET search_path = ahead, pg_catalog, public;
         CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz LANGUAGE sql
         AS $$ SELECT pg_catalog.clock_timestamp() + interval '2 minutes' $$",
    );
    let refused = PostgresStore::open(options.clone()).await.err().unwrap();
    assert!(matches!(refused, PostgresError::Clock { seconds: 110..=130 }), "{refused}");
    PostgresStore::open(options.accepting(&[Risk::Clock])).await.unwrap();
}

#[tokio::test]
async fn replicas_that_no_commit_awaits_are_refused_unless_accepted() {
    let primary = Server::start(&[]);
    let options = primary.database();
    let _standby = Server::standby(&primary, &[], 5433);
    PostgresStore::open(options.clone()).await.unwrap();
    let replicas = async || PostgresStore::examine(options.clone()).await.unwrap().1.unawaited_replicas;
    assert_eq!(replicas().await, 0, "it is synchronous");
    primary.sql("postgres", "ALTER SYSTEM RESET synchronous_standby_names");
    primary.sql("postgres", "SELECT pg_reload_conf()");
    let begun = Instant::now();
    while replicas().await != 1 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = PostgresStore::open(options.clone()).await.err().unwrap();
    assert!(matches!(refused, PostgresError::Unawaited { replicas: 1 }), "{refused}");
    PostgresStore::open(options.clone().accepting(&[Risk::Replicas])).await.unwrap();
    // A coordinator that begins anew.
    PostgresStore::open(options.clone().in_use()).await.unwrap();
    // And before a store is copied into it.
    let refused = alone::Alone::open(options.clone(), true).await.err().unwrap();
    assert!(matches!(refused, PostgresError::Unawaited { .. }), "{refused}");
    let (_, remarks) = PostgresStore::examine(options).await.unwrap();
    assert!(remarks.clock_ahead.unsigned_abs() < Duration::from_secs(5), "{remarks:?}");
}

#[tokio::test]
async fn an_archive_or_a_subscriber_is_no_replica() {
    let server = Server::start(&["wal_level=logical"]);
    let options = server.database();
    // A role that does not see what other roles' connections do.
    server.sql("test0", "CREATE ROLE weak LOGIN; ALTER DATABASE test0 OWNER TO weak");
    let url = format!("postgresql://weak@/test0?host={}", server.dir().display());
    let weak = PostgresOptions::new(&url, &options.key_dir).unwrap();
    let (_archive, _subscriber) = (server.receives_log(), server.receives_changes("test0"));
    PostgresStore::open(weak).await.unwrap();
}

#[test]
fn an_older_postgresql_is_refused() {
    checks::version(150_000, "15.0").unwrap();
    let refused = checks::version(140_012, "14.12 (Debian)").unwrap_err();
    assert_eq!(refused.to_string(), "PostgreSQL 14.12 (Debian) is too old; version 15 or newer is needed");
}

#[tokio::test]
async fn connections_that_share_a_session_are_refused() {
    let link = Link::new(database());
    let (a, b) = (link.connect(Arc::default()).await.unwrap(), link.connect(Arc::default()).await.unwrap());
    checks::sessions(&a, &b).await.unwrap();
    let refused = checks::sessions(&a, &a).await.unwrap_err();
    assert!(matches!(refused, PostgresError::Pooled { .. }), "{refused}");
}

#[tokio::test]
async fn a_real_pooler_may_pool_sessions_alone() {
    let server = Server::start(&[]);
    let options = server.database();
    let through = |pool: &Pooler| PostgresOptions::new(&pool.url("test0"), &options.key_dir).unwrap();
    for mode in ["transaction", "statement"] {
        let pooler = Pooler::start(&server, mode);
        let refused = PostgresStore::open(through(&pooler)).await.err().unwrap();
        assert!(matches!(refused, PostgresError::Pooled { .. }), "{mode}: {refused}");
    }
    let pooler = Pooler::start(&server, "session");
    let store = PostgresStore::open(through(&pooler).named("a")).await.unwrap();
    store.create(machine("m1")).await.unwrap();
    // Who leads, and who is there, is seen as without it.
    let lead = within(Lead::wait(through(&pooler).named("a"), |by| panic!("{by} leads"))).await.unwrap();
    let (leads, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let next = tokio::spawn(Lead::wait(options.clone().named("b"), move |by| drop(leads.send(by.to_owned()))));
    assert_eq!(within(hears.recv()).await.unwrap(), "a");
    drop(lead);
    drop(within(next).await.unwrap().unwrap());
    // The session that the first one left was reset: it serves another one.
    drop(within(Lead::wait(through(&pooler).named("a"), |by| panic!("{by} leads"))).await.unwrap());
    // What another one writes is there.
    let other = PostgresStore::open(options.clone().named("b")).await.unwrap();
    other.create(machine("m2")).await.unwrap();
    within(async {
        while DocumentStore::get(&store, landfall_api::Kind::Machine, "m2").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_new_primary_refuses_writes_until_it_has_its_standby() {
    let [a, b] = landfall_edge::testing::ports();
    let settings = ["listen_addresses=127.0.0.1"];
    let mut primary = Server::prepared(&settings, a, &[]);
    let key_dir = primary.database().key_dir;
    let standby = Server::standby(&primary, &[settings[0], "synchronous_standby_names=*"], b);
    let url = format!("postgresql://landfall@127.0.0.1:{a},127.0.0.1:{b}/test0");
    let store = PostgresStore::open(PostgresOptions::new(&url, &key_dir).unwrap()).await.unwrap();
    store.create(machine("m1")).await.unwrap();
    primary.crash();
    standby.promote();
    // It is found, and answers no commit: the standby that it waits for is not there.
    let begun = Instant::now();
    loop {
        let refused = store.create(machine("m2")).await.unwrap_err();
        if matches!(&refused, StoreError::Postgres(why) if matches!(**why, PostgresError::Silent(_))) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{refused}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    primary.follow(&standby);
    within(async {
        loop {
            match store.create(machine("m2")).await {
                // What it could not answer before may have been stored.
                Ok(_) | Err(StoreError::AlreadyExists { .. }) => break,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
}

#[tokio::test]
async fn several_may_begin_on_an_empty_database_at_once() {
    let options = database();
    let openings = (0..4).map(|_| PostgresStore::open(options.clone()));
    for opened in futures::future::join_all(openings).await {
        opened.unwrap();
    }
}

#[tokio::test]
async fn secrets_need_the_key_of_their_database() {
    let options = database();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    SecretStore::put(&store, "a", b"1", Timestamp::MAX).await.unwrap();
    drop(store);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = PostgresOptions { key_dir: elsewhere.path().to_owned(), ..options.clone() };
    let refused = PostgresStore::open(other.clone()).await.err().unwrap();
    assert!(matches!(refused, PostgresError::Key(_)) && refused.to_string().contains("missing"), "{refused}");
    std::fs::copy(options.key_dir.join(KEY_FILE), elsewhere.path().join(KEY_FILE)).unwrap();
    let store = PostgresStore::open(other).await.unwrap();
    let value = SecretStore::get(&store, "a", Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
}

#[tokio::test]
async fn a_url_with_a_password_or_in_plain_is_refused() {
    let of = |url: &str| PostgresOptions::new(url, "/nowhere".as_ref());
    for (url, said) in [
        ("postgresql://ann:secret@db/landfall", "password"),
        ("postgresql://ann@db/landfall?sslmode=prefer&password=secret", "password"),
        ("postgresql://db/landfall", "lacks"),
        ("mysql://ann@db/landfall", "invalid"),
        ("postgresql://ann@db/landfall?host=/run/postgresql", "both"),
    ] {
        let refused = of(url).err().unwrap().to_string();
        assert!(refused.contains(said) && !refused.contains("secret"), "{url}: {refused}");
    }
    let plain = PostgresStore::open(of("postgresql://ann@db.example/landfall").unwrap()).await.err().unwrap();
    assert!(matches!(&plain, PostgresError::Plain { host } if host == "db.example"), "{plain}");
    of("postgresql://ann@db.example/landfall?sslmode=disable").unwrap().check_encryption().unwrap();
}

#[tokio::test]
async fn an_unreadable_document_keeps_its_name() {
    let server = Server::start(&[]);
    let options = server.database();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    for name in ["m1", "m2"] {
        store.create(machine(name)).await.unwrap();
    }
    drop(store);
    server.sql("test0", "UPDATE documents SET json = replace(json, '\"spec\"', '\"speck\"') WHERE name = 'm2'");
    assert_eq!(PostgresStore::examine(options.clone()).await.unwrap().0.len(), 1);
    let store = PostgresStore::open(options).await.unwrap();
    let unreadable = store.unreadable();
    let [bad] = unreadable.as_slice() else { panic!("{unreadable:?}") };
    assert!(bad.name == "m2" && bad.why.contains("speck"), "{bad}");
    let refused = store.create(machine("m2")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unreadable { .. }), "{refused}");
    assert_eq!(DocumentStore::list(&store, Kind::Machine).await.unwrap().0.len(), 1);
    store.create(machine("m3")).await.unwrap();
    assert!(server.sql("test0", "SELECT json FROM documents WHERE name = 'm2'").contains("speck"), "it is kept");
    // Another coordinator, of another version, stores one that this one cannot read.
    let change = r#"BEGIN; UPDATE documents SET json = replace(json, '"spec"', '"speck"') WHERE name = 'm3';
         INSERT INTO changes (revision, op, kind, name, json, schema)
             SELECT l.revision + 1, 1, d.kind, d.name, d.json, d.schema FROM documents d, landfall l WHERE d.name = 'm3';
         UPDATE landfall SET revision = revision + 1; COMMIT"#;
    server.sql("test0", change);
    within(async {
        while store.unreadable().len() != 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // It is mended there.
        server.sql("test0", &change.replace(r#"'"spec"', '"speck"'"#, r#"'"speck"', '"spec"'"#));
        while store.unreadable().len() != 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(DocumentStore::get(&store, Kind::Machine, "m3").await.unwrap().is_some());
}
