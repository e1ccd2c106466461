//! Stores that meet a fault, or one another: sessions that are lost, hosts that are silent, first events at once.

use std::time::Duration;

use landfall_postgres::Server;
use uuid::Uuid;

use super::server::Databases as _;
use super::tests::within;
use super::*;
use crate::conformance::{event, machine};

#[tokio::test]
async fn a_store_connects_again_after_an_error_without_disconnect() {
    let server = Server::start(&[]);
    let store = PostgresStore::open(server.database()).await.unwrap();
    // What it asks for is refused, on a connection that goes on.
    server.sql("test0", "ALTER TABLE changes RENAME TO elsewhere");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.sql("test0", "ALTER TABLE elsewhere RENAME TO changes");
    within(async {
        while store.create(machine("m1")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_dead_first_host_does_not_keep_the_second_away() {
    let port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port();
    let server = Server::prepared(&["listen_addresses=127.0.0.1"], port, &[]);
    let key_dir = server.database().key_dir;
    // The system takes its connections, and none is answered.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = silent.local_addr().unwrap().port();
    for first in [format!("127.0.0.1:{dead}"), "nowhere.invalid:1".to_owned()] {
        let url = format!("postgresql://landfall@{first},127.0.0.1:{port}/test0?sslmode=disable");
        let store = within(PostgresStore::open(PostgresOptions::new(&url, &key_dir).unwrap())).await.unwrap();
        assert!(store.runs().await.unwrap().is_empty());
        let backend = "SELECT DISTINCT current_setting('tcp_keepalives_idle') || current_setting('tcp_user_timeout')";
        let settings = store.reader.rows(backend, &[]).await.unwrap();
        assert_eq!(settings[0].get::<_, String>(0), "1015000");
    }
}

#[tokio::test]
async fn first_events_of_two_stores_become_visible_in_order() {
    let server = Server::start(&[]);
    let options = server.database();
    let (a, b) =
        (PostgresStore::open(options.clone()).await.unwrap(), PostgresStore::open(options.clone()).await.unwrap());
    // The first attempt has its position, and is not committed for a time.
    server.sql(
        "test0",
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$;
         CREATE TRIGGER slow AFTER INSERT ON events FOR EACH ROW WHEN (NEW.attempt = 1) EXECUTE FUNCTION wait()",
    );
    let run = Uuid::new_v4();
    let later = async {
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while server.sql("test0", asleep) != "1" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        EventLog::append(&b, 1, vec![event(run, 2, 1)]).await.unwrap();
        EventLog::list(&b, run, 0, 10).await.unwrap().len()
    };
    let (first, seen) = within(async { tokio::join!(EventLog::append(&a, 1, vec![event(run, 1, 1)]), later) }).await;
    assert!(first.is_ok() && seen == 2, "{first:?}, {seen} seen");
    // A workflow whose only events are refused has no run.
    EventLog::append(&a, 1, vec![event(Uuid::new_v4(), 1, 2)]).await.unwrap_err();
    assert_eq!(server.sql("test0", "SELECT count(*) FROM runs"), "1");
}
