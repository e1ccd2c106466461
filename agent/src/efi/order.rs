//! Where our entry belongs in the boot order. Pure.

use std::collections::BTreeMap;

use landfall_api::BootPolicy;

use super::option::{From, is_of, is_ours, starts_from};

/// The boot variables of a firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Variables {
    /// `Boot####`, by number.
    pub(super) entries: BTreeMap<u16, Vec<u8>>,
    /// `BootOrder`
    pub(super) order: Vec<u16>,
    /// `BootCurrent`: what started this machine.
    pub(super) current: Option<u16>,
}

/// What is to be written. A firmware's memory wears out, so nothing is written that is there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// The numbers of our entries, in the order of what is wanted, and whether each is to be written.
    pub(super) ours: Vec<(u16, bool)>,
    /// Entries of earlier installs.
    pub(super) remove: Vec<u16>,
    /// The new order, if it changes.
    pub(super) order: Option<Vec<u16>>,
    /// What starts next, once, before the order counts again.
    pub(super) next: Option<u16>,
}

/// Exactly the wanted entries are ours, in their order, at the place that the policy gives them.
///
/// `netFirst`: right behind the entry that started the machine: the network stays first, and no other disk comes before those that
/// were installed. A medium that started the machine, such as an ISO, may be gone next time, and the network must still come before
/// the disks: ours come behind the last entry of the network then. Where none is known, ours come last.
pub(super) fn plan(found: &Variables, wanted: &[Vec<u8>], policy: BootPolicy) -> Plan {
    if policy == BootPolicy::Leave {
        return Plan { ours: Vec::new(), remove: Vec::new(), order: None, next: None };
    }
    let is_ours = |number: &u16| found.entries.get(number).is_some_and(|data| is_ours(data));
    // An agent that the installed system's own entry started would stand before itself.
    let current = found.current.filter(|current| !is_ours(current));
    let mut left: Vec<u16> = found.entries.keys().copied().filter(is_ours).collect();
    let mut numbers: Vec<Option<u16>> = Vec::new();
    for data in wanted {
        let same = left.iter().position(|number| found.entries.get(number) == Some(data));
        numbers.push(same.map(|at| left.remove(at)));
    }
    let mut ours: Vec<u16> = Vec::new();
    for same in &numbers {
        let free = || {
            let taken = |n: &u16| found.entries.contains_key(n) || found.order.contains(n) || ours.contains(n);
            (0..=u16::MAX).find(|n| !taken(n)).unwrap_or(u16::MAX)
        };
        let other = if same.is_none() && !left.is_empty() { Some(left.remove(0)) } else { *same };
        let number = other.unwrap_or_else(free);
        ours.push(number);
    }
    let mut order: Vec<u16> =
        found.order.iter().copied().filter(|number| !ours.contains(number) && !is_ours(number)).collect();
    let from = |number: &u16| found.entries.get(number).map_or(From::Unknown, |data| starts_from(data));
    let started = current.filter(|current| from(current) != From::Medium);
    let before = match started {
        Some(started) => order.iter().position(|n| *n == started),
        None => order.iter().rposition(|n| from(n) == From::Network),
    };
    let at = if policy == BootPolicy::DiskFirst { 0 } else { before.map_or(order.len(), |at| at + 1) };
    let next = (policy == BootPolicy::NextOnly).then(|| ours.first().copied()).flatten();
    if next.is_none() {
        order.splice(at..at, ours.iter().copied());
    }
    let write = |(number, data): (u16, &Vec<u8>)| (number, found.entries.get(&number) != Some(data));
    let ours = ours.into_iter().zip(wanted).map(write).collect();
    Plan { ours, remove: left, order: Some(order).filter(|order| *order != found.order), next }
}

/// Without our entries for the disks with these serial numbers: nothing on them starts any more. The entry of a disk without a
/// serial number stays until the next install: it may be that of another such disk.
pub(super) fn without(found: &Variables, serials: &[&str]) -> Plan {
    let gone = |data: &[u8]| serials.iter().any(|serial| !serial.is_empty() && is_of(data, serial));
    let remove: Vec<u16> = found.entries.iter().filter(|(_, data)| gone(data)).map(|(number, _)| *number).collect();
    let order: Vec<u16> = found.order.iter().copied().filter(|number| !remove.contains(number)).collect();
    Plan { ours: Vec::new(), remove, order: Some(order).filter(|order| *order != found.order), next: None }
}

/// A variable's name.
pub(super) fn name(number: u16) -> String {
    format!("Boot{number:04X}")
}

/// The number of a variable `Boot####`.
pub(super) fn number(name: &str) -> Option<u16> {
    let digits = name.strip_prefix("Boot").filter(|digits| digits.len() == 4)?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::option::tests::entry;
    use super::super::option::{Partition, load_option};
    use super::*;

    /// What every install does.
    fn plan(found: &Variables, wanted: &[Vec<u8>]) -> Plan {
        super::plan(found, wanted, BootPolicy::NetFirst)
    }

    fn ours(serial: &str) -> Vec<u8> {
        load_option(serial, &Partition { number: 2, first: 1, sectors: 1, guid: [7; 16] })
    }

    fn found(entries: &[(u16, Vec<u8>)], order: &[u16], current: Option<u16>) -> Variables {
        Variables { entries: entries.iter().cloned().collect(), order: order.to_vec(), current }
    }

    fn theirs(number: u16) -> (u16, Vec<u8>) {
        (number, b"something else".to_vec())
    }

    #[test]
    fn the_installed_disk_comes_right_behind_the_network() {
        let firmware = found(&[theirs(0), theirs(1), theirs(2)], &[1, 0, 2], Some(1));
        let first = plan(&firmware, &[ours("A")]);
        assert_eq!(first, Plan { ours: vec![(3, true)], remove: vec![], order: Some(vec![1, 3, 0, 2]), next: None });
        // Once it is so, nothing is written again.
        let after = found(&[theirs(0), theirs(1), theirs(2), (3, ours("A"))], &[1, 3, 0, 2], Some(1));
        assert_eq!(
            plan(&after, &[ours("A")]),
            Plan { ours: vec![(3, false)], remove: vec![], order: None, next: None }
        );
        // Another disk takes its number and its place.
        assert_eq!(plan(&after, &[ours("B")]), Plan { ours: vec![(3, true)], remove: vec![], order: None, next: None });
    }

    #[test]
    fn an_unknown_start_leaves_the_order_before_us() {
        for current in [None, Some(9)] {
            let plan = plan(&found(&[theirs(0)], &[0], current), &[ours("A")]);
            assert_eq!((plan.ours[0].0, plan.order), (1, Some(vec![0, 1])), "{current:?}");
        }
        let started_by_ours = found(&[theirs(0), (1, ours("A"))], &[1, 0], Some(1));
        assert_eq!(plan(&started_by_ours, &[ours("B")]).order, Some(vec![0, 1]));
        assert_eq!(plan(&found(&[], &[], None), &[ours("A")]).order, Some(vec![0]));
    }

    #[test]
    fn the_network_stays_first_after_a_start_from_media() {
        let (disc, card) = (entry(&[(3, 18), (4, 2)]), entry(&[(3, 11)]));
        let firmware = found(&[(0, disc.clone()), (1, card.clone()), (2, card), theirs(3)], &[0, 1, 2, 3], Some(0));
        assert_eq!(plan(&firmware, &[ours("A")]).order, Some(vec![0, 1, 2, 4, 3]));
        let without = found(&[(0, disc), theirs(3)], &[0, 3], Some(0));
        assert_eq!(plan(&without, &[ours("A")]).order, Some(vec![0, 3, 1]));
    }

    #[test]
    fn every_disk_of_a_mirror_gets_an_entry_once() {
        let firmware = found(&[theirs(0), (1, ours("B")), (2, ours("X"))], &[0, 2, 1], Some(0));
        let mirror = [ours("A"), ours("B")];
        let first = plan(&firmware, &mirror);
        let expected = Plan { ours: vec![(2, true), (1, false)], remove: vec![], order: None, next: None };
        assert_eq!(first, expected);
        let empty = plan(&found(&[theirs(0)], &[0], Some(0)), &mirror);
        assert_eq!(
            empty,
            Plan { ours: vec![(1, true), (2, true)], remove: vec![], order: Some(vec![0, 1, 2]), next: None }
        );
        let after = found(&[theirs(0), (1, ours("A")), (2, ours("B"))], &[0, 1, 2], Some(0));
        assert_eq!(
            plan(&after, &mirror),
            Plan { ours: vec![(1, false), (2, false)], remove: vec![], order: None, next: None }
        );
        assert_eq!(plan(&after, &mirror[1..]).remove, [1], "one disk alone");
    }

    #[test]
    fn entries_of_earlier_installs_are_removed() {
        let firmware = found(&[(4, ours("A")), theirs(5), (6, ours("B"))], &[5, 4, 6], Some(5));
        let plan = plan(&firmware, &[ours("B")]);
        assert_eq!(plan, Plan { ours: vec![(6, false)], remove: vec![4], order: Some(vec![5, 6]), next: None });
    }

    #[test]
    fn each_policy_has_its_order() {
        let firmware = found(&[theirs(0), theirs(1), (3, ours("A")), (4, ours("X"))], &[1, 3, 0, 4], Some(1));
        let of = |policy| super::plan(&firmware, &[ours("A")], policy);
        let whole = |order, next| Plan { ours: vec![(3, false)], remove: vec![4], order, next };
        assert_eq!(of(BootPolicy::NetFirst), whole(Some(vec![1, 3, 0]), None));
        assert_eq!(of(BootPolicy::DiskFirst), whole(Some(vec![3, 1, 0]), None));
        assert_eq!(of(BootPolicy::NextOnly), whole(Some(vec![1, 0]), Some(3)));
        assert_eq!(of(BootPolicy::Leave), Plan { ours: vec![], remove: vec![], order: None, next: None });
        // A mirror: the first of its disks is next.
        let mirror = super::plan(&firmware, &[ours("B"), ours("A")], BootPolicy::NextOnly);
        assert_eq!((mirror.ours, mirror.next), (vec![(4, true), (3, false)], Some(4)));
    }

    #[test]
    fn entries_of_a_wiped_disk_are_removed() {
        let firmware = found(&[(4, ours("A")), theirs(5), (6, ours("B")), (7, ours(""))], &[5, 4, 6, 7], Some(5));
        assert_eq!(
            without(&firmware, &["A"]),
            Plan { ours: vec![], remove: vec![4], order: Some(vec![5, 6, 7]), next: None }
        );
        for others in [&["C"][..], &[""], &[]] {
            assert_eq!(
                without(&firmware, others),
                Plan { ours: vec![], remove: vec![], order: None, next: None },
                "{others:?}"
            );
        }
    }

    #[test]
    fn only_numbered_entries_are_entries() {
        assert_eq!((number("Boot000A"), number("Boot12aF")), (Some(10), Some(0x12af)));
        for other in ["BootOrder", "BootNext", "Boot+001", "Boot00001", "Boot"] {
            assert_eq!(number(other), None, "{other}");
        }
        assert_eq!(name(10), "Boot000A");
    }
}
