//! `runContainer`: the agent chooses the disks and mounts the installed system where the container shows something of it; the worker of the
//! tools layer fetches the image and runs it.

use landfall_api::{DiskFacts, DiskReceipt, ErrorCode, RunContainer, message::ActionResult};
use landfall_disk::{Unobserved, take_back};

use super::Machine;
use super::chosen_disk::list;
use super::installed_disk::is_done;
use super::installed_root::{InstalledRoot, may_act};
use crate::runner::{Failure, Job};
use crate::worker;
use crate::worker::Surroundings;

/// Runs it. What it prints goes to the log of this action.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &RunContainer) -> Result<ActionResult, Failure> {
    worker::ready(job, &|| may_act(job))?;
    // The worker chooses by the same facts. Here it is checked that no disk of this machine is missing.
    let lent = spec.devices.iter().map(|device| Ok(machine.choose(job, &device.disk)?.0));
    let lent = lent.collect::<Result<Vec<_>, Failure>>()?;
    let marks = machine.disks.receipts().on(&lent).receipts;
    let disks = list()?;
    // As complete as the running system has it: what is missing would be written below where it is mounted.
    let needs_root = !spec.mounts.is_empty();
    let root = needs_root.then(|| InstalledRoot::open_whole(machine, job, spec.disk.as_ref())).transpose()?;
    let around = Surroundings {
        disks,
        target: root.as_ref().map(InstalledRoot::path),
        system: root.as_ref().map(|root| root.disks.clone()).unwrap_or_default(),
        ..Surroundings::default()
    };
    let done = worker::perform(job, around, &|| may_act(job));
    // Also after a failure: what the program wrote is on the disk then.
    let closed = root.map_or(Ok(()), |root| root.close().map(drop));
    // The worker takes the disks back, and it was ended itself where the time ran out.
    let done = done.map_err(|failure| taken_back(job, &lent, &marks, failure))?;
    closed.map(|()| done)
}

/// Flushes the disks after a failure; a lost receipt counts for more than what failed, which might be tried again.
fn taken_back(job: &Job, lent: &[DiskFacts], marks: &[DiskReceipt], failure: Failure) -> Failure {
    lent.iter().fold(failure, |failure, disk| {
        let mark = marks.iter().find(|mark| mark.disk.same_disk(&disk.id) && is_done(job, &mark.receipt));
        match take_back(disk, mark, &Unobserved) {
            Ok(()) => failure,
            Err(lost) if lost.code() == ErrorCode::ReceiptMismatch && failure.problem.code != lost.code() => {
                let mut problem = lost.problem();
                problem.causes.push(failure.problem.to_string());
                Failure { problem, retryable: false }
            }
            Err(error) => {
                tracing::warn!("the disk {} is not taken back: {error}", disk.id.name);
                failure
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use landfall_api::{Problem, Receipt, ReceiptState};

    use super::super::testing::{job, write_image};
    use super::*;

    #[test]
    fn a_time_limit_hides_no_lost_receipt() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 20).unwrap();
        let disk = landfall_disk::disk_at(file.path()).unwrap();
        let job = job(write_image(""));
        let receipt = Receipt {
            machine_uid: job.run.machine_uid,
            workflow_uid: job.run.workflow_uid,
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
            image_digest: None,
            state: ReceiptState::Done,
            written_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        let marks = [DiskReceipt { disk: disk.id.clone(), receipt }];
        let ended = || Failure { problem: Problem::new(ErrorCode::Timeout, "the time limit passed"), retryable: true };
        let lent = [disk];
        let Failure { problem, retryable } = taken_back(&job, &lent, &marks, ended());
        assert_eq!((problem.code, retryable), (ErrorCode::ReceiptMismatch, false), "{problem}");
        assert!(problem.causes.iter().any(|cause| cause.contains("time limit")), "{problem:?}");
        assert_eq!(taken_back(&job, &lent, &[], ended()), ended(), "it had none");
    }
}
