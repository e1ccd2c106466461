//! A disk's identity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A disk, by facts that do not move.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskId {
    /// World-wide name; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn: String,
    /// Serial number; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// Path on the bus, such as `pci-0000:00:04.0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The kernel's name at the time; for people, never compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Model; for people, never compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Capacity, bytes.
    pub size_bytes: u64,
}

impl DiskId {
    /// Whether both name the same disk: by wwn if both have one, else by serial if both have one. A disk keeps these when
    /// it is resized or moves to another slot, and a newer driver may report a wwn that an older one did not. Only if
    /// neither disk has any of the two: by path and capacity.
    pub fn same_disk(&self, other: &Self) -> bool {
        let by = |a: &str, b: &str| (!a.is_empty() && !b.is_empty()).then(|| a == b);
        let nameless = |disk: &Self| disk.wwn.is_empty() && disk.serial.is_empty();
        let by_place = || {
            nameless(self)
                && nameless(other)
                && self.size_bytes == other.size_bytes
                && by(&self.path, &other.path) == Some(true)
        };
        by(&self.wwn, &other.wwn).or_else(|| by(&self.serial, &other.serial)).unwrap_or_else(by_place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(wwn: &str, serial: &str, path: &str, size_bytes: u64) -> DiskId {
        let text = str::to_owned;
        DiskId { wwn: text(wwn), serial: text(serial), path: text(path), size_bytes, ..DiskId::default() }
    }

    #[test]
    fn a_disk_is_known_by_what_does_not_change() {
        for (case, a, b, same) in [
            ("resized", disk("w", "s", "p", 1), disk("w", "s", "p", 2), true),
            ("resized, serial alone", disk("", "s", "p", 1), disk("", "s", "p", 2), true),
            ("in another slot", disk("", "s", "p", 1), disk("", "s", "q", 1), true),
            ("now with a wwn", disk("", "s", "p", 1), disk("w", "s", "p", 1), true),
            // A place on the bus proves nothing where there is a name.
            ("with a name where another had none", disk("", "", "p", 1), disk("w", "s", "p", 1), false),
            ("names of two kinds", disk("w", "", "p", 1), disk("", "s", "p", 1), false),
            ("another wwn", disk("w", "s", "p", 1), disk("x", "s", "p", 1), false),
            ("another serial in the same slot", disk("", "s", "p", 1), disk("", "t", "p", 1), false),
            ("another serial, now with a wwn", disk("", "s", "p", 1), disk("w", "t", "p", 1), false),
            ("another size in the same slot", disk("", "", "p", 1), disk("", "", "p", 2), false),
            ("another slot", disk("", "", "p", 1), disk("", "", "q", 1), false),
            ("nothing to go by", disk("", "", "", 1), disk("", "", "", 1), false),
        ] {
            assert_eq!((a.same_disk(&b), b.same_disk(&a)), (same, same), "{case}");
        }
    }
}
