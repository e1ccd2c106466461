//! What must be stopped before disks can be taken: mounts, and devices that were built on them, from the top down. Pure.

use std::{collections::BTreeSet, fmt, slice};

use super::StopError;

/// What the kernel has active, as `/sys/block`, `/proc/self/mountinfo` and `/proc/swaps` show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Active {
    /// Every block device: disks, partitions, arrays, mapped devices.
    pub devices: Vec<ActiveDevice>,
    /// Mounted file systems that know their devices themselves, in whatever mount namespace. The kernel lists nothing of this
    /// kind under a device.
    pub pools: Vec<ActivePool>,
    /// In the order in which they were mounted.
    pub mounts: Vec<ActiveMount>,
    /// Paths of swap spaces.
    pub swaps: Vec<String>,
}

/// One block device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveDevice {
    /// The kernel's name, such as `sda1`, `md127` or `dm-0`.
    pub name: String,
    /// Major and minor, `8:1`.
    pub number: String,
    /// What it stands on: of a partition its disk, else what its folder `slaves` lists. Empty: it is a disk.
    pub under: Vec<String>,
    /// Of a mapped device: its own name, from `dm/name`.
    pub mapper: Option<String>,
    /// Of a mapped device: what made it, from `dm/uuid`; may be empty.
    pub mapper_uuid: String,
    /// Whether it is a partition.
    pub partition: bool,
}

impl ActiveDevice {
    /// Whether this is its device file.
    fn is_at(&self, path: &str) -> bool {
        path.strip_prefix("/dev/") == Some(self.name.as_str())
            || self.mapper.as_deref().is_some_and(|name| path.strip_prefix("/dev/mapper/") == Some(name))
    }

    /// Its name, for people.
    fn shown(&self) -> String {
        self.mapper.clone().unwrap_or_else(|| self.name.clone())
    }
}

impl Active {
    /// The disk that the device file is of or stands on; of several the first. `None`: nothing is active there.
    pub fn disk_under(&self, device: &str) -> Option<String> {
        let found = self.devices.iter().find(|known| known.is_at(device))?;
        outside(self, slice::from_ref(&found.name), &BTreeSet::new(), &mut BTreeSet::new())
    }
}

/// One file system that may stand on several devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivePool {
    /// What people call it, such as `btrfs 2f1c…`.
    pub name: String,
    /// The kernel's names of its devices.
    pub devices: Vec<String>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveMount {
    /// Major and minor of what is mounted; of btrfs one of its own.
    pub number: String,
    /// What was mounted, such as `/dev/sda1`.
    pub source: String,
    /// Where.
    pub at: String,
}

/// One thing to stop. Nothing that comes later in the list stands on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Unmount what is mounted there.
    Unmount(String),
    /// Remove the mapped device of this name: an LVM volume, an opened LUKS device.
    Mapper(String),
    /// Stop the array of this kernel's name.
    Array(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmount(at) => write!(f, "unmount {at}"),
            Self::Mapper(name) => write!(f, "close {name}"),
            Self::Array(name) => write!(f, "stop array {name}"),
        }
    }
}

/// What must be stopped, in order, so that nothing uses these disks (by the kernel's names).
///
/// # Errors
/// [`StopError`] if something must not or cannot be stopped.
pub(super) fn stops(active: &Active, disks: &[&str]) -> Result<Vec<Stop>, StopError> {
    let first = disks.first().copied().unwrap_or_default();
    let (taken, upwards) = standing(active, disks)?;
    for device in upwards.iter().filter(|device| !device.partition) {
        if let Some(other) = outside(active, &device.under, &taken, &mut BTreeSet::new()) {
            return Err(StopError::Spans { device: device.shown(), taken: first.into(), other });
        }
    }
    // Its mount names one of its devices, and not always one that is taken.
    for pool in active.pools.iter().filter(|pool| pool.devices.iter().any(|device| taken.contains(device.as_str()))) {
        if let Some(other) = outside(active, &pool.devices, &taken, &mut BTreeSet::new()) {
            return Err(StopError::Spans { device: pool.name.clone(), taken: first.into(), other });
        }
    }
    downwards(active, first, &taken, &upwards)
}

/// What stands on this disk, in the order in which it can be closed; empty if anything of it is in use or must not be stopped.
/// Closing loses nothing, so it may stand on other disks too.
pub(super) fn idle(active: &Active, disk: &str) -> Vec<Stop> {
    let stops = standing(active, &[disk]).and_then(|(taken, upwards)| downwards(active, disk, &taken, &upwards));
    let stops = stops.unwrap_or_default();
    if stops.iter().any(|stop| matches!(stop, Stop::Unmount(_))) { Vec::new() } else { stops }
}

/// The disks and all that stands on them, and the latter from the disks up: each stands on earlier ones only.
pub(super) fn standing<'a>(
    active: &'a Active, disks: &[&'a str],
) -> Result<(BTreeSet<&'a str>, Vec<&'a ActiveDevice>), StopError> {
    let mut taken: BTreeSet<&str> = disks.iter().copied().collect();
    let mut upwards: Vec<&ActiveDevice> = Vec::new();
    loop {
        let stands = |device: &&ActiveDevice| {
            !taken.contains(device.name.as_str()) && device.under.iter().any(|under| taken.contains(under.as_str()))
        };
        let mut next: Vec<&ActiveDevice> = active.devices.iter().filter(stands).collect();
        if next.is_empty() {
            break;
        }
        // One that stands on another of these waits for it.
        let names: BTreeSet<&str> = next.iter().map(|device| device.name.as_str()).collect();
        next.retain(|device| !device.under.iter().any(|under| above(active, under, &names, &mut BTreeSet::new())));
        if next.is_empty() {
            return Err(StopError::Changed { taken: disks.first().copied().unwrap_or_default().into() });
        }
        taken.extend(next.iter().map(|device| device.name.as_str()));
        upwards.extend(next);
    }
    Ok((taken, upwards))
}

/// The stops from the top down of what stands on `first` and the other disks that are `taken`.
fn downwards(
    active: &Active, first: &str, taken: &BTreeSet<&str>, upwards: &[&ActiveDevice],
) -> Result<Vec<Stop>, StopError> {
    let on_them = |path: &str, number: &str| {
        let is = |device: &&ActiveDevice| {
            taken.contains(device.name.as_str()) && (device.number == number || device.is_at(path))
        };
        active.devices.iter().find(is)
    };
    let mut stops = Vec::new();
    for mount in active.mounts.iter().rev() {
        let Some(device) = on_them(&mount.source, &mount.number) else { continue };
        if mount.at == "/" {
            return Err(StopError::RunningSystem { device: device.shown() });
        }
        stops.push(Stop::Unmount(mount.at.clone()));
    }
    let unsupported =
        |device: &ActiveDevice, what| StopError::Unsupported { device: device.shown(), taken: first.into(), what };
    // Nothing in the boot image turns swap on, and the tools layer has no program that turns it off.
    if let Some(device) = active.swaps.iter().find_map(|path| on_them(path, "")) {
        return Err(unsupported(device, "swap space"));
    }
    for device in upwards.iter().rev().filter(|device| !device.partition) {
        stops.push(match &device.mapper {
            Some(_) if device.mapper_uuid.starts_with("mpath-") => {
                return Err(unsupported(device, "a multipath device"));
            }
            Some(name) => Stop::Mapper(name.clone()),
            None if device.name.starts_with("md") => Stop::Array(device.name.clone()),
            None => return Err(unsupported(device, "a device of this kind")),
        });
    }
    Ok(stops)
}

/// Whether the device is one of `names` or stands on one of them.
fn above<'a>(active: &'a Active, name: &'a str, names: &BTreeSet<&str>, seen: &mut BTreeSet<&'a str>) -> bool {
    if names.contains(name) {
        return true;
    }
    if !seen.insert(name) {
        return false;
    }
    let device = active.devices.iter().find(|device| device.name == name);
    device.is_some_and(|device| device.under.iter().any(|under| above(active, under, names, seen)))
}

/// A disk that is not taken, of those that these devices are or stand on.
fn outside<'a>(
    active: &'a Active, devices: &'a [String], taken: &BTreeSet<&str>, seen: &mut BTreeSet<&'a str>,
) -> Option<String> {
    devices.iter().find_map(|under| {
        if taken.contains(under.as_str()) || !seen.insert(under) {
            return None;
        }
        let known = active.devices.iter().find(|known| known.name == *under);
        match known.filter(|known| !known.under.is_empty()) {
            Some(known) => outside(active, &known.under, taken, seen),
            None => Some(under.clone()),
        }
    })
}
