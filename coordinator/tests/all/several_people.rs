//! People who ask several coordinators of one database: a watch goes on at another one, and a right that is taken away at one is
//! gone at all; what one was asked the other knows; one that hangs is left; BMCs.

use std::thread;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;
use landfall_api::{ConsoleLine, ConsoleRequest, ErrorCode, Kind, Role, TokenRequest};
use landfall_bmcsim::{BmcSim, PASSWORD, Quirks, USERNAME};
use landfall_client::{Client, ClientError, Identity, Lines, Scope};
use landfall_postgres::Server;
use landfall_store::{PostgresOptions, Store};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::several::{LEADS, LED, both, client, endpoint, pair, share, sites, start, until_asked};
use super::site::agent::{Agent, patient_template};
use super::site::{API, LIMIT, Site, call, document, machine};

/// The names and revisions of the next changes, up to that machine's first.
async fn changes_to(changes: &mut Lines<landfall_client::Change>, name: &str) -> Vec<(String, u64)> {
    let mut seen = Vec::new();
    loop {
        let change = timeout(LIMIT, changes.next()).await.unwrap().unwrap().unwrap();
        let object = change.object.unwrap_or_else(|| panic!("no document: {:?}, {:?}", change.kind, change.problem));
        seen.push((object["metadata"]["name"].as_str().unwrap().to_owned(), change.resource_version));
        if seen.last().unwrap().0 == name {
            return seen;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_at_another_coordinator() {
    let (_server, sites, [a, b]) = pair();
    let describe = |site: &Site, n: u8| {
        let described = site.api("POST", "/apply", &machine(&format!("m{n}"), &format!("52:54:00:00:00:{n:02x}")));
        described["object"]["metadata"]["resourceVersion"].as_u64().unwrap()
    };
    let machines = Scope::of(Kind::Machine, None);
    let at_a = client(&sites[..1]).await;
    let (none, from) = at_a.list(&machines).await.unwrap();
    assert!(none.is_empty());
    let mut changes = at_a.watch(&machines, from).await.unwrap();
    for n in 1..=6 {
        describe(&sites[usize::from(n) % 2], n);
    }
    let mut seen = changes_to(&mut changes, "m6").await;
    a.kill();
    // The stream ends with the coordinator. Another one has the rest of it, from the revision that came last.
    assert!(!matches!(timeout(LIMIT, changes.next()).await.unwrap(), Some(Ok(_))));
    describe(&sites[1], 7);
    let at_b = client(&sites).await;
    let last = seen.last().unwrap().1;
    seen.extend(changes_to(&mut at_b.watch(&machines, last).await.unwrap(), "m7").await);
    let whole = changes_to(&mut at_b.watch(&machines, from).await.unwrap(), "m7").await;
    assert_eq!(seen, whole);
    // Also from a revision that the other one has not heard of yet.
    b.until(LEADS, 1);
    let a = start(&sites[0], LED);
    for n in 8..28 {
        let revision = describe(&sites[1], n);
        let at_a = Client::local(&sites[0].data().join("api.sock")).unwrap();
        let mut changes = at_a.watch(&machines, revision).await.unwrap();
        let next = describe(&sites[1], n + 100);
        let name = format!("m{}", n + 100);
        assert_eq!(changes_to(&mut changes, &name).await, [(name, next)]);
    }
    drop(a);
}

#[test]
fn an_apply_at_one_changes_what_another_just_stored() {
    let (_server, sites, _running) = pair();
    let [one, other] = ["rack-1", "rack-2"].map(|rack| {
        let mut template = patient_template(&sites[0]);
        template["metadata"]["labels"] = json!({"rack": rack});
        template
    });
    sites[1].api("POST", "/apply", &one);
    for _ in 0..20 {
        for (site, template) in [(&sites[0], &other), (&sites[1], &one)] {
            assert_eq!(site.api("POST", "/apply", template)["outcome"], "configured");
        }
    }
}

/// Waits until the answer is that these credentials count for nothing; how long it took.
async fn until_refused(client: &Client) -> Duration {
    let begun = Instant::now();
    loop {
        match client.names(Kind::Machine).await {
            Err(ClientError::Problem(problem))
                if matches!(problem.code, ErrorCode::Unauthenticated | ErrorCode::Revoked) =>
            {
                return begun.elapsed();
            }
            Ok(_) => {}
            Err(other) => panic!("{other}"),
        }
        assert!(begun.elapsed() < LIMIT, "they count still");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_taken_away_at_one_are_gone_at_all() {
    let (_server, sites, _running) = pair();
    for (here, there) in [(0, 1), (1, 0)] {
        let local = Client::local(&sites[here].data().join("api.sock")).unwrap();
        let request = TokenRequest { name: "ci".into(), role: Role::Viewer, ttl: None };
        let made = local.create_token(&request).await.unwrap();
        let token = Identity::Token(made["value"].as_str().unwrap().to_owned());
        let asks = Client::new(&endpoint(&sites[there..=there], token)).await.unwrap();
        // Given at one, a right counts at the other within a second too.
        let begun = Instant::now();
        while asks.names(Kind::Machine).await.is_err() {
            assert!(begun.elapsed() < LIMIT, "it does not count");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        local.delete_token("ci").await.unwrap();
        println!("a deleted token was refused by the other one after {:?}", until_refused(&asks).await);
    }
    let admin = client(&sites[..1]).await;
    admin.names(Kind::Machine).await.unwrap();
    sites[1].api("POST", "/operators/admin/revoke", &Value::Null);
    println!("a revoked operator was refused by the other one after {:?}", until_refused(&admin).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_leaves_a_coordinator_that_hangs() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut server = Server::start(&[]);
    let url = server.create();
    let sites = sites([&url, &url]);
    let machines = Scope::of(Kind::Machine, None);
    // The second one comes later, so that the first one is asked.
    let a = start(&sites[0], LEADS);
    let asks = client(&sites).await;
    let mut changes = asks.watch(&machines, 0).await.unwrap();
    share(&sites[0].data(), &sites[1].data());
    let _b = start(&sites[1], LED);
    a.signal(Signal::SIGSTOP);
    let begun = Instant::now();
    until_it_ends(&mut changes).await;
    println!("noticed after {:?}", begun.elapsed());
    asks.names(Kind::Machine).await.unwrap();
    println!("the other one has answered after {:?}", begun.elapsed());
    a.signal(Signal::SIGCONT);

    // One that has lost its store, beside others, ends its answers.
    drop(a);
    let mut changes = client(&sites[1..]).await.watch(&machines, 0).await.unwrap();
    server.crash();
    until_it_ends(&mut changes).await;
    server.start_again();
}

async fn until_it_ends(changes: &mut Lines<landfall_client::Change>) {
    let end = async { while let Some(Ok(_)) = changes.next().await {} };
    timeout(LIMIT, end).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_was_asked_the_other_knows() {
    let (_server, sites, [_a, b]) = pair();
    let at_a = client(&sites[..1]).await;
    let mut audit = at_a.audit(0, 1000, true).await.unwrap();
    for n in 0..10 {
        let name = format!("m{n}");
        sites[1].api("POST", "/apply", &machine(&name, &format!("52:54:00:00:00:{n:02x}")));
        at_a.get(Kind::Machine, &name).await.unwrap();
    }
    let noted = async { while audit.next().await.unwrap().unwrap()["subject"] != "machine/m9" {} };
    timeout(LIMIT, noted).await.unwrap();
    // What a request names in its body it knows as it is.
    let mut template = patient_template(&sites[1]);
    for attempts in 2..12 {
        template["spec"]["actions"][0]["retry"]["maxAttempts"] = attempts.into();
        sites[1].api("POST", "/apply", &template);
        let list = sites[0].api("POST", "/machines/m0/render", &json!({"template": "os"}));
        assert_eq!(list["actions"][0]["retry"]["maxAttempts"], attempts, "{list}");
    }
    // A person may change a document at one after the other.
    for n in 0..20 {
        template["spec"]["actions"][0]["retry"]["maxAttempts"] = (n + 20).into();
        let answer = sites[n % 2].api("POST", "/apply", &template);
        assert_eq!(answer["outcome"], "configured");
        // Also by the version that the other one has answered.
        template["metadata"]["resourceVersion"] = answer["object"]["metadata"]["resourceVersion"].clone();
    }
    // The agent is with the second one, and is asked to look at its machine through the first one.
    sites[1].api("POST", "/apply", &patient_template(&sites[1]));
    let agent = Agent::start(&sites[1], &sites[1].data().join("api.sock"), "m1", "52:54:00:00:00:01").await;
    b.until("session opened machine=m1 epoch=1", 1);
    let at_b = format!("\"coordinator\":\"{}\"", sites[1].url());
    until_asked(&sites[0], &format!("{API}/machines/m1"), |answer| answer.contains(&at_b));
    at_a.act(Kind::Machine, "m1", "inspect", None).await.unwrap();
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn bmcs_are_reached_through_every_coordinator() {
    let (_server, sites, [a, b]) = pair();
    let bmc = BmcSim::start_ipmi(Quirks::default()).await;
    let secret = json!({"data": {"username": USERNAME, "password": PASSWORD}, "bmcs": ["127.0.0.0/8"]});
    sites[1].api("POST", "/apply", &document("Secret", "bmc", secret));
    let mut described = machine("m1", "52:54:00:00:00:01");
    described["spec"]["bmc"] = json!({"address": bmc.address(), "credentials": "bmc"});
    sites[1].api("POST", "/apply", &described);
    let at_b = client(&sites[1..]).await;
    // The first one leads: the second one passes it on.
    for (action, is_on) in [("on", true), ("off", false)] {
        switches(&at_b, action).await;
        bmc.until(action, |seen| seen.computer.is_on == is_on).await;
    }
    // The end of one is noted in the name of the person who asked.
    let local = Client::local(&sites[1].data().join("api.sock")).unwrap();
    let mut console = local.open_console("m1", &ConsoleRequest::default()).await.unwrap();
    assert!(matches!(next(&mut console).await, ConsoleLine::Opened(_)));
    drop(console);
    let is_noted = |line: &str| line.contains("CLOSE ") && line.contains(r#""who":"local/"#);
    until_asked(&sites[0], &format!("{API}/audit"), |answer| answer.lines().any(is_noted));
    let mut console = at_b.open_console("m1", &ConsoleRequest::default()).await.unwrap();
    let ConsoleLine::Opened(id) = next(&mut console).await else { panic!("the first line is the id") };
    bmc.writes(b"login: ");
    assert!(matches!(next(&mut console).await, ConsoleLine::Output(characters) if characters.0 == b"login: "));
    let input = json!({"console": id, "number": 1, "characters": "cm9vdA0="});
    at_b.type_at_console("m1", &serde_json::from_value(input).unwrap()).await.unwrap();
    bmc.until("what was typed", |seen| seen.serial.typed == b"root\r").await;

    // Without the first one, the second one does all of it itself.
    a.kill();
    while !matches!(timeout(LIMIT, console.next()).await.unwrap(), None | Some(Err(_))) {}
    b.until(LEADS, 1);
    switches(&at_b, "on").await;
    bmc.until("on", |seen| seen.computer.is_on).await;
    let again = ConsoleRequest { take_over: true, ..ConsoleRequest::default() };
    let mut console = at_b.open_console("m1", &again).await.unwrap();
    assert!(matches!(next(&mut console).await, ConsoleLine::Opened(_)));
    bmc.writes(b"ready");
    while !matches!(next(&mut console).await, ConsoleLine::Output(characters) if characters.0 == b"ready") {}
}

/// Asks for that until it is done: what keeps a BMC begins a moment after its machine was described, or its coordinator leads.
async fn switches(client: &Client, action: &str) {
    let begun = Instant::now();
    while let Err(refused) = client.act(Kind::Machine, "m1", "power", Some(&json!({"action": action}))).await {
        let is_early = matches!(&refused, ClientError::Problem(problem)
            if problem.code == ErrorCode::StoreUnavailable || problem.message.contains("ask again in a moment"));
        assert!(is_early && begun.elapsed() < LIMIT, "{refused}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn next(console: &mut Lines<ConsoleLine>) -> ConsoleLine {
    timeout(LIMIT, console.next()).await.unwrap().unwrap().unwrap()
}

#[tokio::test]
async fn a_secret_has_the_values_of_the_write_that_counts() {
    let server = Server::start(&[]);
    let url = server.create();
    let sites = sites([&url, &url]);
    let _running = both(&sites);
    let store = Store::open_postgres(PostgresOptions::new(&url, &sites[0].data()).unwrap()).await.unwrap();
    let apply = |site: &Site, value: &str, version: u64| {
        let metadata = json!({"name": "s", "resourceVersion": version});
        let mut secret = document("Secret", "s", json!({"data": {"key": value}}));
        secret["metadata"] = metadata;
        let (status, answer) = call(&site.data().join("api.sock"), "POST", &format!("{API}/apply"), &secret).unwrap();
        assert!(matches!(status, 200 | 409), "{status} {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        (status == 200).then(|| answer["object"]["metadata"]["resourceVersion"].as_u64().unwrap())
    };
    let mut version = apply(&sites[0], "first", 0).unwrap();
    for n in 0..20 {
        // At both at once, of the same version.
        let written: Vec<_> = thread::scope(|scope| {
            let both =
                sites.each_ref().map(|site| scope.spawn(|| apply(site, &format!("{n} {}", site.url()), version)));
            both.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let ([Some(newer), None] | [None, Some(newer)]) = written[..] else { panic!("{written:?}") };
        let counts = &sites[usize::from(written[0].is_none())];
        let values = store.secrets().get("secret/s", Timestamp::MIN).await.unwrap().unwrap();
        let values: Value = serde_json::from_slice(&values).unwrap();
        assert_eq!(values["data"]["key"], format!("{n} {}", counts.url()));
        version = newer;
    }
}
