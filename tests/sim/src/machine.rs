//! A simulated machine: who it is, what it is made of, what its disk carries.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use landfall_api::message::{Identity, Vitals};
use landfall_api::{
    CpuFacts, DiskFacts, DiskId, DiskReceipt, FirmwareFacts, FirmwareMode, MacAddr, MachineFacts, NicFacts, SmbiosFacts,
};
use landfall_session::{Host, Looking, Seen, boot_time};
use uuid::Uuid;

use crate::chance::Chance;

/// A machine of the fleet. Two made from one seed and number are alike.
#[derive(Debug)]
pub struct Machine {
    /// Its document's name.
    pub name: String,
    /// Its first port's address.
    pub mac: MacAddr,
    /// As /proc/sys/kernel/random/boot_id.
    pub boot_id: String,
    facts: MachineFacts,
    receipts: Mutex<Vec<DiskReceipt>>,
}

impl Machine {
    /// The `number`th machine of the fleet that `seed` makes.
    pub fn new(seed: u64, number: u32) -> Self {
        let mut chance = Chance::new(seed ^ (u64::from(number) << 20));
        let [_, a, b, c] = number.to_be_bytes();
        // Locally administered addresses, one block of 256 a machine's number and port.
        let port = |n: u8| MacAddr([0x02, n, 0x4c, a, b, c]);
        let nics = (0..4u8)
            .map(|n| NicFacts {
                name: format!("enp{}s0f{}", 65 + n / 2, n % 2),
                mac: port(n),
                driver: "ice".into(),
                firmware: "4.40 0x8001c7d4 1.3534.0".into(),
                speed_mbit: (n < 2).then_some(25_000),
                carrier: n < 2,
                address: format!("0000:{:02x}:00.{}", 65 + n / 2, n % 2),
                neighbour: None,
            })
            .collect();
        let disks = (0..2)
            .map(|n| DiskFacts {
                id: DiskId {
                    wwn: format!("eui.{:016x}", chance.next()),
                    serial: format!("S6{:010X}", chance.next() >> 24),
                    path: format!("pci-0000:{:02x}:00.0-nvme-1", 0xc1 + n),
                    name: format!("nvme{n}n1"),
                    model: "SAMSUNG MZQL21T9HCJR-00A07".into(),
                    size_bytes: 1_920_383_410_176,
                },
                vendor: String::new(),
                transport: "nvme".into(),
                rotational: false,
                hctl: String::new(),
                by_id: Vec::new(),
                logical_sector_bytes: 512,
                physical_sector_bytes: 4096,
                read_only: false,
                health: None,
                contents: None,
            })
            .collect();
        let facts = MachineFacts {
            smbios: SmbiosFacts {
                uuid: uuid(&mut chance).to_string(),
                serial: format!("CZ{:08}", chance.below(100_000_000)),
                manufacturer: "Dell Inc.".into(),
                product: "PowerEdge R6615".into(),
            },
            cpu: CpuFacts {
                model: "AMD EPYC 9354P 32-Core Processor".into(),
                logical: 64,
                architecture: std::env::consts::ARCH.into(),
                sockets: 1,
                cores: 32,
                flags: Vec::new(),
            },
            memory_bytes: 405_874_671_616,
            disks,
            nics,
            firmware: FirmwareFacts {
                mode: FirmwareMode::Uefi,
                version: "1.7.2".into(),
                secure_boot: Some(false),
                setup_mode: None,
            },
            ..MachineFacts::default()
        };
        Self {
            name: format!("m{number:05}"),
            mac: port(0),
            boot_id: uuid(&mut chance).to_string(),
            facts,
            receipts: Mutex::default(),
        }
    }

    /// Who it says it is.
    pub fn identity(&self) -> Identity {
        Identity {
            smbios_uuid: self.facts.smbios.uuid.parse().ok(),
            serial: self.facts.smbios.serial.clone(),
            macs: self.facts.nics.iter().map(|nic| nic.mac).collect(),
        }
    }

    /// The disk that installs go to.
    pub fn disk(&self) -> DiskId {
        self.facts.disks.first().map(|disk| disk.id.clone()).unwrap_or_default()
    }

    /// The disk's receipt from now on.
    pub fn carry(&self, receipt: DiskReceipt) {
        *self.receipts.lock().unwrap_or_else(PoisonError::into_inner) = vec![receipt];
    }
}

fn uuid(chance: &mut Chance) -> Uuid {
    let (high, low) = (chance.next(), chance.next());
    uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid()
}

impl Host for Machine {
    fn look(&self) -> Looking<'_> {
        Seen {
            facts: self.facts.clone(),
            ..Seen::disks(
                self.facts.disks.iter().map(|disk| disk.id.clone()).collect(),
                self.receipts.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            )
        }
        .at_once()
    }
    fn vitals(&self) -> Vitals {
        Vitals { uptime: boot_time().min(Duration::from_secs(u64::from(u32::MAX))), peak_rss_bytes: 48 << 20 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_fleet_is_reproducible_and_its_machines_differ() {
        let fleet = || (0..2000).map(|n| Machine::new(7, n)).collect::<Vec<_>>();
        let (one, two) = (fleet(), fleet());
        assert!(one.iter().zip(&two).all(|(a, b)| (a.identity(), a.disk()) == (b.identity(), b.disk())));
        let macs: HashSet<_> = one.iter().flat_map(|m| m.identity().macs).collect();
        assert_eq!(macs.len(), 8000);
        assert_ne!(one[0].disk(), Machine::new(8, 0).disk());
    }
}
