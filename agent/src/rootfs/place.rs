//! Which partition a line of an installed system's `fstab` means, and which lines matter for a file. Pure.

use super::fstab::{Line, Source, Tag};
use super::partitions::Partition;

/// A path below which the installed system will mount something that Landfall cannot reach now: a file put there would be
/// hidden.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the installed system mounts {source_text} on {point}, {why}")]
pub(crate) struct Unreachable {
    /// As written.
    pub(super) source_text: String,
    /// Where.
    pub(super) point: String,
    /// The rest of the sentence.
    pub(super) why: String,
}

impl Unreachable {
    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        format!(
            "use an image whose {} is part of its root, or an ext4, xfs or btrfs partition of the same disk that /etc/fstab \
             names by UUID, LABEL, PARTUUID or PARTLABEL",
            self.point
        )
    }

    pub(super) fn of(line: &Line, why: impl Into<String>) -> Self {
        Self { source_text: line.source.to_string(), point: line.point.clone(), why: why.into() }
    }
}

/// File systems that are on no disk of this machine.
const REMOTE: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "9p", "virtiofs", "afs"];
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// The partition that a line mounts.
///
/// # Errors
/// [`Unreachable`]
pub(super) fn partition_of<'p>(line: &Line, partitions: &'p [Partition]) -> Result<&'p Partition, Unreachable> {
    let refused = |why: &str| Err(Unreachable::of(line, why));
    if let Some(why) = elsewhere(line) {
        return refused(&why);
    }
    let mut matching: Vec<&Partition> = partitions.iter().filter(|one| means(&line.source, one)).collect();
    // What the image brought comes before a kept partition of the same name.
    let nearest = matching.iter().map(|one| one.origin).min();
    matching.retain(|one| Some(one.origin) == nearest);
    match matching.as_slice() {
        [one] => match one.unusable() {
            None => Ok(one),
            Some(why) => refused(&format!("but {} {why}", one.device.display())),
        },
        [] => {
            let there: Vec<_> = partitions.iter().map(described).collect();
            refused(&format!("but this disk has no such partition ({})", there.join(", ")))
        }
        several => {
            let devices: Vec<_> = several.iter().map(|one| one.device.display().to_string()).collect();
            refused(&format!("which may be any of {}", devices.join(", ")))
        }
    }
}

/// Why programs do without what a line mounts, although Landfall cannot mount it; `None`: they may need it.
pub(super) fn not_needed(line: &Line) -> Option<&'static str> {
    let Source::Other(source) = &line.source else { return None };
    let kind = line.kind.as_str();
    let kernels = ["proc", "sysfs", "devtmpfs", "devpts", "cgroup2", "efivarfs", "debugfs", "tracefs", "securityfs"];
    if IN_MEMORY.contains(&kind) || kernels.contains(&kind) {
        Some("it is in memory")
    } else if REMOTE.contains(&kind) || kind.starts_with("fuse") || source.starts_with("//") || source.contains(":/") {
        Some("it is on another machine")
    } else {
        None
    }
}

fn described(one: &Partition) -> String {
    let device = one.device.display();
    match &one.content {
        super::partitions::Content::Other(what) => format!("{device} holds {what}"),
        _ => device.to_string(),
    }
}

/// Why it is on no partition at all.
fn elsewhere(line: &Line) -> Option<String> {
    let kind = line.kind.as_str();
    let Source::Other(source) = &line.source else { return None };
    let below_dev = source.strip_prefix("/dev/");
    let why = if IN_MEMORY.contains(&kind) {
        "which is in memory, so nothing that is written there lasts"
    } else if REMOTE.contains(&kind) || kind.starts_with("fuse") || source.starts_with("//") || source.contains(":/") {
        "which is on another machine"
    } else if line.has("bind") || line.has("rbind") {
        "which is another directory, and Landfall makes no bind mounts"
    } else if kind == "overlay" {
        "an overlay, which Landfall does not mount"
    } else if below_dev.is_some_and(|name| name.starts_with("md")) {
        "an md RAID, which Landfall cannot open"
    } else if below_dev.is_some_and(|name| name.contains('/')) {
        "a volume of LVM or LUKS, or a name of udev's, which Landfall cannot open"
    } else if below_dev.is_none() {
        "which is no partition"
    } else {
        return None;
    };
    Some(why.to_owned())
}

fn means(source: &Source, one: &Partition) -> bool {
    match source {
        // An empty name would match every partition without one.
        Source::Tag(_, value) if value.is_empty() => false,
        Source::Tag(Tag::Uuid, value) => one.file_system().is_some_and(|found| found.uuid.eq_ignore_ascii_case(value)),
        Source::Tag(Tag::Label, value) => one.file_system().is_some_and(|found| found.label == *value),
        Source::Tag(Tag::PartUuid, value) => one.guid.eq_ignore_ascii_case(value),
        Source::Tag(Tag::PartLabel, value) => one.label == *value,
        // A kernel name means the device only as long as the disks come up in the same order; the system relies on that too.
        Source::Other(path) => one.device.as_os_str() == path.as_str(),
    }
}

/// The next line to mount on the way to a directory: the outermost that is not mounted yet. The directory may have two
/// paths: as written, and with the links on the way resolved.
pub(super) fn next_on_the_way<'l>(lines: &'l [Line], mounted: &[String], directories: [&str; 2]) -> Option<&'l Line> {
    let above = |point: &str| {
        let rest =
            |directory: &'_ str| directory.strip_prefix(point).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        directories.into_iter().any(rest)
    };
    let open = lines.iter().filter(|line| line.point != "/" && line.at_boot() && !mounted.contains(&line.point));
    open.filter(|line| above(&line.point)).min_by_key(|line| line.point.len())
}

#[cfg(test)]
mod tests {
    use super::super::fstab::parse;
    use super::super::names::FileSystem;
    use super::super::partitions::{Content, Origin};
    use super::*;

    fn partition(device: &str, names: [&str; 4], origin: Origin) -> Partition {
        let [uuid, label, guid, name] = names.map(str::to_owned);
        let content = Content::FileSystem(FileSystem { kind: "ext4", uuid, label });
        Partition { device: device.into(), kind: String::new(), guid, label: name, origin, content }
    }

    fn disk() -> Vec<Partition> {
        let lvm = Partition {
            content: Content::Other("an LVM physical volume"),
            ..partition("/dev/vda3", ["", "", "a3", "pv"], Origin::Image)
        };
        vec![
            partition("/dev/vda1", ["", "", "", ""], Origin::Image),
            partition("/dev/vda2", ["ab-cd", "VAR", "0FC63DAF-0000", "the var"], Origin::Image),
            lvm,
        ]
    }

    fn found(line: &str, partitions: &[Partition]) -> Result<String, String> {
        let line = parse(line).remove(0);
        partition_of(&line, partitions).map(|one| one.device.display().to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_partition_is_found_by_any_nonempty_name() {
        for source in [
            "UUID=AB-CD", "UUID=\"ab-cd\"", "LABEL=VAR", "PARTUUID=0fc63daf-0000", "PARTLABEL=the\\040var",
            "/dev/disk/by-uuid/ab-cd", "/dev/disk/by-label/VAR", "/dev/disk/by-partuuid/0fc63daf-0000", "/dev/vda2",
        ] {
            assert_eq!(found(&format!("{source} /var ext4"), &disk()).as_deref(), Ok("/dev/vda2"), "{source}");
        }
        for source in ["UUID=", "LABEL=\"\"", "PARTUUID=", "LABEL=var", "/dev/sda2"] {
            let why = found(&format!("{source} /var ext4"), &disk()).unwrap_err();
            assert!(why.contains("no such partition") && why.contains("/dev/vda3 holds an LVM"), "{source}: {why}");
        }
    }

    #[test]
    fn what_cannot_be_mounted_is_refused_by_name() {
        for (line, said) in [
            ("nas:/export /var nfs", "nas:/export on /var, which is on another machine"),
            ("//nas/share /var cifs", "another machine"),
            ("tmpfs /var tmpfs size=1G", "in memory"),
            ("/dev/mapper/vg-var /var ext4", "LVM or LUKS"),
            ("/dev/vg/var /var ext4", "LVM or LUKS"),
            ("/dev/md0 /var ext4", "md RAID"),
            ("/data/var /var none bind", "bind"),
            ("overlay /var overlay lowerdir=/a", "overlay"),
            ("PARTLABEL=pv /var ext4", "/dev/vda3 holds an LVM physical volume"),
        ] {
            let why = found(line, &disk()).unwrap_err();
            assert!(why.contains(said), "{line}: {why}");
        }
        let refused = partition_of(&parse("tmpfs /var tmpfs").remove(0), &disk()).unwrap_err();
        assert!(refused.hint().contains("/var"), "{}", refused.hint());
    }

    #[test]
    fn the_images_own_partition_comes_before_a_kept_twin() {
        let twins = |origins: [Origin; 2]| {
            let [a, b] = origins;
            [partition("/dev/vda2", ["u", "", "", ""], a), partition("/dev/vda5", ["u", "", "", ""], b)]
        };
        let line = "UUID=u /var ext4";
        assert_eq!(found(line, &twins([Origin::Kept, Origin::Image])).as_deref(), Ok("/dev/vda5"));
        assert_eq!(found(line, &twins([Origin::OtherDisk, Origin::Kept])).as_deref(), Ok("/dev/vda5"));
        let why = found(line, &twins([Origin::Image, Origin::Image])).unwrap_err();
        assert!(why.contains("any of /dev/vda2, /dev/vda5"), "{why}");
    }

    #[test]
    fn programs_do_without_memory_and_other_machines() {
        for (line, needed) in [
            ("tmpfs /tmp tmpfs", false),
            ("proc /proc proc", false),
            ("nas:/export /home nfs", false),
            ("//nas/share /srv cifs", false),
            ("UUID=ab-cd /var ext4", true),
            ("/dev/mapper/vg-var /var ext4", true),
            ("/data/var /var none bind", true),
        ] {
            assert_eq!(not_needed(&parse(line).remove(0)).is_none(), needed, "{line}");
        }
    }

    #[test]
    fn mounts_on_the_way_come_outermost_first() {
        let lines = parse(
            "a / ext4\nb /var/lib ext4\nc /var ext4\nd /variable ext4\ne /usr/local ext4\nf /var/lib/cloud ext4 noauto\n",
        );
        let mut mounted = Vec::new();
        let mut order = Vec::new();
        while let Some(line) = next_on_the_way(&lines, &mounted, ["/var/lib/cloud/seed", "/var/lib/cloud/seed"]) {
            mounted.push(line.point.clone());
            order.push(line.point.clone());
        }
        assert_eq!(order, ["/var", "/var/lib"]);
        let way = |directory| next_on_the_way(&lines, &[], [directory, directory]).map(|line| line.point.as_str());
        assert_eq!((way("/etc"), way("/usr/local"), way("/usr")), (None, Some("/usr/local"), None));
        let link = next_on_the_way(&lines, &[], ["/home/me", "/var/home/me"]).map(|line| line.point.as_str());
        assert_eq!(link, Some("/var"), "a link on the way leads there");
    }
}
