//! Which programs make and open what a plan has, with which arguments. Pure.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use landfall_api::{FileSystem, SecretText};
use landfall_plan::{Device, FileSystemId, Step, VolumeSize, md_uuid};
use uuid::Uuid;

use super::{keys::passphrase, opened::stands_on};
use crate::Failure;

/// A program to be run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Command {
    pub(super) program: &'static str,
    pub(super) arguments: Vec<String>,
    /// Its standard input.
    pub(super) input: Option<SecretText>,
}

/// Of LVM: no udev runs here, so that it makes the device files itself; its root is read-only; and extents begin where the plan
/// says.
const LVM_CONFIG: &str = "devices { use_devicesfile = 0 data_alignment_offset_detection = 0 } backup { backup = 0 archive = 0 } \
    activation { udev_sync = 0 udev_rules = 0 } global { locking_dir = \"/run/lock/lvm\" use_lvmlockd = 0 }";

fn command<'s>(program: &'static str, arguments: impl IntoIterator<Item = &'s str>) -> Command {
    Command { program, arguments: arguments.into_iter().map(str::to_owned).collect(), input: None }
}

impl Command {
    fn and<S: Into<String>>(mut self, more: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }
}

fn lvm(arguments: &[&str]) -> Command {
    command("lvm", arguments.first().copied()).and(["--config", LVM_CONFIG]).and(arguments.iter().skip(1).copied())
}

/// What lists the physical volumes of all groups but those on these disks, a line each: [`physical_volume`].
pub(super) fn groups_beside(disks: &[PathBuf]) -> Command {
    // LVM does not look at what matches. No character of a disk's name has a meaning in a pattern.
    let refused = disks.iter().map(|disk| {
        let disk = text(disk);
        let p = if disk.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
        format!("\"r|^{disk}({p}[0-9]+)?$|\"")
    });
    let refused = refused.collect::<Vec<_>>().join(", ");
    let config = format!("{LVM_CONFIG} devices {{ hints = \"none\" filter = [ {refused} ] }}");
    // Also groups of other machines: their names count as well.
    let asked = ["--foreign", "--shared", "--noheadings", "--nameprefixes", "-o", "pv_name,vg_name"];
    command("lvm", ["pvs", "--config", &config]).and(asked)
}

/// Device and group in such a line; `None`: it is another, the device is missing, or has no group.
pub(super) fn physical_volume(line: &str) -> Option<(&str, &str)> {
    let (device, group) = line.strip_prefix("LVM2_PV_NAME='")?.split_once("' LVM2_VG_NAME='")?;
    let group = group.strip_suffix('\'').filter(|group| !group.is_empty())?;
    device.starts_with('/').then_some((device, group))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// What makes it. Nothing for subvolumes, which are made in a mounted file system.
pub(super) fn make(
    step: &Step,
    path: &dyn Fn(&Device) -> PathBuf,
    keys: &BTreeMap<String, SecretText>,
) -> Result<Vec<Command>, Failure> {
    let at = |device: &Device| text(&path(device));
    Ok(match step {
        Step::Raid { name, level, metadata, members, uuid } => {
            let array = text(&path(&Device::Raid(name.clone())));
            let made = command("mdadm", ["--create"])
                .and([array.clone()])
                // It asks about members of different sizes and about what they held before.
                .and(["--run", "--homehost=any"])
                .and([format!("--name={name}"), format!("--level={level}"), format!("--uuid={}", md_uuid(*uuid))])
                .and([format!("--metadata={}", metadata.version()), format!("--raid-devices={}", members.len())]);
            // Without a bitmap a disk that was away is copied as a whole. A striped array can have none.
            let bitmap = (*level != 0).then_some("--bitmap=internal");
            // What an array of the same members held before is there again: no clearing of the members reaches it. mkfs.btrfs
            // refuses an identity that it finds there, even its own of an earlier attempt.
            let wiped = command("wipefs", ["--all", "--force", "--quiet"]).and([array]);
            vec![made.and(bitmap).and(members.iter().map(at)), wiped]
        }
        Step::Encrypt { device, name, key, uuid, offset } => {
            let format = command("cryptsetup", ["luksFormat", "--type", "luks2", "--batch-mode", "--key-file", "-"])
                .and(["--uuid".to_owned(), uuid.to_string()])
                // Otherwise it depends on what the disk reports of itself. In sectors of 512 bytes.
                .and([format!("--offset={}", offset / 512), at(device)]);
            let format = Command { input: Some(passphrase(keys, key)?), ..format };
            vec![format, opened(&at(device), name, passphrase(keys, key)?)]
        }
        Step::Group { name, members } => {
            let physical = members.iter().map(|member| {
                let uuid = lvm_uuid(member.uuid);
                let (device, start) = (at(&member.device), format!("{}k", member.start / 1024));
                let made =
                    ["pvcreate", "-q", "-ff", "-y", "--norestorefile", "--uuid", &uuid, "--dataalignment", &start];
                lvm(&made).and([device])
            });
            let group = lvm(&["vgcreate", "-q", "-y", "--physicalextentsize", "4m", name]);
            let group = group.and(members.iter().map(|member| at(&member.device)));
            physical.chain([group]).collect()
        }
        Step::Volume { group, name, size } => {
            let extents = match size {
                VolumeSize::Extents(extents) => extents.to_string(),
                VolumeSize::Rest => "100%FREE".into(),
            };
            // It removes what stood there before, and does not ask.
            vec![lvm(&["lvcreate", "-q", "-y", "-W", "y", "-Z", "y", "-n", name, "-l", &extents, group])]
        }
        Step::Format { device, format, id, label } => vec![file_system(&at(device), *format, *id, label.as_deref())],
        Step::Subvolumes { .. } => Vec::new(),
    })
}

/// What opens it, if it is not open.
pub(super) fn open(
    step: &Step,
    path: &dyn Fn(&Device) -> PathBuf,
    keys: &BTreeMap<String, SecretText>,
) -> Result<Vec<Command>, Failure> {
    open_unless(step, path, keys, &stands_on)
}

/// The same; `stands` says whether a device file is active and stands on another.
fn open_unless(
    step: &Step,
    path: &dyn Fn(&Device) -> PathBuf,
    keys: &BTreeMap<String, SecretText>,
    stands: &dyn Fn(&Path, &Path) -> bool,
) -> Result<Vec<Command>, Failure> {
    let at = |device: &Device| text(&path(device));
    Ok(match step {
        Step::Raid { name, members, uuid, .. } => {
            let array = path(&Device::Raid(name.clone()));
            if members.iter().any(|member| stands(&array, &path(member))) {
                return Ok(Vec::new());
            }
            let array = text(&array);
            let found =
                command("mdadm", ["--assemble", "--run", "--homehost=any"]).and([format!("--uuid={}", md_uuid(*uuid))]);
            vec![found.and([array]).and(members.iter().map(at))]
        }
        Step::Encrypt { device, name, .. } if stands(&path(&Device::Opened(name.clone())), &path(device)) => Vec::new(),
        Step::Encrypt { device, name, key, .. } => vec![opened(&at(device), name, passphrase(keys, key)?)],
        Step::Group { name, .. } => vec![lvm(&["vgchange", "-q", "-a", "y", name])],
        Step::Volume { .. } | Step::Format { .. } | Step::Subvolumes { .. } => Vec::new(),
    })
}

/// Removes a mapped device: an LVM volume, an opened LUKS device.
pub(super) fn stop_mapper(name: &str) -> Command {
    command("dmsetup", ["remove", "--retry", "--noudevsync", "--", name])
}

/// Stops the array of this kernel's name.
pub(super) fn stop_array(name: &str) -> Command {
    command("mdadm", ["--stop"]).and([format!("/dev/{name}")])
}

/// Makes a subvolume in a mounted btrfs file system.
pub(super) fn subvolume(path: &Path) -> Command {
    command("btrfs", ["subvolume", "create"]).and([text(path)])
}

fn opened(device: &str, name: &str, key: SecretText) -> Command {
    let open = command("cryptsetup", ["open", "--type", "luks2", "--key-file", "-", device, name]);
    Command { input: Some(key), ..open }
}

/// LVM writes 32 letters and digits in groups; those of a UUID are allowed ones.
fn lvm_uuid(uuid: Uuid) -> String {
    let digits = uuid.simple().to_string();
    let mut rest = digits.as_str();
    let groups: Vec<&str> = [6, 4, 4, 4, 4, 4, 6]
        .into_iter()
        .filter_map(|length| {
            let (group, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(group)
        })
        .collect();
    groups.join("-")
}

fn file_system(device: &str, format: FileSystem, id: FileSystemId, label: Option<&str>) -> Command {
    let (program, arguments, identity, label_flag): (_, &[&str], _, _) = match format {
        // Without what GRUB 2.06 does not read: newer programs make it by default.
        FileSystem::Ext4 => (
            "mkfs.ext4",
            &["-q", "-F", "-O", "^metadata_csum_seed,^orphan_file"],
            ["-U".to_owned(), id.to_string()],
            "-L",
        ),
        FileSystem::Xfs => {
            ("mkfs.xfs", &["-q", "-f", "-i", "nrext64=0"], ["-m".to_owned(), format!("uuid={id}")], "-L")
        }
        FileSystem::Btrfs => ("mkfs.btrfs", &["-q", "-f"], ["-U".to_owned(), id.to_string()], "-L"),
        // UEFI demands FAT32 of a system partition on a disk.
        FileSystem::Vfat => ("mkfs.vfat", &["-F", "32"], ["-i".to_owned(), id.to_string().replace('-', "")], "-n"),
        FileSystem::Swap | FileSystem::None => ("mkswap", &["-f"], ["-U".to_owned(), id.to_string()], "-L"),
    };
    let made = command(program, arguments.iter().copied()).and(identity);
    let labelled = label.into_iter().flat_map(|label| [label_flag.to_owned(), label.to_owned()]);
    made.and(labelled).and([device])
}

#[cfg(test)]
mod tests {
    use landfall_plan::{GroupMember, RaidMetadata};

    use super::*;

    fn device(disk: usize, number: u32) -> Device {
        Device::Partition { disk, number }
    }

    fn path(device: &Device) -> PathBuf {
        match device {
            Device::Partition { disk, number } => format!("/nowhere/{disk}p{number}").into(),
            Device::Raid(name) | Device::Opened(name) => Path::new("/nowhere").join(name),
            Device::Volume { group, name } => format!("/nowhere/{group}-{name}").into(),
        }
    }

    fn keys() -> BTreeMap<String, SecretText> {
        [("disk".to_owned(), SecretText::new("geheim"))].into()
    }

    fn lines(commands: &[Command]) -> Vec<String> {
        let line = |c: &Command| format!("{} {}", c.program, c.arguments.join(" ").replace(LVM_CONFIG, "…"));
        commands.iter().map(line).collect()
    }

    fn steps() -> Vec<Step> {
        let uuid = Uuid::from_u128(0x0123_4567_89ab_4cde_8f01_2345_6789_abcd);
        let id = FileSystemId::Uuid(uuid);
        let format = |format, id, label: Option<&str>| Step::Format {
            device: device(0, 1),
            format,
            id,
            label: label.map(str::to_owned),
        };
        let members = vec![device(0, 2), device(1, 2)];
        vec![
            Step::Raid { name: "m".into(), level: 1, metadata: RaidMetadata::End, members: members.clone(), uuid },
            Step::Raid { name: "s".into(), level: 0, metadata: RaidMetadata::Start, members, uuid },
            Step::Encrypt { device: device(0, 3), name: "c".into(), key: "disk".into(), uuid, offset: 16 << 20 },
            Step::Group {
                name: "vg".into(),
                members: vec![GroupMember { device: Device::Raid("m".into()), uuid, start: 3 << 19 }],
            },
            Step::Volume { group: "vg".into(), name: "root".into(), size: VolumeSize::Extents(5) },
            Step::Volume { group: "vg".into(), name: "data".into(), size: VolumeSize::Rest },
            format(FileSystem::Ext4, id, Some("wurzel")),
            format(FileSystem::Xfs, id, None),
            format(FileSystem::Btrfs, id, None),
            format(FileSystem::Vfat, FileSystemId::Serial(0xabcd_0123), Some("ESP")),
            format(FileSystem::Swap, id, None),
        ]
    }

    #[test]
    fn every_step_is_made_without_a_question() {
        let made: Vec<String> = steps().iter().flat_map(|step| lines(&make(step, &path, &keys()).unwrap())).collect();
        let uuid = "01234567-89ab-4cde-8f01-23456789abcd";
        let md = "01234567:89ab4cde:8f012345:6789abcd";
        let raid = |name: &str, level: u8, metadata: &str, bitmap: &str| {
            format!(
                "mdadm --create /nowhere/{name} --run --homehost=any --name={name} --level={level} --uuid={md} \
                 --metadata={metadata} --raid-devices=2{bitmap} /nowhere/0p2 /nowhere/1p2"
            )
        };
        let expected = [
            raid("m", 1, "1.0", " --bitmap=internal"),
            "wipefs --all --force --quiet /nowhere/m".into(),
            raid("s", 0, "1.2", ""),
            "wipefs --all --force --quiet /nowhere/s".into(),
            format!(
                "cryptsetup luksFormat --type luks2 --batch-mode --key-file - --uuid {uuid} --offset=32768 /nowhere/0p3"
            ),
            "cryptsetup open --type luks2 --key-file - /nowhere/0p3 c".into(),
            "lvm pvcreate --config … -q -ff -y --norestorefile --uuid 012345-6789-ab4c-de8f-0123-4567-89abcd \
             --dataalignment 1536k /nowhere/m"
                .into(),
            "lvm vgcreate --config … -q -y --physicalextentsize 4m vg /nowhere/m".into(),
            "lvm lvcreate --config … -q -y -W y -Z y -n root -l 5 vg".into(),
            "lvm lvcreate --config … -q -y -W y -Z y -n data -l 100%FREE vg".into(),
            format!("mkfs.ext4 -q -F -O ^metadata_csum_seed,^orphan_file -U {uuid} -L wurzel /nowhere/0p1"),
            format!("mkfs.xfs -q -f -i nrext64=0 -m uuid={uuid} /nowhere/0p1"),
            format!("mkfs.btrfs -q -f -U {uuid} /nowhere/0p1"),
            "mkfs.vfat -F 32 -i ABCD0123 -n ESP /nowhere/0p1".into(),
            format!("mkswap -f -U {uuid} /nowhere/0p1"),
        ];
        assert_eq!(made, expected);
    }

    #[test]
    fn groups_are_asked_for_beside_the_taken_disks() {
        let disks = ["/dev/sda".into(), "/dev/nvme0n1".into()];
        let line = lines(&[groups_beside(&disks)]).remove(0);
        assert_eq!(
            line,
            "lvm pvs --config … devices { hints = \"none\" filter = [ \"r|^/dev/sda([0-9]+)?$|\", \
             \"r|^/dev/nvme0n1(p[0-9]+)?$|\" ] } --foreign --shared --noheadings --nameprefixes -o pv_name,vg_name"
        );
    }

    #[test]
    fn passphrases_go_through_the_standard_input_alone() {
        for step in steps() {
            let both = [make(&step, &path, &keys()).unwrap(), open(&step, &path, &keys()).unwrap()].concat();
            for command in both {
                let asks = command.program == "cryptsetup";
                assert_eq!(command.input.as_ref().map(SecretText::expose), asks.then_some("geheim"), "{command:?}");
                assert!(!format!("{command:?}").contains("geheim"));
            }
        }
        let empty = [("disk".to_owned(), SecretText::default())].into();
        for keys in [BTreeMap::new(), empty] {
            let refused = make(&steps()[2], &path, &keys).unwrap_err();
            assert!(refused.problem.message.contains("key disk"), "{}", refused.problem);
        }
    }

    #[test]
    fn what_is_open_already_is_not_opened_again() {
        let opens = |on: &[&str]| -> Vec<String> {
            let stands = |upper: &Path, lower: &Path| {
                let (upper, lower) = (upper.file_name().unwrap(), lower.file_name().unwrap());
                on.contains(&format!("{} on {}", upper.display(), lower.display()).as_str())
            };
            let open = |step| open_unless(step, &path, &keys(), &stands).unwrap();
            steps().iter().flat_map(|step| lines(&open(step))).collect()
        };
        // One member of each array has failed.
        assert_eq!(opens(&["m on 1p2", "s on 0p2", "c on 0p3"]), ["lvm vgchange --config … -q -a y vg"]);
        assert_eq!(
            opens(&["m on 1p3", "c on 0p2"]),
            [
                "mdadm --assemble --run --homehost=any --uuid=01234567:89ab4cde:8f012345:6789abcd /nowhere/m /nowhere/0p2 /nowhere/1p2",
                "mdadm --assemble --run --homehost=any --uuid=01234567:89ab4cde:8f012345:6789abcd /nowhere/s /nowhere/0p2 /nowhere/1p2",
                "cryptsetup open --type luks2 --key-file - /nowhere/0p3 c",
                "lvm vgchange --config … -q -a y vg",
            ]
        );
    }
}
