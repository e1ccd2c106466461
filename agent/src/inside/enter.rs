//! A thread enters the root of an installed system, in mount and process namespaces of its own, and comes back.
//!
//! Its mounts are seen by no other thread, and vanish. The first process that it starts is the first of a process namespace:
//! when that one ends, the kernel ends every process that it left behind, so none keeps the file system busy.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{chdir, chroot};

/// The program's root could not be entered.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub(crate) struct EnterError {
    what: String,
    #[source]
    source: io::Error,
}

/// What a program finds.
pub(crate) struct Setting<'a> {
    /// Where its root is mounted.
    pub(crate) root: &'a Path,
    /// What it finds mounted on this directory below its root, beside what is mounted there.
    pub(crate) bound: Option<(&'a Path, &'a Path)>,
    /// The text at /etc/resolv.conf.
    pub(crate) resolv_conf: &'a str,
    /// The command that starts the program in the words after it, and ends with the program's exit code.
    pub(crate) init: fn() -> Command,
}

fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> EnterError {
    let what = what.into();
    move |source| EnterError { what, source: source.into() }
}

const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// A file system of the kernel's that programs expect: kind, target, flags, options, and whether programs do without it.
type Kernel = (&'static str, &'static str, MsFlags, &'static str, bool);

const KERNEL: [Kernel; 7] = [
    ("proc", "/proc", INERT, "", false),
    ("sysfs", "/sys", INERT, "", false),
    // Only on UEFI: `efibootmgr` and `grub-install` look here.
    ("efivarfs", "/sys/firmware/efi/efivars", INERT, "", true),
    ("devtmpfs", "/dev", MsFlags::MS_NOSUID, "mode=0755", false),
    ("devpts", "/dev/pts", MsFlags::MS_NOSUID.union(MsFlags::MS_NOEXEC), "mode=0620,gid=5,ptmxmode=0666", true),
    ("tmpfs", "/dev/shm", INERT, "mode=1777,size=10%", true),
    ("tmpfs", "/run", MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV), "mode=0755,size=10%", false),
];

/// The agent's own directory inside, in memory.
pub(super) const PRIVATE: &str = "/run/landfall";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Does `work` in the system that `setting` names. This thread starts no other thread meanwhile: the kernel refuses that.
///
/// # Errors
/// [`EnterError`]
pub(super) fn inside<T>(setting: &Setting<'_>, work: impl FnOnce() -> T) -> Result<T, EnterError> {
    let home = File::open("/proc/thread-self/ns/mnt").map_err(failed("open this thread's mount namespace"))?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID).map_err(failed("make namespaces for the program"))?;
    let done = entered(setting, work);
    // The last reference to the namespace is gone when this returns, and with it every mount in it.
    setns(&home, CloneFlags::CLONE_NEWNS).map_err(failed("leave the program's mount namespace"))?;
    done
}

fn entered<T>(setting: &Setting<'_>, work: impl FnOnce() -> T) -> Result<T, EnterError> {
    let root = setting.root;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).map_err(failed("make the mounts private"))?;
    if let Some((from, below)) = setting.bound {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(from), &root.join(below), None::<&str>, flags, None::<&str>).map_err(failed(format!(
            "show {} at /{}",
            from.display(),
            below.display()
        )))?;
    }
    forget_others(root);
    chdir(root).and_then(|()| chroot(".")).map_err(failed("enter the program's root file system"))?;
    chdir("/").map_err(failed("enter the program's root file system"))?;
    // From here on every path is one of the installed system, its links included.
    for entry in KERNEL {
        match put(entry) {
            Err(e) if entry.4 => tracing::debug!("{e}"),
            put => put?,
        }
    }
    fs::create_dir(PRIVATE).map_err(failed(format!("make {PRIVATE}")))?;
    let put = name_servers(setting.resolv_conf).map_err(failed(format!("put the name servers at {RESOLV_CONF}")))?;
    let done = work();
    put.give_back(setting.resolv_conf)
        .map_err(failed(format!("leave {RESOLV_CONF} of the system as the program made it")))?;
    Ok(done)
}

/// This namespace has a copy of each mount. Those of other actions would keep their file systems in use here.
fn forget_others(root: &Path) {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
    for point in others(&mounts, root).rev() {
        if let Err(e) = umount2(point, MntFlags::MNT_DETACH) {
            tracing::debug!("cannot leave the mount {point} out of the program's namespace: {e}");
        }
    }
}

/// Where other actions have something mounted, in the order of mounting. The agent's own paths contain no blanks.
fn others<'m>(mounts: &'m str, root: &Path) -> impl DoubleEndedIterator<Item = &'m str> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let ours = points.filter(|point| Path::new(point).starts_with("/run/landfall"));
    ours.filter(move |point| !Path::new(point).starts_with(root)).collect::<Vec<_>>().into_iter()
}

fn put((kind, target, flags, data, _): Kernel) -> Result<(), EnterError> {
    let failed = || failed(format!("mount {kind} on {target} in the program's root"));
    if !Path::new(target).is_dir() {
        fs::create_dir_all(target).map_err(failed())?;
    }
    let refused = |e: Errno| failed()(io::Error::from(e));
    mount(Some(kind), target, Some(kind), flags, Some(data)).map_err(refused)?;
    if kind == "efivarfs" {
        // There is one of it, and the agent mounted it first, read-only.
        let flags = flags | MsFlags::MS_REMOUNT;
        mount(None::<&str>, target, None::<&str>, flags, None::<&str>).map_err(refused)?;
    }
    Ok(())
}

/// The text with the agent's name servers, in memory.
fn private() -> PathBuf {
    Path::new(PRIVATE).join("resolv.conf")
}

/// How a program finds the agent's name servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    /// The system has no such file: by a link in its place.
    Link,
    /// By a mount on the system's own.
    Mount,
    /// In /run, which is in memory, or not at all.
    InMemory,
}

impl Put {
    /// Removes what is not the system's. What the program wrote there meanwhile went to memory, and goes into the system's file
    /// now; what it put in the place of the link or the mount stays.
    fn give_back(self, text: &str) -> io::Result<()> {
        let ours = match self {
            Self::Link => fs::read_link(RESOLV_CONF).is_ok_and(|target| target == private()),
            // The program may have unmounted it.
            Self::Mount => umount2(RESOLV_CONF, MntFlags::MNT_DETACH).is_ok(),
            Self::InMemory => false,
        };
        if !ours {
            return Ok(());
        }
        if self == Self::Link {
            fs::remove_file(RESOLV_CONF)?;
        }
        match fs::read(private()) {
            Ok(written) if written != text.as_bytes() => fs::write(RESOLV_CONF, written),
            // The program removed it; there is nothing to keep.
            _ => Ok(()),
        }
    }
}

/// Lets programs find the agent's name servers, and changes no file of the system.
fn name_servers(text: &str) -> io::Result<Put> {
    let private = private();
    fs::write(&private, text)?;
    let link = match fs::symlink_metadata(RESOLV_CONF) {
        Ok(facts) if facts.is_symlink() => Some(led_to(&fs::read_link(RESOLV_CONF)?)),
        Ok(_) => None,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let directory = Path::new(RESOLV_CONF).parent().unwrap_or(Path::new("/"));
            if !directory.is_dir() {
                return Ok(Put::InMemory);
            }
            symlink(&private, RESOLV_CONF)?;
            return Ok(Put::Link);
        }
        Err(e) => return Err(e),
    };
    match link {
        // A power cut in the middle of an earlier program left it.
        Some(target) if target == private => return Ok(Put::Link),
        // systemd-resolved and others keep the file in /run, which is empty and in memory now.
        Some(target) if target.starts_with("/run") || target.starts_with("/var/run") => {
            fs::create_dir_all(target.parent().unwrap_or(Path::new("/run")))?;
            fs::write(target, text)?;
        }
        Some(target) if !target.exists() => {
            tracing::warn!("{RESOLV_CONF} of the installed system leads to {}, which is missing", target.display());
        }
        _ => {
            mount(Some(&private), RESOLV_CONF, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
            return Ok(Put::Mount);
        }
    }
    Ok(Put::InMemory)
}

/// Where a link in /etc leads, without a look at the file system.
fn led_to(target: &Path) -> PathBuf {
    let mut path = PathBuf::from("/etc");
    for part in target.components() {
        match part {
            Component::RootDir => path = PathBuf::from("/"),
            // The root's parent is the root.
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mounts_of_other_actions_are_left_out() {
        let mounts = "proc /proc proc rw\nrun /run tmpfs rw\n/dev/vda2 /run/landfall/root-1 ext4 rw\n\
            /dev/vda3 /run/landfall/root-1/var ext4 rw\n/dev/vdb2 /run/landfall/root-12 ext4 rw\n\
            /dev/vdb3 /run/landfall/root-12/var ext4 rw\n";
        let left: Vec<_> = others(mounts, Path::new("/run/landfall/root-1")).rev().collect();
        assert_eq!(left, ["/run/landfall/root-12/var", "/run/landfall/root-12"]);
    }

    #[test]
    fn a_link_to_the_name_servers_is_followed_inside() {
        for (link, target) in [
            ("../run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
            ("/run/resolv.conf", "/run/resolv.conf"),
            ("./resolvconf/run", "/etc/resolvconf/run"),
            ("../../../x", "/x"),
        ] {
            assert_eq!(led_to(Path::new(link)), Path::new(target), "{link}");
        }
    }
}
