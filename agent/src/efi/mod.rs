//! UEFI's boot order. A machine that is managed starts from the network first; when the network script hands over, the firmware
//! goes to the next entry of its boot order, and that must be the disk that was installed, not another one that boots too.

pub(crate) mod keys;
mod option;
mod order;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{fs, io};

use landfall_api::{BootPolicy, DiskFacts, DiskId};
use landfall_disk::{BlockDevice as _, RealDevice, device_path, judge::Findings};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use self::option::{Partition, load_option};
use self::order::{Plan, plan, without};
use crate::ownership::owns_machine;

const VARIABLES: &str = "/sys/firmware/efi/efivars";
/// How they are mounted at all times but while they are written.
const READ_ONLY: MsFlags =
    MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC).union(MsFlags::MS_RDONLY);
/// UEFI 2.10, section 3.3: the namespace of the boot variables.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// UEFI 2.10, section 8.2: kept without power, and there before and after the system takes over.
const ATTRIBUTES: [u8; 4] = [7, 0, 0, 0];
/// Type of an EFI system partition, C12A7328-F81F-11D2-BA4B-00A0C93EC93B, in the mixed byte order of the disk.
const ESP: [u8; 16] = [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];

/// Why the firmware's boot order stays as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EfiError {
    /// The firmware's variables cannot be read or written.
    #[error("the firmware's boot order cannot be {doing}: {source}")]
    Variables { doing: &'static str, source: io::Error },
    /// The disk's table cannot be read.
    #[error("the partition table of {path} cannot be read: {source}")]
    Disk { path: PathBuf, source: io::Error },
}

/// Whether this machine's boot order is the agent's to change: it was started by UEFI, and it is the agent's.
pub(crate) fn is_ours() -> bool {
    owns_machine() && Path::new("/sys/firmware/efi").is_dir()
}

/// Mounts the firmware's variables, read-only, on a machine that is ours; who comes while it mounts them waits. It loads a module
/// (distributions' kernels have this file system as one) and asks the firmware for every variable, which takes a good part of a
/// second on some machines. Blocking.
pub(crate) fn mount_variables() {
    static MOUNTED: Once = Once::new();
    if !is_ours() {
        return;
    }
    MOUNTED.call_once(|| match mount(Some("efivarfs"), VARIABLES, Some("efivarfs"), READ_ONLY, None::<&str>) {
        Ok(()) => {}
        // Another init has mounted them, writable. If the kernel refuses to change that, they stay so.
        Err(Errno::EBUSY) => remount(READ_ONLY).unwrap_or_default(),
        Err(error) => tracing::warn!("the firmware's variables cannot be read: {error}"),
    });
}

/// Whether a variable of one byte is 1, such as `SecureBoot` and `SetupMode` (UEFI 2.10, 3.3); `None`: the firmware does not have it.
pub(crate) fn is_set(name: &str) -> Option<bool> {
    mount_variables();
    Some(data(&file(Path::new(VARIABLES), name)).ok()?.first() == Some(&1))
}

/// The URL of the entry that the firmware started, if it is one of UEFI HTTP Boot that states its URL: a person made it, or a BMC. What
/// DHCP gives the firmware for an entry without one is neither in the entry nor in what systemd's stub keeps (`LoaderImageIdentifier`; tried
/// with EDK II). Blocking.
pub(crate) fn boot_url() -> Option<String> {
    mount_variables();
    let variables = read(Path::new(VARIABLES)).ok()?;
    option::url(variables.entries.get(&variables.current?)?)
}

/// Whether the firmware lets its boot order be changed. Nothing is changed.
///
/// # Errors
/// [`EfiError::Variables`].
pub(crate) fn can_be_set() -> Result<(), EfiError> {
    let _writable = Writable::new()?;
    read(Path::new(VARIABLES)).map(drop)
}

/// Has an entry for the EFI system partition of each of these disks in the boot order, where the policy puts it. The disks that have
/// one; where none has, nothing was changed. Blocking.
///
/// # Errors
/// [`EfiError`].
pub(crate) fn arrange(disks: &[&DiskFacts], policy: BootPolicy) -> Result<Vec<DiskId>, EfiError> {
    let (mut wanted, mut ids) = (Vec::new(), Vec::new());
    for disk in disks {
        if let Some(partition) = system_partition(disk)? {
            wanted.push(load_option(&disk.id.serial, &partition));
            ids.push(disk.id.clone());
        }
    }
    if wanted.is_empty() {
        return Ok(ids);
    }
    let _writable = Writable::new()?;
    let directory = Path::new(VARIABLES);
    carry_out(directory, &plan(&read(directory)?, &wanted, policy), &wanted)?;
    Ok(ids)
}

/// Removes the entries that installs made for these disks, which are wiped; how many there were. Blocking.
///
/// # Errors
/// [`EfiError::Variables`].
pub(crate) fn forget(disks: &[&DiskFacts]) -> Result<usize, EfiError> {
    let directory = Path::new(VARIABLES);
    let serials: Vec<&str> = disks.iter().map(|disk| disk.id.serial.as_str()).collect();
    let plan = without(&read(directory)?, &serials);
    if !plan.remove.is_empty() {
        let _writable = Writable::new()?;
        carry_out(directory, &plan, &[])?;
    }
    Ok(plan.remove.len())
}

fn carry_out(directory: &Path, plan: &Plan, wanted: &[Vec<u8>]) -> Result<(), EfiError> {
    let set = |name: &str, data: &[u8]| {
        let written = fs::write(file(directory, name), [&ATTRIBUTES[..], data].concat());
        written.map_err(|source| EfiError::Variables { doing: "written", source })
    };
    for ((number, _), data) in plan.ours.iter().zip(wanted).filter(|((_, write), _)| *write) {
        set(&order::name(*number), data)?;
    }
    if let Some(order) = &plan.order {
        set("BootOrder", &order.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>())?;
    }
    if let Some(next) = plan.next {
        set("BootNext", &next.to_le_bytes())?;
    }
    for number in &plan.remove {
        // It is in no order any more.
        drop(fs::remove_file(file(directory, &order::name(*number))));
    }
    Ok(())
}

/// The variables while they may be written: at all other times they are mounted read-only.
struct Writable;

impl Writable {
    fn new() -> Result<Self, EfiError> {
        remount(READ_ONLY.difference(MsFlags::MS_RDONLY))
            .map_err(|source| EfiError::Variables { doing: "written", source })?;
        Ok(Self)
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        if let Err(error) = remount(READ_ONLY) {
            tracing::warn!("the firmware's variables stay writable: {error}");
        }
    }
}

fn remount(flags: MsFlags) -> io::Result<()> {
    Ok(mount(Some("efivarfs"), VARIABLES, Some("efivarfs"), flags | MsFlags::MS_REMOUNT, None::<&str>)?)
}

fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}-{GLOBAL}"))
}

/// The boot variables as the firmware has them.
fn read(directory: &Path) -> Result<order::Variables, EfiError> {
    let failed = |source| EfiError::Variables { doing: "read", source };
    let mut entries = BTreeMap::new();
    for found in fs::read_dir(directory).map_err(failed)? {
        let found = found.map_err(failed)?;
        let name = found.file_name();
        let name = name.to_string_lossy();
        if let Some(number) = name.strip_suffix(&format!("-{GLOBAL}")).and_then(order::number) {
            entries.insert(number, data(&found.path()).map_err(failed)?);
        }
    }
    let numbers = |name: &str| match data(&file(directory, name)) {
        Ok(bytes) => Ok(bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect::<Vec<u16>>()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    };
    Ok(order::Variables { entries, order: numbers("BootOrder")?, current: numbers("BootCurrent")?.first().copied() })
}

/// A variable without its attributes.
fn data(path: &Path) -> io::Result<Vec<u8>> {
    Ok(fs::read(path)?.get(ATTRIBUTES.len()..).unwrap_or_default().to_vec())
}

/// The EFI system partition of a disk.
fn system_partition(disk: &DiskFacts) -> Result<Option<Partition>, EfiError> {
    let path = device_path(disk);
    let failed = |source| EfiError::Disk { path: path.clone(), source };
    let device = RealDevice::open_read_only(&path).map_err(failed)?;
    let found = Findings::of(&device, device.logical_sector()).map_err(failed)?;
    let entry = found.table().and_then(|table| table.used().find(|entry| entry.kind == ESP));
    Ok(entry.map(|entry| Partition {
        number: entry.index + 1,
        first: entry.first,
        sectors: entry.last - entry.first + 1,
        guid: entry.guid,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_firmwares_variables_are_read_without_their_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let put =
            |name: &str, data: &[u8]| fs::write(file(dir.path(), name), [&ATTRIBUTES[..], data].concat()).unwrap();
        put("BootOrder", &[1, 0, 0x0a, 0]);
        put("BootCurrent", &[0x0a, 0]);
        put("Boot0001", b"one");
        put("Boot000A", b"ten");
        put("BootNext", &[1, 0]);
        put("Timeout", &[1, 0]);
        let found = read(dir.path()).unwrap();
        assert_eq!((found.order.as_slice(), found.current), (&[1, 10][..], Some(10)));
        let entries: Vec<_> = found.entries.iter().map(|(n, data)| (*n, data.as_slice())).collect();
        assert_eq!(entries, [(1, &b"one"[..]), (10, b"ten")]);
    }
}
