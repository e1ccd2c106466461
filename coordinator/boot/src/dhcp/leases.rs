//! The addresses of the full server: who has which, until when. Pure: time comes in, nothing is read or written.
//!
//! A lease belongs to an Ethernet address, not to a client identifier: firmware, iPXE, agent and installed system each
//! send another identifier and must all get the same address. Which one is settled by a hash, so that a machine keeps its
//! address even when every lease was lost.
//!
//! The file of leases ([`super::lease_file`]) gives each lease one lease time more than its client was promised. So a renewal
//! that only moves the end, or a machine that asks several times in one boot, changes nothing on the disk until that spare
//! time is used up; and whenever the process or the power fails, no lease ends earlier in the file than its client knows.
//! The price: after a restart an address that was not renewed stays reserved for one lease time more.
//!
//! A machine's document may reserve an address ([`Reservations`]), also outside of the range: its port gets that one, and no other
//! client does. A host that has it when it is reserved is asked to leave at its next renewal; until then the port gets another one.
//!
//! Unknown machines (served with `dhcp.discovery`) hold at most half of the range, and an offer to them is withdrawn
//! for a described machine: so forged Ethernet addresses lock no machine out.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use landfall_api::MacAddr;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::AddressRange;
use crate::policy::Reservations;

/// An unused offer is free again after this.
pub const OFFER_LIFE: Duration = Duration::from_secs(60);
/// An address that a client found in use is not leased for this time.
pub const DECLINED_LIFE: Duration = Duration::from_secs(600);
/// The widest range: bounds the memory and the lease file (about 1 MB).
pub const MAX_RANGE: u32 = 1 << 14;

/// What an address is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseState {
    /// Offered, not asked for yet.
    Offered,
    /// Given.
    Bound,
    /// Another host uses it.
    Declined,
}

/// One address in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its holder; of a declined one, who declined it.
    pub mac: MacAddr,
    /// What it is doing.
    pub state: LeaseState,
    /// Unix time in seconds from which it is free again.
    pub until: u64,
    /// No document described the machine when the address was leased.
    #[serde(rename = "stranger", default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// A document reserved the address for it, so that it need not be in the range.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserved: bool,
}

/// The client that requests an address.
#[derive(Clone, Copy)]
pub struct Holder<'r> {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// No document describes it.
    pub unknown: bool,
    /// What is reserved.
    pub reservations: &'r dyn Reservations,
}

/// Why a range cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RangeError(String);

/// The addresses of one range.
#[derive(Debug, Clone)]
pub struct Pool {
    first: u32,
    count: u32,
    /// The first and last address that may be reserved.
    subnet: (u32, u32),
    /// What in between may not.
    unreservable: Vec<Ipv4Addr>,
    excluded: Vec<Ipv4Addr>,
    leases: BTreeMap<Ipv4Addr, Lease>,
    by_mac: BTreeMap<MacAddr, Ipv4Addr>,
    /// What the file is to have: no offers, and ends with the spare time.
    kept: BTreeMap<Ipv4Addr, Lease>,
    revision: u64,
}

impl Pool {
    /// An empty pool. `excluded` addresses (servers, routers) are never given out.
    ///
    /// # Errors
    /// [`RangeError`] for a range that is too wide.
    pub fn new(range: AddressRange, excluded: Vec<Ipv4Addr>) -> Result<Self, RangeError> {
        let first = u32::from(range.first);
        let width = u32::from(range.last).checked_sub(first).filter(|w| *w < MAX_RANGE);
        let Some(width) = width else {
            return Err(RangeError(format!("{}-{} has more than {MAX_RANGE} addresses", range.first, range.last)));
        };
        Ok(Self {
            first,
            count: width + 1,
            subnet: (first, u32::from(range.last)),
            unreservable: excluded.clone(),
            excluded,
            leases: BTreeMap::new(),
            by_mac: BTreeMap::new(),
            kept: BTreeMap::new(),
            revision: 0,
        })
    }

    /// The same pool; every address of the subnet may be reserved but for these, also one that is given to no other client, such as a
    /// router's.
    #[must_use]
    pub fn within(self, netmask: Ipv4Addr, unreservable: Vec<Ipv4Addr>) -> Self {
        let mask = u32::from(netmask);
        Self { subnet: (self.first & mask, self.first | !mask), unreservable, ..self }
    }

    /// Takes in kept leases. Those outside the range that were not reserved, or contradicting an earlier one, are left out. None ends later than
    /// `latest`: one that does is of a time at which the clock was ahead, and would keep its address for as long.
    pub fn restore(&mut self, kept: impl IntoIterator<Item = (Ipv4Addr, Lease)>, latest: u64) {
        for (address, lease) in kept {
            let lease = Lease { until: lease.until.min(latest), ..lease };
            let fits = self.usable(address) || lease.reserved && self.reservable(address);
            if !fits || self.leases.contains_key(&address) {
                continue;
            }
            if lease.state != LeaseState::Declined {
                if self.by_mac.contains_key(&lease.mac) {
                    continue;
                }
                self.by_mac.insert(lease.mac, address);
            }
            self.leases.insert(address, lease);
            self.kept.insert(address, lease);
        }
    }

    /// What is to be kept over a restart: no offers, and each lease with its spare time.
    pub fn kept(&self) -> BTreeMap<Ipv4Addr, Lease> {
        self.kept.clone()
    }

    /// Grows whenever [`Pool::kept`] has changed.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the address may be given out without a reservation.
    pub fn usable(&self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.first);
        offset < self.count && !self.excluded.contains(&address)
    }

    fn reservable(&self, address: Ipv4Addr) -> bool {
        (self.subnet.0..=self.subnet.1).contains(&u32::from(address)) && !self.unreservable.contains(&address)
    }

    /// The address reserved for this client, if it can have it now.
    fn reserved(&self, client: Holder<'_>, now: u64) -> Option<Ipv4Addr> {
        let reserved = client.reservations.address_for(client.mac).filter(|address| self.reservable(*address))?;
        let free = self.leases.get(&reserved).is_none_or(|lease| match lease.state {
            LeaseState::Offered => true,
            LeaseState::Bound => lease.until <= now || lease.mac == client.mac,
            LeaseState::Declined => lease.until <= now,
        });
        free.then_some(reserved)
    }

    /// Whether the address may be this client's at all.
    fn suits(&self, client: Holder<'_>, address: Ipv4Addr, now: u64) -> bool {
        match self.reserved(client, now) {
            Some(reserved) => reserved == address,
            None => self.usable(address) && client.reservations.reserved_for(address).is_none(),
        }
    }

    /// Who has the address now, if it is leased.
    pub fn holder(&self, address: Ipv4Addr, now: u64) -> Option<MacAddr> {
        let lease = self.leases.get(&address)?;
        (lease.state == LeaseState::Bound && lease.until > now).then_some(lease.mac)
    }

    /// The address this client would get: the one reserved for it, else its own, else the one its hash points at, else the next
    /// free one. Keeps it for [`OFFER_LIFE`]. `None` when every address that it may have is taken.
    pub fn offer(&mut self, client: Holder<'_>, wanted: Option<Ipv4Addr>, now: u64) -> Option<Ipv4Addr> {
        let until = now + OFFER_LIFE.as_secs();
        let own = self.by_mac.get(&client.mac).copied();
        if let Some(reserved) = self.reserved(client, now).filter(|reserved| own != Some(*reserved)) {
            // Where it has another address still, the offer needs no note: no other client gets this one.
            if own.is_none() {
                self.set(reserved, client, LeaseState::Offered, until);
            }
            return Some(reserved);
        }
        if let Some(address) = own.filter(|address| self.suits(client, *address, now)) {
            // A bound lease stays bound: a machine that restarts discovers anew while its lease runs.
            let lease = self.leases.get(&address).copied()?;
            if lease.state == LeaseState::Offered || lease.until <= now {
                self.set(address, client, LeaseState::Offered, until);
            }
            return Some(address);
        }
        if client.unknown && self.held_by_unknown(now) >= self.unknown_share() {
            return None;
        }
        let start = hash(client.mac) % self.count;
        let by_hash = (0..self.count).map(|i| Ipv4Addr::from(self.first + (start + i) % self.count));
        let free = wanted.into_iter().chain(by_hash).find(|a| self.free(*a, now) && self.suits(client, *a, now));
        let address = match free {
            Some(address) => address,
            None if client.unknown => return None,
            None => self.offered_to_an_unknown(client, now)?,
        };
        self.set(address, client, LeaseState::Offered, until);
        Some(address)
    }

    /// Gives the address to the client until `now + life`, if it is the client's or free. The client's other address, if it
    /// had one, becomes free. Says whether it was given.
    pub fn bind(&mut self, client: Holder<'_>, address: Ipv4Addr, life: Duration, now: u64) -> bool {
        let own = self.by_mac.get(&client.mac) == Some(&address);
        let reserved = self.reserved(client, now) == Some(address);
        if !self.suits(client, address, now) || !own && !reserved && !self.free(address, now) {
            return false;
        }
        if !own && client.unknown && self.held_by_unknown(now) >= self.unknown_share() {
            return false;
        }
        let until = now + life.as_secs();
        self.set(address, client, LeaseState::Bound, until);
        let Some(lease) = self.leases.get(&address).copied() else { return false };
        let covers = |kept: &Lease| Lease { until, ..*kept } == lease && kept.until >= until;
        if !self.kept.get(&address).is_some_and(covers) {
            self.keep(address, Lease { until: until + life.as_secs(), ..lease });
        }
        true
    }

    /// How many addresses unknown machines hold now.
    fn held_by_unknown(&self, now: u64) -> u32 {
        // Cannot truncate: a range is far smaller.
        self.leases.values().filter(|l| l.unknown && l.until > now).count() as u32
    }

    /// How many they may hold.
    fn unknown_share(&self) -> u32 {
        (self.count / 2).max(1)
    }

    /// The address that was first offered to an unknown machine.
    fn offered_to_an_unknown(&self, client: Holder<'_>, now: u64) -> Option<Ipv4Addr> {
        let offered = self.leases.iter().filter(|(_, l)| l.unknown && l.state == LeaseState::Offered);
        offered
            .filter(|(address, _)| self.suits(client, **address, now))
            .min_by_key(|(_, l)| l.until)
            .map(|(address, _)| *address)
    }

    /// Takes an offer back that the client did not choose.
    pub fn withdraw(&mut self, mac: MacAddr) {
        if let Some(address) = self.by_mac.get(&mac).copied()
            && self.leases.get(&address).is_some_and(|l| l.state == LeaseState::Offered)
        {
            self.leases.remove(&address);
            self.by_mac.remove(&mac);
        }
    }

    /// The client gives its address back. Says whether it had it.
    pub fn release(&mut self, mac: MacAddr, address: Ipv4Addr) -> bool {
        if self.by_mac.get(&mac) != Some(&address) {
            return false;
        }
        self.by_mac.remove(&mac);
        self.leases.remove(&address);
        self.forget(address);
        true
    }

    /// The client found its address in use by another host. Returns whether the client held it.
    pub fn decline(&mut self, mac: MacAddr, address: Ipv4Addr, now: u64) -> bool {
        if self.by_mac.get(&mac) != Some(&address) {
            return false;
        }
        self.by_mac.remove(&mac);
        let until = now + DECLINED_LIFE.as_secs();
        let Some(lease) = self.leases.get(&address).copied() else { return false };
        let declined = Lease { state: LeaseState::Declined, until, ..lease };
        self.leases.insert(address, declined);
        self.keep(address, declined);
        true
    }

    fn free(&self, address: Ipv4Addr, now: u64) -> bool {
        self.leases.get(&address).is_none_or(|l| l.until <= now)
    }

    /// Keeps both maps in step: one address a client, one client an address.
    fn set(&mut self, address: Ipv4Addr, client: Holder<'_>, state: LeaseState, until: u64) {
        let Holder { mac, unknown, .. } = client;
        let reserved = client.reservations.address_for(mac) == Some(address);
        if let Some(old) = self.by_mac.insert(mac, address)
            && old != address
        {
            self.leases.remove(&old);
            self.forget(old);
        }
        if let Some(before) = self.leases.insert(address, Lease { mac, state, until, unknown, reserved })
            && before.mac != mac
            && self.by_mac.get(&before.mac) == Some(&address)
        {
            self.by_mac.remove(&before.mac);
        }
        if state == LeaseState::Offered {
            self.forget(address);
        }
    }

    fn keep(&mut self, address: Ipv4Addr, lease: Lease) {
        self.kept.insert(address, lease);
        self.revision += 1;
    }

    fn forget(&mut self, address: Ipv4Addr) {
        self.revision += u64::from(self.kept.remove(&address).is_some());
    }
}

/// The same in every version and on every host, unlike the standard library's hashes.
fn hash(mac: MacAddr) -> u32 {
    let digest = Sha256::digest(mac.0);
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests;
