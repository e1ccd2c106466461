//! A thread whose root is the new system's, with the kernel's file systems in place. Every path in it is one of that system, its
//! links included; its mounts vanish with it.

use std::os::unix::fs::symlink;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io, thread};

use landfall_api::{ErrorCode, Problem};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{chdir, chroot};

use crate::{Failure, Reporter, program};

const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);
/// Debian's for root's login shell.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Kind, place, flags, and options.
const KERNEL: [(&str, &str, MsFlags, &str); 4] = [
    ("proc", "/proc", INERT, ""),
    ("sysfs", "/sys", INERT, ""),
    ("devtmpfs", "/dev", MsFlags::MS_NOSUID, "mode=0755"),
    ("tmpfs", "/run", MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV), "mode=0755,size=10%"),
];
/// Where udev would have links to devices by what is on them. No udev runs here.
const LINKS: &str = "/dev/disk";

/// Does `work` inside `root`; `links`: what `/dev/disk/by-uuid` is to have, each an identity and its device.
///
/// # Errors
/// Its root cannot be entered; the failure of `work`.
pub(super) fn inside<T: Send>(
    root: &Path, links: &[(String, String)], work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let entered = || {
        enter(root, links).map_err(|error| {
            let message = format!("cannot enter the new system: {error}");
            let hint = "check whether its root file system is full";
            Failure::last(Problem::new(ErrorCode::ProgramFailed, message).caused_by(&error).hint(hint))
        })?;
        work()
    };
    thread::scope(|scope| scope.spawn(entered).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

fn enter(root: &Path, links: &[(String, String)]) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    chroot(root)?;
    chdir("/")?;
    for (kind, at, flags, options) in KERNEL {
        put(kind, at, flags, options)?;
    }
    put("tmpfs", LINKS, INERT, "mode=0755,size=1m")?;
    fs::create_dir(Path::new(LINKS).join("by-uuid"))?;
    links.iter().try_for_each(|(uuid, device)| link(uuid, device))
}

/// Adds one link to `/dev/disk/by-uuid`, in the thread that is inside.
///
/// # Errors
/// The kernel's.
pub(super) fn link(uuid: &str, device: &str) -> io::Result<()> {
    match symlink(device, Path::new(LINKS).join("by-uuid").join(uuid)) {
        // Subvolumes have one identity.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// The program of this name in the system in whose root this thread is.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    PATH.split(':').map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// A program that is not there.
pub(super) fn no_program(name: &str, packages: &str) -> Failure {
    let problem = Problem::new(ErrorCode::ProgramFailed, format!("the new system has no program {name}"));
    Failure::last(problem.hint(format!("install {packages} in what is unpacked")))
}

/// Runs a program of the system in whose root this thread is; `more` are variables for it.
///
/// # Errors
/// It cannot be started, or its exit code is not 0.
pub(super) fn run(report: &Reporter, path: &Path, arguments: &[&str], more: &[(&str, &str)]) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut command = Command::new(path);
    command
        .args(arguments)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/root"), ("LC_ALL", "C"), ("TERM", "dumb")])
        // No service manager runs in there, and no person answers questions.
        .envs([("SYSTEMD_OFFLINE", "1"), ("DEBIAN_FRONTEND", "noninteractive")])
        .envs(more.iter().copied())
        .current_dir("/");
    let missing = "the new system must be one for this machine's processor; check what was unpacked";
    program::run(report, &name, &mut command, None, missing, &mut |_| {})
}

fn put(kind: &str, at: &str, flags: MsFlags, options: &str) -> io::Result<()> {
    fs::create_dir_all(at)?;
    Ok(mount(Some(kind), at, Some(kind), flags, Some(options))?)
}
