//! Newtypes for scalars that must not be mixed up, each parsed once at the edge.

use std::{fmt, str::FromStr, time::Duration};

/// A scalar in a document that does not parse; the message says what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScalarError {
    /// Not a `sha256:<64 hex digits>` or `sha512:<128 hex digits>` digest.
    #[error(
        "\"{0}\" is not a digest; write sha256: and the 64 hexadecimal digits that sha256sum prints, or sha512: and the \
         128 of sha512sum"
    )]
    Digest(String),
    /// Not six colon-separated octets.
    #[error("\"{0}\" is not a MAC address; write six octets such as 52:54:00:12:34:56")]
    Mac(String),
    /// Not a duration.
    #[error("\"{0}\" is not a duration; write a number and a unit, such as 90s, 30m or 2h")]
    Duration(String),
    /// Zero is never silently "now" or "for ever".
    #[error("a duration of zero is refused; leave the field out for the default, or write a positive one such as 30s")]
    ZeroDuration,
}

/// Writes a type as its text and reads it back, with the pattern and the description of its schema.
macro_rules! string_scalar {
    ($name:ident, $pattern:literal, $doc:literal) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern, "description": $doc })
            }
        }
    };
}

/// A digest, written `sha256:` or `sha512:` and lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Digest {
    /// 32 bytes of SHA-256.
    Sha256([u8; 32]),
    /// 64 bytes of SHA-512.
    Sha512([u8; 64]),
}

impl Digest {
    /// Wraps the 32 bytes of a finished SHA-256.
    pub const fn from_sha256(bytes: [u8; 32]) -> Self {
        Self::Sha256(bytes)
    }
    /// Wraps the 64 bytes of a finished SHA-512.
    pub const fn from_sha512(bytes: [u8; 64]) -> Self {
        Self::Sha512(bytes)
    }
    /// Its bytes: 32 or 64.
    pub const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sha256(bytes) => bytes,
            Self::Sha512(bytes) => bytes,
        }
    }
    /// The function's name as it is written before the colon.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "sha256",
            Self::Sha512(_) => "sha512",
        }
    }
    /// From bare hex digits, as `sha256sum` and `sha512sum` print them: their number decides which of the two.
    ///
    /// # Errors
    /// [`ScalarError::Digest`] unless they are 64 or 128 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Result<Self, ScalarError> {
        let bad = || ScalarError::Digest(hex.to_owned());
        match hex.len() {
            64 => octets(hex).map(Self::Sha256),
            128 => octets(hex).map(Self::Sha512),
            _ => None,
        }
        .ok_or_else(bad)
    }
}

/// Exactly so many octets of hex digits.
fn octets<const N: usize>(hex: &str) -> Option<[u8; N]> {
    // `from_str_radix` would take a sign.
    if hex.len() != 2 * N || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.algorithm())?;
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ScalarError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ScalarError::Digest(s.to_owned());
        let (algorithm, hex) = s.split_once(':').ok_or_else(bad)?;
        match algorithm {
            "sha256" => octets(hex).map(Self::Sha256),
            "sha512" => octets(hex).map(Self::Sha512),
            _ => None,
        }
        .ok_or_else(bad)
    }
}
string_scalar!(
    Digest, "^(sha256:[0-9a-fA-F]{64}|sha512:[0-9a-fA-F]{128})$",
    "SHA-256 or SHA-512, as printed by sha256sum or sha512sum"
);

/// An Ethernet address, printed lower-case with colons.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Whether a port can have it: group addresses are of several, and zero is of none.
    pub fn is_of_a_port(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = ScalarError;
    /// Takes colons or hyphens (iPXE prints both), either case.
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ScalarError::Mac(s.to_owned());
        let mut out = [0; 6];
        let mut parts = s.split([':', '-']);
        for octet in &mut out {
            let part = parts.next().filter(|p| p.len() == 2 && !p.starts_with('+')).ok_or_else(bad)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(out)) }
    }
}
string_scalar!(MacAddr, "^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$", "An Ethernet address");

/// A positive duration, written as a whole number and one unit: `ms`, `s`, `m`, `h` or `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationSpec(Duration);

impl DurationSpec {
    /// A duration of so many seconds, at least 1.
    pub const fn from_secs(seconds: u64) -> Self {
        assert!(seconds > 0, "a duration of zero is refused");
        Self(Duration::from_secs(seconds))
    }
    /// The duration, never zero.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl fmt::Display for DurationSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            ms if ms % 86_400_000 == 0 => write!(f, "{}d", ms / 86_400_000),
            ms if ms % 3_600_000 == 0 => write!(f, "{}h", ms / 3_600_000),
            ms if ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            ms if ms % 1000 == 0 => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

impl FromStr for DurationSpec {
    type Err = ScalarError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ScalarError::Duration(s.to_owned());
        let split = s.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = s[..split].parse().map_err(|_| bad())?;
        let unit_ms: u64 = match s[split..].trim_start() {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        match number.checked_mul(unit_ms) {
            None => Err(bad()),
            Some(0) => Err(ScalarError::ZeroDuration),
            Some(ms) => Ok(Self(Duration::from_millis(ms))),
        }
    }
}
string_scalar!(DurationSpec, "^[0-9]+ ?(ms|s|m|h|d)$", "A positive duration such as 90s, 30m or 2h");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_survives_a_round_trip_and_refuses_the_rest() {
        for (text, hex) in [("sha256:", "0a".repeat(32)), ("sha512:", "0b".repeat(64))] {
            let digest = Digest::from_hex(&hex).unwrap();
            assert_eq!(digest.to_string(), format!("{text}{hex}"));
            assert_eq!(digest.to_string().parse(), Ok(digest));
        }
        assert!(
            Digest::from_hex(&"0a".repeat(33)).is_err()
                && format!("sha512:{}", "0a".repeat(32)).parse::<Digest>().is_err()
        );
        for bad in ["", "sha256:", "sha256:zz", &"0a".repeat(32), &format!("sha256:{}", "+a".repeat(32))] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn mac_takes_both_spellings_and_prints_one() {
        for text in ["52:54:00:AB:cd:01", "52-54-00-ab-CD-01"] {
            assert_eq!(text.parse::<MacAddr>().unwrap().to_string(), "52:54:00:ab:cd:01");
        }
        for bad in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:01:02", "+2:54:00:ab:cd:01", "525400abcd01"] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_duration_of_zero_is_refused_by_name() {
        assert_eq!("0s".parse::<DurationSpec>(), Err(ScalarError::ZeroDuration));
        assert_eq!("90s".parse::<DurationSpec>().unwrap().get(), Duration::from_secs(90));
        assert_eq!("120m".parse::<DurationSpec>().unwrap().to_string(), "2h");
        for bad in ["", "5", "s", "-1s", "1.5h", "18446744073709551615d"] {
            assert!(bad.parse::<DurationSpec>().is_err(), "{bad}");
        }
    }
}
