//! How the machine goes down: file systems synced and unmounted, then `reboot(2)`, and where a device keeps the kernel from
//! that, the kernel's emergency restart.

use std::{convert::Infallible, fs, io, sync::mpsc, thread, time::Duration};

use nix::mount::{MntFlags, umount2};
use nix::sys::reboot::{RebootMode, reboot};

use crate::children::reap_orphans;
use crate::life::End;
use crate::thread::on_thread;

/// A device that answers within this has its file systems synced and unmounted. Any other must not keep the machine up
/// for ever: the receipt stands, what was committed was flushed when it was, and the last action has synced before.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// The kernel shuts every device down before it restarts. A driver that waits for a device which hangs holds it up for ever;
/// a RAID controller that flushes its cache takes some seconds.
const KERNEL_LIMIT: Duration = Duration::from_secs(60);
/// The kernel's emergency action is done after this at the latest.
const EMERGENCY_LIMIT: Duration = Duration::from_secs(10);

/// What happens to file systems before the machine goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// They are synced and unmounted.
    Unmount,
    /// They are synced: what works on them goes on.
    Sync,
}

/// How a life that ended takes the machine down, and what a person reads of it.
pub(crate) const fn of(end: &End) -> (&'static str, RebootMode) {
    match end {
        End::Reboot => ("restarting into the installed system", RebootMode::RB_AUTOBOOT),
        End::PowerOff => ("turning the machine off", RebootMode::RB_POWER_OFF),
        End::Kexec => ("starting the installed system's kernel, without the firmware", RebootMode::RB_KEXEC),
        End::BootDisk => ("restarting to boot this machine's own disk", RebootMode::RB_AUTOBOOT),
    }
}

/// [`go_down`]; if the kernel refuses to start the loaded kernel, through the firmware. Returns only if it refuses that too.
pub(crate) async fn restart(mut how: RebootMode, before: Before, last: impl Fn() + Clone + Send + 'static) {
    // Unmounting may block on a slow device.
    let down = |how| {
        let last = last.clone();
        on_thread("power", move || go_down(how, before, last))
    };
    if how == RebootMode::RB_KEXEC {
        // The actions are reported as done, and the disk boots: the firmware starts the same system, only later.
        let refused = down(how).await;
        tracing::error!("the kernel refuses to start the loaded kernel: {refused:?}; restarting through the firmware");
        how = RebootMode::RB_AUTOBOOT;
    }
    let refused = down(how).await;
    tracing::error!("the kernel refuses to stop the machine: {refused:?}; turn it off by hand");
}

/// Restarts the machine, turns it off, or starts the kernel that was loaded, even if its devices hang. `last` is done just before.
/// Returns only if the kernel refuses.
///
/// # Errors
/// The kernel's refusal (no `CAP_SYS_BOOT`; `EINVAL`: no kernel was loaded), or why the emergency restart is impossible.
fn go_down(how: RebootMode, before: Before, last: impl Fn()) -> io::Result<Infallible> {
    let settled = match before {
        Before::Unmount => within(SETTLE_LIMIT, settle),
        Before::Sync => within(SETTLE_LIMIT, nix::unistd::sync),
    };
    if settled.is_none() {
        tracing::error!(
            "a device does not answer; the machine goes down without syncing it after {} s",
            SETTLE_LIMIT.as_secs()
        );
    }
    last();
    if let Some(refused) = within(KERNEL_LIMIT, move || reboot(how)) {
        return refused.map_err(io::Error::from);
    }
    let (key, what) = emergency(how);
    tracing::error!("a device keeps the kernel from going down for {} s; {what}", KERNEL_LIMIT.as_secs());
    last();
    fs::write("/proc/sysrq-trigger", key)?;
    // Turning off is done by a worker of the kernel's.
    thread::sleep(EMERGENCY_LIMIT);
    Err(io::Error::other("the kernel ignores /proc/sysrq-trigger"))
}

/// The key of the kernel's emergency action, which waits for no device (Documentation/admin-guide/sysrq.rst), and what it does.
fn emergency(how: RebootMode) -> (&'static str, &'static str) {
    match how {
        RebootMode::RB_POWER_OFF => ("o", "turning it off at once"),
        // The loaded kernel is lost, and the firmware starts the same system.
        _ => ("b", "restarting it at once"),
    }
}

/// Does work that may never end on a thread of its own. Its result, if it ended in time.
fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, waits) = mpsc::channel();
    thread::spawn(move || {
        // The caller no longer waits if it took too long.
        drop(done.send(work()));
    });
    waits.recv_timeout(limit).ok()
}

fn settle() {
    nix::unistd::sync();
    // Newest mount first, so that what is mounted on another file system goes before it. Busy file systems stay
    // mounted; they are synced above and again below.
    for target in block_mounts(&fs::read_to_string("/proc/self/mounts").unwrap_or_default()).iter().rev() {
        if let Err(e) = umount2(target.as_str(), MntFlags::empty()) {
            tracing::warn!("cannot unmount {target} before the restart: {e}");
        }
    }
    nix::unistd::sync();
}

/// Mount points whose source is a block device, in the order they were mounted.
fn block_mounts(table: &str) -> Vec<String> {
    table
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (source, target) = (words.next()?, words.next()?);
            // The kernel writes blanks in paths as octal; ours have none.
            source.starts_with("/dev/").then(|| target.to_owned())
        })
        .collect()
}

/// Reaps orphans, for ever: as PID 1 the agent inherits every process whose parent ended.
pub(crate) async fn reap_children() {
    use tokio::signal::unix::{SignalKind, signal};

    let mut children = match signal(SignalKind::child()) {
        Ok(signal) => Some(signal),
        Err(e) => {
            tracing::warn!(
                "the kernel's notices of ended children are not available ({e}); the agent checks once a minute"
            );
            None
        }
    };
    loop {
        reap_orphans();
        match &mut children {
            Some(signal) => _ = signal.recv().await,
            None => tokio::time::sleep(Duration::from_secs(60)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_endless_work_is_bounded() {
        let (_open, waits) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(50), move || waits.recv().unwrap_or_default()), None);
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
    }

    #[test]
    fn a_machine_to_be_turned_off_is_not_restarted() {
        assert_eq!(emergency(RebootMode::RB_POWER_OFF).0, "o");
        assert_eq!(emergency(RebootMode::RB_AUTOBOOT).0, "b");
        assert_eq!(emergency(RebootMode::RB_KEXEC).0, "b");
    }

    #[test]
    fn only_block_devices_are_unmounted() {
        let table = "proc /proc proc rw 0 0\n/dev/vda2 /run/root ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/vda1 /run/root/efi vfat rw 0 0\n";
        assert_eq!(block_mounts(table), ["/run/root", "/run/root/efi"]);
    }
}
