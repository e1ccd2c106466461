//! What a person does in a UEFI setup: puts the network first, sets a port's VLAN. The variables are in OVMF's file; while the machine is
//! off, they can be changed there.

use std::path::Path;

use crate::LabError;
use crate::efi_store::{append, text, variables};

/// How OVMF describes the entries of a network port, over IPv4.
const NETWORK: [&str; 2] = ["UEFI PXEv4", "UEFI HTTPv4"];

/// Puts the first network entry in front of the boot order in a file of variables. The machine must have been on before.
///
/// # Errors
/// [`LabError`] if the firmware has made no boot order yet.
pub fn network_first(path: &Path) -> Result<(), LabError> {
    let mut store = std::fs::read(path).map_err(LabError::file("cannot read", path))?;
    let missing = |message: &str| LabError::Format { path: path.to_owned(), message: message.to_owned() };
    let at = changed(&mut store).ok_or_else(|| missing("there is no boot order with a network entry"))?;
    debug_assert!(at < store.len());
    std::fs::write(path, store).map_err(LabError::file("cannot write", path))
}

/// The VLANs of ports (`gEfiVlanConfigProtocolGuid`): 9e23d768-d2f3-4366-9fc3-3a7aba864374.
const VLANS: [u8; 16] =
    [0x68, 0xd7, 0x23, 0x9e, 0xf3, 0xd2, 0x66, 0x43, 0x9f, 0xc3, 0x3a, 0x7a, 0xba, 0x86, 0x43, 0x74];
/// `EFI_VARIABLE_NON_VOLATILE | EFI_VARIABLE_BOOTSERVICE_ACCESS`, as the firmware's own setup has it.
const SETTINGS: u32 = 3;

/// Has the firmware use the port with this MAC address with the tag of a VLAN alone. The machine must have been on before.
///
/// # Errors
/// [`LabError`] if the file cannot be changed, or has no room.
pub fn set_vlan(path: &Path, mac: &str, id: u16) -> Result<(), LabError> {
    let mut store = std::fs::read(path).map_err(LabError::file("cannot read", path))?;
    // A list of tags, with priority 0 (EDK II, NetworkPkg/MnpDxe/MnpVlan.c).
    let name = mac.replace(':', "").to_uppercase();
    append(&mut store, &name, &VLANS, SETTINGS, &id.to_le_bytes())
        .ok_or_else(|| LabError::Format { path: path.to_owned(), message: "there is no room for a VLAN".to_owned() })?;
    std::fs::write(path, store).map_err(LabError::file("cannot write", path))
}

/// The namespace of boot variables (UEFI 2.10, section 3.3): 8be4df61-93ca-11d2-aa0d-00e098032b8c.
const GLOBAL: [u8; 16] = [0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0, 0xe0, 0x98, 0x03, 0x2b, 0x8c];

/// Has the firmware start this URL by UEFI HTTP Boot the next time, as a person or a BMC does by an entry that states it. The machine must
/// have been on before.
///
/// # Errors
/// [`LabError`] if the file cannot be changed, or has no room.
pub fn next_from_url(path: &Path, url: &str) -> Result<(), LabError> {
    let mut store = std::fs::read(path).map_err(LabError::file("cannot read", path))?;
    // Of the whole device path only the URL: the firmware finds the port (UEFI 2.10, section 3.1.2).
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes();
    let node = [&[3, 24][..], &length(4 + url.len()), url.as_bytes(), &[0x7f, 0xff, 4, 0]].concat();
    let description: Vec<u8> = "a URL".encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    let entry = [&[1, 0, 0, 0][..], &length(node.len()), &description, &node].concat();
    let all = append(&mut store, "Boot0077", &GLOBAL, 7, &entry)
        .and_then(|()| append(&mut store, "BootNext", &GLOBAL, 7, &[0x77, 0]));
    all.ok_or_else(|| LabError::Format { path: path.to_owned(), message: "there is no room for an entry".to_owned() })?;
    std::fs::write(path, store).map_err(LabError::file("cannot write", path))
}

/// What the firmware's variables say that it starts, by the descriptions of the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootOrder {
    /// In this order.
    pub order: Vec<String>,
    /// Before that, once.
    pub next: Option<String>,
}

/// Reads the boot order from a file of variables.
///
/// # Errors
/// [`LabError`] if the file cannot be read.
pub fn read(path: &Path) -> Result<BootOrder, LabError> {
    let store = std::fs::read(path).map_err(LabError::file("cannot read", path))?;
    let found = variables(&store);
    let of = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, data)| &store[data.clone()]);
    let described = |number: &[u8]| {
        let number = u16::from_le_bytes([number[0], number[1]]);
        let entry = of(&format!("Boot{number:04X}")).and_then(|entry| entry.get(6..));
        entry.map_or_else(|| format!("no entry {number:04X}"), text)
    };
    let numbers = |name: &str| of(name).unwrap_or_default().chunks_exact(2).map(described).collect::<Vec<_>>();
    Ok(BootOrder { order: numbers("BootOrder"), next: numbers("BootNext").pop() })
}

/// Changes it in place, and says where.
fn changed(store: &mut [u8]) -> Option<usize> {
    let (mut order, mut network) = (None, None);
    for (name, data) in variables(store) {
        let content = &store[data.clone()];
        if name == "BootOrder" {
            order = Some(data);
        } else if let Some(number) = name.strip_prefix("Boot").filter(|n| n.len() == 4)
            && content.get(6..).is_some_and(|description| NETWORK.iter().any(|it| text(description).starts_with(it)))
        {
            network = network.or(u16::from_str_radix(number, 16).ok());
        }
    }
    let (order, network) = (order?, network?.to_le_bytes());
    let numbers = &mut store[order.clone()];
    let at = numbers.chunks_exact(2).position(|number| number == network)?;
    numbers[..at * 2 + 2].rotate_right(2);
    Some(order.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::efi_store::{HEADER, variable};

    #[test]
    fn the_network_comes_first_and_the_others_keep_their_order() {
        let mut entry = vec![1, 0, 0, 0, 4, 0];
        entry.extend("UEFI PXEv4 (MAC)".encode_utf16().flat_map(u16::to_le_bytes));
        let mut store = vec![0xff; 7];
        store.extend(variable("Boot0003", &[0; 16], 7, &entry));
        store.extend(variable("BootOrder", &[0; 16], 7, &[0, 0, 1, 0, 3, 0, 2, 0]));
        store.extend(vec![0xff; HEADER]);
        let at = changed(&mut store).unwrap();
        assert_eq!(store[at..at + 8], [3, 0, 0, 0, 1, 0, 2, 0]);
        store.extend(variable("BootNext", &[0; 16], 7, &[3, 0]));
        store.extend(vec![0xff; HEADER]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &store).unwrap();
        let found = read(file.path()).unwrap();
        assert_eq!(found.order, ["UEFI PXEv4 (MAC)", "no entry 0000", "no entry 0001", "no entry 0002"]);
        assert_eq!(found.next.as_deref(), Some("UEFI PXEv4 (MAC)"));
        assert_eq!(changed(&mut vec![0xff; 1000]), None);
    }
}
