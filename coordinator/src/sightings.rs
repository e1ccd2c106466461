//! The ports that netbooted and were not served, until they are. In memory alone: any host can send such requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use landfall_api::{MacAddr, Sighting};
use landfall_boot::policy::{Service, Unserved};

/// Ports that are remembered; a site that has more of them has one reason for all.
const MAX_SIGHTINGS: usize = 1024;

#[derive(Debug)]
struct Seen {
    newest: Unserved,
    first: Timestamp,
    last: Timestamp,
    requests: u64,
}

/// What is remembered.
#[derive(Debug, Default)]
pub struct Sightings(Mutex<BTreeMap<MacAddr, Seen>>);

impl Sightings {
    /// Whether the port is remembered.
    pub fn knows(&self, mac: MacAddr) -> bool {
        self.lock().contains_key(&mac)
    }

    /// A port was not served. With too many of them the one that has been silent longest is dropped.
    pub fn unserved(&self, request: Unserved, now: Timestamp) {
        let mut seen = self.lock();
        let mac = request.mac;
        if !seen.contains_key(&mac)
            && seen.len() >= MAX_SIGHTINGS
            && let Some(oldest) = seen.iter().min_by_key(|(_, seen)| seen.last).map(|(mac, _)| *mac)
        {
            seen.remove(&oldest);
        }
        let fresh = Seen { newest: request.clone(), first: now, last: now, requests: 0 };
        let known = seen.entry(mac).or_insert(fresh);
        (known.newest, known.last, known.requests) = (request, now, known.requests + 1);
    }

    /// A port was served by this service, and so by those that come before it.
    pub fn served(&self, mac: MacAddr, service: Service) {
        let mut seen = self.lock();
        if seen.get(&mac).is_some_and(|seen| seen.newest.service <= service) {
            seen.remove(&mac);
        }
    }

    /// All of them, the newest first. A port whose document was missing is left out once the document is there.
    pub fn list(&self, machine_of: impl Fn(MacAddr) -> Option<String>) -> Vec<Sighting> {
        let shown = |(mac, seen): (&MacAddr, &Seen)| {
            let machine = machine_of(*mac);
            (machine.is_none() || !seen.newest.unknown).then(|| Sighting {
                mac: *mac,
                machine,
                client: seen.newest.client.to_owned(),
                from: seen.newest.from,
                reason: seen.newest.reason.clone(),
                first_seen: seen.first,
                last_seen: seen.last,
                requests: seen.requests,
            })
        };
        merged([self.lock().iter().filter_map(shown).collect()])
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MacAddr, Seen>> {
        // Every change is complete in itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What several coordinators have seen, the newest first. A broadcast reaches many of them, so their requests are not added up: the
/// largest count stands.
pub fn merged(lists: impl IntoIterator<Item = Vec<Sighting>>) -> Vec<Sighting> {
    let mut ports: BTreeMap<MacAddr, Sighting> = BTreeMap::new();
    for sighting in lists.into_iter().flatten() {
        let Some(known) = ports.get_mut(&sighting.mac) else {
            ports.insert(sighting.mac, sighting);
            continue;
        };
        let first_seen = known.first_seen.min(sighting.first_seen);
        let requests = known.requests.max(sighting.requests);
        if sighting.last_seen > known.last_seen {
            *known = sighting;
        }
        (known.first_seen, known.requests) = (first_seen, requests);
    }
    let mut items: Vec<Sighting> = ports.into_values().collect();
    items.sort_by_key(|sighting| std::cmp::Reverse(sighting.last_seen));
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(n: u16) -> MacAddr {
        let [high, low] = n.to_be_bytes();
        MacAddr([2, 0, 0, 0, high, low])
    }

    fn request(n: u16, service: Service, unknown: bool) -> Unserved {
        Unserved { mac: mac(n), service, client: "pxe", from: None, unknown, reason: format!("{service:?}") }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn no_machine(_: MacAddr) -> Option<String> {
        None
    }

    #[test]
    fn a_sighting_ends_when_its_port_is_served() {
        let sightings = Sightings::default();
        sightings.unserved(request(1, Service::Dhcp, true), at(1));
        sightings.unserved(request(1, Service::Http, true), at(5));
        let seen = sightings.list(no_machine).remove(0);
        assert_eq!((seen.reason.as_str(), seen.requests), ("Http", 2));
        assert_eq!((seen.first_seen, seen.last_seen), (at(1), at(5)));
        sightings.served(mac(1), Service::Dhcp);
        assert_eq!(sightings.list(no_machine).len(), 1, "an address alone boots nothing");
        assert!(sightings.list(|_| Some("web-1".into())).is_empty(), "its document is there now");
        sightings.served(mac(1), Service::Http);
        assert!(sightings.list(no_machine).is_empty());
    }

    #[test]
    fn a_described_machine_is_named_newest_first() {
        let sightings = Sightings::default();
        sightings.unserved(request(1, Service::Dhcp, false), at(1));
        sightings.unserved(request(2, Service::Dhcp, true), at(2));
        let listed = sightings.list(|mac| (mac == self::mac(1)).then(|| "web-1".to_owned()));
        let named: Vec<_> = listed.iter().map(|seen| (seen.mac, seen.machine.as_deref())).collect();
        assert_eq!(named, [(mac(2), None), (mac(1), Some("web-1"))]);
    }

    #[test]
    fn a_port_that_several_coordinators_saw_is_one() {
        let [one, two] = [(at(1), 2), (at(2), 1)].map(|(begun, times)| {
            let sightings = Sightings::default();
            (0..times).for_each(|_| sightings.unserved(request(1, Service::Dhcp, true), begun));
            sightings.unserved(request(begun.as_second() as u16 + 1, Service::Http, true), at(9));
            sightings.list(no_machine)
        });
        let listed = merged([one, two]);
        let shown: Vec<_> = listed.iter().map(|s| (s.mac, s.first_seen, s.last_seen, s.requests)).collect();
        let expected = [(mac(2), at(9), at(9), 1), (mac(3), at(9), at(9), 1), (mac(1), at(1), at(2), 2)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn forged_addresses_take_bounded_room() {
        let sightings = Sightings::default();
        for n in 0..3000 {
            sightings.unserved(request(n, Service::Dhcp, true), at(n.into()));
        }
        let left = sightings.list(no_machine);
        assert_eq!((left.len(), left[0].mac), (MAX_SIGHTINGS, mac(2999)));
    }
}
