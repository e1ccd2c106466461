//! Machines that netbooted and were not served.

use std::net::IpAddr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::MacAddr;

/// A port that asked the boot services and was not served since: its machine does not boot from here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sighting {
    /// The port's address.
    pub mac: MacAddr,
    /// The machine whose document names the address; absent: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// What asked: `pxe` or `http` (the firmware), `ipxe`, or `agent` (of a boot medium, for a token).
    pub client: String,
    /// The relay that passed the newest request on, or the address it came from; absent: from the port itself, without an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// Why it was not served, and what to do.
    pub reason: String,
    /// When it asked first, of the requests that were not served since.
    pub first_seen: Timestamp,
    /// When it asked last.
    pub last_seen: Timestamp,
    /// How many requests were not served.
    pub requests: u64,
}

/// The answer to `GET …/sightings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SightingList {
    /// The newest first.
    pub items: Vec<Sighting>,
    /// URLs of coordinators that did not answer: what they alone have seen is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}
