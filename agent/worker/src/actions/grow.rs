//! `growRoot`: the partition below the mounted root becomes longer, then its file system, which grows while it is mounted. What is
//! as large already stays as it is: so an attempt that was interrupted is simply made again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use landfall_api::{ErrorCode, GrowRootResult, GrowRootSpec, Problem, message::ActionResult};
use landfall_disk::{GrowError, grow_partition};

use crate::{Context, Failure, Reporter, program};

/// What is mounted where, in this thread's namespace.
const MOUNTS: &str = "/proc/thread-self/mountinfo";
/// Where the tools layer has its programs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// The kernel states places of partitions in these, bytes, whatever the disk's sectors are.
const UNIT: u64 = 512;

/// Grows it.
pub(super) fn perform(context: &Context<'_>, spec: &GrowRootSpec) -> Result<ActionResult, Failure> {
    let mounts = fs::read_to_string(MOUNTS).map_err(|error| unreadable(MOUNTS, &error))?;
    let target = context.target.display().to_string();
    let Some(root) = mounted(&mounts, &target) else {
        return Err(Failure::last(Problem::new(ErrorCode::Internal, "no root is mounted for growRoot")));
    };
    let part = Partition::below(Path::new("/sys"), &root)?;
    let disk = Path::new("/dev").join(&part.disk);
    let grown = grow_partition(&disk, part.number, part.start, spec.bytes()).map_err(|e| refused(&e, &part.disk))?;
    let length = |range: std::ops::Range<u64>| range.end - range.start;
    let (before, after) = (length(grown.before), length(grown.after));
    if before == after {
        context.report.info(format_args!("{} stays at {after} bytes", root.source));
    } else {
        context.report.info(format_args!("{} has {after} bytes now; it had {before}", root.source));
    }
    file_system(context.report, &root, &target)?;
    // The agent knows which device is mounted there.
    let root_device = String::new();
    Ok(ActionResult::GrowRoot(GrowRootResult { root_device, size_bytes: after, grown: before != after }))
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

/// Grows a mounted file system to the end of its device.
fn file_system(report: &Reporter, root: &Mounted<'_>, target: &str) -> Result<(), Failure> {
    let (name, arguments): (_, &[&str]) = match root.kind {
        "ext2" | "ext3" | "ext4" => ("resize2fs", &[root.source]),
        "xfs" => ("xfs_growfs", &["-d", target]),
        "btrfs" => ("btrfs", &["filesystem", "resize", "max", target]),
        kind => {
            let message = format!("growRoot cannot grow {kind}, which is on {}", root.source);
            let hint = "use an image with ext4, XFS or btrfs, or grow it with exec";
            return Err(Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint).at(root.source)));
        }
    };
    let mut command = Command::new(name);
    command.args(arguments).env_clear().env("PATH", PATH).env("LC_ALL", "C");
    let missing = "make a new tools layer with landfall-image tools, and configure it";
    program::run(report, name, &mut command, None, missing)
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
    use nix::{
        mount::{MntFlags, MsFlags, mount, umount2},
        sys::statvfs::statvfs,
    };

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
            // Kernels whose loop devices scan for partitions have it already.
            if !Path::new(&part).exists() {
                ran("partx", &["--add", &machine.device], "")?;
            }
            ran(&format!("mkfs.{kind}"), &["-q", force, &part], "")?;
            let mounted = mount(Some(part.as_str()), machine.target.path(), Some(kind), MsFlags::empty(), None::<&str>);
            mounted.map_err(|error| format!("mount {kind}: {error}"))?;
            Ok(machine)
        }

        fn size(&self) -> u64 {
            let found = statvfs(self.target.path()).unwrap();
            found.blocks() * found.fragment_size()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            // Nothing more can be done about what stays.
            let _ = umount2(self.target.path(), MntFlags::MNT_DETACH);
            let _ = ran("partx", &["--delete", &self.device], "");
            let _ = ran("losetup", &["--detach", &self.device], "");
        }
    }

    fn grow(machine: &Machine, size: Option<u64>) -> Result<(u64, bool), Problem> {
        let spec = GrowRootSpec { size: size.map(SizeSpec::Bytes), disk: None };
        let (job, report) = (testing::job(ActionKind::GrowRoot(spec.clone())), Reporter::new(std::io::sink()));
        let context = Context { job: &job, report: &report, target: machine.target.path() };
        match perform(&context, &spec).map_err(|failure| failure.problem)? {
            ActionResult::GrowRoot(GrowRootResult { size_bytes, grown, .. }) => Ok((size_bytes, grown)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_mounted_root_grows_by_size_and_to_the_end() {
        for (kind, force) in [("ext4", "-F"), ("xfs", "-f"), ("btrfs", "-f")] {
            let machine = match Machine::new(kind, force) {
                Ok(machine) => machine,
                Err(why) => {
                    eprintln!("SKIPPED: {kind} cannot be tried here: {why}");
                    continue;
                }
            };
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
            let problem = grow(&machine, Some(901 * MIB)).unwrap_err();
            assert!(problem.code == ErrorCode::DiskTooSmall && problem.subject == machine.device, "{problem}");
            let disk = RealDevice::open_read_only(Path::new(&machine.device)).unwrap();
            let copies = [1, 900 * MIB / 512 - 1].map(|lba| Table::read(&disk, lba, 512).unwrap().entries);
            assert_eq!(copies[0], copies[1], "{kind}");
        }
    }
}
