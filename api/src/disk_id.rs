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
    /// Whether both name the same disk: by wwn if either has one, else by serial if either has one, else by path; and
    /// the capacity is equal.
    pub fn same_disk(&self, other: &Self) -> bool {
        let by = |a: &str, b: &str| (!a.is_empty() || !b.is_empty()).then(|| a == b);
        self.size_bytes == other.size_bytes
            && by(&self.wwn, &other.wwn)
                .or_else(|| by(&self.serial, &other.serial))
                .or_else(|| by(&self.path, &other.path))
                .unwrap_or(false)
    }
}
