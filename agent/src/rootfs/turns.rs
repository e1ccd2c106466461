//! One user of a file system at a time. Branches of a workflow run at once, and the kernel knows a btrfs by its UUID alone:
//! while one is mounted, another disk with the same image cannot be; and one device cannot be mounted for looking while it is
//! mounted for writing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{forget::forget, names::FileSystem};

/// What is in use, of all branches of this process.
static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static RETURNED: Condvar = Condvar::new();
/// How often a waiting branch asks whether it is to stop.
const TICK: Duration = Duration::from_millis(100);

/// What one user holds, given back on drop. To be dropped after the mounts.
#[derive(Debug, Default)]
pub(super) struct Turns {
    held: BTreeSet<String>,
    /// btrfs devices, which the kernel must not remember once they are unmounted.
    devices: Vec<PathBuf>,
}

/// The search was stopped while another branch used the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

impl Turns {
    /// Waits until no other user has this file system.
    ///
    /// # Errors
    /// [`Stopped`] once `cancelled`: the action's own timeout bounds the wait.
    pub(super) fn take(
        &mut self, device: &Path, file_system: &FileSystem, cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Stopped> {
        let is_btrfs = file_system.kind == "btrfs";
        let key = if is_btrfs { file_system.uuid.clone() } else { device.display().to_string() };
        if self.held.contains(&key) {
            return Ok(());
        }
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains(&key) {
            tracing::info!("{} waits until another branch has done with the same file system", device.display());
        }
        while !taken.insert(key.clone()) {
            taken = RETURNED.wait_timeout(taken, TICK).unwrap_or_else(PoisonError::into_inner).0;
            if cancelled() {
                return Err(Stopped);
            }
        }
        self.held.insert(key);
        if is_btrfs {
            self.devices.push(device.to_owned());
        }
        Ok(())
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        for device in &self.devices {
            forget(device);
        }
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|key| !self.held.contains(key));
        RETURNED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    fn btrfs(uuid: &str) -> FileSystem {
        FileSystem { kind: "btrfs", uuid: uuid.into(), label: String::new() }
    }

    #[test]
    fn twins_of_a_btrfs_are_used_one_after_the_other() {
        let (here, there) = (Path::new("/dev/turns-a"), Path::new("/dev/turns-b"));
        let mut first = Turns::default();
        first.take(here, &btrfs("twin"), &|| false).unwrap();
        first.take(here, &btrfs("twin"), &|| false).expect("its own again, for a subvolume");
        assert_eq!(Turns::default().take(there, &btrfs("twin"), &|| true), Err(Stopped));
        Turns::default().take(there, &btrfs("other"), &|| true).unwrap();
        let (send, done) = mpsc::channel();
        let waiting = thread::spawn(move || {
            let mut second = Turns::default();
            second.take(there, &btrfs("twin"), &|| false).unwrap();
            send.send(()).unwrap();
        });
        done.recv_timeout(Duration::from_millis(300)).expect_err("both had it at once");
        drop(first);
        done.recv_timeout(Duration::from_secs(20)).unwrap();
        waiting.join().unwrap();
    }

    #[test]
    fn twins_of_other_kinds_are_used_at_once() {
        let xfs = FileSystem { kind: "xfs", ..btrfs("same") };
        let (mut a, mut b) = (Turns::default(), Turns::default());
        a.take(Path::new("/dev/turns-c"), &xfs, &|| true).unwrap();
        b.take(Path::new("/dev/turns-d"), &xfs, &|| true).unwrap();
        assert_eq!(Turns::default().take(Path::new("/dev/turns-c"), &xfs, &|| true), Err(Stopped));
    }
}
