//! How sizes and partitions are written for people.

/// Bytes in the largest unit in which they come to at least 1, with one digit after the point unless they are whole.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len()).rev().find(|n| count >> (10 * n) > 0).unwrap_or(0);
    let tenths = (u128::from(count) * 10) >> (10 * unit);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {}", UNITS[unit]),
        (whole, tenth) => format!("{whole}.{tenth} {}", UNITS[unit]),
    }
}

/// The kernel's name of a partition: a name that ends with a digit gets a `p` before the number.
pub(crate) fn partition_name(disk: &str, number: u32) -> String {
    let p = if disk.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    format!("{disk}{p}{number}")
}
