//! The actions, one file each. The match in [`Machine::perform`] is exhaustive: a new kind of action does not compile
//! until it is done here.

mod at_once;
mod bmc_account;
mod check;
mod chosen_disk;
mod cloud_init;
mod efi_boot;
mod exec;
mod grow_root;
mod health_test;
mod http;
mod identity;
mod ignition;
mod install_bootloader;
mod installed_disk;
mod installed_root;
mod kexec;
mod layout_commit;
mod power;
mod run_container;
mod secure_boot;
mod storage;
#[cfg(test)]
pub(crate) mod testing;
mod unpack;
mod wait;
mod wipe;
mod write_file;
mod write_image;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use landfall_api::message::{ActionKind, ActionResult, Assignment};
use landfall_api::{DiskId, DiskReceipt, ErrorCode, Problem};
use landfall_disk::{Authority, LeaseGuard, ReceiptIntent, SelectionGuard};
use tokio::time::timeout;
use uuid::Uuid;

use self::installed_disk::{no_root, system_disk};
use crate::disks::Disks;
use crate::runner::{Failure, Job, Perform};
use crate::thread::on_thread;

/// Between looks whether an action that waits for its disks, or for the check of its list, was stopped.
const CANCEL_POLL: Duration = Duration::from_millis(200);

/// This machine: its disks and its power.
#[derive(Clone)]
pub(crate) struct Machine {
    disks: Disks,
    /// The disk that a workflow wrote while this process lived: for images whose table has no room for a receipt.
    written: Arc<Mutex<Option<(Uuid, DiskId)>>>,
    /// The disks that a workflow wiped while this process lived.
    wiped: Arc<Mutex<Vec<(Uuid, DiskId)>>>,
    /// The workflow whose list was checked while this process lived. Held during a check, which opens disks, and asked before
    /// each action that destroys data: branches that begin at once, and the checks of dry runs, come one after another.
    checked: Arc<tokio::sync::Mutex<Option<Uuid>>>,
    /// Held while a layout is committed.
    commits: Arc<Mutex<()>>,
}

impl Perform for Machine {
    fn perform(&self, job: Job) -> BoxFuture<'static, Result<ActionResult, Failure>> {
        let machine = self.clone();
        Box::pin(async move {
            machine.check_list(&job).await?;
            if layout_commit::needed(&job).is_some() {
                machine.clone().on_disks(job.clone(), layout_commit::perform).await?;
            }
            // Each action is a type of its own, so no function can take any of them.
            macro_rules! on_disks {
                ($action:ident, $spec:ident) => {
                    machine.on_disks(job, move |machine, job| $action::perform(machine, job, &$spec)).await
                };
            }
            match job.kind.clone() {
                // No disk is touched.
                ActionKind::BmcAccount(account) => bmc_account::perform(account).await,
                ActionKind::CloudInit(spec) => on_disks!(cloud_init, spec),
                ActionKind::EfiBoot(spec) => on_disks!(efi_boot, spec),
                ActionKind::Exec(spec) => on_disks!(exec, spec),
                ActionKind::GrowRoot(spec) => on_disks!(grow_root, spec),
                ActionKind::HealthTest(test) => health_test::perform(&machine, job, test).await,
                // The runner itself waits; the machine is not touched.
                ActionKind::Hold(_) => Ok(ActionResult::Hold),
                // No disk is touched by Http and Wait, so none is waited for.
                ActionKind::Http(spec) => http::perform(job, spec).await,
                ActionKind::Identity(spec) => on_disks!(identity, spec),
                ActionKind::Ignition(spec) => on_disks!(ignition, spec),
                ActionKind::InstallBootloader(spec) => on_disks!(install_bootloader, spec),
                ActionKind::Kexec(spec) => on_disks!(kexec, spec),
                ActionKind::PowerOff(_) => power::off().await,
                ActionKind::Reboot(_) => power::reboot().await,
                ActionKind::RunContainer(spec) => on_disks!(run_container, spec),
                // No disk is touched.
                ActionKind::SecureBoot(spec) => secure_boot::perform(job, spec).await,
                ActionKind::Storage(spec) => on_disks!(storage, spec),
                ActionKind::Unpack(spec) => on_disks!(unpack, spec),
                ActionKind::Wait(spec) => wait::perform(job, spec).await,
                ActionKind::Wipe(spec) => on_disks!(wipe, spec),
                ActionKind::WriteFile(spec) => on_disks!(write_file, spec),
                ActionKind::WriteImage(spec) => on_disks!(write_image, spec),
            }
        })
    }
}

impl Machine {
    /// The machine with these disks.
    pub(crate) fn new(disks: Disks) -> Self {
        Self { disks, written: Arc::default(), wiped: Arc::default(), checked: Arc::default(), commits: Arc::default() }
    }

    /// Checks the whole list before the first action of it that destroys data.
    async fn check_list(&self, job: &Job) -> Result<(), Failure> {
        if !check::is_destructive(&job.kind) {
            return Ok(());
        }
        let mut checked = loop {
            if let Ok(checked) = timeout(CANCEL_POLL, self.checked.lock()).await {
                break checked;
            }
            if job.cancel.is_cancelled() {
                let text = "the action was stopped while another branch checked the list";
                return Err(final_failure(Problem::new(ErrorCode::Cancelled, text)));
            }
        };
        if job.run.precheck && *checked != Some(job.run.workflow_uid) {
            self.clone().on_disks(job.clone(), check::the_rest).await?;
            *checked = Some(job.run.workflow_uid);
        }
        Ok(())
    }

    /// Whether every action of a list would begin, for a dry run. Nothing is written.
    pub(crate) async fn check_all(self, job: Job) -> Result<(), Failure> {
        let checked = self.checked.clone();
        let _no_action_begins = checked.lock().await;
        self.on_disks(job, check::all).await
    }

    /// Runs what touches disks, once every bus has been scanned, on a thread of its own.
    async fn on_disks<T: Send + 'static>(
        self, job: Job, work: impl FnOnce(&Self, &Job) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        while timeout(CANCEL_POLL, self.disks.complete(|_| true)).await.is_err() {
            if job.cancel.is_cancelled() {
                let text = "the action was stopped while the disks were being scanned";
                return Err(final_failure(Problem::new(ErrorCode::Cancelled, text)));
            }
        }
        let job = self.after_wipes(job);
        let name = format!("action-{}", job.action.action_index);
        let cannot = |e: std::io::Error| {
            let problem = Problem::new(ErrorCode::Internal, format!("cannot start a thread for the action: {e}"));
            Failure { problem, retryable: true }
        };
        on_thread(&name, move || work(&self, &job)).await.map_err(cannot)?
    }

    /// The job without the receipts that its workflow has wiped since the coordinator sent the list.
    fn after_wipes(&self, job: Job) -> Job {
        let wiped = self.wiped.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = |known: &DiskReceipt| {
            wiped.iter().any(|(run, disk)| *run == job.run.workflow_uid && known.disk.same_disk(disk))
        };
        if !job.run.expected_receipts.iter().any(gone) {
            return job;
        }
        let mut run = Assignment::clone(&job.run);
        run.expected_receipts.retain(|known| !gone(known));
        Job { run: Arc::new(run), ..job }
    }

    fn note_wiped(&self, run: Uuid, disk: DiskId) {
        self.wiped.lock().unwrap_or_else(PoisonError::into_inner).push((run, disk));
    }

    fn remember(&self, run: Uuid, disk: DiskId) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some((run, disk));
    }

    fn remembered(&self, run: Uuid) -> Option<DiskId> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.as_ref().filter(|(uid, _)| *uid == run).map(|(_, disk)| disk.clone())
    }
}

/// On whose authority an action changes the disk that `selection` chose.
fn authority(job: &Job, selection: SelectionGuard) -> Authority {
    let (run, lease) = (&job.run, job.lease.clone());
    Authority {
        receipt: ReceiptIntent {
            machine_uid: run.machine_uid,
            workflow_uid: run.workflow_uid,
            workflow_name: run.workflow_name.clone(),
            generation: run.generation,
            action_index: job.action.action_index,
        },
        expected: run.expected_receipts.clone(),
        person_authorised: run.person_authorised,
        force: run.force,
        selection,
        lease: LeaseGuard::new(move || lease.is_valid()),
        cancel: job.cancel.clone(),
    }
}

/// A failure that a retry cannot cure.
fn final_failure(problem: Problem) -> Failure {
    Failure { problem, retryable: false }
}
