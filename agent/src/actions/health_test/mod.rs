//! `healthTest`: measures a part of the machine and judges it. Each part is reported at once, whatever becomes of the others.

mod cpu;
mod disks;
mod memory;
mod network;

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::message::{ActionResult, EventBody};
use landfall_api::{ErrorCode, HealthReport, HealthTest, HealthTestResult, Problem, Progress};

pub(super) use self::disks::check;
use super::{Machine, final_failure};
use crate::runner::{Failure, Job};
use crate::thread::on_thread;

/// Tests, and fails if a part did.
pub(super) async fn perform(machine: &Machine, job: Job, test: HealthTest) -> Result<ActionResult, Failure> {
    let (name, attempt) = (format!("action-{}", job.action.action_index), job.clone());
    let cannot = |e: std::io::Error| {
        let problem = Problem::new(ErrorCode::Internal, format!("cannot start a thread for the action: {e}"));
        Failure { problem, retryable: true }
    };
    let reports = match test {
        HealthTest::Memory { percent, passes } => {
            on_thread(&name, move || memory::test(&job, percent, passes)).await.map_err(cannot)??
        }
        HealthTest::Cpu { time, max_celsius } => {
            on_thread(&name, move || cpu::test(&job, time, max_celsius)).await.map_err(cannot)??
        }
        HealthTest::Disks { write, disks, percent, min_speed } => {
            let limits = disks::Limits { percent, min_speed };
            let test = move |machine: &Machine, job: &Job| disks::test(machine, job, write, &disks, limits);
            machine.clone().on_disks(job, test).await?
        }
        HealthTest::Network { url, time, min_speed } => {
            on_thread(&name, move || network::test(&job, &url, time, min_speed)).await.map_err(cannot)??
        }
    };
    judged(&attempt, &reports)
}

/// Reports a part.
fn tell(job: &Job, report: &HealthReport) {
    let words = report.summary();
    if report.passed() {
        tracing::info!("{words}")
    } else {
        tracing::warn!("{words}")
    }
    if job.report.report_blocking(job.action, EventBody::HealthTested { report: report.clone() }).is_err() {
        tracing::warn!("the session has ended before the coordinator got the report of {}", report.part);
    }
}

/// One report of a part that is not a disk.
fn single(job: &Job, mut report: HealthReport) -> Vec<HealthReport> {
    report.ended_at = Timestamp::now();
    tell(job, &report);
    vec![report]
}

fn judged(job: &Job, reports: &[HealthReport]) -> Result<ActionResult, Failure> {
    let mut failed = reports.iter().filter(|report| !report.passed());
    let Some(first) = failed.next() else {
        let parts = u32::try_from(reports.len()).unwrap_or(u32::MAX);
        return Ok(ActionResult::HealthTest(HealthTestResult { parts }));
    };
    let hint = "replace or mend the part, then run the test again; until it passes, the machine is not Healthy";
    let mut problem = Problem::new(ErrorCode::HealthTestFailed, first.summary()).hint(hint).at(&first.part);
    problem.causes.extend(failed.map(HealthReport::summary));
    tracing::debug!("action {} found {} failed parts", job.action.action_index, problem.causes.len() + 1);
    Err(final_failure(problem))
}

/// How far a test is that lasts so long.
fn of_time(time: Duration, left: Duration) -> Progress {
    let stage = format!("test: {} of {} s", time.saturating_sub(left).as_secs(), time.as_secs_f64());
    Progress { stage, eta_seconds: left.as_secs(), ..Progress::default() }
}

/// What is too slow, in words.
fn too_slow(what: &str, speed: u64, min_speed: Option<u64>) -> Option<String> {
    let least = min_speed.filter(|least| speed < *least)?;
    Some(format!("{what} {speed} bytes/s, and the limit is {least}"))
}
