//! The installed system's root, mounted for an action that changes it.

use std::path::Path;

use landfall_api::{DiskSelector, ErrorCode, Problem, message::HiddenPoint};

use super::{Machine, final_failure, no_root, system_disk};
use crate::{
    rootfs::{Access, ReachError, System, Tree},
    runner::{Failure, Job},
};

/// Where it is mounted meanwhile; the path contains the action's index, because branches run at the same time.
const MOUNT_POINT: &str = "/run/landfall/root";

/// The installed system, mounted to be written.
pub(super) struct InstalledRoot {
    // Before the mounts, which it holds busy.
    tree: Tree,
    system: System,
    /// The root's device, for failures and reports.
    pub(super) device: String,
    /// The disk's kernel name.
    pub(super) disk: String,
}

impl InstalledRoot {
    /// Finds and mounts the root on the disk that `disk` selects, else on the one that this workflow wrote; and below it
    /// what the running system will have mounted on the way to each of `paths`.
    pub(super) fn open(
        machine: &Machine,
        job: &Job,
        disk: Option<&DiskSelector>,
        paths: &[&str],
    ) -> Result<Self, Failure> {
        Self::mounted(machine, job, disk, Access::Write, |system, tree, stopped| {
            paths.iter().try_for_each(|path| system.reach(tree, path, stopped))
        })
    }

    /// The same with everything that the running system will have mounted, so that its programs can be run.
    pub(super) fn open_whole(machine: &Machine, job: &Job, disk: Option<&DiskSelector>) -> Result<Self, Failure> {
        Self::mounted(machine, job, disk, Access::Run, System::reach_all)
    }

    /// The same with as much of it as can be mounted, and the places where something is missing.
    pub(super) fn open_most(
        machine: &Machine,
        job: &Job,
        disk: Option<&DiskSelector>,
    ) -> Result<(Self, Vec<HiddenPoint>), Failure> {
        let mut hidden = Vec::new();
        let root = Self::mounted(machine, job, disk, Access::Write, |system, tree, stopped| {
            hidden = system.reach_most(tree, stopped)?;
            Ok(())
        })?;
        Ok((root, hidden))
    }

    fn mounted(
        machine: &Machine,
        job: &Job,
        disk: Option<&DiskSelector>,
        access: Access,
        below: impl FnOnce(&mut System, &Tree, &dyn Fn() -> bool) -> Result<(), ReachError>,
    ) -> Result<Self, Failure> {
        let disk = system_disk(machine, job, disk)?;
        may_act(job)?;
        let mount_point = format!("{MOUNT_POINT}-{}", job.action.action_index);
        let name = disk.name.clone();
        let stopped = || may_act(job).is_err();
        let found = System::open(disk, Path::new(&mount_point), access, &stopped);
        // Also if it found nothing because it was stopped.
        may_act(job)?;
        let mut system = found.map_err(|e| no_root(&e, &name))?;
        let device = system.root().device.display().to_string();
        tracing::info!("the installed root file system is {device}");
        let tree = system.tree().map_err(|e| io(&e, &device))?;
        let reached = below(&mut system, &tree, &stopped);
        may_act(job)?;
        reached.map_err(|e| unreachable(&e, &device))?;
        Ok(Self { tree, system, device, disk: name })
    }

    /// Where the root is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.system.root().at
    }

    /// The system's files.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Unmounts: everything written is on the disk when this returns. The root's device.
    pub(super) fn close(self) -> Result<String, Failure> {
        let Self { tree, system, device, .. } = self;
        drop(tree);
        system.close().map_err(|e| io(&e, &device))?;
        Ok(device)
    }
}

/// A file would be hidden in the running system.
fn unreachable(error: &ReachError, device: &str) -> Failure {
    match error {
        ReachError::Unreachable(what) => {
            let problem = Problem::new(ErrorCode::NoRootFilesystem, error.to_string());
            final_failure(problem.hint(what.hint()).at(device))
        }
        ReachError::Look { .. } => io(error, device),
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
