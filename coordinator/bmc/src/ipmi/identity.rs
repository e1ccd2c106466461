//! What a BMC says of itself and of its computer: Get Device ID, Get System GUID. Pure.

use uuid::Uuid;

/// The version of the BMC's firmware, of an answer to Get Device ID (20.1): the minor one is BCD.
pub(super) fn firmware(answer: &[u8]) -> Option<String> {
    let (major, minor) = (*answer.get(2)? & 0x7f, *answer.get(3)?);
    Some(format!("{major}.{minor:02x}"))
}

/// The UUID of an answer to Get System GUID (22.14). The specification turns all of its bytes around, most BMCs write it as SMBIOS
/// does, and some as RFC 4122: what looks like a UUID in one of these orders alone counts.
pub(super) fn uuid(answer: &[u8]) -> Option<Uuid> {
    let bytes: [u8; 16] = *answer.first_chunk()?;
    let mut reversed = bytes;
    reversed.reverse();
    let all = [Uuid::from_bytes_le(bytes), Uuid::from_bytes(bytes), Uuid::from_bytes(reversed)];
    let looks = |one: &Uuid| (1..=8).contains(&one.get_version_num()) && one.get_variant() == uuid::Variant::RFC4122;
    let mut found = all.into_iter().filter(looks);
    let one = found.next()?;
    found.all(|other| other == one).then_some(one)
}

#[cfg(test)]
mod tests {
    use uuid::Builder;

    use super::*;

    #[test]
    fn a_uuid_is_found_in_each_order() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let uuid_is = Builder::from_random_bytes(bytes).into_uuid();
        let mut reversed = uuid_is.into_bytes();
        reversed.reverse();
        for bytes in [uuid_is.to_bytes_le(), uuid_is.into_bytes(), reversed] {
            assert_eq!(uuid(&bytes), Some(uuid_is));
        }
        // A version in both orders.
        let either = Builder::from_random_bytes([0x4c; 16]).into_uuid().into_bytes();
        assert_eq!(uuid(&[either.as_slice(), &[0]].concat()), uuid(&either));
        assert_eq!((uuid(&[0xff; 16]), uuid(&[0; 16]), uuid(&[1; 15])), (None, None, None));
    }

    #[test]
    fn the_minor_version_is_bcd() {
        assert_eq!(firmware(&[0x20, 1, 0x89, 0x08, 2]).as_deref(), Some("9.08"));
        assert_eq!(firmware(&[0x20, 1, 9]), None);
    }
}
