//! How much memory a write needs, and how much there is.

/// What all stages hold beside what the image itself asks for, bytes: queues, buffers and the decoders' own state. The
/// peak of a write is at most 33 MiB with a window of 2 MiB (zstd -3, gzip, raw).
pub(crate) const BUFFERS: u64 = 32 << 20;

/// What the kernel could give to programs now, bytes; `None` if it does not say. (Linux, proc_meminfo(5): MemAvailable.)
pub fn available() -> Option<u64> {
    of_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// What the kernel has in all, bytes; `None` if it does not say. (MemTotal.)
pub fn total() -> Option<u64> {
    of_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

fn of_meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:        2014000 kB\nMemFree:  1 kB\nMemAvailable:    1500000 kB\n";
        assert_eq!(of_meminfo(text, "MemAvailable:"), Some(1_500_000 * 1024));
        assert_eq!(of_meminfo(text, "MemTotal:"), Some(2_014_000 * 1024));
        assert_eq!(of_meminfo("MemTotal: 1 kB\n", "MemAvailable:"), None);
        assert_eq!(of_meminfo("MemAvailable: many kB\n", "MemAvailable:"), None);
        assert!(available().is_some_and(|bytes| bytes > 1 << 20), "this machine runs");
        assert!(total() > available());
    }
}
