//! Whether the tools layer fits into this machine's memory.

use std::fs;

/// What must be free beside the layer, bytes: the worker, the programs that it starts, and the agent's own buffers.
const BESIDE: u64 = 64 << 20;

/// Too little memory is free.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tools layer has {} MiB and needs {} MiB beside it, and {} MiB of memory are free",
    mib(*layer), mib(BESIDE), available / (1 << 20)
)]
pub(super) struct TooLittle {
    layer: u64,
    available: u64,
}

const fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Whether a layer of so many bytes may be fetched now. Where the kernel does not say what is free, it may.
///
/// # Errors
/// [`TooLittle`]
pub(super) fn fits(layer: u64) -> Result<(), TooLittle> {
    judge(layer, &fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

fn judge(layer: u64, meminfo: &str) -> Result<(), TooLittle> {
    match available(meminfo) {
        Some(available) if available < layer.saturating_add(BESIDE) => Err(TooLittle { layer, available }),
        _ => Ok(()),
    }
}

/// What programs can still get, bytes.
fn available(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_larger_than_free_memory_is_refused_with_figures() {
        let meminfo = "MemTotal:  495000 kB\nMemFree:  1000 kB\nMemAvailable:     102400 kB\nBuffers: 1 kB\n";
        judge(36 << 20, meminfo).unwrap();
        let error = judge((36 << 20) + 1, meminfo).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the tools layer has 37 MiB and needs 64 MiB beside it, and 100 MiB of memory are free"
        );
        judge(u64::MAX, "").unwrap();
    }
}
