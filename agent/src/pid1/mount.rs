//! The file systems PID 1 mounts before anything else works.

use std::{fs, io, os::unix::fs::symlink, path::Path};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

/// One file system of the boot environment.
struct Entry {
    source: &'static str,
    target: &'static str,
    kind: &'static str,
    flags: MsFlags,
    data: Option<&'static str>,
    /// Log its absence on the console.
    required: bool,
}

const TABLE: &[Entry] = &[
    Entry {
        source: "devtmpfs",
        target: "/dev",
        kind: "devtmpfs",
        flags: MsFlags::MS_NOSUID,
        data: Some("mode=0755"),
        required: true,
    },
    Entry {
        source: "proc",
        target: "/proc",
        kind: "proc",
        flags: MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC),
        data: None,
        required: true,
    },
    Entry {
        source: "sysfs",
        target: "/sys",
        kind: "sysfs",
        flags: MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC),
        data: None,
        required: true,
    },
    Entry {
        source: "run",
        target: "/run",
        kind: "tmpfs",
        flags: MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV),
        data: Some("mode=0755,size=16m"),
        required: true,
    },
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
    for entry in TABLE {
        // sysfs has no room for new directories: there the target exists or the file system is not for this machine.
        if !entry.target.starts_with("/sys/") {
            if let Err(e) = fs::create_dir_all(entry.target) {
                complaints.push(format!("cannot make {}: {e}", entry.target));
                continue;
            }
        } else if !Path::new(entry.target).is_dir() {
            continue;
        }
        match mount(Some(entry.source), entry.target, Some(entry.kind), entry.flags, entry.data) {
            // EBUSY: mounted already, by the kernel (CONFIG_DEVTMPFS_MOUNT) or by our own earlier start.
            Ok(()) | Err(Errno::EBUSY) => {}
            Err(_) if !entry.required => {}
            Err(e) => complaints.push(format!("cannot mount {} on {}: {e}", entry.kind, entry.target)),
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
