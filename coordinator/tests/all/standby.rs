//! Two real coordinators over one PostgreSQL database: the one that has it is killed, hangs, and is stopped; a store that moves there and back.

use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use landfall_api::Kind;
use landfall_client::{Client, Endpoint, Identity, Trust};
use landfall_postgres::Server;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::site::agent::{Agent, patient_template};
use super::site::{API, Coordinator, LIMIT, Site, call, machine, program, run};

pub(crate) const STANDBY: &str = "standby: another coordinator has the store";

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
    Coordinator::spawn_until(Command::new(program()).arg("--config").arg(site.config()), until)
}

pub(crate) fn asked(site: &Site, path: &str) -> (u16, String) {
    call(&site.data().join("api.sock"), "GET", path, &Value::Null).unwrap()
}

#[test]
fn one_takes_over_from_the_other_and_back() {
    let server = Server::start(&[]);
    let url = server.create();
    let sites = sites([&url, &url]);
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
    for (site, active) in [(&sites[0], "landfall_active 1\n"), (&sites[1], "landfall_active 0\n")] {
        let (status, counted) = asked(site, "/metrics");
        assert!(status == 200 && counted.contains(active), "{status}: {counted}");
    }
    let config = sites[1].config();
    let (is_well, said) = run(&["doctor", "--config", config.to_str().unwrap()]);
    assert!(is_well && said.contains("it runs as a standby"), "{said}");

    // As of a program that asks from time to time.
    let mut kept = UnixStream::connect(sites[1].data().join("api.sock")).unwrap();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    kept.set_read_timeout(Some(LIMIT)).unwrap();
    assert!(kept.read(&mut [0; 1024]).unwrap() > 0);

    // Killed: the other is there in the time that a start takes.
    let begun = Instant::now();
    a.kill();
    b.until(" ready ", 1);
    println!("ready {:?} after the kill", begun.elapsed());
    assert_eq!(kept.read(&mut [0; 1024]).unwrap(), 0, "a standby's connection has ended");
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

/// On another host than the active one, as coordinators are: their ports have the same numbers.
#[tokio::test(flavor = "multi_thread")]
async fn machines_and_people_may_ask_a_standby() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let server = Server::start(&[]);
    let url = server.create();
    let first = Site::new();
    let second = Site { host: "127.0.0.2", http: first.http, tls: first.tls, ..Site::new() };
    second.configure("c.toml", &second.data());
    let sites = [first, second];
    share_store(&sites, [&url, &url]);
    let a = start(&sites[0], " ready ");
    share(&sites[0].data(), &sites[1].data());
    let b = start(&sites[1], STANDBY);
    sites[0].api("POST", "/apply", &patient_template(&sites[0]));
    // A client that knows the standby alone.
    let admin = |name: &str| sites[0].data().join("admin").join(name);
    let endpoint = Endpoint {
        server: sites[1].url().parse().unwrap(),
        trust: Some(Trust::Ca(admin("ca.pem"))),
        identity: Some(Identity::Certificate { cert: admin("admin.pem"), key: admin("admin.key") }),
    };
    let client = Client::new(&endpoint).await.unwrap();
    assert!(client.names(Kind::Machine).await.unwrap().is_empty());
    // A machine that boots from the standby, and whose agent dials it: the script of the standby's host names both.
    let socket = sites[0].data().join("api.sock");
    let agent = Agent::start(&sites[1], &socket, "m1", "52:54:00:00:00:01").await;
    agent.report(1).await;
    agent.handle.flush(LIMIT).await.unwrap();
    assert_eq!(client.names(Kind::Machine).await.unwrap(), ["m1"]);
    assert!(
        a.said().contains("session opened machine=m1 epoch=1 address=127.0.0.2"),
        "not by the standby: {}",
        a.said()
    );

    a.kill();
    b.until(" ready ", 1);
    agent.report(2).await;
    agent.handle.flush(LIMIT).await.unwrap();
    client.delete(Kind::Machine, "m1").await.unwrap();
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
