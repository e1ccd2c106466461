//! The installed system's root, mounted for an action that changes it.

use std::path::Path;

use landfall_api::message::{ActionResult, HiddenPoint, layout_before};
use landfall_api::{
    DiskSelector, ErrorCode, GrowRootResult, InstallBootloaderResult, Problem, SystemIdentityResult, UnpackResult,
};

use super::{Machine, chosen_disk::list, final_failure, no_root, system_disk};
use crate::rootfs::{Access, ReachError, System, Tree};
use crate::runner::{Failure, Job};
use crate::worker;
use crate::worker::Surroundings;

/// Where it is mounted meanwhile; the path contains the action's index, because branches run at the same time.
const MOUNT_POINT: &str = "/run/landfall/root";

/// The installed system, mounted to be written.
pub(super) struct InstalledRoot {
    // Before the mounts, which it holds busy.
    tree: Tree,
    system: System,
    /// The root's device, for failures and reports.
    pub(super) device: String,
    /// The system's disks by kernel name; the first has its root.
    pub(super) disks: Vec<String>,
}

impl InstalledRoot {
    /// Finds and mounts the root on the disk that `disk` selects, else what this workflow wrote: a layout, or a disk; and below
    /// it what the running system will have mounted on the way to each of `paths`.
    pub(super) fn open(
        machine: &Machine, job: &Job, disk: Option<&DiskSelector>, paths: &[&str],
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
        machine: &Machine, job: &Job, disk: Option<&DiskSelector>,
    ) -> Result<(Self, Vec<HiddenPoint>), Failure> {
        let mut hidden = Vec::new();
        let root = Self::mounted(machine, job, disk, Access::Write, |system, tree, stopped| {
            hidden = system.reach_most(tree, stopped)?;
            Ok(())
        })?;
        Ok((root, hidden))
    }

    fn mounted(
        machine: &Machine, job: &Job, disk: Option<&DiskSelector>, access: Access,
        below: impl FnOnce(&mut System, &Tree, &dyn Fn() -> bool) -> Result<(), ReachError>,
    ) -> Result<Self, Failure> {
        let mount_point = format!("{MOUNT_POINT}-{}", job.action.action_index);
        if disk.is_none() && means_layout(job) {
            return Self::of_layout(job, Path::new(&mount_point), access);
        }
        let disk = system_disk(machine, job, disk)?;
        may_act(job)?;
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
        Ok(Self { tree, system, device, disks: vec![name] })
    }

    fn of_layout(job: &Job, mount_point: &Path, access: Access) -> Result<Self, Failure> {
        let (system, disks) = layout_system(job, mount_point, access)?;
        let device = system.root().device.display().to_string();
        tracing::info!("the installed root file system is {device}, of the layout on {}", disks.join(", "));
        let tree = system.tree().map_err(|e| io(&e, &device))?;
        Ok(Self { tree, system, device, disks })
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

/// Lets the worker of the tools layer act in the installed system that `open` mounts; what it did, with the root's device. The
/// disks are touched only once the layer is there.
pub(super) fn in_root(
    job: &Job, open: impl FnOnce() -> Result<(InstalledRoot, Vec<HiddenPoint>), Failure>,
) -> Result<ActionResult, Failure> {
    worker::ready(job, &|| may_act(job))?;
    let disks = list()?;
    let (root, hidden) = open()?;
    let (target, system) = (Some(root.path()), root.disks.clone());
    let around = Surroundings { disks, target, hidden, system, ..Surroundings::default() };
    let done = worker::perform(job, around, &|| may_act(job));
    // Also after a failure: what was changed is on the disk then.
    let closed = root.close();
    let (mut done, device) = (done?, closed?);
    match &mut done {
        ActionResult::Unpack(UnpackResult { root_device, .. })
        | ActionResult::Identity(SystemIdentityResult { root_device, .. })
        | ActionResult::GrowRoot(GrowRootResult { root_device, .. })
        | ActionResult::InstallBootloader(InstallBootloaderResult { root_device, .. }) => *root_device = device,
        _ => {}
    }
    Ok(done)
}

/// What the `storage` action before this one made, with everything that is mounted in it; its disks by kernel name.
pub(super) fn layout_system(job: &Job, mount_point: &Path, access: Access) -> Result<(System, Vec<String>), Failure> {
    worker::ready(job, &|| may_act(job))?;
    let layout = worker::open(job, list()?, &|| may_act(job))?;
    let stopped = || may_act(job).is_err();
    let opened = System::of_layout(&layout, mount_point, access, &stopped);
    // Also if it was not mounted because the action was stopped.
    may_act(job)?;
    let system = opened.map_err(|e| {
        let problem = Problem::new(ErrorCode::NoRootFilesystem, e.to_string()).caused_by(&e);
        final_failure(problem.hint("provision the machine again, so that its disks are laid out anew").at(&e.device))
    })?;
    Ok((system, layout.disks))
}

/// Whether a layout is the system that this workflow installs.
pub(super) fn means_layout(job: &Job) -> bool {
    layout_before(&job.run.actions, job.action.action_index as usize).is_some()
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

/// Whether the action may go on now: later another session may own the machine.
pub(super) fn may_act(job: &Job) -> Result<(), Failure> {
    if !job.lease.is_valid() {
        let text = "the lease ran out before the action ended";
        return Err(Failure { problem: Problem::new(ErrorCode::LeaseExpired, text), retryable: true });
    }
    if job.cancel.is_cancelled() {
        let text = "the action was stopped";
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
