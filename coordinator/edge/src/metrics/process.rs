//! This process, as the kernel counts it, under the names every Prometheus client uses.

use super::number::{head, sample};

/// Clock ticks a second in `/proc`: 100 on every Linux there is.
const TICKS: f64 = 100.0;

/// What `/proc/self` says; what cannot be read is left out.
pub fn write(out: &mut String) {
    if let Some(bytes) = std::fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident) {
        head(out, "process_resident_memory_bytes", "gauge", "Memory in use.");
        sample(out, "process_resident_memory_bytes", "", bytes);
    }
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        head(out, "process_open_fds", "gauge", "Open files and connections.");
        sample(out, "process_open_fds", "", entries.count());
    }
    if let Ok((soft, _)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
        head(out, "process_max_fds", "gauge", "Files and connections that may be open.");
        sample(out, "process_max_fds", "", soft);
    }
    if let Some(seconds) = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu) {
        head(out, "process_cpu_seconds_total", "counter", "Processor time used.");
        sample(out, "process_cpu_seconds_total", "", seconds);
    }
}

fn resident(status: &str) -> Option<u64> {
    let kib: u64 =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Fields 14 and 15, counted behind the name in brackets, which may hold anything.
fn cpu(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read_and_others_are_not() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(resident("Name:\tx\n"), None);
        assert_eq!(cpu("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0"), Some(2.0));
        assert_eq!(cpu("7"), None);
    }
}
