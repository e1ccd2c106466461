//! Processes that the agent started. As PID 1 the agent reaps every process that lost its parent; those that it started itself
//! are left to the code that waits for them.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};

/// What must not be reaped.
struct Ours {
    /// Process ids that an [`Own`] waits for.
    known: BTreeSet<u32>,
    /// Processes that are being started, whose ids are not known yet. The kernel reads a program from its disk meanwhile, which may
    /// hang: nothing is locked then.
    starting: usize,
}

static OURS: Mutex<Ours> = Mutex::new(Ours { known: BTreeSet::new(), starting: 0 });

fn ours() -> MutexGuard<'static, Ours> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that the agent started and waits for. Killed when dropped.
pub(crate) struct Own(Child);

impl Own {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel's, such as a program that does not exist.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        ours().starting += 1;
        let spawned = command.spawn();
        let mut ours = ours();
        ours.starting -= 1;
        let child = spawned?;
        ours.known.insert(child.id());
        Ok(Self(child))
    }

    /// How it ended; `None`: it runs.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Ends it at once.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.0.kill()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Err(e) = self.0.kill().and_then(|()| self.0.wait()) {
            tracing::warn!("cannot end process {}: {e}", self.0.id());
        }
        ours().known.remove(&self.0.id());
    }
}

/// Reaps processes that lost their parent. One that ended behind a process of the agent's own, which the kernel shows first, stays
/// until the next call.
pub(crate) fn reap_orphans() {
    loop {
        let ours = ours();
        if ours.starting > 0 {
            return;
        }
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let ended = match waitid(Id::All, flags) {
            Ok(WaitStatus::StillAlive) | Err(_) => return,
            Ok(status) => status.pid(),
        };
        let orphan = ended.filter(|pid| u32::try_from(pid.as_raw()).is_ok_and(|pid| !ours.known.contains(&pid)));
        let Some(orphan) = orphan else { return };
        if waitpid(orphan, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}
