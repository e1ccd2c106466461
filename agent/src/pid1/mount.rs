//! The file systems PID 1 mounts before anything else works.

use std::{fs, io, os::unix::fs::symlink};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// The file systems of the boot environment: source, target, kind, flags and options.
const TABLE: [(&str, &str, &str, MsFlags, Option<&str>); 4] = [
    ("devtmpfs", "/dev", "devtmpfs", MsFlags::MS_NOSUID, Some("mode=0755")),
    ("proc", "/proc", "proc", INERT, None),
    ("sysfs", "/sys", "sysfs", INERT, None),
    ("run", "/run", "tmpfs", MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV), Some("mode=0755,size=16m")),
];

/// What shells and interpreters expect beside the kernel's devices, in every root that this /dev is mounted in.
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Mounts all of them; returns failures as sentences, because there is no log yet.
pub(crate) fn mount_all() -> Vec<String> {
    let mut complaints = Vec::new();
    for (source, target, kind, flags, data) in TABLE {
        if let Err(e) = fs::create_dir_all(target) {
            complaints.push(format!("cannot make {target}: {e}"));
            continue;
        }
        match mount(Some(source), target, Some(kind), flags, data) {
            // EBUSY: mounted already, by the kernel (CONFIG_DEVTMPFS_MOUNT) or by our own earlier start.
            Ok(()) | Err(Errno::EBUSY) => {}
            Err(e) => complaints.push(format!("cannot mount {kind} on {target}: {e}")),
        }
    }
    for (link, target) in LINKS {
        match symlink(target, link) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => complaints.push(format!("cannot make {link}: {e}")),
            _ => {}
        }
    }
    complaints
}
