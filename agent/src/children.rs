//! Processes that the agent started. As PID 1 the agent reaps every process that lost its parent; those that it started itself
//! are left to the code that waits for them.

use std::{
    collections::BTreeSet,
    io,
    process::{Child, Command, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    unistd::Pid,
};

/// Process ids that [`Own`] waits for. Held while a process is started or reaped, so that none ends unnoticed in between.
static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn own() -> MutexGuard<'static, BTreeSet<u32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that the agent started and waits for. Killed when dropped.
pub(crate) struct Own(Child);

impl Own {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel's, such as a program that does not exist.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut own = own();
        let child = command.spawn()?;
        own.insert(child.id());
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
        own().remove(&self.0.id());
    }
}

/// Reaps processes that lost their parent.
pub(crate) fn reap_orphans() {
    loop {
        let own = own();
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let Ok(pid) = waitid(Id::All, flags).map(|status| status.pid().filter(|_| status != WaitStatus::StillAlive))
        else {
            return;
        };
        // The kernel shows the same process again until it is reaped; after that it says that another one ended.
        let orphan = pid.filter(|pid| u32::try_from(pid.as_raw()).is_ok_and(|pid| !own.contains(&pid)));
        let Some(orphan) = orphan else { return };
        if waitpid(Pid::from_raw(orphan.as_raw()), Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    #[test]
    fn reaping_takes_no_exit_code_of_an_own_process() {
        let mut child = Own::spawn(Command::new("/bin/sh").args(["-c", "exit 7"])).unwrap();
        let ended = (0..6000).find_map(|_| {
            reap_orphans();
            thread::sleep(Duration::from_millis(10));
            child.ended().unwrap()
        });
        assert_eq!(ended.and_then(|status| status.code()), Some(7));
    }
}
