//! A layout that is planned on the machine's disks: it can be built, and it can be opened and mounted.

use std::path::{Path, PathBuf};

use landfall_api::message::{ActionKind, LayoutMount, OpenedLayout, WorkerJob};
use landfall_api::{DiskFacts, ErrorCode, Problem, Storage, TableSpec};
use landfall_disk::{
    NewPartition, NewTable, RealDevice, StopError, TableKind, device_path, find_kept, lacking_arrays, show_partitions,
};
use landfall_plan::{
    Architecture, Device, DiskPlan, KeptPartition, Origin, Plan, PlanDisk, Source, Step, plan, seed, volume_name,
};

use super::commands::Means;
use super::mounts::Mounted;
use super::tools::{Installed, Tools};
use super::{chosen, commands, failed, mounts};
use crate::actions::files::{Attributes, Files};
use crate::{Context, Failure};

/// What a `storage` action comes to on this machine.
pub struct Layout<'a> {
    /// The plan.
    pub plan: Plan,
    pub(super) disks: Vec<DiskFacts>,
    /// The `storage` action's place in the list.
    pub(super) index: u32,
    pub(super) storage: &'a Storage,
    tools: Box<dyn Tools + 'a>,
}

impl<'a> Layout<'a> {
    /// That of the `storage` action before the one of this job: of several the last that mounts a root, else the last. `None`:
    /// there is none.
    ///
    /// # Errors
    /// Its disks are not there, or have no room for it.
    pub fn of_earlier(context: &Context<'a>) -> Result<Option<Self>, Failure> {
        let mut found: Option<Self> = None;
        for (action, index) in context.job.earlier().iter().zip(0_u32..) {
            let ActionKind::Storage(storage) = &action.kind else { continue };
            let disks = chosen::disks(context.job, storage)?;
            let tools = Box::new(Installed { report: context.report });
            let layout = Self::planned(context.job, index, storage, disks, tools)?;
            if layout.has_root() || !found.as_ref().is_some_and(Self::has_root) {
                found = Some(layout);
            }
        }
        Ok(found)
    }

    /// The same with a root, which must be there.
    pub(super) fn before(context: &Context<'a>) -> Result<Self, Failure> {
        Self::of_earlier(context)?.filter(Self::has_root).ok_or_else(|| {
            let message = "no storage action before this one mounts a root file system";
            let hint = "report this with the workflow's log";
            Failure::last(Problem::new(ErrorCode::NoRootFilesystem, message).hint(hint))
        })
    }

    pub(super) fn new(
        job: &WorkerJob, index: u32, storage: &'a Storage, disks: Vec<DiskFacts>, tools: &'a dyn Tools,
    ) -> Result<Self, Failure> {
        Self::planned(job, index, storage, disks, Box::new(tools))
    }

    fn planned(
        job: &WorkerJob, index: u32, storage: &'a Storage, disks: Vec<DiskFacts>, tools: Box<dyn Tools + 'a>,
    ) -> Result<Self, Failure> {
        let found = disks.iter().enumerate().map(|(n, disk)| {
            let labels = storage.layout.preserved(chosen::item(storage, n));
            Ok(PlanDisk { disk: disk.clone(), kept: kept(disk, &labels)? })
        });
        let found = found.collect::<Result<Vec<_>, Failure>>()?;
        // What a retry takes over was made by the first run.
        let run = &job.assignment;
        let first = run.earlier_runs.last().copied().unwrap_or(run.workflow_uid);
        let plan = plan(&storage.layout, &found, seed(first, index), Architecture::of_this_program())
            .map_err(|error| Failure::last(error.problem()))?;
        Ok(Self { plan, disks, index, storage, tools })
    }

    /// Where a device is.
    pub fn path(&self, device: &Device) -> PathBuf {
        match device {
            Device::Partition { disk, number } => {
                let path = self.disks.get(*disk).map(device_path).unwrap_or_default();
                let path = path.display().to_string();
                let p = if path.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
                format!("{path}{p}{number}").into()
            }
            Device::Raid(name) => Path::new("/dev/md").join(name),
            // Its own folder below /dev is made by udev's rules; this one by the library.
            Device::Volume { group, name } => Path::new("/dev/mapper").join(volume_name(group, name)),
            Device::Opened(name) => Path::new("/dev/mapper").join(name),
        }
    }

    /// Builds everything that stands on the partitions, and waits until it is on stable storage.
    pub(super) fn build(&self) -> Result<(), Failure> {
        let path = |device: &Device| self.path(device);
        let means = Means::new(&self.plan.steps, &path, &self.storage.keys);
        for step in &self.plan.steps {
            if let Step::Subvolumes { device, names } = step {
                mounts::subvolumes(&self.path(device), names, &*self.tools)?;
                continue;
            }
            for command in commands::make(step, &means)? {
                self.tools.run(&command)?;
            }
        }
        nix::unistd::sync();
        Ok(())
    }

    /// Writes what the new system needs of the layout, below `root`: /etc/fstab, and where it has any encrypted devices or arrays
    /// /etc/crypttab and mdadm.conf. What stood there is replaced.
    ///
    /// # Errors
    /// The file system's.
    pub fn write_texts(&self, root: &Path) -> Result<(), Failure> {
        let files = Files::of(root)?;
        // Debian and its kin have a folder of its own for it, others not.
        let mdadm = if files.has("/etc/mdadm/.") { "/etc/mdadm/mdadm.conf" } else { "/etc/mdadm.conf" };
        let texts = &self.plan.texts;
        let all = [
            ("/etc/fstab", Some(&texts.fstab), 0o644),
            ("/etc/crypttab", texts.crypttab.as_ref(), 0o600),
            (mdadm, texts.mdadm_conf.as_ref(), 0o644),
        ];
        for (path, text, mode) in all {
            if let Some(text) = text {
                files.put(path, text.as_bytes(), Attributes::of_root(mode))?;
            }
        }
        Ok(())
    }

    /// The partitions that stay.
    pub(super) fn kept(&self) -> Vec<PathBuf> {
        let disks = self.plan.disks.iter().enumerate();
        let kept = disks.flat_map(|(disk, plan)| {
            let kept = plan.partitions.iter().filter(|partition| partition.origin == Origin::Kept);
            kept.map(move |partition| self.path(&Device::Partition { disk, number: partition.number }))
        });
        kept.collect()
    }

    /// Whether a system can be installed on it.
    pub fn has_root(&self) -> bool {
        self.plan.mounts.iter().any(|mount| mount.at == "/")
    }

    /// Opens what is not open yet. It stays open when this process ends.
    ///
    /// # Errors
    /// What cannot be opened; an array lacks a member.
    pub(super) fn open(&self) -> Result<(), Failure> {
        for (disk, plan) in self.disks.iter().zip(&self.plan.disks) {
            show_partitions(disk, &table(plan)).map_err(failed)?;
        }
        let path = |device: &Device| self.path(device);
        let means = Means::new(&self.plan.steps, &path, &self.storage.keys);
        for step in &self.plan.steps {
            for command in commands::open(step, &means)? {
                self.tools.run(&command)?;
            }
        }
        self.whole()
    }

    /// Checks that no array lacks a member: it would lose the data with the next disk, and the operator would hear of it too late.
    ///
    /// # Errors
    /// One does.
    pub(super) fn whole(&self) -> Result<(), Failure> {
        let lacking = lacking_arrays(&self.disks).map_err(|error| Failure::last(StopError::Unread(error).problem()))?;
        if lacking.is_empty() {
            return Ok(());
        }
        let hint = "replace the disk that failed, then provision the machine again";
        Err(Failure::last(Problem::new(ErrorCode::DeviceIo, lacking.join("; ")).hint(hint)))
    }

    /// What is mounted once it is open, in order, for the one who mounts it.
    pub(super) fn described(&self) -> OpenedLayout {
        let mounts = self.plan.mounts.iter().map(|mount| LayoutMount {
            device: self.path(&mount.device).display().to_string(),
            at: mount.at.clone(),
            kind: mount.format.name().to_owned(),
            uuid: match mount.source {
                Source::FileSystem(id) => id.to_string(),
                Source::PartUuid(_) => String::new(),
            },
            options: mounts::text_options(mount),
            read_only: mounts::stays_unwritten(mount),
        });
        OpenedLayout { mounts: mounts.collect(), disks: self.disks.iter().map(|disk| disk.id.name.clone()).collect() }
    }

    /// Opens what is not open yet and mounts everything at `target`, in order.
    ///
    /// # Errors
    /// What cannot be opened or mounted; nothing stays mounted then.
    pub fn mount(&self, target: &Path) -> Result<Mounted, Failure> {
        self.open()?;
        let mut mounted = Mounted::nothing(target);
        for mount in &self.plan.mounts {
            mounted.add(mount, &self.path(&mount.device))?;
        }
        Ok(mounted)
    }
}

/// The table of a disk, as it is written.
pub(super) fn table(plan: &DiskPlan) -> NewTable {
    let partitions = plan.partitions.iter().map(|part| NewPartition {
        number: part.number,
        label: part.name.clone(),
        kind: part.kind.gpt,
        mbr_kind: part.kind.mbr,
        guid: part.guid,
        first: part.first,
        last: part.last,
        active: part.active,
        kept: part.origin == Origin::Kept,
    });
    let kind = match plan.table {
        TableSpec::Gpt => TableKind::Gpt,
        TableSpec::Mbr => TableKind::Mbr,
    };
    NewTable { kind, guid: plan.guid, partitions: partitions.collect() }
}

/// The partitions that stay, as they are in the disk's table: also while it is retired.
fn kept(disk: &DiskFacts, labels: &[String]) -> Result<Vec<KeptPartition>, Failure> {
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    let path = device_path(disk);
    let name = path.display().to_string();
    let open = RealDevice::open_read_only(&path).map_err(|source| {
        failed(landfall_disk::WriteError::DeviceIo { device: name.clone(), action: "open".into(), source })
    })?;
    let found = find_kept(&open, disk.logical_sector_bytes, labels, &name).map_err(failed)?;
    let described = found.into_iter().map(|part| KeptPartition {
        kind: part.kind(),
        guid: part.part_uuid(),
        name: part.label,
        number: part.number,
        first: part.first,
        last: part.last,
    });
    Ok(described.collect())
}
