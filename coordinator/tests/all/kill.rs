//! SIGKILL of the real coordinator at random instants under load: whatever it acknowledged is there afterwards.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::several::sites;
use super::site::agent::{Agent, has_attempts, patient_template};
use super::site::{API, Coordinator, LIMIT, Site, call, machine};
use landfall_postgres::Server;
use serde_json::{Value, json};
use tokio::time::timeout;

/// Instants at which it is killed; over PostgreSQL a start takes longer.
const KILLS: u64 = 100;
const KILLS_OVER_POSTGRESQL: u64 = 25;
/// Programs that apply documents without end, each its own.
const WRITERS: usize = 3;
/// The longest a coordinator lives after it is ready.
const LONGEST_LIFE: Duration = Duration::from_millis(250);

/// The instants, from a seed that a failure names: the same in every run unless `LANDFALL_KILL_SEED` asks for others, as
/// `scripts/test --soak` does.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn seeded() -> Self {
        let seed = std::env::var("LANDFALL_KILL_SEED").map_or(17, |text| text.parse().unwrap());
        // Zero throws nothing but zeros.
        assert_ne!(seed, 0, "LANDFALL_KILL_SEED must be above 0");
        println!("seed {seed}");
        Self::of(seed)
    }

    /// `seed`: above 0.
    pub(super) fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn throw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Reports attempts without end, as a download that always breaks does, and notes what was acknowledged.
async fn report(agent: Agent, acked: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    // The run ends with the hundredth.
    for attempt in 1..=98 {
        agent.report(attempt).await;
        agent.handle.flush(LIMIT).await.unwrap();
        acked.store(u64::from(attempt), Ordering::SeqCst);
        if stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Applies documents, one new and one changed, as fast as they are answered; notes what was.
fn write(socket: &Path, writer: usize, answered: &Mutex<HashMap<String, String>>, stop: &AtomicBool) -> u64 {
    let mut writes = 0;
    while !stop.load(Ordering::SeqCst) {
        let serial = writes.to_string();
        let name = format!("w{writer}-{}", writes / 20);
        let mut wanted =
            machine(&name, &format!("52:54:01:{writer:02x}:{:02x}:{:02x}", writes / 20 / 256, writes / 20 % 256));
        wanted["spec"]["identity"]["serial"] = json!(serial);
        match call(socket, "POST", &format!("{API}/apply"), &wanted) {
            Ok((200, _)) => {
                answered.lock().unwrap().insert(name, serial);
                writes += 1;
            }
            Ok((status, answer)) => panic!("{status}: {answer}"),
            // It was killed: whether the write held is anybody's guess. The next is a new one, so that it is never
            // taken for this one.
            Err(_) => {
                writes += 1;
                // Until it is back; spinning would take from it the time it starts in.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    writes
}

fn check(site: &Site, answered: &HashMap<String, String>, runs: &[(String, Arc<AtomicU64>, u64)]) {
    let (mut items, mut query) = (Vec::new(), String::new());
    loop {
        let page = site.api("GET", &format!("/machines{query}"), &Value::Null);
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["metadata"]["continue"].as_str() else { break };
        query = format!("?continue={next}");
    }
    let serial = |item: &Value| item["spec"]["identity"]["serial"].as_str().unwrap_or_default().parse().unwrap_or(0u64);
    let there: HashMap<&str, u64> =
        items.iter().map(|item| (item["metadata"]["name"].as_str().unwrap(), serial(item))).collect();
    for (name, least) in answered {
        let least: u64 = least.parse().unwrap();
        let found = there.get(name.as_str()).unwrap_or_else(|| panic!("{name} was answered and is not there"));
        // A later write that was never answered may be there, an older one must not.
        assert!(*found >= least, "{name} is at {found}, {least} was answered");
    }
    for (run, _, acked) in runs {
        let (status, events) =
            call(&site.data().join("api.sock"), "GET", &format!("{API}/workflows/{run}/events"), &Value::Null).unwrap();
        assert_eq!(status, 200, "{events}");
        has_attempts(&events, run, *acked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_kills_under_load_lose_nothing_that_was_acknowledged() {
    kills_lose_nothing(Site::new(), KILLS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_over_postgresql_lose_nothing_that_was_acknowledged() {
    let server = Server::start(&[]);
    let [site] = sites([&server.create()]);
    kills_lose_nothing(site, KILLS_OVER_POSTGRESQL).await;
}

async fn kills_lose_nothing(site: Site, kills: u64) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut dice = Dice::seeded();
    let mut coordinator = Coordinator::start(&site.config());
    site.api("POST", "/apply", &patient_template(&site));
    let socket = site.data().join("api.sock");
    let stop = Arc::new(AtomicBool::new(false));
    let (mut runs, mut agents) = (Vec::new(), Vec::new());
    for n in 0..4 {
        let agent = Agent::start(&site, &socket, &format!("agent{n}"), &format!("52:54:00:00:00:{n:02x}")).await;
        let acked = Arc::new(AtomicU64::new(0));
        runs.push((agent.name.clone(), acked.clone(), 0));
        agents.push(tokio::spawn(report(agent, acked, stop.clone())));
    }
    let answered = Arc::new(Mutex::new(HashMap::new()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let (socket, answered, stop) = (socket.clone(), answered.clone(), stop.clone());
            std::thread::spawn(move || write(&socket, n, &answered, &stop))
        })
        .collect();

    let began = Instant::now();
    for kill in 0..kills {
        // An instant of its life, counted from when it was ready: what is waited for is chance itself.
        let life = Duration::from_micros(dice.throw() % (LONGEST_LIFE.as_micros() as u64));
        tokio::time::sleep(life).await;
        coordinator.kill();
        // What was acknowledged until now; what is in flight does not count.
        let expected = answered.lock().unwrap().clone();
        runs.iter_mut().for_each(|(_, acked, known)| *known = acked.load(Ordering::SeqCst));
        if kill % 8 == 0 {
            // And once more while it starts.
            let mut starting = std::process::Command::new(super::site::program());
            let mut child =
                starting.args(["--config".as_ref(), site.config().as_os_str()]).stderr(Stdio::null()).spawn().unwrap();
            tokio::time::sleep(Duration::from_micros(dice.throw() % 100_000)).await;
            child.kill().unwrap();
            child.wait().unwrap();
        }
        coordinator = Coordinator::start(&site.config());
        println!(
            "kill {kill}: {} documents, {:?} attempts",
            expected.len(),
            runs.iter().map(|r| r.2).collect::<Vec<_>>()
        );
        check(&site, &expected, &runs);
    }
    let took = began.elapsed();
    stop.store(true, Ordering::SeqCst);
    let writes: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    for agent in agents {
        timeout(LIMIT, agent).await.unwrap().unwrap();
    }
    runs.iter_mut().for_each(|(_, acked, known)| *known = acked.load(Ordering::SeqCst));
    check(&site, &answered.lock().unwrap().clone(), &runs);
    let attempts: u64 = runs.iter().map(|run| run.2).sum();
    println!("{kills} kills in {took:?}: {writes} writes, {attempts} attempts acknowledged");
    assert!(answered.lock().unwrap().len() > 20 && attempts >= kills / 12, "too little load to say anything");
}
