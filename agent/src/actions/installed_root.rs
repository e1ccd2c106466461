//! The installed system's root, mounted for an action that changes it.

use std::path::Path;

use landfall_api::{DiskSelector, ErrorCode, Problem};

use super::{Machine, installed_disk, no_root};
use crate::{
    rootfs::{self, Access, Mounted, Tree},
    runner::{Failure, Job},
};

/// Where it is mounted meanwhile; the path contains the action's index, because branches run at the same time.
const MOUNT_POINT: &str = "/run/landfall/root";

/// The installed root, mounted to be written.
pub(super) struct InstalledRoot {
    /// The mount.
    pub(super) root: Mounted,
    /// Its files. Dropped before the mount is closed: it holds it busy.
    pub(super) tree: Tree,
    /// Its device, for failures and reports.
    pub(super) device: String,
}

impl InstalledRoot {
    /// Finds and mounts the root on the disk that `disk` selects, else on the one that this workflow wrote.
    pub(super) fn open(machine: &Machine, job: &Job, disk: Option<&DiskSelector>) -> Result<Self, Failure> {
        let disk = installed_disk(machine, job, disk)?;
        may_act(job)?;
        let mount_point = format!("{MOUNT_POINT}-{}", job.action.action_index);
        let found = rootfs::find(&disk.id.name, Path::new(&mount_point), Access::Write, &|| may_act(job).is_err());
        // Also if it found nothing because it was stopped.
        may_act(job)?;
        let root = found.map_err(|e| no_root(&e, &disk.id.name))?;
        let device = root.device.display().to_string();
        tracing::info!("the installed root file system is {device}");
        let tree = Tree::open(&root.at).map_err(|e| io(&e, &device))?;
        Ok(Self { root, tree, device })
    }
}

/// Whether the installed system may be changed now: later another session may own it.
pub(super) fn may_act(job: &Job) -> Result<(), Failure> {
    if !job.lease.is_valid() {
        let text = "the lease ran out before or during the change of the installed system";
        return Err(Failure { problem: Problem::new(ErrorCode::LeaseExpired, text), retryable: true });
    }
    if job.cancel.is_cancelled() {
        let text = "the action was stopped before or during the change of the installed system";
        return Err(Failure { problem: Problem::new(ErrorCode::Cancelled, text), retryable: false });
    }
    Ok(())
}

/// A failure to read or write the installed system's files.
pub(super) fn io(error: &dyn std::error::Error, device: &str) -> Failure {
    let hint = "check whether the installed root file system is full or read-only";
    let problem = Problem::new(ErrorCode::DeviceIo, error.to_string()).caused_by(error).hint(hint).at(device);
    Failure { problem, retryable: true }
}
