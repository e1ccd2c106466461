//! Three real coordinators over PostgreSQL, which has a synchronous standby of its own. One fault after another, in an order and at
//! instants from a seed: agents go on, no run begins twice, and whatever was acknowledged is there. The first one can be of an older
//! version (`LANDFALL_OLDER_COORDINATOR` names its program), as it is during a rolling upgrade.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use landfall_api::Kind;
use landfall_postgres::Server;
use landfall_session::Connection;
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::kill::Dice;
use super::several::{LEADS, LED, asked, client, share, sites, start_program, until_asked};
use super::site::agent::{Agent, has_attempts, patient_template};
use super::site::{API, Coordinator, LIMIT, Site, call, machine, program};

/// Machines with an agent each.
const AGENTS: u64 = 4;
/// An agent tries a coordinator that does not answer for so long, where there is another one.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// The longest time between what agents report and the fault.
const LONGEST_WAIT_MS: u64 = 200;

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// SIGKILL of the coordinator that leads.
    Kill,
    /// SIGKILL of another one.
    KillOther,
    /// SIGTERM of the one that leads, as for an upgrade.
    Terminate,
    /// SIGSTOP of the one that leads: its connections stay open, and nothing comes of them.
    Hang,
    /// The one that leads reaches agents, and not the database.
    Cut,
    /// The one with most agents reaches the database, and neither agents nor people nor the others reach it.
    Apart,
    /// PostgreSQL ends at once, and starts again.
    CrashPostgres,
    /// PostgreSQL ends at once, and its standby takes its place.
    FailOver,
}

const FAULTS: [Fault; 8] = [
    Fault::Kill,
    Fault::KillOther,
    Fault::Terminate,
    Fault::Hang,
    Fault::Cut,
    Fault::Apart,
    Fault::CrashPostgres,
    Fault::FailOver,
];

/// A way to a server on loopback, by which nothing passes while it is silent. `at`: its port; 0: any.
fn way_to(server: SocketAddr, at: u16, silent: &Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", at)).unwrap();
    let (way, is_silent) = (listener.local_addr().unwrap().port(), silent.clone());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // Without the server, the client's connection ends.
            let Ok(server) = TcpStream::connect(server) else { continue };
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                let is_silent = is_silent.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from.read(&mut bytes) {
                        while is_silent.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(10));
                        }
                        if to.write_all(&bytes[..length]).is_err() {
                            break;
                        }
                    }
                    // Its end does not pass either.
                    while is_silent.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(10));
                    }
                    drop(to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    way
}

/// Has a coordinator listen elsewhere than where others find it; answers where.
fn listens_behind(site: &Site) -> SocketAddr {
    let config = std::fs::read_to_string(site.config()).unwrap();
    let of = |host: &str| format!("[tls]\nlisten = \"{host}:{}\"", site.tls);
    assert!(config.contains(&of(site.host)), "{config}");
    std::fs::write(site.config(), config.replace(&of(site.host), &of("127.0.0.2"))).unwrap();
    ([127, 0, 0, 2], site.tls).into()
}

/// The program of that coordinator.
fn program_of(n: usize) -> PathBuf {
    let older = std::env::var_os("LANDFALL_OLDER_COORDINATOR").filter(|_| n == 0);
    older.unwrap_or_else(|| program().into()).into()
}

/// Describes machines until the coordinator does not answer; those that it answered.
fn describe(socket: &Path, round: u32) -> Vec<String> {
    let mut answered = Vec::new();
    for n in 0..=u8::MAX {
        let name = format!("m{round}-{n}");
        let wanted = machine(&name, &format!("52:54:01:00:{round:02x}:{n:02x}"));
        match call(socket, "POST", &format!("{API}/apply"), &wanted) {
            Ok((200, _)) => answered.push(name),
            Ok((503, _)) | Err(_) => break,
            Ok((status, answer)) => panic!("{status}: {answer}"),
        }
    }
    answered
}

/// Notes the longest time that an agent was without a session, from when it noticed that.
async fn note_gaps(mut connection: watch::Receiver<Connection>, longest: Arc<Mutex<Duration>>) {
    let mut lost = None;
    while connection.changed().await.is_ok() {
        let is_up = matches!(*connection.borrow_and_update(), Connection::Connected { .. });
        if !is_up {
            lost.get_or_insert_with(Instant::now);
        } else if let Some(lost) = lost.take() {
            let mut longest = longest.lock().unwrap();
            *longest = longest.max(lost.elapsed());
        }
    }
}

struct World {
    databases: [Server; 2],
    /// Which of them takes writes.
    primary: usize,
    sites: [Site; 3],
    /// Whether each one's ways to the databases are silent.
    silent: [Arc<AtomicBool>; 3],
    /// Whether the way to each one is.
    apart: [Arc<AtomicBool>; 3],
    coordinators: [Option<Coordinator>; 3],
    agents: Vec<Agent>,
    /// The epoch of each agent's newest session.
    epochs: Vec<u64>,
    /// The longest time that one was without a session, in this fault.
    longest_gap: Arc<Mutex<Duration>>,
    /// Machines whose description was answered.
    answered: Vec<String>,
    dice: Dice,
}

impl World {
    async fn new(dice: Dice) -> Self {
        let ports = landfall_edge::testing::ports::<2>();
        let settings = ["listen_addresses=127.0.0.1"];
        let primary = Server::prepared(&settings, ports[0], &[]);
        primary.create();
        let standby = Server::standby(&primary, &settings, ports[1]);
        let silent = [(); 3].map(|()| Arc::<AtomicBool>::default());
        let urls = silent.each_ref().map(|silent| {
            let [a, b] = ports.map(|port| way_to(([127, 0, 0, 1], port).into(), 0, silent));
            format!("postgresql://landfall@127.0.0.1:{a},127.0.0.1:{b}/test0")
        });
        let sites = sites(urls.each_ref().map(String::as_str));
        let apart = [(); 3].map(|()| Arc::<AtomicBool>::default());
        for (site, apart) in sites.iter().zip(&apart) {
            way_to(listens_behind(site), site.tls, apart);
        }
        let first = start_program(&program_of(0), &sites[0], LEADS);
        let others = [1, 2].map(|n: usize| {
            share(&sites[0].data(), &sites[n].data());
            start_program(&program_of(n), &sites[n], LED)
        });
        sites[0].api("POST", "/apply", &patient_template(&sites[0]));
        for site in &sites {
            until_asked(site, &format!("{API}/templates"), |answer| answer.contains("\"os\""));
        }
        let (mut agents, [second, third]) = (Vec::new(), others);
        for n in 0..AGENTS {
            let (name, mac) = (format!("agent{n}"), format!("52:54:00:00:00:{n:02x}"));
            // Each coordinator has some of them.
            let site = &sites[n as usize % sites.len()];
            agents.push(Agent::start(site, &site.data().join("api.sock"), &name, &mac).await);
        }
        let longest_gap = Arc::<Mutex<Duration>>::default();
        for agent in &agents {
            tokio::spawn(note_gaps(agent.handle.connection(), longest_gap.clone()));
        }
        Self {
            databases: [primary, standby],
            primary: 0,
            sites,
            silent,
            apart,
            coordinators: [Some(first), Some(second), Some(third)],
            epochs: vec![0; agents.len()],
            longest_gap,
            agents,
            answered: Vec::new(),
            dice,
        }
    }

    /// Whether a coordinator is ready, and whether it leads, if it runs.
    fn state(&self, n: usize) -> Option<(bool, bool)> {
        let socket = self.sites[n].data().join("api.sock");
        let asked = |path| call(&socket, "GET", path, &Value::Null).ok();
        Some((asked("/readyz")?.0 == 200, asked("/metrics")?.1.contains("landfall_active 1\n")))
    }

    /// How many agents a coordinator has.
    fn sessions(&self, n: usize) -> u64 {
        let metrics = asked(&self.sites[n], "/metrics").1;
        let line = metrics.lines().find_map(|line| line.strip_prefix("landfall_sessions "));
        line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
    }

    /// Waits for one that leads, besides that which a fault has hit.
    fn leading(&self, besides: Option<usize>) -> usize {
        let begun = Instant::now();
        loop {
            let leads = |n: &usize| Some(*n) != besides && self.state(*n) == Some((true, true));
            if let Some(leading) = (0..3).find(leads) {
                return leading;
            }
            assert!(begun.elapsed() < LIMIT, "none leads: {}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn coordinator(&self, n: usize) -> &Coordinator {
        self.coordinators[n].as_ref().unwrap()
    }

    fn logs(&self) -> String {
        let ends = self.coordinators.iter().flatten().map(|coordinator| {
            let said = coordinator.said();
            let lines: Vec<_> = said.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        });
        ends.collect::<Vec<_>>().join("\n-- and another\n")
    }

    /// Everything is acknowledged, and every agent has a newer session than before or the same.
    async fn settle(&mut self) {
        let flushed = join_all(self.agents.iter().map(|agent| agent.handle.flush(LIMIT))).await;
        assert!(flushed.iter().all(Result::is_ok), "{flushed:?}: {}", self.logs());
        for (agent, newest) in self.agents.iter().zip(&mut self.epochs) {
            let mut connection = agent.handle.connection();
            let is_up = |connection: &Connection| matches!(connection, Connection::Connected { .. });
            let up = timeout(LIMIT, connection.wait_for(is_up)).await.unwrap().unwrap().clone();
            let Connection::Connected { epoch } = up else { unreachable!() };
            assert!(epoch >= *newest, "{}: {epoch} after {newest}", agent.name);
            *newest = epoch;
        }
    }

    /// The fault while agents report their next attempt and a person describes machines; then everything as before, but for who leads.
    async fn live_through(&mut self, fault: Fault, attempt: u32) {
        let active = self.leading(None);
        let was_led = self.coordinator(active).said().matches(LED).count();
        let socket = self.sites[active].data().join("api.sock");
        let writer = thread::spawn(move || describe(&socket, attempt));
        let spare = machine(&format!("spare{attempt}"), &format!("52:54:02:00:00:{attempt:02x}"));
        self.sites[active].api("POST", "/apply", &spare);
        join_all(self.agents.iter().map(|agent| agent.report(attempt))).await;
        // What is waited for is chance itself.
        tokio::time::sleep(Duration::from_millis(self.dice.throw() % LONGEST_WAIT_MS)).await;
        let busiest = (0..3).max_by_key(|n| self.sessions(*n)).unwrap();
        let begun = Instant::now();
        match fault {
            Fault::Kill => drop(self.coordinators[active].take()),
            Fault::KillOther => drop(self.coordinators[(active + 1) % 3].take()),
            Fault::Terminate => self.coordinators[active].take().unwrap().terminate(),
            Fault::Hang => self.coordinator(active).signal(Signal::SIGSTOP),
            Fault::Cut => self.silent[active].store(true, Ordering::Relaxed),
            Fault::Apart => self.apart[busiest].store(true, Ordering::Relaxed),
            Fault::CrashPostgres => {
                self.databases[self.primary].crash();
                self.databases[self.primary].start_again();
            }
            Fault::FailOver => {
                self.databases[self.primary].crash();
                self.primary = 1 - self.primary;
                self.databases[self.primary].promote();
                let [first, second] = &mut self.databases;
                if self.primary == 0 { second.follow(first) } else { first.follow(second) }
            }
        }
        // Whatever was acknowledged before the fault: this is after it.
        join_all(self.agents.iter().map(|agent| agent.report(attempt + 1))).await;
        self.settle().await;
        let hit = matches!(fault, Fault::Kill | Fault::Terminate | Fault::Hang | Fault::Cut).then_some(active);
        let acknowledged = begun.elapsed();
        let now = self.leading(hit);
        if matches!(fault, Fault::Apart) {
            assert_eq!(now, active, "another one leads: {}", self.logs());
            until_asked(&self.sites[busiest], "/metrics", |metrics| metrics.contains("landfall_sessions 0\n"));
        }
        let gap = std::mem::take(&mut *self.longest_gap.lock().unwrap());
        if matches!(fault, Fault::Hang | Fault::Apart) {
            assert!(gap < HANDSHAKE_LIMIT, "an agent tried the former coordinator first: {gap:?}");
        }
        println!(
            "{fault:?}: everything acknowledged {acknowledged:?} after it, coordinator {now} leads {:?} after; an agent that \
                noticed was without a session for {gap:?} at most",
            begun.elapsed(),
        );
        // Also while one of them hangs, or has lost its store.
        client(&self.sites).await.delete(Kind::Machine, &format!("spare{attempt}")).await.unwrap();
        match fault {
            Fault::Hang => self.coordinator(active).signal(Signal::SIGCONT),
            Fault::Cut => self.silent[active].store(false, Ordering::Relaxed),
            Fault::Apart => self.apart[busiest].store(false, Ordering::Relaxed),
            _ => {}
        }
        if matches!(fault, Fault::Hang | Fault::Cut) {
            self.coordinator(active).until(LED, was_led + 1);
        }
        self.answered.extend(writer.join().unwrap());
        for n in 0..3 {
            if self.coordinators[n].is_none() {
                self.coordinators[n] = Some(start_program(&program_of(n), &self.sites[n], LED));
            }
        }
    }

    /// Every run ends while the one that leads is killed. What it came to is known at the others, and stays when the next one is killed.
    async fn end_runs(&mut self, attempt: u32) {
        for have_ended in [false, true] {
            let killed = self.leading(None);
            if !have_ended {
                join_all(self.agents.iter().map(|agent| agent.ends(attempt))).await;
            }
            drop(self.coordinators[killed].take());
            let flushed = join_all(self.agents.iter().map(|agent| agent.handle.flush(LIMIT))).await;
            assert!(flushed.iter().all(Result::is_ok), "{flushed:?}: {}", self.logs());
            for (agent, n) in self.agents.iter().flat_map(|agent| (0..3).map(move |n| (agent, n))) {
                if n != killed {
                    let path = format!("{API}/workflows/{}", agent.name);
                    until_asked(&self.sites[n], &path, |run| run.contains("\"phase\":\"Succeeded\""));
                    let events = asked(&self.sites[n], &format!("{path}/events")).1;
                    assert_eq!(events.matches("\"reason\":\"Finished\"").count(), 2, "{events}");
                }
            }
            self.coordinators[killed] = Some(start_program(&program_of(killed), &self.sites[killed], LED));
        }
        let orders: Vec<_> = self.agents.iter().flat_map(|agent| agent.heard.lock().unwrap().clone()).collect();
        assert!(orders.iter().all(|heard| !heard.contains("Assign")), "{orders:?}");
    }

    /// Waits until each is ready, and one leads.
    fn all_are_well(&self) {
        let begun = Instant::now();
        let states = || (0..3).map(|n| self.state(n)).collect::<Vec<_>>();
        let is_well = |states: &[Option<(bool, bool)>]| {
            states.iter().all(|state| state.is_some_and(|(ready, _)| ready))
                && states.iter().filter(|state| state.is_some_and(|(_, leads)| leads)).count() == 1
        };
        while !is_well(&states()) {
            assert!(begun.elapsed() < LIMIT, "not all are ready, or not one leads: {:?}\n{}", states(), self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn check(&self, upto: u64) {
        self.all_are_well();
        let site = &self.sites[self.leading(None)];
        for agent in &self.agents {
            has_attempts(&asked(site, &format!("{API}/workflows/{}/events", agent.name)).1, &agent.name, upto);
            let heard = agent.heard.lock().unwrap();
            assert!(heard.is_empty(), "{}: {heard:?}", agent.name);
        }
        for name in &self.answered {
            for site in &self.sites {
                let (status, answer) = asked(site, &format!("{API}/machines/{name}"));
                assert_eq!(status, 200, "{name} was answered: {answer}");
            }
        }
        let sql = |statement| self.databases[self.primary].sql("test0", statement);
        let runs = sql("SELECT count(*) FROM documents WHERE kind = 'Workflow'");
        assert_eq!(runs, AGENTS.to_string());
        let gaps = "SELECT max(revision) - min(revision) + 1 - count(DISTINCT revision) FROM changes";
        assert_eq!(sql(gaps), "0", "revisions have gaps");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_go_on_through_every_fault_of_coordinators_and_database() {
    // Already installed by another test is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    // The full set goes on from seed to seed.
    let rounds = std::env::var("LANDFALL_TAKEOVER_ROUNDS").map_or(1, |text| text.parse().unwrap());
    let mut dice = Dice::seeded();
    for _ in 0..rounds {
        live_through_all(Dice::of(dice.throw())).await;
    }
}

async fn live_through_all(mut dice: Dice) {
    let mut faults = FAULTS;
    for n in (1..faults.len()).rev() {
        let other = dice.throw() % (n as u64 + 1);
        faults.swap(n, other as usize);
    }
    let begun = Instant::now();
    let mut world = World::new(dice).await;
    println!("set up in {:?}", begun.elapsed());
    for (fault, attempt) in faults.into_iter().zip((1..).step_by(2)) {
        world.live_through(fault, attempt).await;
        world.check(u64::from(attempt) + 1);
    }
    world.end_runs(2 * FAULTS.len() as u32 + 1).await;
    let described = world.answered.len();
    println!("{described} machines were described meanwhile");
    assert!(described > FAULTS.len(), "too little load to say anything");
}
