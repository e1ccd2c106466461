//! The result: a table for people, JSON for programs, each target met or missed.

use std::fmt::Write as _;

use serde::Serialize;

use crate::measure::{Figures, STEADY_RATE};

/// Targets, as the project states them for two processors shared with the simulator.
const BYTES_OF_ECHO: f64 = 1.3;
const EVENTS_PER_SECOND: f64 = 30_000.0;
const PROCESSOR_US: f64 = 30.0;
const ACK_P99_MS: f64 = 250.0;
const BACK_SECONDS: f64 = 10.0;
const FLATNESS: f64 = 0.15;
const OF_PGBENCH: f64 = 0.5;

/// One target.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    /// The figure's name.
    pub name: String,
    /// What was found.
    pub found: f64,
    /// At most, or at least, this.
    pub wanted: f64,
    /// Whether the target is met.
    pub met: bool,
}

/// Everything a run of the benchmark found.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The seed of the fleet.
    pub seed: u64,
    /// Processors of this computer.
    pub processors: usize,
    /// Its load in the minute before: other processes influence every figure.
    pub load_before: f64,
    /// The coordinator with a small fleet.
    pub coordinator_small: Option<Figures>,
    /// The coordinator with the whole fleet.
    pub coordinator: Figures,
    /// The echo with the whole fleet: the limit.
    pub echo: Figures,
    /// The targets.
    pub targets: Vec<Target>,
}

impl Report {
    /// Puts figures together and judges them.
    pub fn new(seed: u64, load_before: f64, small: Option<Figures>, coordinator: Figures, echo: Figures) -> Self {
        let targets = judge(small.as_ref(), &coordinator, &echo);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { seed, processors, load_before, coordinator_small: small, coordinator, echo, targets }
    }

    /// As a table.
    pub fn table(&self) -> String {
        let columns = [self.coordinator_small.as_ref(), Some(&self.coordinator), Some(&self.echo)];
        let heads = ["coordinator", "coordinator", "echo"];
        let shown: Vec<_> = columns.iter().zip(heads).filter_map(|(c, head)| c.map(|c| (head, c))).collect();
        let mut out = format!("{:34}", "");
        for (head, figures) in &shown {
            out += &format!("{:>20}", format!("{head}, {}", figures.agents));
        }
        let rows: [(&str, Cell); 14] = [
            ("servers; what follows is of all of them", |f| f.servers.to_string()),
            ("all enrolled and at work, s", |f| format!("{:.1}", f.enrol_seconds)),
            ("bytes a session, fresh", |f| f.bytes_per_session_fresh.to_string()),
            ("bytes a session, after traffic", |f| f.bytes_per_session.to_string()),
            ("processor ms a second, idle", |f| format!("{:.0}", f.idle_ms_per_second)),
            ("events/s at the steady rate", |f| format!("{:.0}", f.steady_rate)),
            ("ack latency p50, ms", |f| format!("{:.1}", f.ack_p50_ms)),
            ("ack latency p99, ms", |f| format!("{:.1}", f.ack_p99_ms)),
            ("events/s, stored and acked", |f| format!("{:.0}", f.events_per_second)),
            ("rows/s of pgbench, one a commit", |f| optional(f.pgbench_rows_per_second)),
            ("processor µs an event", |f| format!("{:.0}", f.processor_us_per_event)),
            ("all back after a restart, s", |f| optional(f.back_seconds)),
            ("sessions failed", |f| f.failed.to_string()),
            ("lives completed", |f| f.completed.map_or_else(|| "-".into(), |c| c.to_string())),
        ];
        for (name, value) in rows {
            let _infallible = write!(out, "\n{name:34}");
            for (_, figures) in &shown {
                let _infallible = write!(out, "{:>20}", value(figures));
            }
        }
        for target in &self.targets {
            let word = if target.met { "met   " } else { "MISSED" };
            let _infallible = write!(out, "\n{word} {}: {:.2} (wanted {})", target.name, target.found, target.wanted);
        }
        let _infallible = write!(
            out,
            "\nseed {}, {} processors shared with the simulator, load before {:.2}",
            self.seed, self.processors, self.load_before
        );
        out
    }
}

/// What a row says of a column.
type Cell = fn(&Figures) -> String;

/// A dash for what was not measured.
fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.1}"))
}

fn judge(small: Option<&Figures>, coordinator: &Figures, echo: &Figures) -> Vec<Target> {
    let most = |name: &str, found: f64, wanted: f64| Target { name: name.into(), found, wanted, met: found <= wanted };
    let least = |name: &str, found: f64, wanted: f64| Target { name: name.into(), found, wanted, met: found >= wanted };
    let bytes = |f: &Figures| f.bytes_per_session as f64;
    let mut targets = vec![
        most("bytes a session, times the echo's", bytes(coordinator) / bytes(echo).max(1.0), BYTES_OF_ECHO),
        least("stored and acked events a second", coordinator.events_per_second, EVENTS_PER_SECOND),
        most("processor µs an event", coordinator.processor_us_per_event, PROCESSOR_US),
        most(&format!("ack latency p99 at {STEADY_RATE} events/s, ms"), coordinator.ack_p99_ms, ACK_P99_MS),
        most("sessions failed", coordinator.failed as f64, 0.0),
        least("lives completed", coordinator.completed.unwrap_or(0) as f64, f64::from(coordinator.agents)),
    ];
    if let Some(rows) = coordinator.pgbench_rows_per_second {
        targets.push(least("events for each row of pgbench", coordinator.events_per_second / rows, OF_PGBENCH));
    }
    if let Some(seconds) = coordinator.back_seconds {
        targets.push(most("all back after a restart, s", seconds, BACK_SECONDS));
    }
    if let Some(small) = small {
        let drift = (bytes(coordinator) / bytes(small).max(1.0) - 1.0).abs();
        let name = format!("drift of bytes a session from {} to {}", small.agents, coordinator.agents);
        targets.push(most(&name, drift, FLATNESS));
        let slower = (coordinator.processor_us_per_event / small.processor_us_per_event.max(0.1) - 1.0).max(0.0);
        let name = format!("dearer events from {} to {}", small.agents, coordinator.agents);
        targets.push(most(&name, slower, FLATNESS));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(agents: u32, bytes_per_session: u64) -> Figures {
        Figures {
            agents,
            servers: 1,
            enrol_seconds: 1.0,
            bytes_before: 1,
            bytes_per_session_fresh: 1,
            bytes_per_session,
            idle_ms_per_second: 1.0,
            ack_p50_ms: 1.0,
            ack_p99_ms: 251.0,
            steady_rate: 1000.0,
            events_per_second: 30_000.0,
            processor_us_per_event: 30.1,
            back_seconds: Some(61.0),
            failed: 0,
            completed: Some(u64::from(agents)),
            pgbench_rows_per_second: Some(60_001.0),
        }
    }

    #[test]
    fn each_target_is_judged_and_a_missed_one_is_marked() {
        let report = Report::new(1, 0.0, Some(figures(10, 100)), figures(100, 130), figures(100, 100));
        let met: Vec<bool> = report.targets.iter().map(|t| t.met).collect();
        assert_eq!(met, [true, true, false, false, true, true, false, false, false, true], "{}", report.table());
        assert_eq!(report.table().matches("MISSED").count(), 5);
        assert!(serde_json::to_string(&report).unwrap().contains("\"bytesPerSession\":130"));
    }
}
