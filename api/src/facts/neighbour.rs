//! Where a port is plugged in.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MachineFacts, TpmFacts};

/// What is at the other end of a port's cable, as it announces itself by LLDP. Nothing proves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Neighbour {
    /// The switch: its name, as it is configured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The switch's identifier: a MAC address, an address, or a name.
    pub chassis: String,
    /// The switch's port, such as `Ethernet17/1`.
    pub port: String,
    /// The port's description, as it is configured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port_description: String,
    /// What the switch is: maker, model, software.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where the switch is managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_address: Option<IpAddr>,
    /// The VLAN of frames without a tag, 1 to 4094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}

impl MachineFacts {
    /// Takes over from `before` what this look had no answer for: neighbours, and disks' health.
    pub fn keep_unanswered(&mut self, before: &Self) {
        self.keep_neighbours(before);
        for disk in self.disks.iter_mut().filter(|disk| disk.health.is_none()) {
            let same = before.disks.iter().find(|known| known.id.same_disk(&disk.id));
            disk.health = same.and_then(|known| known.health.clone());
        }
        self.bmc = self.bmc.take().or_else(|| before.bmc.clone());
        // The same TPM, as far as it tells without its key.
        let same =
            |tpm: &TpmFacts, known: &TpmFacts| (tpm.version, &tpm.description) == (known.version, &known.description);
        if let (Some(tpm), Some(known)) = (&mut self.tpm, &before.tpm)
            && same(tpm, known)
        {
            tpm.endorsement_key = tpm.endorsement_key.or(known.endorsement_key);
        }
    }

    /// A port is where it was until it hears of another, also while it has no link; and a switch announces itself every half minute only.
    fn keep_neighbours(&mut self, before: &Self) {
        for nic in self.nics.iter_mut().filter(|nic| nic.neighbour.is_none()) {
            let same = before.nics.iter().find(|known| known.mac == nic.mac);
            nic.neighbour = same.and_then(|known| known.neighbour.clone());
        }
    }
}
