//! The addresses that machines' documents reserve for their ports.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use landfall_api::{MacAddr, Reservation};

/// By port and by address, each with the machine whose document says so.
#[derive(Debug, Default)]
pub(in crate::engine) struct Reservations {
    by_port: HashMap<MacAddr, (Ipv4Addr, String)>,
    by_address: HashMap<Ipv4Addr, (MacAddr, String)>,
}

impl Reservations {
    pub(super) fn put(&mut self, machine: &str, reserved: &[Reservation]) {
        for Reservation { mac, address } in reserved {
            self.by_port.insert(*mac, (*address, machine.to_owned()));
            self.by_address.insert(*address, (*mac, machine.to_owned()));
        }
    }

    /// Forgets what a machine's document said; another's stays.
    pub(super) fn remove(&mut self, machine: &str, reserved: &[Reservation]) {
        for Reservation { mac, address } in reserved {
            if self.machine_of_port(*mac) == Some(machine) {
                self.by_port.remove(mac);
            }
            if self.machine_of_address(*address) == Some(machine) {
                self.by_address.remove(address);
            }
        }
    }

    /// The address reserved for a port.
    pub(in crate::engine) fn address_for(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.by_port.get(&mac).map(|(address, _)| *address)
    }

    /// The port that an address is reserved for.
    pub(in crate::engine) fn reserved_for(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.by_address.get(&address).map(|(mac, _)| *mac)
    }

    /// The machine whose document reserves an address for that port.
    pub(in crate::engine) fn machine_of_port(&self, mac: MacAddr) -> Option<&str> {
        self.by_port.get(&mac).map(|(_, machine)| machine.as_str())
    }

    /// The machine whose document reserves that address.
    pub(in crate::engine) fn machine_of_address(&self, address: Ipv4Addr) -> Option<&str> {
        self.by_address.get(&address).map(|(_, machine)| machine.as_str())
    }
}
