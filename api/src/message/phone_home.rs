//! What the installed system says of itself when it phones home: the body of `POST /phone-home`.

use serde::{Deserialize, Serialize};

/// What the installed system says of itself. What it leaves out is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PhoneHomeReport {
    /// Its host name.
    pub hostname: String,
    /// `/proc/sys/kernel/random/boot_id`
    pub boot_id: String,
    /// `PRETTY_NAME` of its `/etc/os-release`.
    pub os_release: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// `/etc/machine-id`
    pub machine_id: String,
}
