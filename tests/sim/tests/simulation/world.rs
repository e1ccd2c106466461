//! One seed's world: a site, a computer, sometimes a second one that claims to be the first, a person; faults for a
//! while, then a calm phase, in which everything must end.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use jiff::{Timestamp, Unit};
use landfall_api::message::{ActionRef, EventRecord};
use landfall_api::{Authority, DiskId, Document, ErrorCode, Problem, Shared, Workflow, WorkflowPhase};
use landfall_coordinator::engine::Engine;
use landfall_sim::chance::Chance;
use landfall_store::Store;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::computer::{Computer, mac, name};
use super::database::Database;
use super::disk::Disk;
use super::flag::Flag;
use super::net::Net;
use super::site::Site;
use super::truth::{Truth, word};
use super::up::Up;

/// After this time from the last fault every workflow must have ended.
const TO_THE_END: Duration = Duration::from_secs(5 * 3600);
/// Then nothing may change for this time.
const AFTERWARDS: Duration = Duration::from_secs(1800);

/// The outcome of a seed.
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: String,
    pub(crate) phases: Vec<WorkflowPhase>,
    pub(crate) crashes: u32,
    pub(crate) takeovers: u32,
    pub(crate) taken_back: u32,
    pub(crate) leads: u32,
    pub(crate) moves: u32,
    pub(crate) fenced: u32,
    pub(crate) commits: u32,
}

/// How many coordinators a world has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Coordinators {
    /// One after another, each with the store to itself.
    One,
    /// Three with one database.
    Three,
}

/// Simulates a seed. Time is paused: it advances when no task can run.
pub(crate) fn live(seed: u64, coordinators: Coordinators) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { World::new(seed, coordinators).live().await })
}

struct World {
    chance: Chance,
    store: Store,
    truth: Truth,
    up: Up,
    machines: u64,
    calm: Flag<bool>,
    disks: Vec<Arc<Mutex<Disk>>>,
    _people: JoinSet<()>,
    twin: JoinSet<()>,
}

impl World {
    fn new(seed: u64, coordinators: Coordinators) -> Self {
        let mut chance = Chance::new(seed);
        let (truth, database) = (Truth::new(), Database::new());
        let calm = Flag::new(false);
        let up = Up::new(chance.split());
        let rough = chance.below(20);
        let net = Net::new(chance.split(), rough, calm.clone());
        let (mut people, mut twin, mut disks) = (JoinSet::new(), JoinSet::new(), Vec::new());
        let (mut site, machines) = (
            Site {
                database: database.clone(),
                net: net.clone(),
                truth: truth.clone(),
                chance: chance.split(),
                calm: calm.clone(),
                up: up.clone(),
                own: None,
                parallel_installs: 4,
                begun: (Timestamp::now().round(Unit::Second).unwrap(), Instant::now()),
            },
            if coordinators == Coordinators::One { 1 } else { 3 },
        );
        match coordinators {
            Coordinators::One => drop(people.spawn(site.run())),
            Coordinators::Three => {
                site.parallel_installs = 1 + usize::from(chance.percent(50));
                truth.with(|known| known.limit = site.parallel_installs);
                for place in 1..=3 {
                    people.spawn(site.beside_others(place, chance.split()).run());
                }
            }
        }
        let mut computer = |machine: u64, number: u64, chance: Chance| {
            let id =
                DiskId { serial: format!("D{number}"), name: "vda".into(), size_bytes: 1 << 34, ..DiskId::default() };
            let disk = Arc::new(Mutex::new(Disk { id, ..Disk::default() }));
            disks.push(disk.clone());
            let (net, up, truth, calm) = (net.clone(), up.clone(), truth.clone(), calm.clone());
            Computer { machine, number, disk, net, up, truth, chance, calm }
        };
        for machine in 1..=machines {
            people.spawn(computer(machine, machine, chance.split()).run());
        }
        if chance.percent(20) {
            let (late, second) = (chance.below(900), computer(1, machines + 1, chance.split()));
            twin.spawn(async move {
                sleep(Duration::from_secs(late)).await;
                second.run().await;
            });
        }
        Self { chance, store: database.store(), truth, up, machines, calm, disks, _people: people, twin }
    }

    async fn live(mut self) -> Outcome {
        let faults = Instant::now() + Duration::from_secs(300 + self.chance.below(2400));
        let calm = self.calm.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(faults).await;
            calm.set(true);
        });
        self.describe().await;
        let requests: Vec<_> = (1..=self.machines).map(|machine| (machine, self.chance.split())).collect();
        let request = |(machine, chance)| {
            let world = &self;
            async move {
                // Templates are rendered on threads of their own: which of two is done first, no seed decides.
                sleep(Duration::from_millis(7 * machine)).await;
                world.request(name(machine), chance, faults).await;
            }
        };
        join_all(requests.into_iter().map(request)).await;
        tokio::time::sleep_until(faults).await;
        // A person has found the second computer.
        self.twin.abort_all();
        self.all_ended(None, Instant::now()).await;
        sleep(AFTERWARDS).await;
        self.judge().await
    }

    /// What a person asks of a machine.
    async fn request(&self, machine: String, mut chance: Chance, faults: Instant) {
        let runs = 1 + chance.below(3) / 2;
        for _ in 0..runs {
            self.provision(&machine).await;
            let cancelled_after = if chance.percent(15) { chance.below(900) } else { u64::MAX >> 8 };
            tokio::select! {
                biased;
                () = self.cancel(&machine, cancelled_after) => {}
                () = self.all_ended(Some(&machine), faults) => {}
            }
            self.all_ended(Some(&machine), faults).await;
        }
    }

    async fn describe(&self) {
        let document = |kind: &str, name: &str, spec: serde_json::Value| {
            let value =
                json!({"apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
            Document::from_value(value).unwrap()
        };
        let image = json!({"url": "http://10.77.0.1/i", "digest": format!("sha256:{}", "0a".repeat(32))});
        let actions = json!([
            {"name": "write", "timeout": "10m", "retry": {"maxAttempts": 3, "initialBackoff": "5s"}, "writeImage": {"image": image}},
            {"name": "seed", "timeout": "2m", "cloudInit": {}},
            {"name": "restart", "reboot": {}},
        ]);
        let machine = |of| document("Machine", &name(of), json!({"identity": {"macs": [mac(of)]}}));
        let mut documents: Vec<_> = (1..=self.machines).map(machine).collect();
        documents.push(document("Template", "os", json!({"actions": actions})));
        for document in documents {
            loop {
                let applied = ask(&self.up, async |engine| {
                    engine.documents().apply(document.clone(), "ann", false).await.map(drop)
                });
                match applied.await {
                    Ok(()) => break,
                    // The next one answers.
                    Err(problem) if problem.code == ErrorCode::StoreUnavailable => sleep(Duration::from_secs(5)).await,
                    Err(problem) => return self.truth.violated(format!("a document is refused: {problem}")),
                }
            }
        }
    }

    /// Repeats the request until there is a workflow. If the coordinator crashed during the request, the person asks
    /// again.
    async fn provision(&self, machine: &str) {
        for _ in 0..50 {
            let conflict =
                self.store.machine(machine).await.unwrap().and_then(|m| m.status.clone()).is_some_and(|status| {
                    let held =
                        |c: &landfall_api::Condition| c.kind == "ReceiptConflict" && c.reason == "UnknownReceipt";
                    status.conditions.iter().any(held)
                });
            let authority = Authority { person: "ann".into(), at: Timestamp::now(), force: conflict };
            let provisioned = ask(&self.up, async |engine| {
                engine.requests().provision(machine, "os", BTreeMap::new(), authority.clone(), None).await.map(drop)
            });
            match provisioned.await {
                Ok(()) => return,
                Err(problem) if problem.code == ErrorCode::MachineBusy => return,
                Err(problem) => self.truth.saw(format!("not provisioned: {:?}", problem.code)),
            }
            sleep(Duration::from_secs(30)).await;
        }
        self.truth.violated("cannot request a workflow");
    }

    async fn cancel(&self, machine: &str, after: u64) {
        sleep(Duration::from_secs(after)).await;
        for run in open(&self.store, Some(machine)).await {
            let (name, authority) =
                (&run.metadata.name, Authority { person: "ann".into(), at: Timestamp::now(), force: false });
            // It may have ended meanwhile.
            drop(ask(&self.up, async |engine| engine.requests().cancel(name, authority.clone()).await.map(drop)).await);
        }
    }

    /// Waits until every workflow of the machine, or of all, has ended, for a bounded time after the last fault.
    async fn all_ended(&self, machine: Option<&str>, faults: Instant) {
        loop {
            let open = open(&self.store, machine).await;
            if open.is_empty() {
                return;
            }
            if Instant::now() > faults + TO_THE_END {
                for run in open {
                    let status =
                        run.status.as_ref().map(|s| (s.phase, s.deadline.map(|d| d.duration_since(Timestamp::now()))));
                    self.truth.violated(format!("a workflow does not end: {status:?}"));
                }
                return;
            }
            sleep(Duration::from_secs(5)).await;
        }
    }

    async fn judge(self) -> Outcome {
        let mut phases = Vec::new();
        for run in self.store.workflows().await.unwrap() {
            let (uid, phase) = (run.metadata.uid.unwrap(), run.status.as_ref().unwrap().phase);
            phases.push(phase);
            let logged = self.store.events().list(uid, 0, usize::MAX).await.unwrap();
            let logged: HashMap<_, _> = logged.into_iter().map(|event| identified(&event.record)).collect();
            let installed = self.disks.iter().any(|disk| disk.lock().unwrap().installs.contains_key(&uid));
            self.truth.ended(uid, phase, &logged, installed);
        }
        self.truth.with(|known| Outcome {
            violations: std::mem::take(&mut known.violations),
            trace: std::mem::take(&mut known.trace),
            phases,
            crashes: known.crashes,
            takeovers: known.takeovers,
            taken_back: known.taken_back,
            leads: known.leads,
            moves: known.moves,
            fenced: known.fenced,
            commits: known.commits,
        })
    }
}

async fn open(store: &Store, machine: Option<&str>) -> Vec<Shared<Workflow>> {
    let mut runs = store.workflows().await.unwrap();
    runs.retain(|run| machine.is_none_or(|machine| run.spec.machine == machine));
    runs.retain(|run| run.status.as_ref().is_some_and(|status| !status.phase.is_terminal()));
    runs
}

/// A person's request to a coordinator that is up, repeated if it crashed during the request.
async fn ask(up: &Up, request: impl AsyncFn(Engine) -> Result<(), Problem>) -> Result<(), Problem> {
    loop {
        if let Ok(answer) = timeout(Duration::from_secs(20), request(up.wait().await)).await {
            return answer;
        }
    }
}

fn identified(record: &EventRecord) -> ((ActionRef, u64), &'static str) {
    let EventRecord { workflow_uid, action_index, attempt, seq, .. } = *record;
    ((ActionRef { workflow_uid, action_index, attempt }, seq), word(&record.body))
}
