//! Stores that wait for their turn: the one that has the database goes, falls silent, or loses its connection.

use std::time::{Duration, Instant};

use landfall_postgres::Server;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::server::Databases as _;
use super::tests::within;
use super::*;
use crate::CONFIRMED_WITHIN;
use crate::conformance::{event, machine};

type Waiting = JoinHandle<Result<PostgresStore, PostgresError>>;

async fn active(options: &PostgresOptions, name: &str) -> PostgresStore {
    within(PostgresStore::open_in_turn(options.clone().named(name), |by| panic!("{by} has it"))).await.unwrap()
}

/// One that waits, once it knows who has the database.
async fn standby(options: &PostgresOptions, name: &str, expects: &str) -> Waiting {
    let (says, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let has_it = move |name: &str| drop(says.send(name.to_owned()));
    let waiting = tokio::spawn(PostgresStore::open_in_turn(options.clone().named(name), has_it));
    assert_eq!(within(hears.recv()).await.unwrap(), expects);
    waiting
}

async fn is_there(store: &PostgresStore, name: &str) -> bool {
    DocumentStore::get(store, Kind::Machine, name).await.unwrap().is_some()
}

async fn writes_again(store: &PostgresStore, name: &str) {
    within(async {
        while store.create(machine(name)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// What happens to connections between a store and its server.
#[derive(Clone, Copy, PartialEq)]
enum Network {
    Works,
    /// Nothing passes, and neither side notices.
    Silent,
    /// The store's side sees that the connection is gone, the server's does not.
    Half,
}

/// A server that can be reached on loopback, and a second way to it over a network with faults.
async fn far() -> (Server, PostgresOptions, PostgresOptions, watch::Sender<Network>) {
    let [port, faulty] = landfall_edge::testing::ports();
    let server = Server::prepared(&["listen_addresses=127.0.0.1"], port, &[]);
    let near = server.database();
    let url = format!("postgresql://landfall@127.0.0.1:{faulty}/test0?sslmode=disable");
    let far = PostgresOptions::new(&url, &near.key_dir).unwrap();
    let (network, state) = watch::channel(Network::Works);
    let listener = TcpListener::bind(("127.0.0.1", faulty)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((store, _)) = listener.accept().await {
            tokio::spawn(pass(store, port, state.clone()));
        }
    });
    (server, near, far, network)
}

async fn pass(mut store: TcpStream, port: u16, mut network: watch::Receiver<Network>) {
    let silent = |network: &Network| *network == Network::Silent;
    if network.wait_for(|network| !silent(network)).await.is_err() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    // One that comes in `Half` works.
    network.mark_unchanged();
    let changed = tokio::select! {
        _ended = copy_bidirectional(&mut store, &mut server) => return,
        changed = network.changed() => changed,
    };
    match changed {
        Ok(()) if *network.borrow() == Network::Half => {
            drop(store);
            // Until the test ends.
            while network.changed().await.is_ok() {}
            drop(server);
        }
        _silent => drop(network.wait_for(|network| !silent(network)).await),
    }
}

#[tokio::test]
async fn the_next_has_all_that_the_first_acknowledged() {
    let server = Server::start(&[]);
    let options = server.database();
    let a = active(&options, "a").await;
    assert!(a.unconfirmed() < Duration::from_secs(60));
    let refused = PostgresStore::open(options.clone().alone()).await.err().unwrap();
    assert_eq!(refused.to_string(), "a has this database");
    assert!(PostgresStore::examine(options.clone()).await.unwrap().is_empty(), "looking disturbs no one");
    let (b, c) = (standby(&options, "b", "a").await, standby(&options, "c", "a").await);
    a.create(machine("m1")).await.unwrap();
    assert!(!b.is_finished() && !c.is_finished());
    drop(a);
    let (first, other) = match within(futures::future::select(b, c)).await {
        futures::future::Either::Left((first, other)) | futures::future::Either::Right((first, other)) => {
            (first, other)
        }
    };
    let first = first.unwrap().unwrap();
    assert!(is_there(&first, "m1").await && !other.is_finished());
    drop(first);
    assert!(is_there(&within(other).await.unwrap().unwrap(), "m1").await);
}

#[tokio::test]
async fn one_that_is_cut_off_loses_the_database_for_good() {
    let (_server, near, far, network) = far().await;
    let a = active(&far, "a").await;
    let b = standby(&near, "b", "a").await;
    network.send_replace(Network::Silent);
    let begun = Instant::now();
    let b = within(b).await.unwrap().unwrap();
    // Its silence, and what it takes to look; a busy machine takes longer.
    assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
    b.create(machine("m1")).await.unwrap();
    assert!(a.unconfirmed() > Duration::from_secs(4), "{:?}", a.unconfirmed());
    network.send_replace(Network::Works);
    assert_eq!(within(DocumentStore::ended(&a)).await, Ended::Taken);
    assert_eq!(a.unconfirmed(), Duration::MAX);
    assert!(a.create(machine("m2")).await.is_err());
    b.create(machine("m2")).await.unwrap();
}

#[tokio::test]
async fn one_alone_ends_the_session_that_it_lost() {
    let (_server, _near, far, network) = far().await;
    let a = active(&far, "a").await;
    network.send_replace(Network::Half);
    writes_again(&a, "m1").await;
}

/// However often others look.
#[tokio::test]
async fn none_comes_between_two_sessions_of_one_store() {
    let server = Server::start(&[]);
    let options = server.database();
    let link = Link::new(options.clone());
    let connect = async || link.connect(Arc::default()).await.unwrap();
    let first = connect().await;
    drop(PostgresStore::open(options).await.unwrap());
    turn::take(&first).await.unwrap();
    let mut turn = Turn::begin(&first).await.unwrap();
    let (other, mut sessions) = (connect().await, vec![first]);
    let hurry = tokio::spawn(async move { while let Err(PostgresError::InUse { .. }) = turn::take(&other).await {} });
    for _ in 0..20 {
        let next = connect().await;
        within(turn.resume(&next, &link)).await.unwrap();
        sessions.push(next);
    }
    assert!(!hurry.is_finished());
    drop((sessions, server));
}

#[tokio::test]
async fn after_a_crash_of_the_server_the_first_has_precedence() {
    let mut server = Server::start(&[]);
    let options = server.database();
    let a = active(&options, "a").await;
    let b = standby(&options, "b", "a").await;
    server.crash();
    while a.create(machine("m0")).await.is_ok() {}
    // Another could have the database by now, and none is in such a hurry.
    let unconfirmed = a.unconfirmed();
    assert!((CONFIRMED_WITHIN..Duration::from_secs(60)).contains(&unconfirmed), "{unconfirmed:?}");
    server.start_again();
    writes_again(&a, "m1").await;
    assert!(!b.is_finished());
    drop(a);
    assert!(is_there(&within(b).await.unwrap().unwrap(), "m1").await);
}

#[tokio::test]
async fn one_whose_turn_is_over_writes_nothing_beside_its_session() {
    let server = Server::start(&[]);
    let options = server.database();
    let a = active(&options, "a").await;
    SecretStore::put(&a, "mine", b"1", Timestamp::MAX).await.unwrap();
    let run = Uuid::new_v4();
    EventLog::append(&a, vec![event(run, 1, 1)]).await.unwrap();
    // As another one does that has ended this one's session, which does not know it yet.
    server.sql("test0", "UPDATE turn SET id = gen_random_uuid()");
    let refused = SecretStore::put(&a, "mine", b"2", Timestamp::MAX).await.unwrap_err();
    assert!(std::error::Error::source(&refused).unwrap().to_string().contains("taken this one's place"), "{refused}");
    SecretStore::consume(&a, "mine", Timestamp::MIN).await.unwrap_err();
    a.forget(run).await.unwrap_err();
    a.trim_history(Timestamp::MAX, 0).await.unwrap_err();
    let counts = "SELECT (SELECT count(*) FROM events) || ' ' || (SELECT count(*) FROM secrets)";
    assert_eq!(server.sql("test0", counts), "1 1");
    // Once its session is lost, it finds that another one had a turn, although that one is gone.
    server.sql("test0", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'a'");
    assert_eq!(within(DocumentStore::ended(&a)).await, Ended::Taken);
}

#[tokio::test]
async fn what_the_former_one_still_writes_holds_up_no_takeover() {
    let server = Server::start(&[]);
    let options = server.database();
    let a = active(&options, "a").await;
    let b = standby(&options, "b", "a").await;
    // As a statement of one that died, which the server carries out to its end.
    let hung = Link::new(options.clone()).connect(Arc::default()).await.unwrap();
    hung.batch_execute("SET statement_timeout = 0; BEGIN; SELECT FROM turn FOR SHARE").await.unwrap();
    let begun = Instant::now();
    let sleeps = tokio::spawn(async move { hung.batch_execute("SELECT pg_sleep(300)").await });
    drop(a);
    let b = within(b).await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    sleeps.await.unwrap().unwrap_err();
    writes_again(&b, "m1").await;
}

#[tokio::test]
async fn one_whose_database_went_back_starts_anew() {
    let server = Server::start(&[]);
    let options = server.database();
    let a = active(&options, "a").await;
    for n in 0..5 {
        a.create(machine(&format!("m{n}"))).await.unwrap();
    }
    // As a standby has it that missed the last three.
    server.sql(
        "test0",
        "BEGIN; UPDATE landfall SET revision = 2; DELETE FROM changes WHERE revision > 2; DELETE FROM history WHERE revision > 2;
         DELETE FROM documents WHERE name > 'm1'; COMMIT",
    );
    let refused = a.create(machine("m9")).await.unwrap_err();
    assert!(std::error::Error::source(&refused).unwrap().to_string().contains("went back to revision 2"), "{refused}");
    assert_eq!(within(DocumentStore::ended(&a)).await, Ended::Taken);
    drop(a);
    let again = within(PostgresStore::open_in_turn(options.clone(), |_| {})).await.unwrap();
    assert!(is_there(&again, "m1").await && !is_there(&again, "m2").await);
}

#[tokio::test]
async fn one_that_cannot_be_watched_is_named() {
    let server = Server::start(&["track_activities=off"]);
    let options = server.database();
    let _a = active(&options, "a").await;
    let refused = within(PostgresStore::open_in_turn(options.clone().named("b"), |_| {})).await.err().unwrap();
    assert!(matches!(&refused, PostgresError::Unwatched { by } if by == "a"), "{refused}");
}

#[tokio::test]
async fn a_standby_with_another_key_does_not_wait() {
    let server = Server::start(&[]);
    let options = server.database();
    let _a = active(&options, "a").await;
    let elsewhere = tempfile::tempdir().unwrap();
    let without = PostgresOptions { key_dir: elsewhere.path().to_owned(), ..options };
    let refused = within(PostgresStore::open_in_turn(without, |_| {})).await.err().unwrap();
    assert!(matches!(refused, PostgresError::Key(_)), "{refused}");
}
