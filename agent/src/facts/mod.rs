//! Facts: what the agent sees of its machine. Collecting never fails as a whole: a fact that cannot be read is left out
//! and logged.

mod cpu;
mod devices;
mod ethtool;
mod memory;
mod nics;
mod slow;
mod smbios;
mod tpm;

use std::path::{Path, PathBuf};
use std::{fs, time::Duration};

use landfall_api::message::{Identity, Vitals};
use landfall_api::{FirmwareFacts, FirmwareMode, MAX_DEVICES, MachineFacts, NicFacts, WatchdogFacts};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

pub(crate) use self::slow::Slow;
use crate::ownership::owns_machine;
use crate::{bmc, efi};

/// Collects all facts, those that may take their time too. Blocking, for up to half a minute.
pub(crate) fn collect_all() -> MachineFacts {
    let mut facts = collect();
    if let Some(tpm) = &mut facts.tpm {
        tpm.endorsement_key = tpm::endorsement_key();
    }
    MachineFacts { bmc: bmc::facts(), ..facts }
}

/// Collects all facts but those of [`Slow`]. Blocking, some tens of milliseconds.
pub(crate) fn collect() -> MachineFacts {
    let system = System::new_with_specifics(
        RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()).with_memory(MemoryRefreshKind::nothing().with_ram()),
    )
    .inspect_err(|e| tracing::warn!("cannot read processors and memory: {e}"))
    .ok();
    let disks = landfall_disk::list_disks().unwrap_or_else(|e| {
        tracing::warn!("{e}; no disk is reported");
        Vec::new()
    });
    let mut devices = devices::facts(Path::new("/sys/bus"));
    let more_devices = devices.len().saturating_sub(MAX_DEVICES);
    devices.truncate(MAX_DEVICES);
    MachineFacts {
        smbios: smbios::read(),
        cpu: cpu::facts(system.as_ref(), Path::new("/sys/devices/system/cpu"), Path::new("/proc")),
        memory_bytes: system.as_ref().map(System::total_memory).unwrap_or_default(),
        memory: memory::facts(Path::new("/sys/devices/system/node"), Path::new("/sys/firmware/dmi/tables/DMI")),
        disks,
        nics: own_nics(),
        devices,
        more_devices: u32::try_from(more_devices).unwrap_or(u32::MAX),
        firmware: firmware(),
        tpm: tpm::facts(Path::new("/sys/class/tpm/tpm0")),
        bmc: None,
        watchdog: hardware_watchdog(Path::new("/sys/class/watchdog")).map(|(_, watchdog)| watchdog),
    }
}

/// What [`identity`] needs, and nothing else. Blocking, a few milliseconds.
pub(crate) fn collect_identity() -> MachineFacts {
    MachineFacts { smbios: smbios::read(), nics: own_nics(), ..MachineFacts::default() }
}

/// On a machine that is the agent's nothing makes virtual ports, and the ones a kernel brings along are no way to a coordinator.
fn own_nics() -> Vec<NicFacts> {
    nics::read(Path::new("/sys/class/net"), !owns_machine(), ethtool::permanent_address)
}

/// This machine's identity, as far as hardware states it.
pub(crate) fn identity(facts: &MachineFacts) -> Identity {
    Identity {
        smbios_uuid: landfall_api::smbios_uuid(&facts.smbios.uuid),
        serial: facts.smbios.serial.clone(),
        macs: facts.nics.iter().map(|n| n.mac).collect(),
    }
}

/// The kernel's id of this boot.
pub(crate) fn boot_id() -> String {
    read(Path::new("/proc/sys/kernel/random/boot_id"))
}

/// Time since boot, and the agent's own peak memory.
pub(crate) fn vitals() -> Vitals {
    Vitals {
        uptime: landfall_session::boot_time().min(Duration::from_secs(u64::from(u32::MAX))),
        peak_rss_bytes: peak_rss(&fs::read_to_string("/proc/self/status").unwrap_or_default()).unwrap_or(0),
    }
}

/// `VmHWM` of a `/proc/<pid>/status`, bytes.
fn peak_rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn firmware() -> FirmwareFacts {
    let uefi = Path::new("/sys/firmware/efi").is_dir();
    let dmi = |name: &str| landfall_api::smbios_text(&read(&Path::new("/sys/class/dmi/id").join(name)));
    let version = [dmi("bios_vendor"), dmi("bios_version")].join(" ").trim().to_owned();
    FirmwareFacts {
        mode: if uefi { FirmwareMode::Uefi } else { FirmwareMode::Bios },
        version,
        secure_boot: uefi.then(|| efi::is_set("SecureBoot")).flatten(),
        setup_mode: uefi.then(|| efi::is_set("SetupMode")).flatten(),
    }
}

/// The first that is not the kernel's own timer, with the name of its device: the kernel's does not outlive a kernel that hangs.
pub(crate) fn hardware_watchdog(class: &Path) -> Option<(String, WatchdogFacts)> {
    let mut found = children(class).into_iter().map(|path| {
        let timeout_seconds = read(&path.join("timeout")).parse().unwrap_or(0);
        (name_of(&path), WatchdogFacts { identity: read(&path.join("identity")), timeout_seconds })
    });
    found.find(|(_, seen)| !seen.identity.is_empty() && seen.identity != "Software Watchdog")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// What is in a directory, by name; nothing where it cannot be read.
fn children(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
    found.sort();
    found
}

/// The last part of a path.
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The last part of what a symbolic link names, as those of sysfs that name a driver; empty without one.
fn link_name(link: &Path) -> String {
    fs::read_link(link).map(|target| name_of(&target)).unwrap_or_default()
}

#[cfg(test)]
mod testing {
    use std::fs;
    use std::path::Path;

    /// A directory with these files.
    pub(super) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    pub(super) fn link(at: &Path, target: &str) {
        std::os::unix::fs::symlink(target, at).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_read_in_bytes() {
        assert_eq!(peak_rss("Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   1234 kB\n"), Some(1234 * 1024));
        assert_eq!(peak_rss(""), None);
        assert!(vitals().peak_rss_bytes > 0);
    }

    #[test]
    fn a_tpm_and_a_hardware_watchdog_are_seen() {
        let sys = testing::tree(&[
            ("tpm0/tpm_version_major", "2\n"),
            ("w/watchdog0/identity", "Software Watchdog\n"),
            ("w/watchdog1/identity", "i6300ESB timer\n"),
            ("w/watchdog1/timeout", "30\n"),
        ]);
        let tpm = |name: &str| tpm::facts(&sys.path().join(name)).map(|tpm| tpm.version);
        assert_eq!((tpm("tpm0"), tpm("tpm1")), (Some(2), None));
        let (name, seen) = hardware_watchdog(&sys.path().join("w")).unwrap();
        assert_eq!((&*name, seen.identity.as_str(), seen.timeout_seconds), ("watchdog1", "i6300ESB timer", 30));
        assert_eq!(hardware_watchdog(sys.path()), None);
    }

    #[test]
    fn facts_of_this_very_machine_are_collected() {
        let facts = collect();
        assert!(facts.memory_bytes > 0 && facts.cpu.logical > 0, "{facts:?}");
        assert_eq!(identity(&collect_identity()), identity(&facts));
    }
}
