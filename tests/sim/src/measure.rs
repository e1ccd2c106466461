//! The measurement of one server with one fleet: all machines enrol, send events at a steady rate, then as fast as
//! possible; then a restart, and every machine's end. Every server gets the same calls in the same order.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use landfall_api::ReceiptState;
use landfall_session::https_client;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::agent::{Agent, Troubles};
use crate::machine::Machine;
use crate::process::{processor_time, resident_bytes};
use crate::subject::{Kind, Subject};

/// Machines that enrol, or phone home, at the same time.
const AT_ONCE: usize = 64;
/// The limit of every wait.
const LIMIT: Duration = Duration::from_secs(600);
/// A pause before memory is measured.
const SETTLE: Duration = Duration::from_secs(4);
/// Measurements of memory, a second apart; the median counts.
const LOOKS: usize = 3;
/// Two heartbeats of every agent.
const IDLE: Duration = Duration::from_secs(10);
/// Events a second at which latency is measured.
pub const STEADY_RATE: u32 = 1000;
/// At least so many events are measured at the steady rate, however few machines there are.
const STEADY_EVENTS: usize = 10_000;
/// Receipts per machine when all machines report at once, in a fleet of any size: the cost of a workflow depends on its
/// content, and fleets of different sizes are compared.
const FAST_MARKS: usize = 5;
/// The coordinator takes this many events of one attempt at most, less what the rest of the life needs.
const MARKS: usize = 200;
/// Log lines of each machine.
const LINES: u32 = 20;

/// The parameters.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many machines.
    pub agents: u32,
    /// The seed of the fleet.
    pub seed: u64,
    /// Whether the server is killed and started again; of several coordinators another one takes its place.
    pub restart: bool,
}

/// What was found. Times are seconds, memory bytes.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Machines.
    pub agents: u32,
    /// Coordinators, or servers that echo.
    pub servers: usize,
    /// All enrolled, in session and with their workflow.
    pub enrol_seconds: f64,
    /// The server's memory before the first connection.
    pub bytes_before: u64,
    /// Additional resident bytes per session, when all had their workflow.
    pub bytes_per_session_fresh: u64,
    /// The same after all traffic.
    pub bytes_per_session: u64,
    /// Processor time of a second in which all sessions are open and nothing is reported, milliseconds.
    pub idle_ms_per_second: f64,
    /// Latency of acks at a steady rate, milliseconds.
    pub ack_p50_ms: f64,
    /// Its 99th percentile.
    pub ack_p99_ms: f64,
    /// Events a second that were really sent then.
    pub steady_rate: f64,
    /// Stored and acked events per second, all machines at once.
    pub events_per_second: f64,
    /// The server's processor time for each of these, microseconds.
    pub processor_us_per_event: f64,
    /// From the kill until the last session was back; absent if there was no restart.
    pub back_seconds: Option<f64>,
    /// Sessions that did not return, refusals, fences and cancels.
    pub failed: u64,
    /// Lives that ended with a phone-home that counted; absent where the server keeps none.
    pub completed: Option<u64>,
    /// What PostgreSQL commits by itself, a row like an event in each transaction, a second; absent where that is not the store.
    pub pgbench_rows_per_second: Option<f64>,
}

/// Measures one server.
///
/// # Errors
/// Anything that should not happen.
pub async fn measure(kind: Kind, plan: Plan) -> Result<Figures> {
    let is_coordinator = matches!(kind, Kind::Coordinator(..));
    let machines: Vec<_> = (1..=plan.agents).map(|n| Arc::new(Machine::new(plan.seed, n))).collect();
    let mut subject = Subject::start(kind).await?;
    subject.describe(&machines).await?;
    sleep(SETTLE).await;
    let bytes_before = memory(&subject).await?;
    let per_session = |now: u64| now.saturating_sub(bytes_before) / u64::from(plan.agents.max(1));

    let troubles = Arc::new(Troubles::default());
    let begun = Instant::now();
    let agents = enrol(&subject, machines, &troubles).await?;
    let enrol_seconds = begun.elapsed().as_secs_f64();
    sleep(SETTLE).await;
    let bytes_per_session_fresh = per_session(memory(&subject).await?);
    let idle_ms_per_second = idle(&subject).await?;

    let steady = steady(&agents).await?;
    let busy = processor(&subject)?;
    let (fast_events, fast_seconds) = fast(&agents).await?;
    let processor_us_per_event = (processor(&subject)? - busy).as_secs_f64() * 1e6 / fast_events;
    sleep(SETTLE).await;
    let bytes_per_session = per_session(memory(&subject).await?);

    let mut failed = 0;
    let mut back_seconds = None;
    if plan.restart {
        // The others' sessions go on where they are.
        let with_chosen = agents.iter().enumerate().filter(|(n, _)| subject.begins_with_chosen(*n));
        let of_killed: Vec<_> = with_chosen.map(|(_, agent)| (agent.clone(), agent.epoch().unwrap_or(0))).collect();
        let begun = Instant::now();
        subject.crash().await?;
        let mut back = JoinSet::new();
        for (agent, epoch) in of_killed {
            back.spawn(async move { agent.back(epoch, LIMIT).await });
        }
        while let Some(outcome) = back.join_next().await {
            failed += u64::from(outcome?.is_err());
        }
        back_seconds = Some(begun.elapsed().as_secs_f64());
    }
    failed += troubles.counts().iter().sum::<u64>();
    let servers = subject.servers();
    let completed = if is_coordinator { Some(end(&subject, agents).await?) } else { None };
    Ok(Figures {
        agents: plan.agents,
        servers,
        enrol_seconds,
        bytes_before,
        bytes_per_session_fresh,
        bytes_per_session,
        idle_ms_per_second,
        ack_p50_ms: percentile(&steady.latencies, 50),
        ack_p99_ms: percentile(&steady.latencies, 99),
        steady_rate: steady.rate,
        events_per_second: fast_events / fast_seconds,
        processor_us_per_event,
        back_seconds,
        failed,
        completed,
        pgbench_rows_per_second: tokio::task::block_in_place(|| subject.rows_per_second())?,
    })
}

/// Of all its processes.
fn processor(subject: &Subject) -> Result<Duration> {
    subject.pids().into_iter().map(processor_time).sum()
}

/// What open sessions cost by themselves: heartbeats, and whatever else goes by the clock.
async fn idle(subject: &Subject) -> Result<f64> {
    let (busy, begun) = (processor(subject)?, Instant::now());
    sleep(IDLE).await;
    Ok((processor(subject)? - busy).as_secs_f64() * 1e3 / begun.elapsed().as_secs_f64())
}

/// Of all its processes.
async fn memory(subject: &Subject) -> Result<u64> {
    let mut looks = Vec::new();
    for _ in 0..LOOKS {
        looks.push(subject.pids().into_iter().map(resident_bytes).sum::<Result<u64>>()?);
        sleep(Duration::from_secs(1)).await;
    }
    looks.sort_unstable();
    looks.get(LOOKS / 2).copied().context("not measured")
}

async fn enrol(subject: &Subject, machines: Vec<Arc<Machine>>, troubles: &Arc<Troubles>) -> Result<Vec<Arc<Agent>>> {
    let lives = machines.into_iter().enumerate().map(|(n, machine)| async move {
        let token = subject.token(&machine).await?;
        let agent = Agent::start(machine, subject.target(n)?, token, troubles.clone(), LIMIT);
        anyhow::Ok(Arc::new(tokio::spawn(agent).await??))
    });
    // In their order: which server one begins with goes by its number.
    futures::stream::iter(lives).buffered(AT_ONCE).try_collect().await
}

struct Steady {
    /// Sorted, milliseconds.
    latencies: Vec<f64>,
    rate: f64,
}

/// One event after another, by all in turn, at a fixed rate, whether or not earlier ones are acked. Latency counts from
/// when the event was due: so a slow server shows its full delay.
async fn steady(agents: &[Arc<Agent>]) -> Result<Steady> {
    let events = (2 * agents.len()).max(STEADY_EVENTS).min(MARKS / 2 * agents.len());
    let (begun, mut acks) = (Instant::now() + Duration::from_millis(100), JoinSet::new());
    for (n, agent) in agents.iter().cycle().take(events).enumerate() {
        let due = begun + Duration::from_secs(1) * u32::try_from(n)? / STEADY_RATE;
        sleep_until(due).await;
        let (agent, first) = (agent.clone(), n < agents.len());
        acks.spawn(async move {
            if first {
                agent.begin().await?
            } else {
                agent.mark(ReceiptState::Intent).await?
            }
            agent.flush(LIMIT).await?;
            anyhow::Ok(due.elapsed().as_secs_f64() * 1000.0)
        });
    }
    let rate = events as f64 / begun.elapsed().as_secs_f64();
    let mut latencies = Vec::with_capacity(events);
    while let Some(latency) = acks.join_next().await {
        latencies.push(latency??);
    }
    latencies.sort_by(f64::total_cmp);
    Ok(Steady { latencies, rate })
}

/// All machines report the rest of the write at once, with log lines. Returns how many events in how many seconds.
async fn fast(agents: &[Arc<Agent>]) -> Result<(f64, f64)> {
    let (begun, mut acks) = (Instant::now(), JoinSet::new());
    for agent in agents {
        let agent = agent.clone();
        acks.spawn(async move {
            agent.talk(LINES);
            for _ in 0..FAST_MARKS {
                agent.mark(ReceiptState::Intent).await?;
            }
            agent.finish_write().await?;
            agent.flush(LIMIT).await
        });
    }
    while let Some(acked) = acks.join_next().await {
        acked??;
    }
    Ok((((FAST_MARKS + 5) * agents.len()) as f64, begun.elapsed().as_secs_f64()))
}

/// Every machine's end; returns how many workflows the coordinator counts as succeeded.
async fn end(subject: &Subject, agents: Vec<Arc<Agent>>) -> Result<u64> {
    let client = https_client(&subject.pins(), None).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let expected = agents.len();
    let ends = agents.into_iter().map(|agent| {
        let (client, server) = (client.clone(), subject.url());
        async move {
            let Ok(agent) = Arc::try_unwrap(agent) else { bail!("an agent is still in use") };
            tokio::spawn(async move { agent.end(&client, &server, LIMIT).await }).await?
        }
    });
    futures::stream::iter(ends).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let succeeded = subject.succeeded().await?;
    ensure!(succeeded <= expected, "{succeeded} of {expected} workflows succeeded");
    Ok(succeeded as u64)
}

/// Of sorted figures; 0 of none.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let figures: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!((percentile(&figures, 50), percentile(&figures, 99)), (100.0, 198.0));
        assert_eq!((percentile(&figures[..1], 99), percentile(&[], 50)), (1.0, 0.0));
    }
}
