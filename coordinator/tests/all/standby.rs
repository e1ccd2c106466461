//! Two real coordinators over one PostgreSQL database: the one that has it is killed, hangs, and is stopped.

use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use landfall_postgres::Server;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::site::agent::{Agent, has_attempts, patient_template};
use super::site::{API, Coordinator, LIMIT, Site, call, machine, program, run};

const STANDBY: &str = "standby: another coordinator has the store";

/// Two sites whose store is this database, each of which names the other.
fn two(url: &str) -> [Site; 2] {
    two_by([url, url])
}

/// The same where each has a way of its own to the database.
fn two_by(urls: [&str; 2]) -> [Site; 2] {
    let sites = [Site::new(), Site::new()];
    for (site, other, url) in [(&sites[0], &sites[1], urls[0]), (&sites[1], &sites[0], urls[1])] {
        let config = std::fs::read_to_string(site.config()).unwrap();
        let others = format!("others = [\"https://127.0.0.1:{}\"]", other.tls);
        std::fs::write(site.config(), format!("{others}\n{config}[store]\nurl = \"{url}\"\n")).unwrap();
    }
    sites
}

/// What each host is given of the first: the key of the secrets.
fn share(from: &Path, to: &Path) {
    DirBuilder::new().mode(0o700).create(to).unwrap();
    std::fs::copy(from.join("secrets.key"), to.join("secrets.key")).unwrap();
}

fn start(site: &Site, until: &str) -> Coordinator {
    Coordinator::spawn_until(Command::new(program()).arg("--config").arg(site.config()), until)
}

fn asked(site: &Site, path: &str) -> (u16, String) {
    call(&site.data().join("api.sock"), "GET", path, &Value::Null).unwrap()
}

#[test]
fn one_takes_over_from_the_other_and_back() {
    let server = Server::start(&[]);
    let sites = two(&server.create());
    let a = start(&sites[0], " ready ");
    share(&sites[0].data(), &sites[1].data());
    let b = start(&sites[1], STANDBY);
    sites[0].api("POST", "/apply", &machine("m1", "52:54:00:00:00:01"));
    let has_it = format!("https://127.0.0.1:{} has the store", sites[0].tls);
    for path in [&format!("{API}/machines/m1"), "/readyz"] {
        let (status, answer) = asked(&sites[1], path);
        assert!(status == 503 && answer.contains(&has_it), "{status}: {answer}");
    }
    assert_eq!(asked(&sites[1], "/healthz").0, 200);
    let config = sites[1].config();
    let (is_well, said) = run(&["doctor", "--config", config.to_str().unwrap()]);
    assert!(is_well && said.contains("it runs as a standby"), "{said}");

    // Killed: the other is there in the time that a start takes.
    let begun = Instant::now();
    a.kill();
    b.until(" ready ", 1);
    println!("ready {:?} after the kill", begun.elapsed());
    assert_eq!(sites[1].api("GET", "/machines/m1", &Value::Null)["metadata"]["name"], "m1");
    let ca = |site: &Site| std::fs::read(site.data().join("pki/ca.pem")).unwrap();
    assert_eq!(ca(&sites[0]), ca(&sites[1]));
    sites[1].api("POST", "/apply", &machine("m2", "52:54:00:00:00:02"));

    // Hung: its session is ended. When it goes on, it finds the other in its place, and waits.
    let a = start(&sites[0], STANDBY);
    b.signal(Signal::SIGSTOP);
    a.until(" ready ", 1);
    assert_eq!(sites[0].api("GET", "/machines/m2", &Value::Null)["metadata"]["name"], "m2");
    b.signal(Signal::SIGCONT);
    b.until(STANDBY, 2);
    assert_eq!(asked(&sites[1], "/readyz").0, 503);
    assert_eq!(asked(&sites[0], "/readyz").0, 200);

    // Stopped, as for an upgrade.
    a.signal(Signal::SIGTERM);
    b.until(" ready ", 2);
    sites[1].api("POST", "/apply", &machine("m3", "52:54:00:00:00:03"));
}

/// The first one active, the other a standby, and an agent whose first attempt is acknowledged.
async fn under_way(sites: &[Site; 2]) -> (Coordinator, Coordinator, Agent) {
    // Already installed by another test is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let a = start(&sites[0], " ready ");
    share(&sites[0].data(), &sites[1].data());
    let b = start(&sites[1], STANDBY);
    sites[0].api("POST", "/apply", &patient_template(&sites[0]));
    let agent = Agent::start(&sites[0], &sites[0].data().join("api.sock"), "m1", "52:54:00:00:00:01").await;
    agent.report(1).await;
    agent.handle.flush(LIMIT).await.unwrap();
    (a, b, agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_install_goes_on_at_the_other_coordinator() {
    let server = Server::start(&[]);
    let sites = two(&server.create());
    let (a, b, agent) = under_way(&sites).await;

    // What the agent reports in between, no coordinator hears at first.
    let begun = Instant::now();
    a.kill();
    agent.report(2).await;
    agent.handle.flush(LIMIT).await.unwrap();
    println!("acknowledged {:?} after the kill", begun.elapsed());
    has_attempts(&asked(&sites[1], &format!("{API}/workflows/{}/events", agent.name)).1, &agent.name, 2);

    // And back to the first, from one that hangs: its connections stay open, and nothing comes of them.
    let a = start(&sites[0], STANDBY);
    let begun = Instant::now();
    b.signal(Signal::SIGSTOP);
    agent.report(3).await;
    agent.handle.flush(LIMIT).await.unwrap();
    println!("acknowledged {:?} after the other hung", begun.elapsed());
    b.signal(Signal::SIGCONT);
    b.until(STANDBY, 2);
    agent.report(4).await;
    agent.handle.flush(LIMIT).await.unwrap();
    has_attempts(&asked(&sites[0], &format!("{API}/workflows/{}/events", agent.name)).1, &agent.name, 4);
    let machine = sites[0].api("GET", "/machines/m1", &Value::Null);
    assert_eq!(machine["status"]["workflow"], agent.name.as_str(), "{machine:#}");
    drop(a);
}

#[test]
fn a_store_moves_to_postgresql_and_back() {
    let (server, site) = (Server::start(&[]), Site::new());
    let coordinator = start(&site, " ready ");
    site.api("POST", "/apply", &machine("m1", "52:54:00:00:00:01"));
    coordinator.kill();
    let config = std::fs::read_to_string(site.config()).unwrap();
    std::fs::write(site.config(), format!("{config}[store]\nurl = \"{}\"\n", server.create())).unwrap();
    let path = site.config();
    let landfall = |words: &[&str]| run(&[words, &["--config", path.to_str().unwrap()]].concat());
    let (is_well, said) = landfall(&["run"]);
    assert!(!is_well && said.contains("migrate-store --to postgresql"), "{said}");
    let (is_well, said) = landfall(&["migrate-store", "--to", "postgresql"]);
    assert!(is_well && said.contains("documents: 1 rows, the same in both"), "{said}");
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
    let (is_well, said) = landfall(&["run"]);
    assert!(!is_well && said.contains("landfall.db is there"), "{said}");
    std::fs::write(site.config(), config).unwrap();
    let _coordinator = start(&site, " ready ");
    for name in ["m1", "m2"] {
        assert_eq!(site.api("GET", &format!("/machines/{name}"), &Value::Null)["metadata"]["name"], name);
    }
}

/// A way to a server on loopback, by which nothing passes while it is silent.
fn way_to(port: u16) -> (u16, Arc<AtomicBool>) {
    let (listener, silent) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(AtomicBool::new(false)));
    let (way, is_silent) = (listener.local_addr().unwrap().port(), silent.clone());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { break };
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                let is_silent = is_silent.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from.read(&mut bytes) {
                        while is_silent.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        if to.write_all(&bytes[..length]).is_err() {
                            break;
                        }
                    }
                    drop(to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    (way, silent)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_leave_a_coordinator_that_lost_its_database() {
    let [port] = landfall_edge::testing::ports();
    let server = Server::prepared(&["listen_addresses=127.0.0.1"], port, &[]);
    let near = server.create();
    let (way, silent) = way_to(port);
    let sites = two_by([&format!("postgresql://landfall@127.0.0.1:{way}/test0"), &near]);
    let (a, b, agent) = under_way(&sites).await;

    // The agent still reaches the first one, which it prefers; that one serves nothing any more.
    let begun = Instant::now();
    silent.store(true, Ordering::Relaxed);
    agent.report(2).await;
    agent.handle.flush(LIMIT).await.unwrap();
    println!("acknowledged {:?} after the cut", begun.elapsed());
    assert!(b.said().contains(" ready "));
    let has =
        |upto| has_attempts(&asked(&sites[1], &format!("{API}/workflows/{}/events", agent.name)).1, &agent.name, upto);
    has(2);
    silent.store(false, Ordering::Relaxed);
    a.until(STANDBY, 1);
    agent.report(3).await;
    agent.handle.flush(LIMIT).await.unwrap();
    has(3);
}
