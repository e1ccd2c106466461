//! An installed system, mounted: its root, and below it what its `fstab` and its mount units put on the way to the files that are
//! read or written. Only partitions of its own disk count, and of disks that the same workflow wrote: another disk may carry an older
//! copy with the same names.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use landfall_api::message::HiddenPoint;

use super::find::{NotFound, find};
use super::fstab::{Line, parse};
use super::mount_unit;
use super::mounted::{Access, Mounted};
use super::partitions::{Partition, SystemDisk, look};
use super::place::{Unreachable, next_on_the_way, not_needed, partition_of};
use super::tree::{Tree, TreeError};
use super::turns::Turns;

/// Discoverable Partitions Specification: extended boot loader partition, EFI system partition.
const BOOT_TYPES: [&str; 2] = ["bc13c2ff-59e6-4262-a352-b275fd6f7172", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"];

/// A file of the installed system cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    /// Something is mounted above it that Landfall cannot mount.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// Its directory cannot be looked at.
    #[error("cannot look at {path} of the installed system")]
    Look {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// Mounts with where they are in the tree; dropped from the innermost.
#[derive(Debug, Default)]
pub(super) struct Below(pub(super) Vec<(String, Mounted)>);

impl Drop for Below {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// A mounted system. Unmounted on drop; only [`System::close`] returns an error.
#[derive(Debug)]
pub(crate) struct System {
    pub(super) disk: SystemDisk,
    pub(super) access: Access,
    /// What is below the root, in the order of mounting, with where it is in the tree. Dropped first.
    pub(super) below: Below,
    pub(super) root: Mounted,
    /// Given back after the mounts are gone.
    pub(super) turns: Turns,
}

impl System {
    /// Finds and mounts the root that the image brought. Blocking.
    ///
    /// # Errors
    /// [`NotFound`]
    pub(crate) fn open(
        disk: SystemDisk, at: &Path, access: Access, cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, NotFound> {
        let (root, turns) = find(&disk, at, access, cancelled)?;
        Ok(Self { disk, access, below: Below::default(), root, turns })
    }

    /// Its files. To be dropped before the system is closed: it holds the mounts busy.
    ///
    /// # Errors
    /// [`TreeError`]
    pub(crate) fn tree(&self) -> Result<Tree, TreeError> {
        Tree::open(&self.root.at)
    }

    /// The root.
    pub(crate) fn root(&self) -> &Mounted {
        &self.root
    }

    /// What is mounted at this place below it.
    pub(crate) fn mounted_at(&self, point: &str) -> Option<&Mounted> {
        self.below.0.iter().rfind(|(at, _)| at == point).map(|(_, mounted)| mounted)
    }

    /// Mounts everything that the running system will have mounted on the way to a file, so that the file is put where the
    /// running system finds it.
    ///
    /// # Errors
    /// [`ReachError`]
    pub(crate) fn reach(&mut self, tree: &Tree, path: &str, cancelled: &dyn Fn() -> bool) -> Result<(), ReachError> {
        let directory = Path::new(path).parent().unwrap_or(Path::new("/")).display().to_string();
        let lines = lines(tree)?;
        // Each turn mounts another line, so it ends.
        loop {
            let real = tree.real_directory(&directory);
            let real = real.map_err(|source| ReachError::Look { path: directory.clone(), source })?;
            let mounted: Vec<String> = self.below.0.iter().map(|(point, _)| point.clone()).collect();
            let Some(line) = next_on_the_way(&lines, &mounted, [&directory, &real]) else { return Ok(()) };
            let partitions = look(&self.disk);
            self.put(tree, line, partition_of(line, &partitions)?, cancelled)?;
        }
    }

    /// Mounts everything that the running system will have mounted, for programs that may write anywhere. What is in memory, on
    /// another machine, or may be missing (`nofail`) is left out, with a line in the log.
    ///
    /// # Errors
    /// [`ReachError`]
    pub(crate) fn reach_all(&mut self, tree: &Tree, cancelled: &dyn Fn() -> bool) -> Result<(), ReachError> {
        for line in &at_boot(tree)? {
            let partitions = look(&self.disk);
            let put = match not_needed(line) {
                Some(why) => {
                    tracing::info!("{} of the installed system is not mounted: {why}", line.point);
                    continue;
                }
                None => partition_of(line, &partitions).map_err(ReachError::from),
            };
            match put.and_then(|partition| self.put(tree, line, partition, cancelled)) {
                Err(ReachError::Unreachable(why)) if line.has("nofail") => tracing::info!("{why}; it is left out"),
                put => put?,
            }
        }
        Ok(())
    }

    /// Mounts as much as can be mounted of what the running system will have mounted. Returns the places of the rest.
    ///
    /// # Errors
    /// [`ReachError::Look`]
    pub(crate) fn reach_most(
        &mut self, tree: &Tree, cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<HiddenPoint>, ReachError> {
        let mut hidden = Vec::new();
        for line in &at_boot(tree)? {
            let partitions = look(&self.disk);
            let put = partition_of(line, &partitions).map_err(ReachError::from);
            match put.and_then(|partition| self.put(tree, line, partition, cancelled)) {
                Err(ReachError::Unreachable(why)) => {
                    tracing::info!("{why}; it is left out");
                    hidden.push(HiddenPoint { point: line.point.clone(), why: why.to_string() });
                }
                put => put?,
            }
        }
        Ok(hidden)
    }

    /// Mounts what `fstab` puts at this place, also what it mounts there on request only; false if it puts nothing there.
    ///
    /// # Errors
    /// [`ReachError`]
    pub(crate) fn mount_listed(
        &mut self, tree: &Tree, point: &str, cancelled: &dyn Fn() -> bool,
    ) -> Result<bool, ReachError> {
        // Of a layout everything is.
        if self.mounted_at(point).is_some() {
            return Ok(true);
        }
        let lines = lines(tree)?;
        let Some(line) = lines.iter().find(|line| line.point == point) else { return Ok(false) };
        let partitions = look(&self.disk);
        self.put(tree, line, partition_of(line, &partitions)?, cancelled)?;
        Ok(true)
    }

    /// Mounts the partition that is typed as one for boot loaders; false if there is none.
    ///
    /// # Errors
    /// [`ReachError`]
    pub(crate) fn mount_typed(
        &mut self, tree: &Tree, point: &str, cancelled: &dyn Fn() -> bool,
    ) -> Result<bool, ReachError> {
        let disk = SystemDisk { others: Vec::new(), ..self.disk.clone() };
        let mut found = look(&disk);
        found.sort_by_key(|one| one.origin);
        let typed = BOOT_TYPES.iter().find_map(|kind| found.iter().find(|one| one.kind.eq_ignore_ascii_case(kind)));
        let Some(partition) = typed else { return Ok(false) };
        let text = format!("{} {point}", partition.device.display());
        let Some(line) = parse(&text).pop() else { return Ok(false) };
        self.put(tree, &line, partition, cancelled)?;
        Ok(true)
    }

    fn put(
        &mut self, tree: &Tree, line: &Line, partition: &Partition, cancelled: &dyn Fn() -> bool,
    ) -> Result<(), ReachError> {
        let device = partition.device.display();
        let failed =
            |why: &dyn std::fmt::Display| Unreachable::of(line, format!("but {device} cannot be mounted there: {why}"));
        let file_system =
            partition.file_system().ok_or_else(|| failed(&"it holds no ext4, xfs, btrfs or FAT file system"))?;
        let stopped = |_| failed(&"the action was stopped");
        self.turns.take(&partition.device, file_system, cancelled).map_err(stopped)?;
        if self.access.writes() {
            // As systemd does before it mounts.
            tree.make_directory(&line.point).map_err(|e| failed(&e))?;
        }
        let (directory, real) = tree.mount_point(&line.point).map_err(|e| failed(&e))?;
        // By descriptor: a link in the directory's place has been resolved inside the tree and is not followed again.
        let target = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let subvolume = line.subvolume().filter(|_| file_system.kind == "btrfs");
        let place = (target.as_path(), real.as_path());
        let mounted = Mounted::new(&partition.device, place, file_system, self.access, subvolume.as_deref());
        self.below.0.push((line.point.clone(), mounted.map_err(|e| failed(&e))?));
        tracing::info!("{device} is mounted on {} of the installed system", line.point);
        Ok(())
    }

    /// Unmounts everything: what was written is on the devices when this returns.
    ///
    /// # Errors
    /// The kernel's first, such as a file still open; the others are unmounted all the same.
    pub(crate) fn close(self) -> io::Result<()> {
        let Self { mut below, root, turns, .. } = self;
        let mut closed = Ok(());
        while let Some((_, mounted)) = below.0.pop() {
            closed = closed.and(mounted.close());
        }
        closed = closed.and(root.close());
        drop(turns);
        closed
    }
}

/// What is mounted below the root without a person's doing, the outer before the inner.
fn at_boot(tree: &Tree) -> Result<Vec<Line>, ReachError> {
    let mut lines = lines(tree)?;
    lines.retain(|line| line.point != "/" && line.at_boot());
    lines.sort_by_key(|line| line.point.len());
    Ok(lines)
}

fn lines(tree: &Tree) -> Result<Vec<Line>, ReachError> {
    let text = tree.read_text("/etc/fstab").map_err(|source| ReachError::Look { path: "/etc/fstab".into(), source })?;
    let mut lines = parse(&text.unwrap_or_default());
    let units = mount_unit::add_to(&mut lines, tree);
    units.map_err(|source| ReachError::Look { path: mount_unit::ENABLED.into(), source })?;
    Ok(lines)
}
