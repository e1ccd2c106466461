//! Facts: what the agent sees of its machine. Collecting never fails as a whole: a fact that cannot be read is left out
//! and logged.

mod smbios;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use landfall_api::{
    CpuFacts, FirmwareFacts, FirmwareMode, MacAddr, MachineFacts, NicFacts,
    message::{Identity, Vitals},
};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

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
        nics: nics(Path::new("/sys/class/net")),
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
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    fs::read(variable).ok()?.get(4).map(|v| *v == 1)
}

/// Every Ethernet port with a device behind it.
fn nics(root: &Path) -> Vec<NicFacts> {
    let mut ports: Vec<PathBuf> = fs::read_dir(root).into_iter().flatten().flatten().map(|e| e.path()).collect();
    ports.sort();
    ports.iter().filter(|p| p.join("device").exists()).filter_map(|p| nic(p)).collect()
}

fn nic(port: &Path) -> Option<NicFacts> {
    // ARPHRD_ETHER (include/uapi/linux/if_arp.h).
    if read(&port.join("type")) != "1" {
        return None;
    }
    let mac: MacAddr = read(&port.join("address")).parse().ok()?;
    let driver = fs::read_link(port.join("device/driver")).ok();
    Some(NicFacts {
        name: port.file_name()?.to_string_lossy().into_owned(),
        mac,
        driver: driver
            .as_deref()
            .and_then(Path::file_name)
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default(),
        // -1 without carrier, and with drivers that do not report it.
        speed_mbit: read(&port.join("speed")).parse().ok().filter(|s| *s > 0),
        carrier: read(&port.join("carrier")) == "1",
    })
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
    fn ports_without_a_device_behind_them_are_no_hardware() {
        let net = tempfile::tempdir().unwrap();
        for (name, device, kind) in [("eth0", true, "1"), ("br0", false, "1"), ("ib0", true, "32")] {
            let port = net.path().join(name);
            fs::create_dir_all(if device { port.join("device") } else { port.clone() }).unwrap();
            fs::write(port.join("type"), kind).unwrap();
            fs::write(port.join("address"), "52:54:00:00:00:01\n").unwrap();
            fs::write(port.join("carrier"), "1\n").unwrap();
            fs::write(port.join("speed"), "-1\n").unwrap();
        }
        let found = nics(net.path());
        assert_eq!(found.len(), 1);
        assert!(found[0].carrier && found[0].speed_mbit.is_none() && found[0].name == "eth0");
    }

    #[test]
    fn facts_of_this_very_machine_are_collected() {
        let facts = collect();
        assert!(facts.memory_bytes > 0 && facts.cpu.logical > 0, "{facts:?}");
    }
}
