//! The actions, one file each. The match in [`Machine::perform`] is exhaustive: a new kind of action does not compile
//! until it is done here.

mod clear_disks;
mod cloud_init;
mod installed_disk;
mod installed_root;
mod kexec;
mod power;
mod write_file;
mod write_image;

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use landfall_api::{
    DiskFacts, DiskId, DiskSelector, ErrorCode, Problem,
    message::{ActionKind, ActionResult},
};
use uuid::Uuid;

use self::installed_disk::{no_root, system_disk};
use crate::runner::{Failure, Job, Perform};

/// This machine: its disks and its power.
#[derive(Clone, Default)]
pub(crate) struct Machine {
    /// The disk that a workflow wrote while this process lived: for images whose table has no room for a receipt.
    written: Arc<Mutex<Option<(Uuid, DiskId)>>>,
}

impl Perform for Machine {
    fn perform(&self, job: Job) -> BoxFuture<'static, Result<ActionResult, Failure>> {
        let machine = self.clone();
        Box::pin(async move {
            match job.kind.clone() {
                ActionKind::WriteImage(spec) => blocking(move || write_image::perform(&machine, &job, &spec)).await,
                ActionKind::CloudInit(spec) => blocking(move || cloud_init::perform(&machine, &job, &spec)).await,
                ActionKind::Reboot(_) => blocking(power::reboot).await,
                ActionKind::PowerOff(_) => blocking(power::off).await,
                // The runner itself waits; the machine is not touched.
                ActionKind::Hold(_) => Ok(ActionResult::Hold),
                ActionKind::ClearDisks(spec) => blocking(move || clear_disks::perform(&job, &spec)).await,
                ActionKind::Kexec(spec) => blocking(move || kexec::perform(&machine, &job, &spec)).await,
                ActionKind::WriteFile(spec) => blocking(move || write_file::perform(&machine, &job, &spec)).await,
            }
        })
    }
}

impl Machine {
    fn remember(&self, run: Uuid, disk: DiskId) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some((run, disk));
    }

    fn remembered(&self, run: Uuid) -> Option<DiskId> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.as_ref().filter(|(uid, _)| *uid == run).map(|(_, disk)| disk.clone())
    }
}

/// Everything that touches devices blocks, so it has a thread of its own.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The runner catches the panic and reports it; the only other cause is the end of the runtime.
        Err(e) => match e.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(e) => Err(final_failure(Problem::new(ErrorCode::Internal, e.to_string()))),
        },
    }
}

/// A failure that a retry cannot cure.
fn final_failure(problem: Problem) -> Failure {
    Failure { problem, retryable: false }
}

/// The one disk that a selector matches, among the present disks.
fn select(selector: &DiskSelector) -> Result<DiskFacts, Failure> {
    let disks = list()?;
    match landfall_disk::Disk::select(selector, &disks) {
        Ok(disk) => Ok(disk.clone()),
        Err(e) => Err(final_failure(e.problem())),
    }
}

fn list() -> Result<Vec<DiskFacts>, Failure> {
    landfall_disk::list_disks().map_err(|e| {
        final_failure(Problem::new(ErrorCode::DeviceIo, e.to_string()).caused_by(&e).hint("check that /sys is mounted"))
    })
}
