//! Choosing exactly one disk.

use landfall_api::{DiskFacts, DiskId, DiskSelector};

use crate::{Candidate, SelectError};

/// Namespace for [`Disk::select`].
#[derive(Debug, Clone, Copy)]
pub struct Disk;

impl Disk {
    /// The one disk that matches.
    ///
    /// # Errors
    /// [`SelectError`] when none or several match, listing every disk and why it did or did not; when the selector does
    /// not parse; when the disk chosen is a lone path of a multipath unit: another disk has its world-wide name, or, where
    /// neither has one, its model, size and serial number.
    pub fn select<'a>(selector: &DiskSelector, disks: &'a [DiskFacts]) -> Result<&'a DiskFacts, SelectError> {
        selector.validate()?;
        let mut candidates = Vec::with_capacity(disks.len());
        for disk in disks {
            candidates.push(Candidate { disk: describe(disk), mismatches: selector.mismatches(disk)? });
        }
        let mut matching = disks.iter().zip(&candidates).filter(|(_, c)| c.mismatches.is_empty()).map(|(d, _)| d);
        let (Some(chosen), rest) = (matching.next(), matching.next()) else {
            return Err(SelectError::NoneMatches(candidates));
        };
        if rest.is_some() {
            return Err(SelectError::Ambiguous(candidates));
        }
        Self::no_lone_path(chosen, disks)?;
        Ok(chosen)
    }

    /// Refuses a disk that is one of several paths to one unit, however it was chosen.
    ///
    /// # Errors
    /// [`SelectError::LonePath`], as of [`Self::select`].
    pub fn no_lone_path(chosen: &DiskFacts, disks: &[DiskFacts]) -> Result<(), SelectError> {
        let mut paths = disks.iter().filter(|other| other.id.name != chosen.id.name);
        match paths.find_map(|other| Some((other, one_unit(&chosen.id, &other.id)?))) {
            Some((other, identity)) => {
                Err(SelectError::LonePath { disk: chosen.id.name.clone(), other: other.id.name.clone(), identity })
            }
            None => Ok(()),
        }
    }
}

/// What shows that two devices are paths to one unit; `None` if they are two disks.
fn one_unit(a: &DiskId, b: &DiskId) -> Option<String> {
    if !a.wwn.is_empty() || !b.wwn.is_empty() {
        return (a.wwn == b.wwn).then(|| format!("wwn {}", a.wwn));
    }
    let same = !a.serial.is_empty() && (&a.serial, &a.model, a.size_bytes) == (&b.serial, &b.model, b.size_bytes);
    same.then(|| format!("serial {}, no wwn", a.serial))
}

/// Name, size, model, serial: enough for a person to tell disks apart.
fn describe(disk: &DiskFacts) -> String {
    let id = &disk.id;
    let mut text = format!("{} ({} bytes", id.name, id.size_bytes);
    for (label, value) in [("model", &id.model), ("serial", &id.serial), ("wwn", &id.wwn), ("path", &id.path)] {
        if !value.is_empty() {
            text.push_str(&format!(", {label} {value}"));
        }
    }
    text.push(')');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn disk(name: &str, serial: &str, wwn: &str, size_bytes: u64) -> DiskFacts {
        DiskFacts {
            id: DiskId { name: name.into(), serial: serial.into(), wwn: wwn.into(), size_bytes, ..DiskId::default() },
            ..DiskFacts::default()
        }
    }

    fn selector(field: &str, value: &str) -> DiskSelector {
        DiskSelector(BTreeMap::from([(field.to_owned(), value.into())]))
    }

    #[test]
    fn two_matching_disks_are_refused_and_both_listed() {
        let disks = [disk("vda", "A", "", 10), disk("vdb", "B", "", 10)];
        let error = Disk::select(&DiskSelector::default(), &disks).unwrap_err();
        assert!(matches!(&error, SelectError::Ambiguous(c) if c.len() == 2));
        let text = error.problem().to_string();
        assert!(text.contains("vda") && text.contains("vdb") && text.starts_with("AmbiguousDisk"), "{text}");
    }

    #[test]
    fn no_matching_disk_says_why_for_each() {
        let disks = [disk("vda", "A", "", 10), disk("vdb", "B", "", 20)];
        let text = Disk::select(&selector("size", "> 30"), &disks).unwrap_err().to_string();
        assert!(text.contains("size is 10, not > 30") && text.contains("size is 20, not > 30"), "{text}");
        assert!(matches!(Disk::select(&DiskSelector::default(), &[]), Err(SelectError::NoneMatches(_))));
    }

    #[test]
    fn a_lone_path_of_a_multipath_unit_is_refused() {
        let disks = [disk("sda", "A", "0x5", 10), disk("sdb", "A", "0x5", 10)];
        assert!(matches!(Disk::select(&selector("name", "sda"), &disks), Err(SelectError::LonePath { .. })));
    }

    #[test]
    fn two_paths_without_a_wwn_share_serial_and_size() {
        let select =
            |other: DiskFacts| Disk::select(&selector("name", "sda"), &[disk("sda", "A", "", 10), other]).map(drop);
        let text = select(disk("sdb", "A", "", 10)).unwrap_err().to_string();
        assert!(text.contains("serial A, no wwn") && text.contains("sda and sdb"), "{text}");
        for another in [disk("sdb", "A", "", 11), disk("sdb", "B", "", 10), disk("sdb", "A", "0x5", 10)] {
            assert_eq!(select(another.clone()), Ok(()), "{another:?}");
        }
        let nameless = [disk("sda", "", "", 10), disk("sdb", "", "", 10)];
        assert!(Disk::select(&selector("name", "sda"), &nameless).is_ok(), "no serial says nothing");
    }

    #[test]
    fn a_usb_stick_is_chosen_only_by_its_transport() {
        let stick = DiskFacts { transport: "usb".into(), ..disk("sda", "A", "", 10) };
        for field in ["serial", "name"] {
            let value = if field == "serial" { "A" } else { "sda" };
            let refused = Disk::select(&selector(field, value), std::slice::from_ref(&stick)).unwrap_err().to_string();
            assert!(refused.contains("transport: usb"), "{refused}");
        }
        assert!(Disk::select(&selector("transport", "usb"), std::slice::from_ref(&stick)).is_ok());
        let both = [stick, disk("sdb", "B", "", 10)];
        assert_eq!(Disk::select(&DiskSelector::default(), &both).unwrap().id.name, "sdb");
    }

    proptest! {
        #[test]
        fn what_is_selected_is_the_only_match(sizes in prop::collection::vec(0_u64..4, 0..5), wanted in 0_u64..4) {
            let disks: Vec<_> = sizes.iter().enumerate().map(|(i, s)| disk(&format!("d{i}"), "", "", *s)).collect();
            let matching = sizes.iter().filter(|s| **s == wanted).count();
            match Disk::select(&selector("size", &wanted.to_string()), &disks) {
                Ok(one) => prop_assert!(matching == 1 && one.id.size_bytes == wanted),
                Err(SelectError::NoneMatches(_)) => prop_assert_eq!(matching, 0),
                Err(SelectError::Ambiguous(_)) => prop_assert!(matching > 1),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }

        #[test]
        fn arbitrary_selectors_never_panic(field in "[a-z]{0,10}|size|model|rotational", text in ".{0,24}") {
            // Only a panic would fail this test.
            let _ = selector(&field, &text).mismatches(&disk("d", "s", "w", 5));
        }
    }
}
