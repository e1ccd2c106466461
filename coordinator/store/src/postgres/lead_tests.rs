//! Coordinators of which one leads: it goes, falls silent, or loses its connection; and those that it sees.

use std::time::{Duration, Instant};

use landfall_api::{API_VERSION, ErrorCode};
use landfall_postgres::Server;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::server::Databases as _;
use super::tests::within;
use super::*;
use crate::CONFIRMED_WITHIN;
use crate::conformance::machine;

type Waiting = JoinHandle<Result<Lead, PostgresError>>;

async fn leads(options: &PostgresOptions, name: &str) -> Lead {
    within(Lead::wait(options.clone().named(name), |by| panic!("{by} leads"))).await.unwrap()
}

/// One that waits, once it knows who leads.
async fn waits(options: &PostgresOptions, name: &str, expects: &str) -> Waiting {
    let (says, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let leads = move |name: &str| drop(says.send(name.to_owned()));
    let waiting = tokio::spawn(Lead::wait(options.clone().named(name), leads));
    assert_eq!(within(hears.recv()).await.unwrap(), expects);
    waiting
}

async fn store(options: &PostgresOptions, name: &str) -> PostgresStore {
    within(PostgresStore::open(options.clone().named(name))).await.unwrap()
}

/// The store of a coordinator that has written five documents, and nothing else.
async fn with_five(options: &PostgresOptions) -> PostgresStore {
    let a = store(options, "a").await;
    for n in 0..5 {
        a.create(machine(&format!("m{n}"))).await.unwrap();
    }
    a
}

async fn sees(lead: &mut Lead, expected: &[&str]) {
    let expected = expected.iter().copied().collect::<There>();
    within(async { while lead.there().await.expect("it leads") != expected {} }).await;
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
async fn one_leads_until_its_session_ends() {
    let server = Server::start(&[]);
    let options = server.database();
    let a = leads(&options, "a").await;
    assert!((a.unconfirmed())() < Duration::from_secs(60));
    let (b, c) = (waits(&options, "b", "a").await, waits(&options, "c", "a").await);
    assert!(!b.is_finished() && !c.is_finished());
    let unconfirmed = a.unconfirmed();
    drop(a);
    assert_eq!(unconfirmed(), Duration::MAX);
    let (first, other) = match within(futures::future::select(b, c)).await {
        futures::future::Either::Left((first, other)) | futures::future::Either::Right((first, other)) => {
            (first, other)
        }
    };
    let first = first.unwrap().unwrap();
    assert!(!other.is_finished());
    drop(first);
    within(other).await.unwrap().unwrap();
}

#[tokio::test]
async fn one_that_is_cut_off_leads_no_more() {
    let (_server, near, far, network) = far().await;
    let mut a = leads(&far, "a").await;
    let b = waits(&near, "b", "a").await;
    network.send_replace(Network::Silent);
    let begun = Instant::now();
    let _b = within(b).await.unwrap().unwrap();
    // Its silence, and what it takes to look; a busy machine takes longer.
    assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!((a.unconfirmed())() > CONFIRMED_WITHIN);
    network.send_replace(Network::Works);
    within(async { while a.there().await.is_some() {} }).await;
    assert!((a.unconfirmed())() >= CONFIRMED_WITHIN);
}

#[tokio::test]
async fn the_leading_one_sees_who_comes_and_goes() {
    let (server, near, far, network) = far().await;
    let name = format!("https://{}", "b".repeat(80));
    let (a, b) = (store(&near, "a").await, store(&far, &name).await);
    let mut lead = leads(&near, "a").await;
    sees(&mut lead, &["a", &name[..63]]).await;
    assert!(["a", &name[..63]].into_iter().collect::<There>().has(&name));
    // A session that falls silent is ended, and its coordinator is not there; it comes back when it can.
    network.send_replace(Network::Silent);
    let begun = Instant::now();
    sees(&mut lead, &["a"]).await;
    assert!(b.unconfirmed() > CONFIRMED_WITHIN, "{:?}", b.unconfirmed());
    // What it is asked to write waits for the server as long as an answer may take, and is refused; the next one is refused at once.
    let refused = b.create(machine("m0")).await.unwrap_err();
    assert!(refused.code() == ErrorCode::StoreUnavailable && begun.elapsed() > Duration::from_secs(14), "{refused}");
    let begun = Instant::now();
    b.create(machine("m0")).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    network.send_replace(Network::Works);
    sees(&mut lead, &["a", &name[..63]]).await;
    writes_again(&b, "m1").await;
    drop(b);
    sees(&mut lead, &["a"]).await;
    assert!(a.unconfirmed() < Duration::from_secs(60));
    drop(server);
}

#[tokio::test]
async fn no_two_coordinators_have_one_name() {
    let server = Server::start(&[]);
    let options = server.database().named("a");
    let a = PostgresStore::open(options.clone()).await.unwrap();
    let refused = PostgresStore::open(options.clone()).await.err().unwrap();
    assert_eq!(refused.to_string(), "a has this database");
    drop(a);
    within(async { while PostgresStore::open(options.clone()).await.is_err() {} }).await;
}

#[tokio::test]
async fn what_is_done_alone_goes_by_all_that_others_stored() {
    let server = Server::start(&[]);
    let options = server.database();
    let (a, b) = (Arc::new(store(&options, "a").await), store(&options, "b").await);
    let held = b.hold(crate::Alone::Identity).await.unwrap();
    drop(b.hold(crate::Alone::Beginning).await.unwrap());
    let waits = tokio::spawn({
        let a = a.clone();
        async move { a.hold(crate::Alone::Identity).await.unwrap().seen.unwrap() }
    });
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while server.sql("test0", waiting) != "1" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stored = b.create(machine("m1")).await.unwrap().metadata().resource_version;
    drop(held);
    assert!(within(waits).await.unwrap() >= stored && is_there(&a, "m1").await);
    // Whose session is ended does it alone no more.
    let held = b.hold(crate::Alone::Identity).await.unwrap();
    assert!(held.holds());
    server.sql(
        "test0",
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'",
    );
    within(a.hold(crate::Alone::Identity)).await.unwrap();
    within(async {
        while held.holds() {
            tokio::time::sleep(Duration::from_millis(10)).await
        }
    })
    .await;
}

#[tokio::test]
async fn writes_of_a_turn_that_is_over_are_refused() {
    let server = Server::start(&[]);
    let options = server.database();
    let (a, b) = (store(&options, "a").await, store(&options, "b").await);
    let late = b.hold(crate::Alone::Secret).await.unwrap();
    late.during(b.create(machine("m1"))).await.unwrap();
    late.during(b.put("s", b"1", Timestamp::MAX)).await.unwrap();
    // As where it hangs: the server ends what it holds.
    server.sql(
        "test0",
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'",
    );
    let next = within(a.hold(crate::Alone::Secret)).await.unwrap();
    next.during(a.put("s", b"2", Timestamp::MAX)).await.unwrap();
    let refused = late.during(b.put("s", b"3", Timestamp::MAX)).await.unwrap_err();
    assert!(matches!(refused, StoreError::NotAlone), "{refused:?}");
    let refused = late.during(b.consume("s", Timestamp::now())).await.unwrap_err();
    assert!(matches!(refused, StoreError::NotAlone), "{refused:?}");
    let refused = late.during(b.create(machine("m2"))).await.unwrap_err();
    assert!(matches!(refused, StoreError::NotAlone), "{refused:?}");
    // Neither what goes by no turn, nor another thing's, nor its own next one.
    b.create(machine("m3")).await.unwrap();
    let other = b.hold(crate::Alone::Identity).await.unwrap();
    other.during(b.create(machine("m4"))).await.unwrap();
    next.during(a.create(machine("m2"))).await.unwrap();
    drop((late, next));
    let again = within(b.hold(crate::Alone::Secret)).await.unwrap();
    let taken = again.during(b.consume("s", Timestamp::now())).await.unwrap();
    assert_eq!(taken.as_deref(), Some(&b"2"[..]));
    assert_eq!(again.during(b.consume("s", Timestamp::now())).await.unwrap(), None);
    again.during(b.put("s", b"4", Timestamp::MAX)).await.unwrap();
    assert_eq!(SecretStore::get(&a, "s", Timestamp::now()).await.unwrap().as_deref(), Some(&b"4"[..]));
}

#[tokio::test]
async fn a_store_ends_the_connection_that_it_lost() {
    let (_server, _near, far, network) = far().await;
    let a = store(&far, "a").await;
    network.send_replace(Network::Half);
    writes_again(&a, "m1").await;
}

#[tokio::test]
async fn a_crash_of_the_server_is_survived_by_all() {
    let mut server = Server::start(&[]);
    let options = server.database();
    let (a, b) = (store(&options, "a").await, store(&options, "b").await);
    let mut lead = leads(&options, "a").await;
    server.crash();
    while a.create(machine("m0")).await.is_ok() {}
    let unconfirmed = a.unconfirmed();
    assert!((CONFIRMED_WITHIN..Duration::from_secs(60)).contains(&unconfirmed), "{unconfirmed:?}");
    assert!(within(lead.there()).await.is_none());
    server.start_again();
    writes_again(&a, "m1").await;
    writes_again(&b, "m2").await;
    let mut lead = within(Lead::wait(options.named("b"), |_| {})).await.unwrap();
    sees(&mut lead, &["a", "b"]).await;
}

#[tokio::test]
async fn an_older_version_is_left_at_work_alone() {
    let server = Server::start(&[]);
    let options = server.database();
    drop(store(&options, "new").await);
    // As it left the tables, and holds its lock.
    server.sql(
        "test0",
        "ALTER TABLE turn ADD id uuid NOT NULL DEFAULT gen_random_uuid(); ALTER TABLE runs DROP epoch;
         DROP TABLE turns;
         UPDATE landfall SET schema = 2",
    );
    let old = Link::new(options.clone().named("old")).connect(Arc::default()).await.unwrap();
    presence::lead(&old).await.unwrap();
    let refused = PostgresStore::open(options.clone()).await.err().unwrap();
    assert_eq!(refused.to_string(), "old has this database");
    assert!(PostgresStore::examine(options.clone()).await.unwrap().0.is_empty(), "looking disturbs no one");
    drop(old);
    within(async { while PostgresStore::open(options.clone()).await.is_err() {} }).await;
    assert_eq!(server.sql("test0", "SELECT schema FROM landfall"), schema::SCHEMA.to_string());
}

#[tokio::test]
async fn one_whose_database_went_back_starts_anew() {
    let server = Server::start(&[]);
    let options = server.database();
    let a = with_five(&options).await;
    // As a standby has it that missed the last three.
    server.sql(
        "test0",
        "BEGIN; UPDATE landfall SET revision = 2; DELETE FROM changes WHERE revision > 2; DELETE FROM history WHERE revision > 2;
         DELETE FROM documents WHERE name > 'm1'; COMMIT",
    );
    let refused = a.create(machine("m9")).await.unwrap_err();
    assert!(std::error::Error::source(&refused).unwrap().to_string().contains("went back to revision 2"), "{refused}");
    assert_eq!(within(DocumentStore::ended(&a)).await, Ended::WentBack);
    assert_eq!(a.unconfirmed(), Duration::MAX);
    let again = store(&options, "b").await;
    assert!(is_there(&again, "m1").await && !is_there(&again, "m2").await);
}

#[tokio::test]
async fn one_whose_past_others_have_replaced_starts_anew() {
    let server = Server::start(&[]);
    let options = server.database();
    let a = with_five(&options).await;
    // As it is when a standby takes over that missed the last one, and another coordinator has written two before this one is connected.
    server.sql(
        "test0",
        r#"BEGIN; UPDATE documents SET name = 'x4', json = replace(json, '"m4"', '"x4"') WHERE name = 'm4';
         UPDATE changes SET name = 'x4', json = replace(json, '"m4"', '"x4"') WHERE revision = 5;
         INSERT INTO documents SELECT kind, 'x5', replace(json, '"x4"', '"x5"'), schema FROM documents WHERE name = 'x4';
         INSERT INTO changes (revision, op, kind, name, json, schema)
             SELECT 6, 0, kind, name, json, schema FROM documents WHERE name = 'x5';
         UPDATE landfall SET revision = 6;
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'a'; COMMIT"#,
    );
    assert_eq!(within(DocumentStore::ended(&a)).await, Ended::WentBack);
    let again = store(&options, "b").await;
    assert!(is_there(&again, "x4").await && is_there(&again, "x5").await && !is_there(&again, "m4").await);
}

#[tokio::test]
async fn one_whose_own_change_was_the_last_goes_on() {
    let server = Server::start(&[]);
    let options = server.database();
    let a = store(&options, "a").await;
    // A number that is not the same once it is read again.
    let value: f64 = "0.9452706955539223".parse().unwrap();
    let spec = json!({"template": "os", "matchLabels": {"rack": "r7"}, "replicas": 1, "parameters": {"share": value}});
    let pool = json!({"apiVersion": API_VERSION, "kind": "Pool", "metadata": {"name": "web"}, "spec": spec});
    a.create(Document::from_value(pool).unwrap()).await.unwrap();
    for n in 0..3 {
        server.sql("test0", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'a'");
        writes_again(&a, &format!("m{n}")).await;
        if n == 1 {
            a.delete(Kind::Machine, "m1").await.unwrap();
        }
    }
}

#[tokio::test]
async fn one_that_cannot_be_watched_is_named() {
    let server = Server::start(&["track_activities=off"]);
    let options = server.database();
    let examined = async |options: &PostgresOptions| PostgresStore::examine(options.clone()).await.unwrap().1.unwatched;
    assert!(examined(&options).await.unwrap().contains("whether a coordinator works"));
    let _a = leads(&options, "a").await;
    let refused = within(Lead::wait(options.clone().named("b"), |_| {})).await.err().unwrap();
    assert!(matches!(&refused, PostgresError::Unwatched { by } if by == "a"), "{refused}");

    // Another role does not see what it does.
    let server = Server::start(&[]);
    let options = server.database();
    let a = store(&options, "a").await;
    assert_eq!(examined(&options).await, None);
    server.sql("test0", "CREATE ROLE other LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO other");
    let url = format!("postgresql://other@/test0?host={}", server.dir().display());
    let other = PostgresOptions::new(&url, &options.key_dir).unwrap();
    assert!(examined(&other).await.unwrap().contains("whether a works"));
    drop(a);
}
