//! What a container finds: the image's root file system, the named directories and disks, the kernel's own file systems. Everything is
//! put together before the first program of the image runs, so nothing moves meanwhile; links of the image lead within it.
//!
//! The agent's root is the kernel's first file system, which pivot_root(2) cannot replace. So the container's root is moved over the
//! namespace's own root, from where `..` leads nowhere, and then every other mount is taken away: also what breaks out of a chroot(2)
//! finds neither disks nor the agent's files.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode as NodeMode, SFlag, makedev, mknod, umask};
use nix::unistd::{Gid, Uid, chdir, chown, chroot, fchdir};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::error::{InitError, failed};
use super::mountinfo;
use super::mountinfo::Point;
use super::plan::Plan;
use crate::actions::place::Place;

const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::PATH).union(OFlags::CLOEXEC);
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
/// Devices that do no harm: name, major and minor number. (Linux, devices.txt.)
const HARMLESS: [(&str, u64, u64); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// Links below /dev that programs expect.
const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// What of /proc can change the machine, and what shows more than the container's: as runc has it.
const READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
const HIDDEN: [&str; 8] = ["acpi", "asound", "kcore", "keys", "latency_stats", "scsi", "timer_list", "sched_debug"];

/// Enters the container's root, in this process' own mount namespace.
pub(super) fn enter(plan: &Plan) -> Result<(), InitError> {
    let open = |path: &Path| openat(CWD, path, DIRECTORY, Mode::empty());
    let root = open(&plan.root).map_err(failed("open the container's root"))?;
    let system = (!plan.mounts.is_empty()).then(|| open(&plan.system)).transpose();
    let system = system.map_err(failed("open the installed system"))?;
    // From the tools layer's root to that of the namespace.
    let own = File::open("/proc/self/ns/mnt").map_err(failed("open this mount namespace"))?;
    setns(&own, CloneFlags::CLONE_NEWNS).map_err(failed("leave the tools layer"))?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).map_err(failed("make the mounts private"))?;
    let others = mountinfo::read().map_err(failed("read the mounts"))?;
    umask(NodeMode::empty());
    let inside = Inside { root: path_of(&root) };
    if let Some(system) = &system {
        inside.show(system, plan)?;
    }
    inside.kernel()?;
    inside.devices(plan)?;
    inside.proc()?;
    inside.at(&plan.directory).map_err(failed(format!("make the directory {}", plan.directory)))?;
    umask(NodeMode::from_bits_truncate(0o022));
    fchdir(&root).map_err(failed("enter the container's root"))?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>).map_err(failed("move the container's root"))?;
    leave_out(&others, &inside.root);
    chroot(".").and_then(|()| chdir("/")).map_err(failed("enter the container's root"))
}

/// Takes the mounts that were there before out of this namespace. The innermost come last.
fn leave_out(others: &[Point], root: &Path) {
    let kept = fs::read_link(root).unwrap_or_default();
    for point in others.iter().rev().filter(|point| point.path != Path::new("/") && point.path != kept) {
        // One that stays is out of reach, and one above it may have taken it along.
        let _ = umount2(&point.path, MntFlags::MNT_DETACH);
    }
}

/// A path that leads to an open directory.
fn path_of(open: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_raw_fd()).into()
}

/// The container's root, from outside.
struct Inside {
    root: PathBuf,
}

impl Inside {
    /// The directory at `path`, made where it is missing.
    fn at(&self, path: &str) -> io::Result<Place> {
        Place::open(&self.root, path)
    }

    fn show(&self, system: &OwnedFd, plan: &Plan) -> Result<(), InitError> {
        let identity = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
        for one in &plan.mounts {
            let path = one.from.trim_start_matches('/');
            let path = if path.is_empty() { "." } else { path };
            let from = openat2(system, path, DIRECTORY, Mode::empty(), IN_ROOT);
            let from = from.map_err(failed(format!("open {} of the installed system", one.from)))?;
            let doing = || format!("mount {} of the installed system at {}", one.from, one.to);
            let to = self.at(&one.to).map_err(failed(doing()))?;
            let is_root =
                identity(&to.path()).and_then(|to| Ok(to == identity(&self.root)?)).map_err(failed(doing()))?;
            if is_root {
                let why = io::Error::other("a link of the image leads from there to its root");
                return Err(failed(doing())(why));
            }
            let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(&path_of(&from)), &to.path(), None::<&str>, flags, None::<&str>).map_err(failed(doing()))?;
            // What is mounted there now, and not what was.
            let to = self.at(&one.to).and_then(|to| fs::read_link(to.path())).map_err(failed(doing()))?;
            let more = if one.read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
            restrict_below(&to, more | MsFlags::MS_NODEV | MsFlags::MS_NOSUID).map_err(failed(doing()))?;
        }
        Ok(())
    }

    fn kernel(&self) -> Result<(), InitError> {
        let put = |kind: &str, at: &str, flags, options: &str| {
            let doing = || failed(format!("mount {kind} at {at}"));
            let place = self.at(at).map_err(doing())?;
            mount(Some(kind), &place.path(), Some(kind), flags, Some(options)).map_err(|e| doing()(e.into()))
        };
        put("proc", "/proc", INERT, "")?;
        put("sysfs", "/sys", INERT | MsFlags::MS_RDONLY, "")?;
        let device = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        put("tmpfs", "/dev", device, "mode=0755,size=64k")?;
        put("devpts", "/dev/pts", device, "newinstance,ptmxmode=0666,mode=0620")?;
        put("tmpfs", "/dev/shm", INERT, "mode=1777,size=64m")
    }

    /// Without CAP_MKNOD nothing in the container can add to these; and its root, and what is mounted, has no device files.
    fn devices(&self, plan: &Plan) -> Result<(), InitError> {
        let doing = |name: &str| failed(format!("make /dev/{name}"));
        let place = self.at("/dev").map_err(failed("open /dev"))?;
        let make = |name: &str, kind, mode, number| {
            mknod(&place.path().join(name), kind, NodeMode::from_bits_truncate(mode), number)
        };
        for (name, major, minor) in HARMLESS {
            make(name, SFlag::S_IFCHR, 0o666, makedev(major, minor)).map_err(|e| doing(name)(e.into()))?;
        }
        for node in &plan.nodes {
            let made = make(&node.name, SFlag::S_IFBLK, 0o600, node.number);
            let owner = (Some(Uid::from_raw(plan.who.user)), Some(Gid::from_raw(plan.who.group)));
            let owned = made.and_then(|()| chown(&place.path().join(&node.name), owner.0, owner.1));
            owned.map_err(|e| doing(&node.name)(e.into()))?;
        }
        for (name, target) in LINKS {
            symlink(target, place.path().join(name)).map_err(doing(name))?;
        }
        Ok(())
    }

    fn proc(&self) -> Result<(), InitError> {
        // Both stay open: their paths lead nowhere else.
        let (own, devices) =
            self.at("/proc").and_then(|own| Ok((own, self.at("/dev")?))).map_err(failed("open /proc"))?;
        let (proc, null) = (own.path(), devices.path().join("null"));
        let there = |names: &'static [&'static str]| {
            let all = names.iter().map(|name| (*name, proc.join(name)));
            all.filter(|(_, path)| path.exists()).collect::<Vec<_>>()
        };
        for (name, path) in there(&READ_ONLY) {
            let bound = mount(Some(&path), &path, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>);
            let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | INERT;
            let locked = bound.and_then(|()| mount(None::<&str>, &path, None::<&str>, flags, None::<&str>));
            locked.map_err(failed(format!("make /proc/{name} read-only")))?;
        }
        for (name, path) in there(&HIDDEN) {
            let hidden = if path.is_dir() {
                mount(Some(Path::new("tmpfs")), &path, Some("tmpfs"), INERT | MsFlags::MS_RDONLY, None::<&str>)
            } else {
                mount(Some(&null), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            };
            hidden.map_err(failed(format!("hide /proc/{name}")))?;
        }
        Ok(())
    }
}

/// Adds these flags to the mount at `path` and to everything that is mounted below it.
fn restrict_below(path: &Path, more: MsFlags) -> io::Result<()> {
    for point in mountinfo::read()?.iter().filter(|point| point.path.starts_with(path)) {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | point.flags | more;
        mount(None::<&str>, &point.path, None::<&str>, flags, None::<&str>)?;
    }
    Ok(())
}
