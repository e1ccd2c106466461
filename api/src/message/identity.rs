//! Which computer speaks.

use uuid::Uuid;

use crate::MacAddr;

/// What firmware and hardware say about which computer this is. The agent leaves placeholders out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// SMBIOS system UUID, in the byte order the firmware's setup pages show; `None` if the firmware has a placeholder.
    pub smbios_uuid: Option<Uuid>,
    /// SMBIOS system serial number; empty if the firmware has a placeholder.
    pub serial: String,
    /// The address of every port.
    pub macs: Vec<MacAddr>,
}
