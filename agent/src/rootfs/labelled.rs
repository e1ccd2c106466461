//! A partition of an installed disk found by the label of its file system, and mounted to be written.

use std::{fs, io, path::Path, time::Instant};

use super::find::{LOOK_AGAIN, PARTITION_LIMIT};
use super::mounted::{Access, Mounted};
use super::partitions::{Origin, Partition, SystemDisk, look};
use super::tree::{Tree, TreeError};
use super::turns::Turns;

/// No partition with one of the labels, or one that cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotLabelled {
    /// No file system of the disk has one of the labels.
    #[error("no file system of {disk} has the label {wanted}: {seen}")]
    Missing { disk: String, wanted: String, seen: String },
    /// Several file systems of the disk have the same label.
    #[error("the label {label} is that of {devices}")]
    Several { label: String, devices: String },
    /// It cannot be mounted.
    #[error("{device} with the label {label} cannot be mounted")]
    Mount {
        device: String,
        label: String,
        #[source]
        source: io::Error,
    },
}

/// A mounted partition.
#[derive(Debug)]
pub(crate) struct Labelled {
    mounted: Mounted,
    /// Given back after the mount is gone.
    turns: Turns,
    /// Which of the labels it has, by its place in their list.
    pub(crate) label: usize,
}

impl Labelled {
    /// Finds the partition that came with the image and has the first of these labels that one has, and mounts it. Waits a bounded
    /// time for the disk's partitions. Blocking.
    ///
    /// # Errors
    /// [`NotLabelled`]
    pub(crate) fn open(
        disk: &SystemDisk, labels: &[&str], at: &Path, cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, NotLabelled> {
        let end = Instant::now() + PARTITION_LIMIT;
        let (label, partition) = loop {
            let partitions = look(disk);
            match choose(&partitions, labels) {
                Ok(Some((label, found))) => break (label, found.clone()),
                Ok(None) => {}
                Err(several) => return Err(several),
            }
            // If all partitions have nodes, waiting changes nothing.
            let settled = !partitions.is_empty() && partitions.iter().all(|one| one.device.exists());
            if settled || Instant::now() >= end || cancelled() {
                return Err(missing(disk, labels, &partitions));
            }
            std::thread::sleep(LOOK_AGAIN);
        };
        let failed = |source: io::Error| NotLabelled::Mount {
            device: partition.device.display().to_string(),
            label: labels.get(label).copied().unwrap_or_default().to_owned(),
            source,
        };
        // Only what has a file system has a label.
        let file_system = partition.file_system().ok_or_else(|| failed(io::ErrorKind::Unsupported.into()))?;
        let mut turns = Turns::default();
        turns.take(&partition.device, file_system, cancelled).map_err(|_| failed(io::ErrorKind::Interrupted.into()))?;
        fs::create_dir_all(at).map_err(failed)?;
        let mounted = Mounted::new(&partition.device, (at, at), file_system, Access::Write, None);
        Ok(Self { mounted: mounted.map_err(|e| failed(e.into()))?, turns, label })
    }

    /// Its device.
    pub(crate) fn device(&self) -> String {
        self.mounted.device.display().to_string()
    }

    /// Its files. To be dropped before it is closed.
    ///
    /// # Errors
    /// [`TreeError`]
    pub(crate) fn tree(&self) -> Result<Tree, TreeError> {
        Tree::open(&self.mounted.at)
    }

    /// Unmounts: what was written is on the device when this returns.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn close(self) -> io::Result<()> {
        let Self { mounted, turns, .. } = self;
        let closed = mounted.close();
        drop(turns);
        closed
    }
}

/// The only partition with the first label that any has. One that an install kept holds nothing of the image.
fn choose<'p>(partitions: &'p [Partition], labels: &[&str]) -> Result<Option<(usize, &'p Partition)>, NotLabelled> {
    for (number, label) in labels.iter().enumerate() {
        let named = |one: &&Partition| {
            one.origin == Origin::Image && one.file_system().is_some_and(|found| found.label == *label)
        };
        let found: Vec<&Partition> = partitions.iter().filter(named).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(Some((number, one))),
            several => {
                let devices: Vec<_> = several.iter().map(|one| one.device.display().to_string()).collect();
                return Err(NotLabelled::Several { label: (*label).to_owned(), devices: devices.join(" and of ") });
            }
        }
    }
    Ok(None)
}

fn missing(disk: &SystemDisk, labels: &[&str], partitions: &[Partition]) -> NotLabelled {
    let described = |one: &Partition| {
        let device = one.device.display();
        match one.file_system() {
            _ if one.origin != Origin::Image => format!("{device} was kept"),
            Some(found) if found.label.is_empty() => format!("{device} has none"),
            Some(found) => format!("{device} has {}", found.label),
            None => format!("{device} has no file system"),
        }
    };
    let seen: Vec<_> = partitions.iter().map(described).collect();
    NotLabelled::Missing {
        disk: format!("/dev/{}", disk.name),
        wanted: labels.join(" or "),
        seen: if seen.is_empty() { "it has no partition".to_owned() } else { seen.join(", ") },
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::FileSystem;
    use super::super::partitions::Content;
    use super::*;

    fn partition(device: &str, label: &str, origin: Origin) -> Partition {
        let content = Content::FileSystem(FileSystem { kind: "ext4", uuid: String::new(), label: label.into() });
        Partition {
            device: device.into(),
            kind: String::new(),
            guid: String::new(),
            // The name in the table is another thing.
            label: "boot".into(),
            origin,
            content,
        }
    }

    #[test]
    fn the_first_label_that_one_has_is_taken() {
        let all = [
            partition("/dev/a", "boot", Origin::Image),
            partition("/dev/b", "OEM", Origin::Kept),
            partition("/dev/c", "OEM", Origin::Image),
            partition("/dev/d", "", Origin::Image),
        ];
        let chosen =
            |labels: &[&str]| choose(&all, labels).unwrap().map(|(n, one)| (n, one.device.display().to_string()));
        assert_eq!(chosen(&["ignition", "OEM", "boot"]), Some((1, "/dev/c".into())));
        assert_eq!(chosen(&["boot"]), Some((0, "/dev/a".into())));
        assert_eq!(chosen(&["ignition"]), None);
    }

    #[test]
    fn missing_and_ambiguous_labels_are_said_with_what_is_there() {
        let twins = [partition("/dev/a", "boot", Origin::Image), partition("/dev/b", "boot", Origin::Image)];
        assert_eq!(
            choose(&twins, &["boot"]).unwrap_err().to_string(),
            "the label boot is that of /dev/a and of /dev/b"
        );
        let disk = SystemDisk { name: "vda".into(), ..SystemDisk::default() };
        let others = [partition("/dev/vda1", "EFI", Origin::Image), partition("/dev/vda2", "boot", Origin::Kept)];
        assert_eq!(
            missing(&disk, &["OEM", "boot"], &others).to_string(),
            "no file system of /dev/vda has the label OEM or boot: /dev/vda1 has EFI, /dev/vda2 was kept"
        );
    }
}
