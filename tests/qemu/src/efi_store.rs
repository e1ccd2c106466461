//! The variables of UEFI as OVMF keeps them in a file (EDK II, MdeModulePkg/Include/Guid/VariableFormat.h). While the machine is off
//! they can be read and changed there.

use std::ops::Range;

/// `StartId` 0x55AA, and the state of a variable that is valid (`VAR_ADDED`).
const VALID: [u8; 3] = [0xaa, 0x55, 0x3f];
/// Bytes of an `AUTHENTICATED_VARIABLE_HEADER`, and where it has attributes, the sizes of name and data, and the vendor's GUID.
pub(crate) const HEADER: usize = 60;
const ATTRIBUTES: usize = 4;
const NAME_SIZE: usize = 36;
const DATA_SIZE: usize = 40;
const VENDOR: usize = 44;

/// The valid variables: their names, and where their data is.
pub(crate) fn variables(store: &[u8]) -> Vec<(String, Range<usize>)> {
    let one = |start: usize| {
        if store[start..start + VALID.len()] != VALID {
            return None;
        }
        let size = |at: usize| {
            let bytes = store.get(start + at..start + at + 4)?;
            usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
        };
        let data = (start + HEADER).checked_add(size(NAME_SIZE)?)?;
        let end = data.checked_add(size(DATA_SIZE)?)?;
        store.get(data..end)?;
        Some((text(store.get(start + HEADER..data)?), data..end))
    };
    (0..store.len().saturating_sub(HEADER)).filter_map(one).collect()
}

/// UTF-16 up to the first zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    String::from_utf16_lossy(&units.take_while(|unit| *unit != 0).collect::<Vec<u16>>())
}

/// A variable as it is stored.
pub(crate) fn variable(name: &str, vendor: &[u8; 16], attributes: u32, data: &[u8]) -> Vec<u8> {
    let name: Vec<u8> = name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut out = VALID.to_vec();
    out.resize(HEADER, 0);
    for (at, value) in [(ATTRIBUTES, attributes.to_le_bytes()), (NAME_SIZE, size(&name)), (DATA_SIZE, size(data))] {
        out[at..at + 4].copy_from_slice(&value);
    }
    out[VENDOR..].copy_from_slice(vendor);
    out.extend(name);
    out.extend(data);
    out
}

/// Adds a variable behind the others; `None` if there is no room, or no variable yet.
pub(crate) fn append(store: &mut [u8], name: &str, vendor: &[u8; 16], attributes: u32, data: &[u8]) -> Option<()> {
    let size = |store: &[u8], at: usize| Some(u32::from_le_bytes(store.get(at..at + 4)?.try_into().ok()?) as usize);
    // From the first on, also over those that were deleted: each has the first bytes of a valid one, and begins at a multiple of four
    // (`HEADER_ALIGNMENT`). What is free is 0xff.
    let mut end = (0..store.len()).find(|at| store[*at..].starts_with(&VALID))?;
    while store.get(end..end + 2) == Some(&VALID[..2]) {
        end += HEADER + size(store, end + NAME_SIZE)? + size(store, end + DATA_SIZE)?;
        end = end.next_multiple_of(4);
    }
    let added = variable(name, vendor, attributes, data);
    let free = store.get_mut(end..end + added.len())?;
    if free.iter().any(|byte| *byte != 0xff) {
        return None;
    }
    free.copy_from_slice(&added);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_added_where_room_is() {
        let mut store = variable("a", &[1; 16], 7, b"xyz");
        store.resize(store.len().next_multiple_of(4), 0xff);
        // VAR_ADDED & VAR_DELETED
        let mut deleted = variable("old", &[1; 16], 7, b"wxyz");
        deleted[2] = 0x3d;
        store.extend(deleted);
        store.resize(store.len() + 80, 0xff);
        assert_eq!(append(&mut store, "b", &[2; 16], 3, b"123456789012"), Some(()));
        let found = variables(&store);
        let shown: Vec<_> = found.iter().map(|(name, data)| (name.as_str(), &store[data.clone()])).collect();
        assert_eq!(shown, [("a", &b"xyz"[..]), ("b", b"123456789012")]);
        assert_eq!(found[1].1.start % 4, 0);
        let full = store.clone();
        assert_eq!(append(&mut store, "c", &[2; 16], 3, b""), None);
        assert_eq!((append(&mut [0xff; 200], "c", &[2; 16], 3, b""), store), (None, full));
    }
}
