//! `growRoot`: the partition below the mounted root becomes longer, then its file system, which grows while it is mounted. What is
//! as large already stays as it is: so an attempt that was interrupted is simply made again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_api::message::{ActionResult, Purpose};
use landfall_api::{ErrorCode, GrowRootResult, GrowRootSpec, Problem};
use landfall_disk::{GrowError, grow_partition};

use crate::{Context, Failure, Reporter, program};

/// What is mounted where, in this thread's namespace.
const MOUNTS: &str = "/proc/thread-self/mountinfo";
/// Where the tools layer has its programs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// The kernel states places of partitions in these, bytes, whatever the disk's sectors are.
const UNIT: u64 = 512;
const NEW_LAYER: &str = "make a new tools layer with landfall-image tools, and configure it";

/// Grows it.
pub(super) fn perform(context: &Context<'_>, spec: &GrowRootSpec) -> Result<ActionResult, Failure> {
    let mounts = fs::read_to_string(MOUNTS).map_err(|error| unreadable(MOUNTS, &error))?;
    let found = Found::of(context, &mounts)?;
    found.grow(context.report, spec.bytes())
}

/// What is to be grown.
#[derive(Debug)]
struct Found<'m> {
    root: Mounted<'m>,
    target: String,
    part: Partition,
    program: &'static str,
}

impl<'m> Found<'m> {
    /// Nothing is changed before all of it is known: a partition cannot be made smaller again.
    fn of(context: &Context<'_>, mounts: &'m str) -> Result<Self, Failure> {
        let target = context.target.display().to_string();
        let Some(root) = mounted(mounts, &target) else {
            return Err(Failure::last(Problem::new(ErrorCode::Internal, "no root is mounted for growRoot")));
        };
        let part = Partition::below(Path::new("/sys"), &root)?;
        if let Purpose::Perform { system } = &context.job.purpose
            && !system.is_empty()
            && !system.contains(&part.disk)
        {
            let message = format!("{} is on /dev/{}, which is no disk of the installed system", root.source, part.disk);
            let hint = "report this with the workflow's log";
            return Err(Failure::last(Problem::new(ErrorCode::Internal, message).hint(hint).at(root.source)));
        }
        let program = program_for(&root)?;
        if !PATH.split(':').any(|folder| Path::new(folder).join(program).is_file()) {
            let message = format!("the tools layer has no program {program}");
            return Err(Failure::last(Problem::new(ErrorCode::ProgramFailed, message).hint(NEW_LAYER).at(program)));
        }
        Ok(Self { root, target, part, program })
    }

    fn grow(&self, report: &Reporter, size: Option<u64>) -> Result<ActionResult, Failure> {
        let Self { root, part, .. } = self;
        let disk = Path::new("/dev").join(&part.disk);
        let grown = grow_partition(&disk, part.number, part.start, size).map_err(|e| refused(&e, &part.disk))?;
        let length = |range: std::ops::Range<u64>| range.end - range.start;
        let capped = grown.capped;
        let (before, after) = (length(grown.before), length(grown.after));
        if before == after {
            report.info(format_args!("{} stays at {after} bytes", root.source));
        } else {
            report.info(format_args!("{} has {after} bytes now; it had {before}", root.source));
        }
        if capped {
            report.warn(format_args!(
                "the table of {} is of the old kind, which has no room for more: use an image with a GPT",
                part.disk
            ));
        }
        self.file_system(report)?;
        // The agent knows which device is mounted there.
        let root_device = String::new();
        Ok(ActionResult::GrowRoot(GrowRootResult { root_device, size_bytes: after, grown: before != after }))
    }

    /// Grows the mounted file system to the end of its device. What it did is there when it is done again.
    fn file_system(&self, report: &Reporter) -> Result<(), Failure> {
        let Self { root, target, program: name, .. } = self;
        let number;
        let arguments = match *name {
            "resize2fs" => vec![root.source],
            "xfs_growfs" => vec!["-d", target],
            _ => {
                number = format!("{}:max", self.btrfs_device()?);
                vec!["filesystem", "resize", &number, target]
            }
        };
        let ran = program::run(report, name, tool(name).args(arguments), None, NEW_LAYER, &mut |_| {});
        ran.map_err(|failure| Failure::passing(failure.problem))
    }

    /// The number that btrfs has of the root's device. Without one it grows number 1, which another device may have had.
    fn btrfs_device(&self) -> Result<u64, Failure> {
        let listed = tool("btrfs").args(["filesystem", "show", &self.target]).output();
        let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let number = listed.as_ref().ok().and_then(|listed| devid(listed, self.root.source));
        number.ok_or_else(|| {
            let message = format!("btrfs filesystem show does not list {}", self.root.source);
            let problem = Problem::new(ErrorCode::ProgramFailed, message).hint("report this with the workflow's log");
            Failure::last(problem.at(self.root.source))
        })
    }
}

/// The number of a device in what `btrfs filesystem show` prints.
fn devid(listed: &str, device: &str) -> Option<u64> {
    let of_line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (first, path) =
            (words.iter().position(|word| *word == "devid")?, words.iter().position(|word| *word == "path")?);
        (*words.get(path + 1)? == device).then(|| words.get(first + 1)?.parse().ok()).flatten()
    };
    listed.lines().find_map(of_line)
}

/// A program of the tools layer.
fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C");
    command
}

/// What grows this file system.
fn program_for(root: &Mounted<'_>) -> Result<&'static str, Failure> {
    match root.kind {
        "ext2" | "ext3" | "ext4" => Ok("resize2fs"),
        "xfs" => Ok("xfs_growfs"),
        "btrfs" => Ok("btrfs"),
        kind => {
            let message = format!("growRoot cannot grow {kind}, which is on {}", root.source);
            let hint = "use an image with ext4, XFS or btrfs, or grow it with exec";
            Err(Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint).at(root.source)))
        }
    }
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mounted<'m> {
    kind: &'m str,
    source: &'m str,
}

/// What is mounted at `target`, by the text of mountinfo (proc(5)): of several the last.
fn mounted<'m>(mounts: &'m str, target: &str) -> Option<Mounted<'m>> {
    let of_line = |line: &'m str| {
        let (place, what) = line.split_once(" - ")?;
        let mut what = what.split(' ');
        let found = Mounted { kind: what.next()?, source: what.next()? };
        (place.split(' ').nth(4)? == target).then_some(found)
    };
    mounts.lines().filter_map(of_line).next_back()
}

/// A partition as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Partition {
    disk: String,
    number: u32,
    /// Bytes of the disk.
    start: u64,
}

impl Partition {
    /// That of a mounted file system; `sys` is where sysfs is.
    fn below(sys: &Path, root: &Mounted<'_>) -> Result<Self, Failure> {
        let of_partition = |place: &PathBuf| {
            let number = |name: &str| fs::read_to_string(place.join(name)).ok()?.trim().parse::<u64>().ok();
            let disk = place.parent()?.file_name()?.to_str()?.to_owned();
            let start = number("start")?.checked_mul(UNIT)?;
            Some(Self { disk, number: u32::try_from(number("partition")?).ok()?, start })
        };
        let name = root.source.strip_prefix("/dev/").filter(|name| !name.contains('/'));
        let place = name.and_then(|name| fs::canonicalize(sys.join("class/block").join(name)).ok());
        place.as_ref().and_then(of_partition).ok_or_else(|| {
            let message = format!("the root is on {}, which is no partition of a disk", root.source);
            let hint = "growRoot grows a partition; grow a volume of LVM or an encrypted one with exec and the system's own programs";
            Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint).at(root.source))
        })
    }
}

fn refused(error: &GrowError, disk: &str) -> Failure {
    let (code, hint, retryable) = match error {
        GrowError::Io { .. } => (ErrorCode::DeviceIo, "check the disk's cabling and health", true),
        GrowError::Table(_) => {
            (ErrorCode::BadFormat, "look at the table with sfdisk --verify, and at the image", false)
        }
        GrowError::NoEntry(_) => (ErrorCode::BadFormat, "use an image whose root is a primary partition", false),
        GrowError::NoRoom { .. } => {
            (ErrorCode::DiskTooSmall, "write a smaller size, leave it out, or choose a larger disk", false)
        }
    };
    let problem = Problem::new(code, format!("cannot grow the root's partition on /dev/{disk}: {error}"));
    Failure { problem: problem.caused_by(error).hint(hint).at(format!("/dev/{disk}")), retryable }
}

fn unreadable(path: &str, error: &std::io::Error) -> Failure {
    let problem = Problem::new(ErrorCode::Internal, format!("cannot read {path}")).caused_by(error);
    Failure::last(problem.hint("report this with the workflow's log"))
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, process::Stdio};

    use landfall_api::{SizeSpec, message::ActionKind};
    use landfall_disk::{RealDevice, Table};
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use nix::sys::statvfs::statvfs;

    use super::*;
    use crate::testing;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_last_mount_at_the_target_counts() {
        let mounts = "23 1 0:21 / /target/proc rw - proc proc rw\n24 1 8:2 / /target rw,nosuid shared:1 - ext4 /dev/sda2 rw\n\
            25 1 0:45 /@ /target rw - btrfs /dev/nvme0n1p3 rw\n";
        assert_eq!(mounted(mounts, "/target"), Some(Mounted { kind: "btrfs", source: "/dev/nvme0n1p3" }));
        assert_eq!(mounted(mounts, "/targe"), None);
    }

    #[test]
    fn only_a_partition_of_a_disk_is_grown() {
        let sys = tempfile::tempdir().unwrap();
        let block = sys.path().join("devices/block");
        for (place, files) in
            [("nvme0n1/nvme0n1p3", vec![("partition", "3\n"), ("start", "4096\n")]), ("dm-0", vec![("size", "1\n")])]
        {
            fs::create_dir_all(block.join(place)).unwrap();
            files.iter().for_each(|(name, text)| fs::write(block.join(place).join(name), text).unwrap());
        }
        fs::create_dir_all(sys.path().join("class/block")).unwrap();
        for (name, place) in [("nvme0n1p3", "nvme0n1/nvme0n1p3"), ("dm-0", "dm-0")] {
            std::os::unix::fs::symlink(block.join(place), sys.path().join("class/block").join(name)).unwrap();
        }
        let below = |source| Partition::below(sys.path(), &Mounted { kind: "ext4", source });
        let expected = Partition { disk: "nvme0n1".into(), number: 3, start: 2 * MIB };
        assert_eq!(below("/dev/nvme0n1p3").unwrap(), expected);
        for source in ["/dev/dm-0", "/dev/mapper/vg0-root", "tmpfs", "/dev/../x"] {
            let problem = below(source).unwrap_err().problem;
            assert!(problem.code == ErrorCode::InvalidTemplate && problem.message.contains(source), "{problem}");
        }
    }

    /// What a test leaves behind, taken away.
    struct Machine {
        device: String,
        target: tempfile::TempDir,
        _file: tempfile::NamedTempFile,
    }

    fn ran(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let piped = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = piped.map_err(|error| format!("{program}: {error}"))?;
        child.stdin.take().unwrap().write_all(input.as_bytes()).map_err(|error| error.to_string())?;
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{program} {arguments:?}: {}", output.status)) }
    }

    /// Whether this process has CAP_SYS_RESOURCE (24), which some containers take away.
    fn may_use_resources() -> bool {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(effective.trim(), 16).unwrap() & (1 << 24) != 0
    }

    impl Machine {
        /// A disk of 900 MiB with a partition of 350, and this file system on it, which is mounted.
        fn new(kind: &str, force: &str) -> Result<Self, String> {
            if kind == "ext4" && !may_use_resources() {
                return Err("ext4 grows while mounted only for those with CAP_SYS_RESOURCE".into());
            }
            let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
            file.as_file().set_len(900 * MIB).map_err(|error| error.to_string())?;
            let path = file.path().display().to_string();
            ran("sfdisk", &["-q", &path], "label: gpt\nstart=2048, size=350MiB, name=root\n")?;
            let device = ran("losetup", &["--find", "--show", &path], "")?;
            let machine = Self { device, target: tempfile::tempdir().unwrap(), _file: file };
            let part = format!("{}p1", machine.device);
            // The kernel keeps a loop device's partitions when its file is detached: an earlier one of another size may be there.
            ran("partx", &["--update", &machine.device], "")?;
            ran(&format!("mkfs.{kind}"), &["-q", force, &part], "")?;
            let mounted = mount(Some(part.as_str()), machine.target.path(), Some(kind), MsFlags::empty(), None::<&str>);
            mounted.map_err(|error| format!("mount {kind}: {error}"))?;
            Ok(machine)
        }

        fn unless_skipped(kind: &str, force: &str) -> Option<Self> {
            Self::new(kind, force).inspect_err(|why| eprintln!("SKIPPED: {kind} cannot be tried here: {why}")).ok()
        }

        fn size(&self) -> u64 {
            let found = statvfs(self.target.path()).unwrap();
            found.blocks() * found.fragment_size()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let at = self.target.path();
            // Nothing more can be done about what stays.
            let _ = (
                umount2(at, MntFlags::empty()).or_else(|_| umount2(at, MntFlags::MNT_DETACH)),
                ran("partx", &["--delete", &self.device], ""),
                ran("losetup", &["--detach", &self.device], ""),
            );
        }
    }

    /// Finds what is to be grown, and goes no further if that is not the machine's: a fault in finding would change this machine.
    fn grow(machine: &Machine, size: Option<u64>) -> Result<(u64, bool), Failure> {
        let spec = GrowRootSpec { size: size.map(SizeSpec::Bytes), disk: None };
        let (job, report) = (testing::job(ActionKind::GrowRoot(spec)), Reporter::new(std::io::sink()));
        let context = Context { job: &job, report: &report, target: machine.target.path() };
        let mounts = fs::read_to_string(MOUNTS).unwrap();
        let found = Found::of(&context, &mounts)?;
        assert_eq!(format!("/dev/{}", found.part.disk), machine.device, "another disk than that of the test");
        assert_eq!(found.root.source, format!("{}p1", machine.device));
        match found.grow(&report, size)? {
            ActionResult::GrowRoot(GrowRootResult { size_bytes, grown, .. }) => Ok((size_bytes, grown)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn btrfs_grows_the_device_of_the_root() {
        let listed = "Label: none  uuid: 1\n\tTotal devices 2 FS bytes used 144.00KiB\n\
            \tdevid    1 size 1.00GiB used 1.00GiB path /dev/sda3\n\tdevid    2 size 350.00MiB used 88.00MiB path /dev/sda\n";
        assert_eq!(
            (devid(listed, "/dev/sda"), devid(listed, "/dev/sda3"), devid(listed, "/dev/sd")),
            (Some(2), Some(1), None)
        );
    }

    #[test]
    fn nothing_changes_before_all_is_known() {
        let root = |kind| Mounted { kind, source: "/dev/sda1" };
        let known = ["ext4", "xfs", "btrfs"].map(|kind| program_for(&root(kind)).unwrap());
        assert_eq!(known, ["resize2fs", "xfs_growfs", "btrfs"]);
        let Some(machine) = Machine::unless_skipped("xfs", "-f") else { return };
        let (job, report) =
            (testing::job(ActionKind::GrowRoot(GrowRootSpec::default())), Reporter::new(std::io::sink()));
        let context = Context { job: &job, report: &report, target: machine.target.path() };
        let mounts = format!("24 1 8:2 / {} rw - f2fs {}p1 rw\n", machine.target.path().display(), machine.device);
        let problem = Found::of(&context, &mounts).unwrap_err().problem;
        assert!(problem.code == ErrorCode::InvalidTemplate && problem.message.contains("f2fs"), "{problem}");
    }

    #[test]
    fn only_a_disk_of_the_installed_system_is_grown() {
        let Some(machine) = Machine::unless_skipped("xfs", "-f") else { return };
        let spec = GrowRootSpec::default();
        let (mut job, report) = (testing::job(ActionKind::GrowRoot(spec)), Reporter::new(std::io::sink()));
        job.purpose = Purpose::Perform { system: vec!["sdz".into()] };
        let mounts = fs::read_to_string(MOUNTS).unwrap();
        let context = Context { job: &job, report: &report, target: machine.target.path() };
        let problem = Found::of(&context, &mounts).unwrap_err().problem;
        assert!(problem.message.contains("no disk of the installed system"), "{problem}");
    }

    #[test]
    fn a_mounted_root_grows_by_size_and_to_the_end() {
        for (kind, force) in [("ext4", "-F"), ("xfs", "-f"), ("btrfs", "-f")] {
            let Some(machine) = Machine::unless_skipped(kind, force) else { continue };
            let at = |name: &str| machine.target.path().join(name);
            fs::write(at("before"), "x").unwrap();
            let small = machine.size();
            assert_eq!(grow(&machine, Some(600 * MIB)).unwrap(), (600 * MIB, true), "{kind}");
            let medium = machine.size();
            assert!(medium > small + 200 * MIB && medium <= 600 * MIB, "{kind}: {small} {medium}");
            for grown in [true, false] {
                assert_eq!(grow(&machine, None).unwrap(), (898 * MIB, grown), "{kind}");
            }
            assert!(machine.size() > medium + 250 * MIB, "{kind}");
            fs::write(at("after"), vec![1; 4 << 20]).unwrap();
            assert_eq!(fs::read_to_string(at("before")).unwrap(), "x");
            let problem = grow(&machine, Some(901 * MIB)).unwrap_err().problem;
            assert!(problem.code == ErrorCode::DiskTooSmall && problem.subject == machine.device, "{problem}");
            let disk = RealDevice::open_read_only(Path::new(&machine.device)).unwrap();
            let copies = [1, 900 * MIB / 512 - 1].map(|lba| Table::read(&disk, lba, 512).unwrap().entries);
            assert_eq!(copies[0], copies[1], "{kind}");
        }
    }
}
