//! What a store asks of its database before it is opened, and of the role, the settings and the key with which it is.

use std::time::{Duration, Instant};

use landfall_postgres::Server;

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
        PostgresStore::open(options.accepting_loss()).await.unwrap();
    }
    let server = Server::start(&[]);
    let options = server.database();
    server.sql("test0", "ALTER DATABASE test0 SET synchronous_commit = off");
    let refused = PostgresStore::open(options.clone()).await.err().unwrap();
    assert!(refused.to_string().contains("synchronous_commit = off"), "{refused}");
    PostgresStore::open(options.clone().accepting_loss()).await.unwrap();
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
    PostgresStore::open(options.accepting_loss()).await.unwrap();
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
    PostgresStore::open(weak.clone()).await.unwrap().create(machine("m1")).await.unwrap();
    server.sql("test0", "UPDATE landfall SET schema = schema - 1");
    assert!(refused().await.contains("does not own the tables"));
    server.sql("test0", "UPDATE landfall SET schema = schema + 1");
    // A member of the owner's role may do what that one may.
    server.sql("test0", "GRANT landfall TO weak");
    assert_eq!(remarked().await, None);
}

#[tokio::test]
async fn replicas_that_no_commit_awaits_are_counted() {
    let primary = Server::start(&[]);
    let options = primary.database();
    let _standby = Server::standby(&primary, &[], 5433);
    let replicas = async || PostgresStore::examine(options.clone()).await.unwrap().1.unawaited_replicas;
    assert_eq!(replicas().await, 0, "it is synchronous");
    primary.sql("postgres", "ALTER SYSTEM RESET synchronous_standby_names");
    primary.sql("postgres", "SELECT pg_reload_conf()");
    let begun = Instant::now();
    while replicas().await != 1 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (_, remarks) = PostgresStore::examine(options).await.unwrap();
    assert!(remarks.clock_ahead.unsigned_abs() < Duration::from_secs(5), "{remarks:?}");
}

#[tokio::test]
async fn connections_that_share_a_session_are_refused() {
    let link = Link::new(database());
    let (a, b) = (link.connect(Arc::default()).await.unwrap(), link.connect(Arc::default()).await.unwrap());
    checks::sessions(&a, &b).await.unwrap();
    let refused = checks::sessions(&a, &a).await.unwrap_err();
    assert!(matches!(refused, PostgresError::Pooled { .. }), "{refused}");
    a.batch_execute("SET idle_in_transaction_session_timeout = 0").await.unwrap();
    assert!(checks::sessions(&a, &b).await.is_err(), "a session without its settings");
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
