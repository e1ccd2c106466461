//! The pool alone: who gets which address, and what a restart keeps.

use proptest::prelude::*;

use super::*;

fn pool(last: u8) -> Pool {
    let range = AddressRange { first: Ipv4Addr::new(10, 0, 0, 10), last: Ipv4Addr::new(10, 0, 0, last) };
    Pool::new(range, vec![Ipv4Addr::new(10, 0, 0, 11)]).unwrap()
}

fn mac(n: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0, 0, n])
}

/// The last octet of each reserved address, by that of the port.
struct Reserved(&'static [(u8, u8)]);

impl Reservations for Reserved {
    fn address_for(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        let found = self.0.iter().find(|(port, _)| *port == mac.0[5])?;
        Some(Ipv4Addr::new(10, 0, 0, found.1))
    }
    fn reserved_for(&self, address: Ipv4Addr) -> Option<MacAddr> {
        let found = self.0.iter().find(|(_, last)| Ipv4Addr::new(10, 0, 0, *last) == address)?;
        Some(mac(found.0))
    }
}

fn known(n: u8) -> Holder<'static> {
    Holder { mac: mac(n), unknown: false, reservations: &Reserved(&[]) }
}

fn unknown(n: u8) -> Holder<'static> {
    Holder { unknown: true, ..known(n) }
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_machine_keeps_its_address_without_stored_leases() {
    let first = pool(200).offer(known(7), None, 0).unwrap();
    assert_eq!(pool(200).offer(known(7), None, 999).unwrap(), first);
}

#[test]
fn no_lease_of_a_clock_ahead_keeps_its_address() {
    let mut before = pool(200);
    let address = before.offer(known(1), None, 10_000_000).unwrap();
    assert!(before.bind(known(1), address, HOUR, 10_000_000));
    let mut after = pool(200);
    after.restore(before.kept(), 7200);
    assert_eq!(after.holder(address, 7199), Some(known(1).mac));
    assert_eq!(after.holder(address, 7200), None);
}

#[test]
fn a_full_range_gives_nothing_until_a_lease_ends() {
    let mut pool = pool(12); // 10.0.0.10 and 10.0.0.12; .11 is excluded
    for n in 1..=2 {
        let address = pool.offer(known(n), None, 0).unwrap();
        assert!(pool.bind(known(n), address, HOUR, 0));
    }
    assert_eq!(pool.offer(known(3), None, 3599), None);
    assert!(pool.offer(known(3), None, 3600).is_some());
}

#[test]
fn a_declined_address_is_not_leased_again() {
    let mut pool = pool(20);
    let address = pool.offer(known(1), None, 0).unwrap();
    assert!(pool.bind(known(1), address, HOUR, 0));
    assert!(!pool.decline(mac(2), address, 1), "only its holder may decline it");
    assert!(pool.decline(mac(1), address, 1));
    assert_ne!(pool.offer(known(1), Some(address), 2).unwrap(), address);
}

#[test]
fn a_reserved_address_is_its_ports_alone() {
    let wide = || pool(20).within(Ipv4Addr::new(255, 255, 255, 0), vec![Ipv4Addr::new(10, 0, 0, 1)]);
    let (mut pool, address) = (wide(), |last| Ipv4Addr::new(10, 0, 0, last));
    // Before anything is reserved, ports 1 and 2 have a lease.
    assert!(pool.bind(known(1), address(16), HOUR, 0) && pool.bind(known(2), address(15), HOUR, 0));
    // One in the range, one outside, one that no other client gets, one that none gets.
    let reserved = &Reserved(&[(1, 15), (3, 200), (4, 11), (5, 1)]);
    let of = |n| Holder { reservations: reserved, ..known(n) };
    // Port 2 still has it: port 1 keeps its own, and port 2 learns of it when it renews.
    assert_eq!(pool.offer(of(1), None, 1), Some(address(16)));
    assert!(pool.bind(of(1), address(16), HOUR, 1) && !pool.bind(of(2), address(15), HOUR, 2));
    let moved = pool.offer(of(2), Some(address(15)), 2).unwrap();
    assert!(moved != address(15) && pool.bind(of(2), moved, HOUR, 2));
    // An offer alone takes nothing away.
    assert_eq!(pool.offer(of(1), None, 3), Some(address(15)));
    assert_eq!(pool.holder(address(16), 3), Some(mac(1)));
    assert!(!pool.bind(of(1), address(16), HOUR, 3) && pool.bind(of(1), address(15), HOUR, 3));
    assert_eq!(pool.holder(address(16), 3), None);
    for (port, last) in [(3, 200), (4, 11)] {
        assert_eq!(pool.offer(of(port), None, 3), Some(address(last)));
        assert!(pool.bind(of(port), address(last), HOUR, 3));
    }
    assert!(pool.usable(pool.clone().offer(of(5), None, 3).unwrap()), "the coordinator's own is not given");
    let all: Vec<_> = (20..40).filter_map(|n| pool.offer(of(n), Some(address(200)), 4)).collect();
    assert!(all.iter().all(|given| pool.usable(*given) && *given != address(15)), "{all:?}");
    // After a restart the machine with the address outside of the range is still known by it.
    let mut after = wide();
    after.restore(pool.kept(), u64::MAX);
    assert_eq!((after.holder(address(200), 5), after.holder(address(15), 5)), (Some(mac(3)), Some(mac(1))));
    assert!(!after.bind(known(3), address(200), HOUR, 6), "without its reservation it goes back into the range");
    // A stranger on the address: another one until the address is asked for again.
    assert!(pool.decline(mac(3), address(200), 7));
    assert!(pool.usable(pool.clone().offer(of(3), None, 606).unwrap()));
    assert_eq!(pool.offer(of(3), None, 607), Some(address(200)));
}

#[test]
fn a_range_too_wide_is_refused() {
    let range = AddressRange { first: Ipv4Addr::new(10, 0, 0, 0), last: Ipv4Addr::new(10, 255, 0, 0) };
    assert!(Pool::new(range, vec![]).is_err());
}

#[test]
fn forged_addresses_leave_room_for_described_machines() {
    // Nine addresses: .10 and .12 to .19; ten are counted.
    let mut pool = pool(19);
    let offers: Vec<_> = (100..200).filter_map(|n| pool.offer(unknown(n), None, 0)).collect();
    assert_eq!(offers.len(), 5, "half of the range");
    let bound: Vec<_> = (100..104).filter(|n| pool.by_mac.contains_key(&mac(*n))).collect();
    for n in &bound {
        let address = pool.by_mac[&mac(*n)];
        assert!(pool.bind(unknown(*n), address, HOUR, 0));
    }
    let free = (10..20).map(|n| Ipv4Addr::new(10, 0, 0, n)).find(|a| pool.free(*a, 0)).unwrap();
    assert!(!pool.bind(unknown(250), free, HOUR, 0), "nor without an offer");
    // Four are free, and what is only offered to an unknown machine is given up.
    let known: Vec<_> = (1..=9).filter_map(|n| pool.offer(known(n), None, 1)).collect();
    assert_eq!(known.len(), 9 - bound.len(), "{bound:?}");
}

#[test]
fn renewals_change_the_file_every_second_time() {
    let mut pool = pool(20);
    let address = pool.offer(known(1), None, 0).unwrap();
    let (half, mut written) = (HOUR.as_secs() / 2, 0);
    for renewal in 0..12 {
        let now = renewal * half;
        // Firmware, iPXE and the agent each ask, and each twice.
        for packet in 0..6 {
            let before = pool.revision();
            assert_eq!(pool.offer(known(1), None, now + packet), Some(address));
            assert!(pool.bind(known(1), address, HOUR, now + packet));
            written += pool.revision() - before;
            assert!(pool.kept()[&address].until >= now + packet + HOUR.as_secs(), "the client was promised more");
        }
    }
    assert_eq!(written, 6);
}

proptest! {
    /// Whatever clients do, no two hold one address, none holds two, and none holds one outside the range.
    #[test]
    fn leases_never_conflict(steps in prop::collection::vec((0u8..6, 1u8..12, prop_oneof![5u8..25, Just(40)], 0u64..5000), 1..200)) {
        let mut pool = pool(18).within(Ipv4Addr::new(255, 255, 255, 0), vec![]);
        let mut now = 0;
        let mut bound: BTreeMap<MacAddr, (Ipv4Addr, u64)> = BTreeMap::new();
        let mut file = BTreeMap::new();
        for (what, who, last, wait) in steps {
            now += wait;
            let (mac, address) = (mac(who), Ipv4Addr::new(10, 0, 0, last));
            // Port 5 is unknown, and described later by a document that reserves an address.
            let reservations = &Reserved(if now < 9000 { &[(1, 13), (2, 40)] } else { &[(2, 13), (5, 14)] });
            let client = Holder { mac, unknown: who > 3, reservations };
            let revision = pool.revision();
            match what {
                0 => { pool.offer(client, Some(address), now); }
                1 | 2 => if pool.bind(client, address, HOUR, now) { bound.insert(mac, (address, now + 3600)); },
                3 => if pool.release(mac, address) { bound.remove(&mac); },
                4 => if pool.decline(mac, address, now) { bound.remove(&mac); },
                _ => {
                    pool = self::pool(18).within(Ipv4Addr::new(255, 255, 255, 0), vec![]);
                    pool.restore(file.clone(), u64::MAX);
                }
            }
            if pool.revision() != revision {
                file = pool.kept();
            }
            prop_assert_eq!(&pool.kept(), &file, "a change is never overlooked");
            bound.retain(|_, (_, until)| *until > now);
            for (mac, (address, until)) in &bound {
                let kept = file.get(address).filter(|lease| lease.mac == *mac);
                prop_assert!(kept.is_some_and(|lease| lease.until >= *until), "a crash would end a lease early");
            }
            let mut seen = BTreeMap::new();
            for (mac, (address, _)) in &bound {
                prop_assert!(pool.usable(*address) || *address == Ipv4Addr::new(10, 0, 0, 40));
                prop_assert_eq!(pool.holder(*address, now), Some(*mac));
                prop_assert!(seen.insert(*address, *mac).is_none());
            }
            for (mac, address) in &pool.by_mac {
                prop_assert_eq!(pool.leases.get(address).map(|l| l.mac), Some(*mac));
            }
        }
    }
}
