//! Actions that the worker of the tools layer performs: the agent has the layer mounted, starts the worker inside it, and passes on
//! what it reports. A cancel, the time limit and the end of the lease end the worker with all that it started.

mod failure;
mod layer;
mod loop_device;
mod memory;
mod process;
mod relay;

use std::path::Path;

use landfall_api::message::{
    ActionResult, EventBody, HiddenPoint, LogLevel, OpenedLayout, Purpose, WorkerJob, WorkerReport,
};
use landfall_api::{DiskFacts, ErrorCode, Problem};

use self::{process::Worker, relay::Done};
use crate::drivers::TOOLS_ROOT;
use crate::inside::{Hidden, agent_as_init};
use crate::runner::{Failure, Job};

/// What the worker finds on the machine.
#[derive(Default)]
pub(crate) struct Surroundings<'a> {
    /// Every disk.
    pub(crate) disks: Vec<DiskFacts>,
    /// Those that do not answer, by kernel name.
    pub(crate) silent: Vec<String>,
    /// A mounted root file system that it is to find as `/target`.
    pub(crate) target: Option<&'a Path>,
    /// What is not mounted in it.
    pub(crate) hidden: Vec<HiddenPoint>,
    /// The disks of that system, by kernel name; the first has the root.
    pub(crate) system: Vec<String>,
}

/// Makes sure that the tools layer of the workflow is mounted. Blocking.
///
/// # Errors
/// It is not named, cannot be fetched, or does not fit this machine.
pub(crate) fn ready(job: &Job, may_act: &dyn Fn() -> Result<(), Failure>) -> Result<(), Failure> {
    let Some(layer) = &job.run.tools else { return Err(failure::not_named()) };
    let ready = layer::ready(layer, &job.cancel);
    may_act()?;
    ready.map_err(|e| failure::no_layer(&e, &layer.url))
}

/// Performs the action of the job in the worker, after [`ready`]. `may_act` is asked many times a second, and its refusal ends the
/// worker. Blocking.
pub(crate) fn perform(
    job: &Job, around: Surroundings<'_>, may_act: &(dyn Fn() -> Result<(), Failure> + Sync),
) -> Result<ActionResult, Failure> {
    let system = around.system.clone();
    match run(job, around, Purpose::Perform { system }, may_act)? {
        Done::Action(result) => Ok(result),
        Done::Layout(_) => Err(failure::not_asked()),
    }
}

/// Opens what the `storage` action before the one of the job made, after [`ready`]: everything but mounting it. It stays open.
/// Blocking.
///
/// # Errors
/// The worker's.
pub(crate) fn open(
    job: &Job, disks: Vec<DiskFacts>, may_act: &(dyn Fn() -> Result<(), Failure> + Sync),
) -> Result<OpenedLayout, Failure> {
    on_layout(job, disks, Purpose::Open, may_act)
}

/// Opens it, and puts in place what firmware starts of it. Blocking.
///
/// # Errors
/// The worker's.
pub(crate) fn commit(
    job: &Job, disks: Vec<DiskFacts>, may_act: &(dyn Fn() -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    on_layout(job, disks, Purpose::Commit, may_act).map(drop)
}

fn on_layout(
    job: &Job, disks: Vec<DiskFacts>, purpose: Purpose, may_act: &(dyn Fn() -> Result<(), Failure> + Sync),
) -> Result<OpenedLayout, Failure> {
    match run(job, Surroundings { disks, ..Surroundings::default() }, purpose, may_act)? {
        Done::Layout(layout) => Ok(layout),
        Done::Action(_) => Err(failure::not_asked()),
    }
}

fn run(
    job: &Job, around: Surroundings<'_>, purpose: Purpose, may_act: &(dyn Fn() -> Result<(), Failure> + Sync),
) -> Result<Done, Failure> {
    let target = around.target;
    let wants = described(job, around, purpose)?;
    let hidden = &Hidden::new(wants.secrets());
    let wire = wants.try_into().map_err(|_| indescribable())?;
    let worker = Worker {
        root: Path::new(TOOLS_ROOT),
        target,
        hidden,
        // A machine without a lease has no such file.
        resolv_conf: &std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        init: agent_as_init,
    };
    worker.run(&wire, |report| pass_on(job, report), &|| may_act().is_err()).unwrap_or_else(|silent| {
        // The reason why it was stopped, if it was.
        may_act().and_then(|()| Err(failure::silent(&silent)))
    })
}

/// The job for the worker.
fn described(job: &Job, around: Surroundings<'_>, purpose: Purpose) -> Result<WorkerJob, Failure> {
    let uefi = Path::new("/sys/firmware/efi").is_dir();
    let Surroundings { disks, silent, hidden, .. } = around;
    let described = WorkerJob::new(&job.run, job.action.action_index, job.action.attempt, disks, uefi);
    described.map(|described| WorkerJob { purpose, hidden, silent, ..described }).ok_or_else(indescribable)
}

fn indescribable() -> Failure {
    let problem = Problem::new(ErrorCode::Internal, "the action cannot be described to the worker");
    Failure { problem: problem.hint("report this with the machine's console log"), retryable: false }
}

/// What the worker says goes where the agent's own words go.
fn pass_on(job: &Job, report: WorkerReport) {
    let index = job.action.action_index;
    match report {
        WorkerReport::Log { level, message } => match level {
            LogLevel::Error => tracing::error!(action_index = index, "{message}"),
            LogLevel::Warn => tracing::warn!(action_index = index, "{message}"),
            LogLevel::Info => tracing::info!(action_index = index, "{message}"),
            LogLevel::Debug | LogLevel::Trace => tracing::debug!(action_index = index, "{message}"),
        },
        WorkerReport::Progress(progress) => job.report.progress(job.action, progress),
        WorkerReport::ReceiptWritten(receipt) => {
            let disk = receipt.disk.name.clone();
            if job.report.report_blocking(job.action, EventBody::ReceiptWritten { receipt }).is_err() {
                // The receipt is on the disk, and every hello contains it.
                tracing::warn!("the session has ended; the next session reports the receipt on {disk}");
            }
        }
        WorkerReport::Ready(_) | WorkerReport::Opened(_) | WorkerReport::Finished(_) | WorkerReport::Failed { .. } => {}
    }
}
