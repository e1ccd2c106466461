//! Two real coordinators over one PostgreSQL database: both are at work, and one leads; it is killed, hangs, and is stopped. A store that
//! moves there and back.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use landfall_api::message::{ActionRef, LogLevel};
use landfall_boot::dhcp::lease_file::LeaseFile;
use landfall_client::{Client, Endpoint, Identity, Trust};
use landfall_postgres::Server;
use landfall_session::{Instruction, SessionConfig};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::site::agent::{Agent, begin, boot_script, enrolled, patient_template, script_of_one, target};
use super::site::{API, Coordinator, LIMIT, Site, call, machine, program, run};

pub(crate) const LEADS: &str = "this coordinator leads";
pub(crate) const LED: &str = "another coordinator leads";

/// Sites with one store, each with a URL of its own for it, and each of which names the others.
pub(crate) fn sites<const N: usize>(urls: [&str; N]) -> [Site; N] {
    let sites = urls.map(|_| Site::new());
    share_store(&sites, urls);
    sites
}

fn share_store<const N: usize>(sites: &[Site; N], urls: [&str; N]) {
    for (site, url) in sites.iter().zip(urls) {
        let config = std::fs::read_to_string(site.config()).unwrap();
        let others = sites.iter().filter(|other| other.url() != site.url());
        let others: Vec<_> = others.map(|other| format!("{:?}", other.url())).collect();
        let (others, store) = (others.join(", "), format!("[store]\nurl = \"{url}\""));
        std::fs::write(site.config(), format!("others = [{others}]\n{config}{store}\n")).unwrap();
    }
}

/// What each host is given of the first: the key of the secrets.
pub(crate) fn share(from: &Path, to: &Path) {
    DirBuilder::new().mode(0o700).create(to).unwrap();
    std::fs::copy(from.join("secrets.key"), to.join("secrets.key")).unwrap();
}

pub(crate) fn start(site: &Site, until: &str) -> Coordinator {
    start_program(program().as_ref(), site, until)
}

/// The same with a program of the caller's choice.
pub(crate) fn start_program(program: &Path, site: &Site, until: &str) -> Coordinator {
    Coordinator::spawn_until(Command::new(program).arg("--config").arg(site.config()), until)
}

/// How to reach these over the network.
pub(crate) fn endpoint(sites: &[Site], identity: Identity) -> Endpoint {
    let urls: Vec<_> = sites.iter().map(Site::url).collect();
    let ca = Trust::Ca(sites[0].data().join("admin/ca.pem"));
    Endpoint { server: urls.join(",").parse().unwrap(), trust: Some(ca), identity: Some(identity) }
}

/// A client over the network which knows all of them, with the first operator's certificate.
pub(crate) async fn client(sites: &[Site]) -> Client {
    let [cert, key] = ["admin.pem", "admin.key"].map(|name| sites[0].data().join("admin").join(name));
    Client::new(&endpoint(sites, Identity::Certificate { cert, key })).await.unwrap()
}

/// The first of the two, which leads, and the second beside it.
pub(crate) fn both(sites: &[Site; 2]) -> [Coordinator; 2] {
    let first = start(&sites[0], LEADS);
    share(&sites[0].data(), &sites[1].data());
    [first, start(&sites[1], LED)]
}

/// A server, and two coordinators over a database of it, of which the first one leads. Bound in this order, the server ends last.
pub(crate) fn pair() -> (Server, [Site; 2], [Coordinator; 2]) {
    // Done already by another test of this process, it has no effect.
    drop(rustls::crypto::ring::default_provider().install_default());
    let server = Server::start(&[]);
    let url = server.create();
    let sites = sites([&url, &url]);
    let running = both(&sites);
    (server, sites, running)
}

pub(crate) fn asked(site: &Site, path: &str) -> (u16, String) {
    call(&site.data().join("api.sock"), "GET", path, &Value::Null).unwrap()
}

/// Waits for an answer in which this is so.
pub(crate) fn until_asked(site: &Site, path: &str, is_so: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let (_, answer) = asked(site, path);
        if is_so(&answer) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{path}: {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn all_coordinators_are_at_work_and_one_leads() {
    let server = Server::start(&[]);
    let url = server.create();
    let sites = sites([&url, &url]);
    let [a, b] = both(&sites);
    sites[1].api("POST", "/apply", &machine("m1", "52:54:00:00:00:01"));
    for site in &sites {
        until_asked(site, &format!("{API}/machines"), |answer| answer.contains("\"m1\""));
        assert_eq!(asked(site, "/readyz").0, 200);
    }
    for (site, leads) in [(&sites[0], "landfall_active 1\n"), (&sites[1], "landfall_active 0\n")] {
        let (status, counted) = asked(site, "/metrics");
        assert!(status == 200 && counted.contains(leads), "{status}: {counted}");
    }
    // Of what one alone does, the other one asks that.
    let (status, answer) = asked(&sites[1], &format!("{API}/manifests"));
    assert!(status == 200 && answer.contains("directory"), "{status}: {answer}");
    let asks = |site: &Site| {
        call(&site.data().join("api.sock"), "POST", &format!("{API}/machines/m1/power"), &json!({"action": "status"}))
    };
    let (here, there) = (asks(&sites[0]).unwrap(), asks(&sites[1]).unwrap());
    assert!(here.0 == 404 && here.1.contains("neither a BMC"), "{here:?}");
    assert_eq!(here, there);
    let noted = |who: &str| asked(&sites[0], &format!("{API}/audit")).1.matches(who).count();
    assert_eq!(noted("machines/m1/power"), 2, "once a request");
    let config = sites[1].config();
    let (is_well, said) = run(&["doctor", "--config", config.to_str().unwrap()]);
    assert!(is_well && said.contains("another one leads"), "{said}");

    // Killed: the other one leads at once.
    let begun = Instant::now();
    a.kill();
    b.until(LEADS, 1);
    println!("leads {:?} after the kill", begun.elapsed());
    let ca = |site: &Site| std::fs::read(site.data().join("pki/ca.pem")).unwrap();
    assert_eq!(ca(&sites[0]), ca(&sites[1]));
    sites[1].api("POST", "/apply", &machine("m2", "52:54:00:00:00:02"));

    // Hung: its session is ended. When it goes on, it works beside the other, and does not lead.
    let a = start(&sites[0], LED);
    b.signal(Signal::SIGSTOP);
    a.until(LEADS, 1);
    assert_eq!(sites[0].api("GET", "/machines/m2", &Value::Null)["metadata"]["name"], "m2");
    b.signal(Signal::SIGCONT);
    b.until(LED, 2);
    // Its connection for writes may have been ended too: until it has another, it refuses.
    let (path, m3, begun) = (format!("{API}/apply"), machine("m3", "52:54:00:00:00:03"), Instant::now());
    while call(&sites[1].data().join("api.sock"), "POST", &path, &m3).unwrap().0 == 503 {
        assert!(begun.elapsed() < LIMIT, "it has no other connection: {}", b.said());
        std::thread::sleep(Duration::from_millis(20));
    }

    // Stopped, as for an upgrade.
    a.signal(Signal::SIGTERM);
    b.until(LEADS, 2);
    assert_eq!(sites[1].api("GET", "/machines/m3", &Value::Null)["metadata"]["name"], "m3");
}

#[test]
fn one_that_cannot_write_gives_up_the_lead() {
    let (server, sites, [a, b]) = pair();
    // As a newer version leaves the tables: a session goes on, and a new one is refused. The one that writes is lost, the one that leads not.
    let schema = server.sql("test0", "SELECT schema FROM landfall");
    let writes = format!(
        "FROM pg_locks JOIN pg_stat_activity USING (pid)
         WHERE locktype = 'advisory' AND objid = x'0e94a3c2'::int::oid AND application_name = '{}'",
        sites[0].url()
    );
    assert_eq!(server.sql("test0", &format!("SELECT count(*) {writes}")), "1");
    let begun = Instant::now();
    server.sql("test0", &format!("UPDATE landfall SET schema = 99; SELECT pg_terminate_backend(pid) {writes}"));
    b.until(LEADS, 1);
    println!("leads {:?} after the other one could not write any more", begun.elapsed());
    assert!(a.said().contains("gives up the lead"), "{}", a.said());
    sites[1].api("POST", "/apply", &machine("m1", "52:54:00:00:00:01"));
    server.sql("test0", &format!("UPDATE landfall SET schema = {schema}"));
    until_asked(&sites[0], &format!("{API}/machines"), |answer| answer.contains("\"m1\""));
    a.until(LED, 1);
    assert_eq!(a.said().matches(LEADS).count(), 1, "{}", a.said());
}

#[test]
fn a_server_that_loses_writes_needs_consent() {
    let server = Server::start(&["fsync=off"]);
    let [site] = sites([&server.create()]);
    let config = site.config();
    let path = config.to_str().unwrap();
    for asked in [&["doctor", "--config", path][..], &["--config", path]] {
        let (is_well, said) = run(asked);
        assert!(!is_well && said.contains("fsync = off"), "{asked:?}: {said}");
    }
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}accept = [\"settings\"]\n")).unwrap();
    let (is_well, said) = run(&["doctor", "--config", path]);
    assert!(is_well && said.contains("no server copies the database"), "{said}");
    drop(start(&site, LEADS));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_reached_through_every_coordinator() {
    let (_server, sites, [a, b]) = pair();
    let socket = |site: &Site| site.data().join("api.sock");
    sites[1].api("POST", "/apply", &patient_template(&sites[1]));
    // The other one it knows by its welcome alone.
    let agent = Agent::start_by(script_of_one, &sites[1], &socket(&sites[1]), "m1", "52:54:00:00:00:01").await;
    agent.report(1).await;
    agent.handle.flush(LIMIT).await.unwrap();
    b.until("session opened machine=m1 epoch=1", 1);
    // Its log is where its session is, and can be read everywhere.
    agent.say(2, "hello from the agent");
    let logs = format!("{API}/workflows/{}/logs", agent.name);
    for site in &sites {
        until_asked(site, &logs, |answer| answer.contains("hello from the agent"));
    }
    // What is asked at the other one reaches it: it connects again, and hears of it.
    sites[0].api("POST", &format!("/workflows/{}/pause", agent.name), &json!({}));
    b.until("another coordinator has changed what the agent is to do", 1);
    let heard = || agent.heard.lock().unwrap().iter().any(|heard| heard.contains("paused: true"));
    let begun = Instant::now();
    while !heard() {
        assert!(begun.elapsed() < LIMIT, "{:?}", agent.heard.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let named = |url: String| move |answer: &str| answer.contains(&format!("\"coordinator\":\"{url}\""));
    until_asked(&sites[0], &format!("{API}/machines/m1"), named(sites[1].url()));
    let counted = format!("landfall_connected_machines{{coordinator=\"{}\"}} 1\n", sites[1].url());
    for site in &sites {
        until_asked(site, "/metrics", |answer| answer.contains(&counted));
    }
    // A port that one did not serve shows at both, until its machine is heard at any.
    let sightings = format!("{API}/sightings");
    for site in &sites {
        boot_script(&sites[0], "52:54:00:00:00:01&arch=arm64");
        until_asked(site, &sightings, |answer| answer.contains("\"machine\":\"m1\""));
    }
    b.kill();
    // Of the attempt that it was at before; a line may be on its way to the one that was killed.
    until_asked(&sites[0], &logs, |answer| {
        agent.say(2, "goes on");
        answer.contains("goes on")
    });
    agent.report(2).await;
    agent.handle.flush(LIMIT).await.unwrap();
    until_asked(&sites[0], &format!("{API}/machines/m1"), named(sites[0].url()));
    // It is named: what it alone has seen is not there.
    let without = format!("{{\"items\":[],\"missing\":[\"{}\"]}}", sites[1].url());
    until_asked(&sites[0], &sightings, |answer| answer == without);
    drop(a);
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_logs_end_where_the_agent_leaves() {
    let (_server, sites, [a, b]) = pair();
    sites[1].api("POST", "/apply", &patient_template(&sites[1]));
    sites[1].api("POST", "/apply", &machine("m1", "52:54:00:00:00:01"));
    let run = sites[1].api("POST", "/machines/m1/provision", &json!({"template": "os"}));
    let config = enrolled(&boot_script(&sites[1], "52:54:00:00:00:01"), "m1", "52:54:00:00:00:01").await;
    let workflow = format!("{API}/workflows/{}", run["metadata"]["name"].as_str().unwrap());
    // Until it has heard of the run, the first one has the machine boot its own disk.
    until_asked(&sites[0], &workflow, |answer| answer.contains("\"phase\""));
    let at_a = SessionConfig { target: target(&boot_script(&sites[0], "52:54:00:00:00:01")), ..config.clone() };
    let (first, _instructions) = begin(config, "m1");
    b.until("session opened machine=m1 epoch=1", 1);
    // Asked at both, the second one answers: also at the first one, once that knows who has the agent.
    let at_second = format!("\"coordinator\":\"{}\"", sites[1].url());
    until_asked(&sites[0], &format!("{API}/machines/m1"), |answer| answer.contains(&at_second));
    let logs = format!("{workflow}/logs");
    let followers = sites.each_ref().map(|site| {
        let (socket, path) = (site.data().join("api.sock"), format!("{logs}?follow=true"));
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(call(&socket, "GET", &path, &Value::Null).unwrap()));
        end
    });
    let action = ActionRef {
        workflow_uid: run["metadata"]["uid"].as_str().unwrap().parse().unwrap(),
        action_index: 0,
        attempt: 1,
    };
    first.log(action, LogLevel::Info, "said at the second");
    for site in &sites {
        until_asked(site, &logs, |answer| answer.contains("said at the second"));
    }
    // The same agent connects to the first one. (Left open, the former session would go on to connect again.)
    first.close().await;
    let (second, _instructions) = begin(at_a, "m1");
    a.until("session opened machine=m1 epoch=2", 1);
    for follower in followers {
        let (status, lines) = follower.recv_timeout(LIMIT).unwrap();
        assert!(status == 200 && lines.contains("said at the second"), "{status}: {lines}");
    }
    // What came before is shown as well, in order, until the coordinator that has it is gone.
    second.log(ActionRef { attempt: 2, ..action }, LogLevel::Info, "said at the first");
    let said = |answer: &str| -> Vec<String> {
        let message = |line: &str| serde_json::from_str::<Value>(line).unwrap()["message"].as_str().unwrap().to_owned();
        answer.lines().map(message).collect()
    };
    for site in &sites {
        until_asked(site, &logs, |answer| said(answer) == ["said at the second", "said at the first"]);
        until_asked(site, &format!("{logs}?tail=1"), |answer| said(answer) == ["said at the first"]);
    }
    b.kill();
    let url = sites[1].url();
    let missing = format!("lines that the coordinator at {url} may have are missing: it gave no answer");
    until_asked(&sites[0], &logs, |answer| said(answer) == [&missing, "said at the first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_followed_at_one_that_hangs_end() {
    let (_server, sites, [_a, b]) = pair();
    sites[1].api("POST", "/apply", &patient_template(&sites[1]));
    let agent = Agent::start(&sites[1], &sites[1].data().join("api.sock"), "m1", "52:54:00:00:00:01").await;
    let at_second = format!("\"coordinator\":\"{}\"", sites[1].url());
    until_asked(&sites[0], &format!("{API}/machines/m1"), |answer| answer.contains(&at_second));
    // The first one passes it on.
    let (socket, path) = (sites[0].data().join("api.sock"), format!("{API}/workflows/{}/logs", agent.name));
    agent.say(1, "said at the second");
    until_asked(&sites[0], &path, |answer| answer.contains("said at the second"));
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(call(&socket, "GET", &format!("{path}?follow=true"), &Value::Null)));
    assert!(end.recv_timeout(Duration::from_secs(2)).is_err(), "it is followed");
    b.signal(Signal::SIGSTOP);
    // What was there until then, cut off: a client asks again. Sooner than this test gives up to read.
    assert!(end.recv_timeout(LIMIT / 2).unwrap().is_err());
    b.signal(Signal::SIGCONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_installs_holds_over_all_coordinators() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let server = Server::start(&[]);
    let url = server.create();
    let sites = sites([&url, &url]);
    for site in &sites {
        let config = std::fs::read_to_string(site.config()).unwrap();
        std::fs::write(site.config(), config.replace("[limits]\n", "[limits]\nparallel_installs = 1\n")).unwrap();
    }
    let _running = both(&sites);
    sites[0].api("POST", "/apply", &patient_template(&sites[0]));
    until_asked(&sites[1], &format!("{API}/templates"), |answer| answer.contains("\"os\""));
    let of = |n: usize| (&sites[n % 2], format!("m{n}"), format!("52:54:00:00:00:{n:02x}"));
    for n in 0..8 {
        let (site, name, mac) = of(n);
        site.api("POST", "/apply", &machine(&name, &mac));
        site.api("POST", &format!("/machines/{name}/provision"), &json!({"template": "os"}));
    }
    let configs = (0..8).map(|n| async move {
        let (site, name, mac) = of(n);
        enrolled(&boot_script(site, &mac), &name, &mac).await
    });
    let configs = futures::future::join_all(configs).await;
    // All at once: sooner than one coordinator hears of what another one stored.
    let begins = configs.into_iter().enumerate().map(|(n, config)| async move {
        let (handle, mut instructions) = begin(config, &of(n).1);
        (handle, tokio::time::timeout(LIMIT, instructions.recv()).await.unwrap().unwrap(), instructions)
    });
    let begun = futures::future::join_all(begins).await;
    let assigned = begun.iter().filter(|(_, first, _)| matches!(first, Instruction::Assign { .. })).count();
    assert_eq!(assigned, 1);
    for site in &sites {
        let runs = asked(site, &format!("{API}/workflows")).1;
        assert_eq!(runs.matches("\"phase\":\"Running\"").count(), 1, "{runs}");
    }
}

#[test]
fn a_store_moves_to_postgresql_and_back() {
    let (server, site) = (Server::start(&[]), Site::new());
    let coordinator = start(&site, " ready ");
    site.api("POST", "/apply", &machine("m1", "52:54:00:00:00:01"));
    coordinator.kill();
    let leases = LeaseFile::own(&site.data());
    std::fs::write(&leases, "leases").unwrap();
    let config = std::fs::read_to_string(site.config()).unwrap();
    std::fs::write(site.config(), format!("{config}[store]\nurl = \"{}\"\n", server.create())).unwrap();
    let path = site.config();
    let landfall = |words: &[&str]| run(&[words, &["--config", path.to_str().unwrap()]].concat());
    let (is_well, said) = landfall(&["run"]);
    assert!(!is_well && said.contains("migrate-store --to postgresql"), "{said}");
    let (is_well, said) = landfall(&["migrate-store", "--to", "postgresql"]);
    assert!(is_well && said.contains("documents: 1 rows, the same in both"), "{said}");
    assert!(!leases.exists(), "an old file counts no more");
    let coordinator = start(&site, " ready ");
    site.api("POST", "/apply", &machine("m2", "52:54:00:00:00:02"));
    coordinator.kill();
    // A host that was never the active one has the key of the secrets alone; the rest is in the store.
    let ca = std::fs::read(site.data().join("pki/ca.pem")).unwrap();
    for directory in ["pki", "admin"] {
        std::fs::remove_dir_all(site.data().join(directory)).unwrap();
    }
    let (is_well, said) = landfall(&["migrate-store", "--to", "sqlite"]);
    assert!(is_well && said.contains("documents: 2 rows, the same in both"), "{said}");
    assert_eq!(std::fs::read(site.data().join("pki/ca.pem")).unwrap(), ca);
    assert_eq!(std::fs::read_to_string(&leases).unwrap(), "leases");
    let (is_well, said) = landfall(&["run"]);
    assert!(!is_well && said.contains("landfall.db is there"), "{said}");
    std::fs::write(site.config(), config).unwrap();
    let _coordinator = start(&site, " ready ");
    for name in ["m1", "m2"] {
        assert_eq!(site.api("GET", &format!("/machines/{name}"), &Value::Null)["metadata"]["name"], name);
    }
}

#[test]
fn requests_in_a_database_put_back_wait_for_a_person() {
    let server = Server::start(&[]);
    let url = server.create();
    let sites = sites([&url, &url]);
    let (site, path) = (&sites[0], sites[0].config());
    let mark = || run(&["restore", "--database", "--config", path.to_str().unwrap()]);
    let (is_well, said) = mark();
    assert!(!is_well && said.contains("has no store in it"), "{said}");
    let coordinator = start(site, LEADS);
    site.api("POST", "/apply", &machine("m1", "52:54:00:00:00:01"));
    site.api("POST", "/apply", &patient_template(site));
    let run = site.api("POST", "/machines/m1/provision", &json!({"template": "os"}));
    let run = run["metadata"]["name"].as_str().unwrap().to_owned();
    site.api("POST", "/tokens", &json!({"name": "ci", "role": "viewer"}));
    let (is_well, said) = mark();
    assert!(!is_well && said.contains("has this database"), "{said}");
    coordinator.kill();
    server.back_up("test0");
    let holds = || {
        let machine = site.api("GET", "/machines/m1", &Value::Null);
        let conditions = machine["status"]["conditions"].as_array().unwrap();
        conditions.iter().any(|c| c["type"] == "StoreBehind" && c["status"] == "True" && c["reason"] == "AskedBefore")
    };
    let coordinator = start(site, LEADS);
    assert!(!holds(), "it was away for seconds");
    coordinator.kill();

    // While none runs, a person says so.
    server.put_back("test0");
    let (is_well, said) = mark();
    assert!(is_well && said.contains("every bearer token of the backup is withdrawn (ci)"), "{said}");
    let a = start(site, LEADS);
    assert!(holds());
    let confirm = || site.api("POST", &format!("/workflows/{run}/confirm"), &json!({}));
    confirm();
    assert!(!holds());

    // Those that run find it out, and one of them holds.
    share(&site.data(), &sites[1].data());
    let b = start(&sites[1], LED);
    site.api("POST", "/apply", &machine("m2", "52:54:00:00:00:02"));
    let lost = site.api("GET", "/machines/m2", &Value::Null)["metadata"]["resourceVersion"].clone();
    until_asked(&sites[1], &format!("{API}/machines"), |answer| answer.contains("\"m2\""));
    server.put_back("test0");
    for coordinator in [&a, &b] {
        coordinator.until("starts anew with what is there", 1);
        coordinator.until(" ready ", 2);
    }
    // The one that leads holds what it finds, before it says that it leads.
    let leads = |site: &Site| asked(site, "/metrics").1.contains("landfall_active 1\n");
    let begun = Instant::now();
    while !sites.iter().any(leads) {
        assert!(begun.elapsed() < LIMIT, "none leads:\n{}\n{}", a.said(), b.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(holds());
    assert_eq!(asked(site, &format!("{API}/machines/m2")).0, 404);
    // Who has followed what is lost does not go on in what has taken its place.
    let (status, answer) = asked(site, &format!("{API}/machines?watch=true&resourceVersion={lost}"));
    assert!(status == 410 && answer.contains("Expired"), "{answer}");
    let held = [&a, &b].map(|coordinator| coordinator.said().matches("went back to an older state").count());
    assert_eq!(held.iter().sum::<usize>(), 1, "{held:?}");
    let confirmed = confirm();
    let machine = || site.api("GET", "/machines/m1", &Value::Null);
    assert!(!holds(), "{confirmed}\n{}\n{}\n{}", machine(), a.said(), b.said());
}
