//! The yardstick for start-up time: how long the same kernel in the same machine takes to reach an init that only
//! prints a line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::machine::{self, MachineBuilder};
use crate::{Accel, Firmware, LabError, Machine, Mark, Network};

/// From power-on to the first line of user space under KVM; multiplied by the accelerator's patience.
const LIMIT: Duration = Duration::from_secs(60);
/// Where Debian's `busybox-static` puts it.
const BUSYBOX: &str = "/bin/busybox";
const SAYS: &str = "baseline-uptime ";
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox echo \"baseline-uptime $(/bin/busybox cat /proc/uptime) seconds\"
/bin/busybox poweroff -f
";

/// Boots `kernel` with a busybox init in a machine of that firmware and memory, and returns the time since boot
/// (CLOCK_BOOTTIME) at which its first line ran.
///
/// # Errors
/// [`LabError`] if busybox is missing or the machine does not come up.
pub async fn busybox_boottime(
    kernel: &Path, firmware: Firmware, memory_mib: u32, network: &Network, dir: &Path, accel: Accel,
) -> Result<Duration, LabError> {
    let builder = builder(kernel, firmware, dir)?.memory_mib(memory_mib);
    let mut machine = builder.build(network, dir, accel)?;
    let mark = machine.power_on().await?;
    first_line(&mut machine, mark, LIMIT * accel.patience()).await
}

/// Boots `kernel` with a busybox init in a machine of that firmware under KVM, and under nothing else.
pub(crate) async fn reaches_user_space(
    kernel: &Path, firmware: Firmware, network: &Network, dir: &Path, limit: Duration,
) -> Result<Duration, LabError> {
    let mut machine = builder(kernel, firmware, dir)?.build(network, dir, Accel::Kvm)?;
    let mark = machine::start(&mut machine).await?;
    first_line(&mut machine, mark, limit).await
}

fn builder(kernel: &Path, firmware: Firmware, dir: &Path) -> Result<MachineBuilder, LabError> {
    let initramfs = pack(dir)?;
    Ok(Machine::builder("baseline")
        .firmware(firmware)
        .direct_kernel(kernel, &initramfs, "console=ttyS0,115200 panic=30"))
}

async fn first_line(machine: &mut Machine, mark: Mark, limit: Duration) -> Result<Duration, LabError> {
    let line = machine.serial().wait_line(mark, SAYS, limit, |text| text.contains(SAYS)).await;
    machine.power_cut().await;
    let line = line?;
    let seconds = line.text.split(SAYS).nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    seconds.map(Duration::from_secs_f64).ok_or_else(|| LabError::Format {
        path: machine.serial().path().to_owned(),
        message: format!("no time in \"{}\"", line.text),
    })
}

fn pack(dir: &Path) -> Result<PathBuf, LabError> {
    let busybox = std::fs::read(BUSYBOX).map_err(LabError::file("cannot read (package busybox-static)", BUSYBOX))?;
    let mut cpio = Vec::new();
    for name in ["bin", "dev", "proc"] {
        entry(&mut cpio, name, 0o040_755, (0, 0), &[]);
    }
    // The console that the kernel opens for init's output before anything is mounted: character device 5:1.
    entry(&mut cpio, "dev/console", 0o020_600, (5, 1), &[]);
    entry(&mut cpio, "bin/busybox", 0o100_755, (0, 0), &busybox);
    entry(&mut cpio, "init", 0o100_755, (0, 0), INIT.as_bytes());
    entry(&mut cpio, "TRAILER!!!", 0, (0, 0), &[]);
    let path = dir.join("baseline.cpio");
    std::fs::write(&path, cpio).map_err(LabError::file("cannot write", &path))?;
    Ok(path)
}

/// One entry of a "newc" archive.
fn entry(cpio: &mut Vec<u8>, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
    let ino = u32::try_from(cpio.len()).unwrap_or(u32::MAX);
    let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
    let fields = [ino, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
    cpio.extend(b"070701");
    cpio.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
    cpio.extend(name.as_bytes());
    cpio.push(0);
    cpio.resize(cpio.len().next_multiple_of(4), 0);
    cpio.extend(data);
    cpio.resize(cpio.len().next_multiple_of(4), 0);
}
