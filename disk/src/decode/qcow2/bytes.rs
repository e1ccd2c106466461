//! Numbers in qcow2: big-endian, and never read past the end.

/// The 32-bit number at this place.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// The 64-bit number at this place.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_be_bytes(*b))
}

/// All the 64-bit numbers there are.
pub(super) fn u64s(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|b| u64::from_be_bytes(*b))
}
