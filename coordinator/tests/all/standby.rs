//! Two real coordinators over one PostgreSQL database: the one that has it is killed, hangs, and is stopped.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use landfall_store::postgres_server::Server;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::site::{API, Coordinator, Site, call, machine, program, run};

const STANDBY: &str = "standby: another coordinator has the store";

/// A site whose store is this database.
fn site(url: &str) -> Site {
    let site = Site::new();
    let config = std::fs::read_to_string(site.config()).unwrap();
    std::fs::write(site.config(), format!("{config}[store]\nurl = \"{url}\"\n")).unwrap();
    site
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
    let url = server.create();
    let sites = [site(&url), site(&url)];
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
