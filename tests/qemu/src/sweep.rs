//! Removes what a dead lab left behind.
//!
//! A namespace's name carries the pid and the start time of the lab that made it, so a later lab can distinguish a
//! living owner from a reused pid.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::LabError;
use crate::ip::ip;

/// What every namespace of a lab begins with.
pub(crate) const PREFIX: &str = "lf-";

/// `lf-<pid>-<start time>` of this process.
pub(crate) fn own_prefix() -> String {
    let pid = std::process::id();
    format!("{PREFIX}{pid}-{}", start_time(pid).unwrap_or(0))
}

/// Removes every namespace whose owner is gone, and ends what still runs inside. Returns how many.
///
/// # Errors
/// [`LabError`] if `ip netns` does not work (not root, no iproute2).
pub fn sweep() -> Result<usize, LabError> {
    let mut swept = 0;
    for line in ip(&["netns", "list"])?.lines() {
        let Some(name) = line.split_whitespace().next().filter(|name| is_orphan(name)) else { continue };
        remove_namespace(name);
        swept += 1;
    }
    Ok(swept)
}

/// Ends what runs in a namespace, by pid, and removes it. Best effort: it is called from `drop`.
pub(crate) fn remove_namespace(name: &str) {
    for pid in ip(&["netns", "pids", name]).unwrap_or_default().lines().filter_map(|l| l.trim().parse().ok()) {
        // It may have ended by itself meanwhile.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    if let Err(error) = ip(&["netns", "del", name]) {
        tracing::warn!(namespace = name, %error, "cannot remove namespace; the next lab will try again");
    }
}

fn is_orphan(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut parts = rest.split('-');
    let (Some(pid), Some(start)) = (parts.next(), parts.next()) else { return false };
    let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else { return false };
    start_time(pid) != Some(start)
}

/// Clock ticks since boot at which a process started; `None` if there is no such process.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name in parentheses, may hold blanks; field 22 is the start time.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_labs_namespace_is_an_orphan() {
        let own = own_prefix();
        assert!(!is_orphan(&format!("{own}-0")));
        assert!(is_orphan(&format!("{PREFIX}{}-1-0", std::process::id())));
        assert!(!is_orphan("another-users"));
    }
}
