//! Disk selectors: they select one of a machine's disks for an action.
//!
//! A selector maps a field to an expression; every one must hold. Parsing is pure, so that `apply` can refuse a bad
//! selector long before a machine uses it.

use std::{cmp::Ordering, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::DiskFacts;

/// The transport of disks that a selector matches only where it names the transport.
const USB: &str = "usb";
/// The fields a selector may name.
const FIELDS: [&str; 11] =
    ["wwn", "serial", "byId", "model", "vendor", "size", "path", "hctl", "name", "rotational", "transport"];
/// Where the system has links to a disk; people write those with or without it.
const DEVICES: &str = "/dev/";
const BY_ID: &str = "/dev/disk/by-id/";
/// What by-id names begin with that are made of a wwn, an EUI-64, a UUID or an NAA name.
const WORLD_WIDE: [&str; 5] = ["wwn-", "nvme-eui.", "nvme-uuid.", "scsi-3", "scsi-2"];

/// A selector that does not parse.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A field that disks do not have.
    #[error(
        "\"{0}\" is not a disk field; use wwn, serial, byId, model, vendor, size, path, hctl, name, rotational or transport"
    )]
    UnknownField(String),
    /// An expression that does not parse.
    #[error(
        "disk field {field}: \"{expression}\" is not valid; write a value, or one of = != < <= > >= in glob and a value"
    )]
    BadExpression { field: String, expression: String },
    /// A list where one expression must stand.
    #[error("disk field {0}: a list is not valid; write one value, or in and several with commas, such as \"in A, B\"")]
    List(String),
    /// What a disk is not called: it may have names that are not known.
    #[error(
        "disk field byId: != is not supported, for a disk may have more names than are known; use serial or wwn with !="
    )]
    NotNegated,
    /// An operator that its field does not support.
    #[error("disk field {field}: {operator} compares sizes only; use = != in or glob here")]
    NotOrdered { field: String, operator: &'static str },
    /// A size that does not parse.
    #[error(
        "disk field size: \"{0}\" is not a size; write a number and a unit (B, KB, MB, GB, TB, KiB, MiB, GiB or TiB), such as 480GB or 1.5TiB"
    )]
    BadSize(String),
    /// An invalid truth value.
    #[error("disk field {field}: \"{value}\" is not true or false")]
    BadBoolean { field: String, value: String },
}

/// Field to expression; every one must hold, and exactly one disk must match. An empty selector matches any disk, so it
/// works on machines with just one.
///
/// Fields: `wwn`, `serial`, `byId`, `model`, `vendor`, `size`, `path`, `hctl`, `name`, `rotational`, `transport`. `byId`
/// is any of the disk's names in `/dev/disk/by-id` that the facts list; it takes no `!=`. An expression is a plain value
/// (equality) or an operator and a value: `= != < <= > >= in glob`. `in` takes values separated by commas, `glob` a
/// pattern with `*` and `?`. `< <= > >=` are for `size`, which takes the units B, KB, MB, GB, TB (powers of 1000) and
/// KiB, MiB, GiB, TiB (powers of 1024). `rotational` is `true` or `false`. A USB disk matches only a selector that has
/// the field `transport`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DiskSelector(pub BTreeMap<String, serde_json::Value>);

impl DiskSelector {
    /// Why this disk does not match, one sentence per field; empty if it matches.
    ///
    /// # Errors
    /// [`SelectorError`] if the selector itself does not parse.
    pub fn mismatches(&self, disk: &DiskFacts) -> Result<Vec<String>, SelectorError> {
        // Parsed completely first: the validity of a selector must not depend on a machine's disks.
        let tests = self.parse()?;
        let mut found: Vec<String> = tests.iter().filter_map(|(field, test)| test.mismatch(field, disk)).collect();
        // A stick that was left in a port, or the virtual disk of a BMC: neither is what "the only disk" means.
        if disk.transport == USB && !self.0.contains_key("transport") {
            found.push("transport is usb, and the selector does not name it with transport: usb".to_owned());
        }
        Ok(found)
    }

    /// Whether the selector parses, for refusing it before any machine sees it.
    ///
    /// # Errors
    /// [`SelectorError`] naming the field and what to write instead.
    pub fn validate(&self) -> Result<(), SelectorError> {
        self.parse().map(|_| ())
    }

    /// Whether it states a by-id name that no other disk has: one made of a world-wide name. Namespaces of one NVMe disk share a
    /// serial number, and so do cheap disks.
    pub fn states_by_id(&self) -> bool {
        let stated = self.0.get("byId").and_then(|value| Test::parse("byId", value).ok());
        let Some(Test::Text { operator: TextOperator::Is, values, .. }) = stated else { return false };
        let is_unique = |value: &String| WORLD_WIDE.iter().any(|prefix| plain("byId", value).starts_with(prefix));
        values.len() == 1 && values.iter().all(is_unique)
    }

    fn parse(&self) -> Result<Vec<(&str, Test)>, SelectorError> {
        self.0.iter().map(|(field, value)| Ok((field.as_str(), Test::parse(field, value)?))).collect()
    }
}

/// One parsed expression.
#[derive(Debug, PartialEq)]
enum Test {
    Size(Vec<Ordering>, u64, String),
    SizeIn(Vec<u64>, String),
    Truth { wanted: bool },
    Text { operator: TextOperator, values: Vec<String>, written: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextOperator {
    Is,
    IsNot,
    Glob,
}

pub(crate) const EQUAL: &[Ordering] = &[Ordering::Equal];
/// Longer spellings first, so that `<=` is not read as `<`.
pub(crate) const OPERATORS: [(&str, &[Ordering]); 6] = [
    ("!=", &[Ordering::Less, Ordering::Greater]),
    ("<=", &[Ordering::Less, Ordering::Equal]),
    (">=", &[Ordering::Greater, Ordering::Equal]),
    ("<", &[Ordering::Less]),
    (">", &[Ordering::Greater]),
    ("=", EQUAL),
];

impl Test {
    fn parse(field: &str, value: &Value) -> Result<Self, SelectorError> {
        if !FIELDS.contains(&field) {
            return Err(SelectorError::UnknownField(field.to_owned()));
        }
        let written = match value {
            Value::String(text) => text.trim().to_owned(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Array(_) => return Err(SelectorError::List(field.to_owned())),
            Value::Null | Value::Object(_) => {
                return Err(SelectorError::BadExpression { field: field.into(), expression: value.to_string() });
            }
        };
        let bad = || SelectorError::BadExpression { field: field.into(), expression: written.clone() };
        let word = |name: &str| {
            written.strip_prefix(name).filter(|rest| rest.starts_with(char::is_whitespace)).map(str::trim_start)
        };
        if let Some(list) = word("in") {
            let items: Vec<String> = list.split(',').map(|item| item.trim().to_owned()).collect();
            if items.iter().any(String::is_empty) {
                return Err(bad());
            }
            return match field {
                "size" => {
                    Ok(Self::SizeIn(items.iter().map(|s| parse_size(s)).collect::<Result<_, _>>()?, written.clone()))
                }
                "rotational" => Err(bad()),
                _ => Ok(Self::Text { operator: TextOperator::Is, values: items, written: written.clone() }),
            };
        }
        if let Some(pattern) = word("glob") {
            return match field {
                "size" | "rotational" => Err(bad()),
                _ if pattern.is_empty() => Err(bad()),
                _ => Ok(Self::Text {
                    operator: TextOperator::Glob,
                    values: vec![pattern.to_owned()],
                    written: written.clone(),
                }),
            };
        }
        let (operator, orderings, operand) = OPERATORS
            .iter()
            .find_map(|(name, orderings)| written.strip_prefix(name).map(|rest| (*name, *orderings, rest.trim())))
            .unwrap_or(("", EQUAL, written.as_str()));
        match field {
            "size" => Ok(Self::Size(orderings.to_vec(), parse_size(operand)?, written.clone())),
            _ if matches!(operator, "<" | "<=" | ">" | ">=") => {
                Err(SelectorError::NotOrdered { field: field.into(), operator })
            }
            "byId" if operator == "!=" => Err(SelectorError::NotNegated),
            "rotational" => {
                let truth = match operand {
                    "true" => true,
                    "false" => false,
                    other => return Err(SelectorError::BadBoolean { field: field.into(), value: other.into() }),
                };
                Ok(Self::Truth { wanted: truth == (operator != "!=") })
            }
            _ if operand.is_empty() => Err(bad()),
            _ => {
                let operator = if operator == "!=" { TextOperator::IsNot } else { TextOperator::Is };
                Ok(Self::Text { operator, values: vec![operand.to_owned()], written: written.clone() })
            }
        }
    }

    /// Why the disk does not pass, or `None` if it does.
    fn mismatch(&self, field: &str, disk: &DiskFacts) -> Option<String> {
        let size = disk.id.size_bytes;
        let fails = |holds: bool, is: &str, wanted: &str| (!holds).then(|| format!("{field} is {is}, not {wanted}"));
        match self {
            Self::Size(orderings, wanted, written) => {
                fails(orderings.contains(&size.cmp(wanted)), &size.to_string(), written)
            }
            Self::SizeIn(values, written) => fails(values.contains(&size), &size.to_string(), written),
            Self::Truth { wanted } => {
                fails(disk.rotational == *wanted, &disk.rotational.to_string(), &wanted.to_string())
            }
            Self::Text { operator, values, written } => {
                let actual = texts_of(field, disk);
                let plain = |value| plain(field, value);
                let any = |matches: fn(&str, &str) -> bool| {
                    actual.iter().any(|text| values.iter().any(|value| matches(plain(value), plain(text))))
                };
                let holds = match operator {
                    TextOperator::Is => any(|value, text| value == text),
                    TextOperator::IsNot => !any(|value, text| value == text),
                    TextOperator::Glob => any(glob),
                };
                fails(holds, &format!("\"{}\"", actual.join(", ")), &format!("\"{written}\""))
            }
        }
    }
}

/// A value without the directory that people may write in front of it.
fn plain<'v>(field: &str, value: &'v str) -> &'v str {
    let directory = match field {
        "name" => DEVICES,
        "byId" => BY_ID,
        _ => "",
    };
    value.strip_prefix(directory).unwrap_or(value)
}

/// What a disk has for a field: of by-id names it has several, or none.
fn texts_of<'a>(field: &str, disk: &'a DiskFacts) -> Vec<&'a str> {
    let text: &str = match field {
        "byId" => return disk.by_id.iter().map(String::as_str).collect(),
        "wwn" => &disk.id.wwn,
        "serial" => &disk.id.serial,
        "model" => &disk.id.model,
        "vendor" => &disk.vendor,
        "path" => &disk.id.path,
        "hctl" => &disk.hctl,
        "name" => &disk.id.name,
        // `parse` has let no other field through.
        _ => &disk.transport,
    };
    vec![text]
}

/// Bytes of a number with an optional unit; a fraction is rounded down to whole bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, SelectorError> {
    let bad = || SelectorError::BadSize(text.to_owned());
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit: u128 = match text[split..].trim_start() {
        "" | "B" => 1,
        "KB" | "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(bad()),
    };
    let (whole, fraction) = text[..split].split_once('.').unwrap_or((&text[..split], "0"));
    // Nine digits of a fraction say more than any disk's size needs, and keep the sum below far from overflow.
    if whole.is_empty() || whole.len() > 20 || fraction.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return Err(bad());
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| bad())?);
    let whole: u128 = whole.parse().map_err(|_| bad())?;
    let fraction: u128 = fraction.parse().map_err(|_| bad())?;
    u64::try_from(whole * unit + fraction * unit / scale).map_err(|_| bad())
}

/// Whether `text` matches `pattern`, where `*` stands for any run of characters and `?` for any one. Linear in practice:
/// only the last `*` is ever tried again.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    p = after + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskId;

    fn disk() -> DiskFacts {
        DiskFacts {
            id: DiskId {
                wwn: "0x5000c500a1b2c3d4".into(),
                serial: "S4EVNF0M".into(),
                path: "pci-0000:00:04.0".into(),
                name: "sda".into(),
                model: "Samsung SSD 870".into(),
                size_bytes: 480 * 1_000_000_000,
            },
            vendor: "ATA".into(),
            transport: "sata".into(),
            rotational: false,
            hctl: "0:0:1:0".into(),
            by_id: vec!["ata-Samsung_SSD_870_EVO_480GB_S4EVNF0M".into(), "wwn-0x5000c500a1b2c3d4".into()],
            ..DiskFacts::default()
        }
    }

    fn check(field: &str, value: impl Into<Value>) -> Result<bool, SelectorError> {
        let selector = DiskSelector(BTreeMap::from([(field.to_owned(), value.into())]));
        assert_eq!(selector.validate().err(), selector.mismatches(&disk()).err());
        selector.mismatches(&disk()).map(|why| why.is_empty())
    }

    #[test]
    fn every_operator_does_what_it_says() {
        for (field, value, matches) in [
            ("serial", "S4EVNF0M", true),
            ("serial", "= S4EVNF0M", true),
            ("serial", "s4evnf0m", false),
            ("serial", "!= S4EVNF0M", false),
            ("serial", "in A, S4EVNF0M,B", true),
            ("serial", "in A,B", false),
            ("model", "glob Samsung*", true),
            ("model", "glob *SSD ???", true),
            ("model", "glob *HDD*", false),
            ("name", "/dev/sda", true),
            ("name", "in sda,sdb", true),
            ("size", "480GB", true),
            ("size", ">= 400 GiB", true),
            ("size", "> 480GB", false),
            ("size", ">=480GB", true),
            ("size", "< 0.5TB", true),
            ("size", "<= 479.999GB", false),
            ("size", "!=1TiB", true),
            ("size", "in 1TB, 480GB", true),
            ("transport", "!= usb", true),
            ("hctl", "0:0:1:0", true),
            ("vendor", "ATA", true),
            ("path", "glob pci-0000:00:*", true),
            ("wwn", "0x5000c500a1b2c3d4", true),
            ("byId", "wwn-0x5000c500a1b2c3d4", true),
            ("byId", "/dev/disk/by-id/ata-Samsung_SSD_870_EVO_480GB_S4EVNF0M", true),
            ("byId", "glob /dev/disk/by-id/ata-*", true),
            ("byId", "wwn-0x5000c500a1b2c3d5", false),
            ("rotational", "false", true),
            ("rotational", "!= false", false),
        ] {
            assert_eq!(check(field, value), Ok(matches), "{field}: {value}");
        }
    }

    #[test]
    fn plain_scalars_of_any_type_mean_equality() {
        assert_eq!(check("rotational", false), Ok(true));
        assert_eq!(check("rotational", true), Ok(false));
        assert_eq!(check("size", 480_000_000_000_u64), Ok(true));
    }

    #[test]
    fn an_invalid_selector_names_its_field_and_a_fix() {
        assert_eq!(check("colour", "red"), Err(SelectorError::UnknownField("colour".into())));
        assert!(matches!(check("size", "big"), Err(SelectorError::BadSize(_))));
        assert!(matches!(check("size", "99999999999TiB"), Err(SelectorError::BadSize(_))));
        assert!(matches!(check("size", "1.2.3GB"), Err(SelectorError::BadSize(_))));
        assert!(matches!(check("model", "> 3"), Err(SelectorError::NotOrdered { .. })));
        assert_eq!(check("byId", "!= ata-X"), Err(SelectorError::NotNegated));
        assert!(matches!(check("rotational", "yes"), Err(SelectorError::BadBoolean { .. })));
        for (field, value) in [("serial", "in a,,b"), ("serial", ""), ("serial", "="), ("size", "glob 4*")] {
            assert!(matches!(check(field, value), Err(SelectorError::BadExpression { .. })), "{field}: {value}");
        }
        assert_eq!(check("model", serde_json::json!(["a"])), Err(SelectorError::List("model".into())));
        assert!(matches!(check("model", serde_json::json!({})), Err(SelectorError::BadExpression { .. })));
    }

    #[test]
    fn each_field_that_disagrees_says_why() {
        let selector = DiskSelector(BTreeMap::from([
            ("serial".to_owned(), "X".into()),
            ("size".to_owned(), "> 1TB".into()),
            ("vendor".to_owned(), "ATA".into()),
        ]));
        assert_eq!(
            selector.mismatches(&disk()).unwrap(),
            ["serial is \"S4EVNF0M\", not \"X\"", "size is 480000000000, not > 1TB"]
        );
        assert!(DiskSelector::default().mismatches(&disk()).unwrap().is_empty());
    }
}
