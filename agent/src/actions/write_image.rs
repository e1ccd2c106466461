//! `writeImage`: chooses the disk, calls `landfall_disk`, and forwards its reports.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_api::message::{ActionKind, ActionResult, AssignedAction, EventBody, WriteImage, WriteImageResult};
use landfall_api::{BootPolicy, DiskFacts, DiskReceipt, ErrorCode, Problem, Progress, stages};
use landfall_disk::{Observer, SelectionGuard, Unobserved, WriteOutcome, WriteRequest, device_path};

use super::{Machine, authority, chosen_disk::list, final_failure};
use crate::efi;
use crate::runner::{Failure, Job};

/// Progress goes out this often; a change of stage at once.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Writes the image. Blocks until the write ended or obeyed `job.cancel`.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &WriteImage) -> Result<ActionResult, Failure> {
    let (disk, selection) = machine.choose(job, &spec.disk)?;
    alone(job, &disk)?;
    let starts = is_system_disk(job) && !sets_boot_order(job) && efi::is_ours();
    if starts && let Err(error) = efi::can_be_set() {
        // Said before the first write: a person may cancel.
        tracing::warn!(
            "{error}. In the firmware's setup, put disk {} behind the network and before any other",
            disk.id.name
        );
    }
    let request = request(job, spec, disk.clone(), selection);
    let observer = ToRun { job, device: device_path(&disk).display().to_string(), thinned: Mutex::new(None) };
    let WriteOutcome { written, installed, elapsed } = landfall_disk::write_image(&request, &observer)
        .map_err(|e| Failure { problem: e.problem(), retryable: e.retryable() })?;
    if let Some(why) = &installed.no_receipt {
        tracing::warn!("the disk carries no receipt: {why}");
    }
    if starts {
        start_next(&[&disk]);
    }
    machine.remember(job.run.workflow_uid, disk.id);
    Ok(ActionResult::WriteImage(WriteImageResult {
        receipt: installed.receipt,
        written,
        stored_bytes: installed.stored_bytes,
        raw_bytes: installed.raw_bytes,
        written_bytes: installed.written_bytes,
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
    }))
}

/// Whether it would begin to write: the disk is there and may be written, the proofs and the image's start are fetched, and the
/// image fits. `replaced` says whether an earlier action replaces what is on a disk of these. Blocks meanwhile; nothing is written.
pub(super) fn check(
    machine: &Machine, job: &Job, spec: &WriteImage, replaced: impl Fn(&DiskFacts, &[DiskFacts]) -> bool,
) -> Result<(), Failure> {
    let (disk, selection) = machine.choose(job, &spec.disk)?;
    alone(job, &disk)?;
    let replaced = replaced(&disk, &list()?);
    let mut request = request(job, spec, disk, selection);
    // What is there now will be gone.
    request.authority.force |= replaced;
    landfall_disk::may_write(&request, &Unobserved)
        .map_err(|e| Failure { problem: e.problem(), retryable: e.retryable() })
}

fn request(job: &Job, spec: &WriteImage, disk: DiskFacts, selection: SelectionGuard) -> WriteRequest {
    WriteRequest {
        disk,
        image: spec.image.clone(),
        keep: spec.keep.clone(),
        read_back: spec.read_back,
        authority: authority(job, selection),
    }
}

/// Whether the machine is to start from the disk that this action writes: of several, the first is the system's.
fn is_system_disk(job: &Job) -> bool {
    let first = job.run.actions.iter().position(|action| matches!(action.kind, ActionKind::WriteImage(_)));
    first == Some(job.action.action_index as usize)
}

/// Whether an action of the list sets the boot order: the others leave it alone then.
pub(super) fn sets_boot_order(job: &Job) -> bool {
    job.run.actions.iter().any(|action| matches!(action.kind, ActionKind::EfiBoot(_)))
}

/// The system on these disks is complete; where the firmware does not take the entries, it may still start it.
pub(super) fn start_next(disks: &[&DiskFacts]) {
    let name = disks.iter().map(|disk| disk.id.name.as_str()).collect::<Vec<_>>().join(", ");
    match efi::arrange(disks, BootPolicy::NetFirst) {
        Ok(started) if !started.is_empty() => {
            let names: Vec<_> = started.iter().map(|disk| disk.name.as_str()).collect();
            tracing::info!("the firmware starts disk {} after the network", names.join(", "));
        }
        Ok(_) => {
            tracing::info!("disk {name} has no EFI system partition: the firmware's boot order stays as it is")
        }
        Err(error) => {
            tracing::warn!("{error}. In the firmware's setup, put disk {name} behind the network and before any other")
        }
    }
}

/// Refuses a disk that another branch, which runs at the same time, selects as well: before either has written a byte,
/// because every branch checks this.
fn alone(job: &Job, disk: &DiskFacts) -> Result<(), Failure> {
    let disks = list()?;
    match selected_elsewhere(&job.run.actions, job.action.action_index as usize, disk, &disks) {
        None => Ok(()),
        Some(name) => {
            let message =
                format!("disk {} is also selected by action {name}, which runs at the same time", disk.id.name);
            let hint = "in each branch's disk selector, use a fact that only its own disk has, such as serial";
            Err(final_failure(Problem::new(ErrorCode::AmbiguousDisk, message).hint(hint).at(&disk.id.name)))
        }
    }
}

/// The action of another branch of the same stage that writes the same disk.
fn selected_elsewhere<'a>(
    actions: &'a [AssignedAction], index: usize, disk: &DiskFacts, disks: &[DiskFacts],
) -> Option<&'a str> {
    let stage = stages(actions.iter().map(|a| a.branch.as_deref())).into_iter().find(|s| s.span().contains(&index))?;
    let others = stage.lanes.iter().filter(|lane| !lane.contains(&index)).flatten();
    others.filter_map(|other| actions.get(*other)).find_map(|action| {
        let ActionKind::WriteImage(spec) = &action.kind else { return None };
        // A selector that matches no disk, or several, fails in its own branch.
        let theirs = landfall_disk::Disk::select(&spec.disk, disks).ok()?;
        (theirs.id.same_disk(&disk.id) || theirs.id.name == disk.id.name).then_some(action.name.as_str())
    })
}

/// Forwards the reports of the write.
struct ToRun<'a> {
    job: &'a Job,
    /// The disk's device file.
    device: String,
    thinned: Mutex<Option<(Instant, String)>>,
}

impl Observer for ToRun<'_> {
    fn progress(&self, progress: &Progress) {
        self.job.doing.begin(&progress.stage, &self.device);
        let mut last = self.thinned.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let soon = last.as_ref().is_some_and(|(at, stage)| now - *at < PROGRESS_INTERVAL && *stage == progress.stage);
        if !soon {
            *last = Some((now, progress.stage.clone()));
            self.job.report.progress(self.job.action, progress.clone());
        }
    }

    fn receipt_written(&self, receipt: &DiskReceipt) {
        let event = EventBody::ReceiptWritten { receipt: receipt.clone() };
        if self.job.report.report_blocking(self.job.action, event).is_err() {
            // The receipt is on the disk, and every hello contains it.
            tracing::warn!("the session has ended; the next session reports the receipt on {}", receipt.disk.name);
        }
    }

    fn is_known(&self, limit: Duration) -> bool {
        // On a thread that may block, as `report_blocking`. A session that has ended ends the lease, and with it the write.
        tokio::runtime::Handle::current().block_on(self.job.report.flush(limit)).is_ok()
    }

    fn log(&self, level: landfall_disk::LogLevel, message: &str) {
        // Through the log, which the console shows and the telemetry follows. Branches write at the same time, so each
        // line names its action.
        let index = self.job.action.action_index;
        let action_index = self.job.run.actions.get(index as usize).and_then(|a| a.branch.as_ref()).map(|_| index);
        match level {
            landfall_disk::LogLevel::Info => tracing::info!(action_index, "{message}"),
            landfall_disk::LogLevel::Warn => tracing::warn!(action_index, "{message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{DiskSelector, ImageAccess, ImageProof, ImageSource, message::Retry};

    use super::*;

    #[test]
    fn parallel_branches_must_not_select_the_same_disk() {
        let action = |branch: &str, name: &str| AssignedAction {
            name: format!("write-{name}-{branch}"),
            timeout: Duration::from_secs(1),
            retry: Retry {
                max_attempts: 1,
                initial_backoff: Duration::from_secs(1),
                max_backoff: Duration::from_secs(1),
            },
            branch: Some(branch.to_owned()).filter(|b| !b.is_empty()),
            when: None,
            kind: ActionKind::WriteImage(WriteImage {
                disk: DiskSelector([("size".to_owned(), name.into())].into()),
                image: ImageSource {
                    urls: vec!["http://h/i".into()],
                    proof: ImageProof::Waived,
                    format: None,
                    no_table: true,
                    access: ImageAccess::default(),
                },
                keep: Vec::new(),
                read_back: true,
            }),
        };
        let disk = |name: &str, size: u64| DiskFacts {
            id: landfall_api::DiskId { name: name.into(), serial: name.into(), size_bytes: size, ..Default::default() },
            ..DiskFacts::default()
        };
        let disks = [disk("vda", 1 << 30), disk("vdb", 2 << 30)];
        // Two selectors match one disk, which the template alone does not show.
        let list = [action("a", ">= 2GiB"), action("b", "> 1GiB"), action("", "> 1GiB")];
        assert_eq!(selected_elsewhere(&list, 0, &disks[1], &disks), Some("write-> 1GiB-b"));
        assert_eq!(selected_elsewhere(&list, 1, &disks[1], &disks), Some("write->= 2GiB-a"));
        assert_eq!(selected_elsewhere(&list, 2, &disks[1], &disks), None, "it waits for both");
        assert_eq!(selected_elsewhere(&list, 0, &disks[0], &disks), None);
    }
}
