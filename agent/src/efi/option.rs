//! A boot entry as the firmware stores it (UEFI 2.10, sections 3.1.3 and 10.3). Pure.

/// What the descriptions of our entries begin with.
const NAME: &str = "Landfall";
/// `LOAD_OPTION_ACTIVE`
const ACTIVE: u32 = 1;
/// Where firmware looks for a loader on a disk that has no entry (UEFI 2.10, section 3.5.1.1): disk images can bring only
/// this one.
#[cfg(target_arch = "aarch64")]
const LOADER: &str = r"\EFI\BOOT\BOOTAA64.EFI";
#[cfg(not(target_arch = "aarch64"))]
const LOADER: &str = r"\EFI\BOOT\BOOTX64.EFI";

/// A partition as a device path names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    /// From 1.
    pub(super) number: u32,
    /// First sector, in the disk's logical ones.
    pub(super) first: u64,
    pub(super) sectors: u64,
    /// In the mixed byte order of the disk.
    pub(super) guid: [u8; 16],
}

/// An entry that starts the loader on this partition, on whatever port its disk is.
pub(super) fn load_option(serial: &str, partition: &Partition) -> Vec<u8> {
    let mut path = Vec::new();
    // HD(): media device path, hard drive; table of type GPT, signature of type GUID.
    path.extend([4, 1, 42, 0]);
    path.extend(partition.number.to_le_bytes());
    path.extend(partition.first.to_le_bytes());
    path.extend(partition.sectors.to_le_bytes());
    path.extend(partition.guid);
    path.extend([2, 2]);
    let loader = utf16(LOADER);
    path.extend([4, 4]);
    path.extend(length(4 + loader.len()));
    path.extend(loader);
    // The end of the whole path.
    path.extend([0x7f, 0xff, 4, 0]);
    let mut option = ACTIVE.to_le_bytes().to_vec();
    option.extend(length(path.len()));
    option.extend(utf16(&name_of(serial)));
    option.extend(path);
    option
}

/// Whether an entry is one of ours, by its description.
pub(super) fn is_ours(option: &[u8]) -> bool {
    let text = description(option);
    text == NAME || text.starts_with(&format!("{NAME} ("))
}

/// Whether it is ours for the disk with this serial number.
pub(super) fn is_of(option: &[u8], serial: &str) -> bool {
    description(option) == name_of(serial)
}

fn name_of(serial: &str) -> String {
    if serial.is_empty() { NAME.to_owned() } else { format!("{NAME} ({serial})") }
}

fn description(option: &[u8]) -> String {
    let text = option.get(6..).unwrap_or_default().chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    String::from_utf16_lossy(&text.take_while(|unit| *unit != 0).collect::<Vec<u16>>())
}

/// What an entry starts from, as far as its device path says (UEFI 2.10, sections 10.3.4 and 10.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// A network card: messaging device path, MAC address.
    Network,
    /// A disk, a CD or a USB device, virtual media of a BMC among them.
    Medium,
    /// Something else, such as a vendor's own path.
    Unknown,
}

/// What an entry starts from.
pub(super) fn starts_from(option: &[u8]) -> From {
    let mut from = From::Unknown;
    for (kind, _) in nodes(option) {
        match kind {
            [3, 11] => return From::Network,
            [4, _] | [3, 5] => from = From::Medium,
            _ => {}
        }
    }
    from
}

/// The URL that an entry states (UEFI 2.10, section 10.3.4.23); `None`: it has none, or leaves it to DHCP.
pub(super) fn url(option: &[u8]) -> Option<String> {
    let (_, url) = nodes(option).find(|(kind, url)| *kind == [3, 24] && !url.is_empty())?;
    Some(std::str::from_utf8(url).ok()?.trim_end_matches('\0').to_owned())
}

/// The nodes of an entry's device path: type and subtype of each, and its content.
fn nodes(option: &[u8]) -> impl Iterator<Item = ([u8; 2], &[u8])> {
    let (_, after) = option.split_at_checked(6).unwrap_or_default();
    let description = after.chunks_exact(2).position(|unit| unit == [0, 0]).map_or(after.len(), |at| 2 * at + 2);
    let mut path = after.get(description..).unwrap_or_default();
    std::iter::from_fn(move || {
        // Type, subtype, length with these four bytes.
        let [kind, subtype, low, high, ..] = *path else { return None };
        let length = usize::from(u16::from_le_bytes([low, high])).clamp(4, path.len());
        let (node, rest) = path.split_at(length);
        path = rest;
        Some(([kind, subtype], &node[4..]))
    })
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// Descriptions and paths are far shorter than this can count.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn an_entry_is_laid_out_as_the_specification_says() {
        let partition = Partition { number: 2, first: 0x1000, sectors: 0x8000, guid: *b"0123456789abcdef" };
        let option = load_option("S1", &partition);
        assert_eq!(option[..4], [1, 0, 0, 0]);
        let description = utf16("Landfall (S1)");
        let path = &option[6 + description.len()..];
        assert_eq!(usize::from(u16::from_le_bytes([option[4], option[5]])), path.len());
        assert_eq!(option[6..6 + description.len()], description);
        let mut disk = vec![4, 1, 42, 0, 2, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0];
        disk.extend(b"0123456789abcdef\x02\x02");
        assert_eq!(path[..42], disk);
        assert_eq!((path[42], path[43], usize::from(path[44])), (4, 4, 4 + utf16(LOADER).len()));
        assert_eq!(path[path.len() - 4..], [0x7f, 0xff, 4, 0]);
    }

    /// An entry whose device path has these nodes, as type and subtype.
    pub(in super::super) fn entry(nodes: &[(u8, u8)]) -> Vec<u8> {
        let path = nodes.iter().flat_map(|(kind, subtype)| [*kind, *subtype, 5, 0, 0]).chain([0x7f, 0xff, 4, 0]);
        [&[1, 0, 0, 0, 0, 0][..], &utf16("an entry"), &path.collect::<Vec<u8>>()].concat()
    }

    #[test]
    fn a_device_path_says_what_an_entry_starts_from() {
        assert_eq!(starts_from(&entry(&[(2, 1), (1, 1), (3, 11), (3, 12)])), From::Network);
        assert_eq!(starts_from(&entry(&[(2, 1), (1, 1), (3, 5), (3, 11)])), From::Network, "a USB network card");
        assert_eq!(starts_from(&entry(&[(2, 1), (3, 5)])), From::Medium);
        assert_eq!(starts_from(&entry(&[(2, 1), (3, 18), (4, 2)])), From::Medium);
        let own = load_option("S1", &Partition { number: 1, first: 1, sectors: 1, guid: [0; 16] });
        assert_eq!(starts_from(&own), From::Medium);
        for odd in [&b""[..], b"\x01", &entry(&[(1, 4)]), &own[..8]] {
            assert_eq!(starts_from(odd), From::Unknown, "{odd:?}");
        }
    }

    #[test]
    fn an_entry_of_http_boot_may_state_its_url() {
        let stated = |url: &str| {
            let node = [&[3, 24][..], &length(4 + url.len()), url.as_bytes()].concat();
            [&[1, 0, 0, 0, 0, 0][..], &utf16("HTTP"), &[3, 11, 5, 0, 0, 3, 12, 5, 0, 0], &node, &[0x7f, 0xff, 4, 0]]
                .concat()
        };
        assert_eq!(url(&stated("http://10.77.0.1/a.efi")).as_deref(), Some("http://10.77.0.1/a.efi"));
        assert_eq!(url(&stated("")), None, "DHCP names it");
        assert_eq!(url(&entry(&[(3, 11)])), None);
        let cut = stated("http://10.77.0.1/a.efi");
        assert!(
            (0..cut.len()).all(|end| url(&cut[..end]).is_none_or(|url| "http://10.77.0.1/a.efi".starts_with(&url)))
        );
    }

    #[test]
    fn only_our_own_entries_are_ours() {
        let partition = Partition { number: 1, first: 1, sectors: 1, guid: [0; 16] };
        let named = |text: &str| [&[1, 0, 0, 0, 4, 0][..], &utf16(text), &[0x7f, 0xff, 4, 0]].concat();
        assert!(is_ours(&load_option("", &partition)) && is_ours(&load_option("X", &partition)));
        assert!(!is_ours(&named("Landfall-like")) && !is_ours(&named("UEFI PXEv4")) && !is_ours(b"\x01"));
    }
}
