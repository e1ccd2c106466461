//! The measurement of power: a rack's worth of BMCs, slow ones, dead ones and ones that hang, whose machines are all to be installed at
//! once. Each that is switched on comes as an agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use landfall_bmcsim::{BmcSim, PASSWORD, Quirks, USERNAME};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::agent::{Agent, Troubles};
use crate::chance::Chance;
use crate::machine::Machine;
use crate::measure::percentile;
use crate::process::{processor_time, resident_bytes};
use crate::subject::{AT_ONCE, Kind, Store, Subject};

/// What one answer of a BMC takes, in milliseconds: from fast ones to those that people complain about.
const ANSWER: (u64, u64) = (300, 3000);
/// BMCs of a hundred that cut every connection, and those that never answer.
const DEAD: u64 = 5;
const HANGING: u64 = 1;
/// The limit of every wait.
const LIMIT: Duration = Duration::from_secs(600);
/// The coordinator looks at each BMC once in that time.
const IDLE: Duration = Duration::from_secs(60);
/// Failed logins after which an account is locked, as on most BMCs.
const LOCKOUT: u32 = 3;

/// What was found. Times are seconds.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Machines.
    pub machines: u32,
    /// Those whose BMC works.
    pub healthy: usize,
    /// From the first document until every BMC that works was logged in to.
    pub known_seconds: f64,
    /// Additional resident bytes of the coordinator a machine then.
    pub bytes_per_machine: u64,
    /// Its processor time a machine in a minute in which nothing is to be done, milliseconds.
    pub idle_ms_per_minute: f64,
    /// From the request of the first workflow until a machine's agent had its own: the median, and the last.
    pub at_work_p50: f64,
    /// The last.
    pub at_work_last: f64,
    /// What the slowest machine's BMC alone took of that, to answer what it was asked.
    pub answers_slowest: f64,
    /// The coordinator's processor time a machine for it, milliseconds.
    pub start_ms: f64,
    /// Requests that a BMC saw from the request of its workflow until its machine was switched on: the most.
    pub requests_most: usize,
    /// Sessions opened at one BMC: the most.
    pub sessions_most: u32,
    /// Failed logins at all BMCs.
    pub failed_logins: u32,
}

impl Figures {
    /// As a table.
    pub fn table(&self) -> String {
        let Self { machines, healthy, .. } = self;
        let rows = [
            ("machines, and those whose BMC works", format!("{machines}, {healthy}")),
            ("all known after their documents", format!("{:.1} s", self.known_seconds)),
            ("at work: median, last", format!("{:.1} s, {:.1} s", self.at_work_p50, self.at_work_last)),
            ("the slowest BMC's own answers of that", format!("{:.1} s", self.answers_slowest)),
            ("the last / the slowest BMC", format!("{:.2}", self.at_work_last / self.answers_slowest)),
            ("processor time a machine: start", format!("{:.1} ms", self.start_ms)),
            ("processor time a machine: idle minute", format!("{:.1} ms", self.idle_ms_per_minute)),
            ("memory a machine", format!("{:.1} KiB", self.bytes_per_machine as f64 / 1024.0)),
            ("requests of a start at one BMC: most", self.requests_most.to_string()),
            ("sessions opened at one BMC: most", self.sessions_most.to_string()),
            ("failed logins", self.failed_logins.to_string()),
        ];
        rows.iter().map(|(name, found)| format!("{name:<40} {found}\n")).collect()
    }
}

/// A machine behind its BMC.
struct Computer {
    machine: Arc<Machine>,
    bmc: BmcSim,
    /// What each answer takes.
    answer: Duration,
    works: bool,
}

impl Computer {
    async fn new(seed: u64, number: u32, chance: &mut Chance) -> Self {
        let answer = Duration::from_millis(ANSWER.0 + chance.below(ANSWER.1 - ANSWER.0));
        let fate = chance.below(100);
        let quirks = Quirks {
            answers_after: answer,
            is_down: fate < DEAD,
            hangs: (DEAD..DEAD + HANGING).contains(&fate),
            lockout_after: Some(LOCKOUT),
            ..Quirks::default()
        };
        let works = !quirks.is_down && !quirks.hangs;
        Self { machine: Arc::new(Machine::new(seed, number)), bmc: BmcSim::start_tls(quirks).await, answer, works }
    }

    async fn describe(&self, subject: &Subject) -> Result<()> {
        let certificate = self.bmc.fingerprint().context("a BMC without a certificate")?;
        let certificate: String = certificate.iter().map(|byte| format!("{byte:02x}")).collect();
        let bmc = json!({
            "address": self.bmc.address(), "credentials": "bmc", "certificate": format!("sha256:{certificate}"),
        });
        subject.describe_one(&self.machine, Some(bmc)).await
    }

    /// Waits until it is switched on, then for its workflow: when that was, and the requests until then.
    async fn comes(&self, subject: &Subject, begun: Instant, troubles: Arc<Troubles>) -> Result<Came> {
        let before = self.bmc.seen().requests.len();
        let is_on = self.bmc.reaches(|state| !state.computer.starts.is_empty());
        timeout(LIMIT, is_on).await.with_context(|| format!("{} is not switched on", self.machine.name))?;
        let requests = self.bmc.seen().requests.len() - before;
        let token = subject.token(&self.machine).await?;
        let agent = Agent::start(self.machine.clone(), subject.target(0)?, token, troubles, LIMIT).await?;
        let answers = self.answer * u32::try_from(requests)?;
        Ok(Came { agent, at_work: begun.elapsed(), answers, requests })
    }
}

struct Came {
    agent: Agent,
    at_work: Duration,
    answers: Duration,
    requests: usize,
}

/// Measures a coordinator with so many machines.
///
/// # Errors
/// Anything that should not happen.
pub async fn measure(program: PathBuf, machines: u32, seed: u64) -> Result<Figures> {
    let mut chance = Chance::new(seed);
    let mut computers = Vec::new();
    for number in 1..=machines {
        computers.push(Arc::new(Computer::new(seed, number, &mut chance).await));
    }
    let subject = Arc::new(Subject::start(Kind::Coordinator(program, Store::Sqlite, 1)).await?);
    subject.template().await?;
    let account = json!({ "data": { "username": USERNAME, "password": PASSWORD }, "bmcs": ["127.0.0.0/8"] });
    subject.apply("Secret", "bmc", account).await?;
    let bytes_before = resident_bytes(subject.pid())?;

    let begun = Instant::now();
    let described = futures::stream::iter(computers.iter().map(|computer| computer.describe(&subject)));
    described.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let healthy: Vec<_> = computers.iter().filter(|computer| computer.works).cloned().collect();
    for computer in &healthy {
        let known = computer.bmc.reaches(|state| state.accounts.opened > 0);
        timeout(LIMIT, known).await.with_context(|| format!("{} is not logged in to", computer.bmc.address()))?;
    }
    let known_seconds = begun.elapsed().as_secs_f64();
    // Until each was looked at once, and another time.
    sleep(IDLE).await;
    let bytes_per_machine = resident_bytes(subject.pid())?.saturating_sub(bytes_before) / u64::from(machines.max(1));
    let busy = processor_time(subject.pid())?;
    sleep(IDLE).await;
    let of_each = |busy: Duration| busy.as_secs_f64() * 1e3 / f64::from(machines.max(1));
    let idle_ms_per_minute = of_each(processor_time(subject.pid())?.saturating_sub(busy));

    let (busy, begun, troubles) = (processor_time(subject.pid())?, Instant::now(), Arc::new(Troubles::default()));
    let mut coming = JoinSet::new();
    for computer in healthy.clone() {
        let (subject, troubles) = (subject.clone(), troubles.clone());
        coming.spawn(async move { computer.comes(&subject, begun, troubles).await });
    }
    let asked = futures::stream::iter(computers.iter().map(|computer| subject.provision(&computer.machine)));
    asked.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let mut came = Vec::new();
    while let Some(one) = coming.join_next().await {
        came.push(one??);
    }
    let start_ms = of_each(processor_time(subject.pid())?.saturating_sub(busy));
    ensure!(came.iter().all(|one| one.agent.epoch().is_some()), "an agent has lost its session");
    let mut at_work: Vec<_> = came.iter().map(|one| one.at_work.as_secs_f64()).collect();
    at_work.sort_by(f64::total_cmp);
    let seen: Vec<_> = computers.iter().map(|computer| computer.bmc.seen().accounts).collect();
    Ok(Figures {
        machines,
        healthy: healthy.len(),
        known_seconds,
        bytes_per_machine,
        idle_ms_per_minute,
        at_work_p50: percentile(&at_work, 50),
        at_work_last: percentile(&at_work, 100),
        answers_slowest: came.iter().map(|one| one.answers.as_secs_f64()).fold(0.0, f64::max),
        start_ms,
        requests_most: came.iter().map(|one| one.requests).max().unwrap_or(0),
        sessions_most: seen.iter().map(|accounts| accounts.opened).max().unwrap_or(0),
        failed_logins: seen.iter().map(|accounts| accounts.failed).sum(),
    })
}
