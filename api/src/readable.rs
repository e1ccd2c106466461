//! Sizes as people read them.

/// Bytes in the largest binary unit of which there is at least one, with one digit after the point: `1.2 GiB`.
pub fn readable_bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64, "B");
    for next in UNITS {
        // What is rounded to 1024.0 is 1.0 of the next.
        if value < 1023.95 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_readable() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (count, text) in cases {
            assert_eq!(readable_bytes(count), text);
        }
    }
}
