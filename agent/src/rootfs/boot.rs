//! What an installed system mounts inside its root before it starts a kernel: `/boot`, the EFI system partition. Found
//! by its `fstab`, or else by the types of the disk's partitions. Only partitions of the same disk count: another disk
//! may carry an older copy with the same names.

use std::{
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use nix::mount::mount;

use super::{
    find::{Access, Mounted, partitions},
    names::FileSystem,
    table,
    tree::Tree,
};

/// Discoverable Partitions Specification: extended boot loader partition, EFI system partition.
const BOOT_TYPES: [&str; 2] = ["bc13c2ff-59e6-4262-a352-b275fd6f7172", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"];

/// One partition, with every name it may be called by.
#[derive(Debug, Clone, Default)]
struct Partition {
    device: PathBuf,
    /// Type, GUID and label of its entry in the table; empty without a GPT.
    kind: String,
    guid: String,
    label: String,
    file_system: Option<FileSystem>,
}

/// The file system that `fstab` puts at this place of the tree, mounted there for reading; `None` if it puts none there.
///
/// # Errors
/// A sentence: it does, and that cannot be done.
pub(crate) fn mount_listed(tree: &Tree, disk: &str, point: &str) -> Result<Option<Mounted>, String> {
    let text = tree.read_text("/etc/fstab").map_err(|e| format!("cannot read /etc/fstab: {e}"))?.unwrap_or_default();
    let Some(source) = source_of(&text, point) else { return Ok(None) };
    let found = look(disk);
    let partition = named(&source, &found).ok_or_else(|| {
        let devices: Vec<_> = found.iter().map(|p| p.device.display().to_string()).collect();
        format!("/etc/fstab mounts {source} on {point}, but this disk has no such partition ({})", devices.join(", "))
    })?;
    put(tree, partition, point).map(Some)
}

/// The partition that is typed as one for boot loaders, mounted for reading at this place; `None` if there is none.
///
/// # Errors
/// A sentence: there is, and it cannot be mounted.
pub(crate) fn mount_typed(tree: &Tree, disk: &str, point: &str) -> Result<Option<Mounted>, String> {
    let found = look(disk);
    let typed = BOOT_TYPES.iter().find_map(|kind| found.iter().find(|p| p.kind.eq_ignore_ascii_case(kind)));
    typed.map(|partition| put(tree, partition, point)).transpose()
}

fn put(tree: &Tree, partition: &Partition, point: &str) -> Result<Mounted, String> {
    let device = partition.device.display();
    let failed = |why: &dyn std::fmt::Display| format!("cannot mount {device} on {point}: {why}");
    let file_system = partition.file_system.clone().ok_or_else(|| failed(&"no ext4, xfs, btrfs or FAT file system"))?;
    crate::drivers::load_by_name(file_system.kind);
    let (directory, real) = tree.mount_point(point).map_err(|e| failed(&e))?;
    // By descriptor: a link in the directory's place has been resolved inside the tree and is not followed again.
    let target = format!("/proc/self/fd/{}", directory.as_raw_fd());
    mount(Some(&partition.device), target.as_str(), Some(file_system.kind), Access::Read.flags(), None::<&str>)
        .map_err(|e| failed(&e))?;
    tracing::info!("{device} is mounted on {point} of the installed system");
    Ok(Mounted::new(&partition.device, &real, file_system, None))
}

fn look(disk: &str) -> Vec<Partition> {
    let table = table::entries(&Path::new("/dev").join(disk));
    let found = partitions(&Path::new("/sys/block").join(disk));
    let one = |(number, device): (u32, PathBuf)| {
        let file_system = FileSystem::look(&device).unwrap_or_else(|e| {
            tracing::warn!("{} cannot be read: {e}", device.display());
            None
        });
        match table.get(&number) {
            Some(entry) => Partition {
                kind: table::guid(entry.kind),
                guid: table::guid(entry.guid),
                label: entry.label.clone(),
                device,
                file_system,
            },
            None => Partition { device, file_system, ..Partition::default() },
        }
    };
    found.into_iter().map(one).collect()
}

/// What `fstab` mounts there, as it is written.
fn source_of(fstab: &str, point: &str) -> Option<String> {
    let lines = fstab.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter_map(|fields| Some(((*fields.first()?).to_owned(), fields.get(1)?.trim_end_matches('/').to_owned())))
        // The last of several mounts at one place hides the others.
        .rfind(|(_, at)| at == point)
        .map(|(source, _)| source.trim_matches('"').replace("\\040", " "))
}

/// The partition that a source of `fstab` names.
fn named<'p>(source: &str, partitions: &'p [Partition]) -> Option<&'p Partition> {
    let fs = |wanted: fn(&FileSystem) -> &str, value: &str| {
        partitions.iter().find(|p| p.file_system.as_ref().is_some_and(|f| wanted(f).eq_ignore_ascii_case(value)))
    };
    let by_tag = |tag: &str, value: &str| {
        let value = value.trim_matches('"');
        match tag {
            "UUID" | "uuid" => fs(|f| &f.uuid, value),
            "LABEL" | "label" => partitions.iter().find(|p| p.file_system.as_ref().is_some_and(|f| f.label == value)),
            "PARTUUID" | "partuuid" => partitions.iter().find(|p| p.guid.eq_ignore_ascii_case(value)),
            "PARTLABEL" | "partlabel" => partitions.iter().find(|p| p.label == value),
            _ => None,
        }
    };
    if value_is_empty(source) {
        return None;
    }
    if let Some((tag, value)) = source.split_once('=') {
        return by_tag(tag, value);
    }
    if let Some((tag, value)) = source.strip_prefix("/dev/disk/by-").and_then(|rest| rest.split_once('/')) {
        return by_tag(tag, value);
    }
    partitions.iter().find(|p| p.device == Path::new(source))
}

/// An empty name would match every partition without one.
fn value_is_empty(source: &str) -> bool {
    source.rsplit(['=', '/']).next().is_none_or(|value| value.trim_matches('"').is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fstab_says_what_is_mounted_where() {
        let fstab = "# /boot was here: UUID=0 /boot ext4\n\nLABEL=root / ext4 defaults 0 1\n\
                     UUID=1-2 /boot ext4 defaults 0 2\n  PARTLABEL=my\\040esp\t/boot/efi/ vfat umask=0077 0 1\n/dev/sdb1\n";
        assert_eq!(source_of(fstab, "/boot").as_deref(), Some("UUID=1-2"));
        assert_eq!(source_of(fstab, "/boot/efi").as_deref(), Some("PARTLABEL=my esp"));
        assert_eq!(source_of(fstab, "/efi"), None);
        assert_eq!(source_of("UUID=1 /boot ext4\nUUID=2 /boot xfs\n", "/boot").as_deref(), Some("UUID=2"));
    }

    #[test]
    fn a_partition_is_found_by_any_nonempty_name() {
        let file_system =
            |uuid: &str, label: &str| Some(FileSystem { kind: "ext4", uuid: uuid.into(), label: label.into() });
        let boot = Partition {
            device: "/dev/vda2".into(),
            kind: BOOT_TYPES[0].into(),
            guid: "0FC63DAF-0000".into(),
            label: "the boot".into(),
            file_system: file_system("ab-cd", "BOOT"),
        };
        let nameless =
            Partition { device: "/dev/vda1".into(), file_system: file_system("", ""), ..Partition::default() };
        let all = [nameless, boot];
        for source in [
            "UUID=AB-CD",
            "UUID=\"ab-cd\"",
            "LABEL=BOOT",
            "PARTUUID=0fc63daf-0000",
            "PARTLABEL=the boot",
            "/dev/disk/by-uuid/ab-cd",
            "/dev/disk/by-label/BOOT",
            "/dev/disk/by-partuuid/0fc63daf-0000",
            "/dev/vda2",
        ] {
            assert_eq!(named(source, &all).map(|p| p.device.clone()), Some("/dev/vda2".into()), "{source}");
        }
        for source in ["UUID=", "LABEL=\"\"", "PARTUUID=", "LABEL=boot", "/dev/sda2", "/dev/mapper/vg-boot", "tmpfs"] {
            assert!(named(source, &all).is_none(), "{source}");
        }
    }
}
