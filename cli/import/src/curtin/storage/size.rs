//! Sizes as curtin writes them.

use landfall_api::SizeSpec;

/// A number with or without a unit; every unit is a power of 1024, and a bare number is bytes. `None` if it is none.
pub(super) fn size(text: &str) -> Option<SizeSpec> {
    let text = text.trim();
    if let Some(percent) = text.strip_suffix('%') {
        return percent.trim().parse().ok().filter(|n| (1..=100).contains(n)).map(SizeSpec::Percent);
    }
    if text.starts_with('-') {
        // What is left of the space.
        return (text == "-1").then_some(SizeSpec::Rest);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let power = match unit.trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    let unit = 1u64 << (10 * power);
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit)?,
        Err(_) => {
            let (whole, part) = number.split_once('.')?;
            // Six digits of a fraction are more than any file has, and exact.
            let digits: String = part.chars().chain("000000".chars()).take(6).collect();
            let millionths = unit.checked_mul(digits.parse().ok()?)? / 1_000_000;
            whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(millionths)?
        }
    };
    (bytes > 0).then_some(SizeSpec::Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_a_power_of_two() {
        for (text, shown) in [
            ("1MB", "1MiB"),
            ("1M", "1MiB"),
            ("8G", "8GiB"),
            ("3.5GB", "3584MiB"),
            ("1048576", "1MiB"),
            ("512B", "512B"),
            ("1kB", "1KiB"),
            ("2TiB", "2TiB"),
            ("-1", "rest"),
            ("50%", "50%"),
        ] {
            assert_eq!(size(text).map(|size| size.to_string()).as_deref(), Some(shown), "{text}");
        }
        for text in ["", "x", "1X", "0", "-2", "99999999999999999999", "18446744073709551615T", "1.2.3G", "200%", ".G"]
        {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
