//! Facts: what the agent sees of its machine. Collecting never fails as a whole: a fact that cannot be read is left out
//! and logged.

mod nics;
mod smbios;

use std::{fs, path::Path, time::Duration};

use landfall_api::message::{Identity, Vitals};
use landfall_api::{CpuFacts, FirmwareFacts, FirmwareMode, MachineFacts};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::efi;

/// Collects all facts. Blocking, some tens of milliseconds.
pub(crate) fn collect() -> MachineFacts {
    let system = System::new_with_specifics(
        RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()).with_memory(MemoryRefreshKind::nothing().with_ram()),
    )
    .inspect_err(|e| tracing::warn!("cannot read processors and memory: {e}"))
    .ok();
    let cpus = system.as_ref().map(System::cpus).unwrap_or_default();
    let disks = landfall_disk::list_disks().unwrap_or_else(|e| {
        tracing::warn!("{e}; no disk is reported");
        Vec::new()
    });
    MachineFacts {
        smbios: smbios::read(),
        cpu: CpuFacts {
            model: cpus.first().map(|c| c.brand().trim().to_owned()).unwrap_or_default(),
            logical: u32::try_from(cpus.len()).unwrap_or(u32::MAX),
            architecture: std::env::consts::ARCH.to_owned(),
        },
        memory_bytes: system.as_ref().map(System::total_memory).unwrap_or_default(),
        disks,
        // PID 1 of a boot image makes no virtual ports, and the ones a kernel brings along are no way to a coordinator.
        nics: nics::read(Path::new("/sys/class/net"), std::process::id() != 1),
        firmware: firmware(),
    }
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
        secure_boot: uefi.then(secure_boot).flatten(),
    }
}

/// The `SecureBoot` variable: four bytes of attributes, then 0 or 1 (UEFI 2.10, 3.3).
fn secure_boot() -> Option<bool> {
    efi::mount_variables();
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    fs::read(variable).ok()?.get(4).map(|v| *v == 1)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
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
    fn facts_of_this_very_machine_are_collected() {
        let facts = collect();
        assert!(facts.memory_bytes > 0 && facts.cpu.logical > 0, "{facts:?}");
    }
}
