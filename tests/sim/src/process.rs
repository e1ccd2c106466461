//! What the kernel knows of a process: memory, processor time; and how many files this one may open.

use std::{fs, io, time::Duration};

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{SysconfVar, sysconf};

/// Resident bytes of a process.
///
/// # Errors
/// The process is gone.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc/PID/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is not a number")?;
    Ok(kib * 1024)
}

/// Processor time that a process has used, in user and kernel mode together.
///
/// # Errors
/// The process is gone.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    // The name, in parentheses, may hold anything; fields are counted after it. utime is field 14, stime 15.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).context("no times in /proc/PID/stat");
    let second = sysconf(SysconfVar::CLK_TCK)?.and_then(|t| u64::try_from(t).ok()).filter(|t| *t > 0).unwrap_or(100);
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 1000 / second))
}

/// Raises the limit of open files as far as possible; returns the new limit.
///
/// # Errors
/// The kernel's.
pub fn raise_open_files() -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_a_gone_one_has_none() {
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
        assert!(processor_time(std::process::id()).is_ok());
        assert!(resident_bytes(u32::MAX).is_err());
    }
}
