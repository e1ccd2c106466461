//! How large a partition or volume is.

use std::{fmt, str::FromStr};

use crate::selector::parse_size;

/// A size: bytes with a unit, a percentage, or what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeSpec {
    /// So many bytes, at least 1.
    Bytes(u64),
    /// Of the disk's space for new partitions, or of the volume group; 1 to 100.
    Percent(u8),
    /// What the others leave.
    Rest,
}

/// A size that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a size; write a number and a unit such as 512MiB or 20GiB, a percentage such as 50%, or rest")]
pub struct SizeError(String);

impl fmt::Display for SizeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// From the largest on: the first that divides the number is written.
        const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match self {
            Self::Rest => f.write_str("rest"),
            Self::Percent(n) => write!(f, "{n}%"),
            Self::Bytes(n) => match UNITS.iter().find(|(unit, _)| n % unit == 0) {
                Some((unit, name)) => write!(f, "{}{name}", n / unit),
                None => write!(f, "{n}B"),
            },
        }
    }
}

impl FromStr for SizeSpec {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let bad = || SizeError(text.to_owned());
        let text = text.trim();
        if text == "rest" {
            return Ok(Self::Rest);
        }
        if let Some(number) = text.strip_suffix('%') {
            let digits = number.bytes().all(|b| b.is_ascii_digit());
            let percent = number.parse().ok().filter(|n| digits && (1..=100).contains(n));
            return percent.map(Self::Percent).ok_or_else(bad);
        }
        // A bare number would be bytes to one reader and MiB to another.
        if !text.ends_with('B') {
            return Err(bad());
        }
        parse_size(text).ok().filter(|bytes| *bytes > 0).map(Self::Bytes).ok_or_else(bad)
    }
}

string_scalar!(
    SizeSpec,
    "^(rest|[0-9]+%|[0-9]+([.][0-9]+)? ?[kKMGT]?i?B)$",
    "A number and a unit such as 512MiB or 20GiB, a percentage such as 50%, or rest"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_reads_back_as_it_is_written() {
        for (text, size, shown) in [
            ("rest", SizeSpec::Rest, "rest"),
            ("50%", SizeSpec::Percent(50), "50%"),
            ("512MiB", SizeSpec::Bytes(512 << 20), "512MiB"),
            ("1.5 GiB", SizeSpec::Bytes(3 << 29), "1536MiB"),
            ("1MB", SizeSpec::Bytes(1_000_000), "1000000B"),
            ("2TiB", SizeSpec::Bytes(2 << 40), "2TiB"),
        ] {
            assert_eq!(text.parse(), Ok(size), "{text}");
            assert_eq!((size.to_string().as_str(), shown.parse()), (shown, Ok(size)));
        }
    }

    #[test]
    fn what_could_mean_two_things_is_no_size() {
        for text in ["", "500", "0MiB", "0%", "101%", "+5%", "-1MiB", "50.5%", "all", "1 GiBi", "99999999TiB"] {
            assert_eq!(text.parse::<SizeSpec>(), Err(SizeError(text.to_owned())), "{text}");
        }
    }
}
