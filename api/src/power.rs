//! How a machine without a BMC is switched on.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::MacAddr;

/// How a machine without a BMC is switched on; one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum PowerSpec {
    /// By a magic packet to its ports. It is switched on so, and nothing else: not off, no boot device is set, and its power is not known.
    WakeOnLan(WakeOnLan),
    /// By a person, as a machine is that states nothing here.
    Manual(ManualPower),
}

/// What tells a person which machine it is. `{}` says nothing more.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ManualPower {
    /// Where the machine and its button are, such as `rack r7, slot 3`: shown where a person is to switch it on. One line, at most 200
    /// characters.
    pub message: Option<String>,
}

/// Where a machine's magic packet goes. `{}` is what most have.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WakeOnLan {
    /// The ports that wake the machine. Default: those of `spec.identity.macs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<MacAddr>,
    /// Where the packet is sent to. Default: `255.255.255.255`, all of the network that the coordinator's `advertise` is in. For another
    /// network its broadcast address, such as `192.0.2.255`, if its router lets such packets pass.
    pub address: Option<Ipv4Addr>,
    /// The UDP port. Default 9.
    pub port: Option<u16>,
}
