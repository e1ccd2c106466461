//! Packets of Serial over LAN, and the answers to the requests that begin and end it (15.9, 24.1 to 24.5). Pure.

/// The payload's type, and its first instance: every BMC with Serial over LAN has one (table 13-16; 15.6).
pub(super) const INSTANCE: [u8; 2] = [0x01, 0x01];

/// Bits of the fourth byte of a packet to the BMC (table 15-2).
const SEND_BREAK: u8 = 0x10;

/// Bits of the fourth byte of a packet from the BMC (table 15-2).
pub(super) mod status {
    /// What was sent is not taken, or not all of it.
    pub(in super::super) const NACK: u8 = 0x40;
    /// Characters cannot be passed on: the computer has no power, or is in reset.
    pub(in super::super) const UNAVAILABLE: u8 = 0x20;
    /// Serial over LAN is deactivated, or will be.
    pub(in super::super) const DEACTIVATED: u8 = 0x10;
    /// The BMC had no room for what the computer wrote.
    pub(in super::super) const OVERRUN: u8 = 0x08;
    /// The computer sent a break.
    pub(in super::super) const BREAK: u8 = 0x04;
}

/// Completion codes of Activate Payload (table 24-2).
pub(super) const BUSY: u8 = 0x80;
pub(super) const OFF: u8 = 0x81;
/// "Payload activation limit reached".
pub(super) const LIMIT: u8 = 0x82;
/// Of Deactivate Payload: it was not active (table 24-3).
pub(super) const INACTIVE: u8 = 0x80;

/// Bytes before the characters.
const HEADER: usize = 4;
/// Characters of one packet at most, whatever the BMC says it takes: some write the number with its bytes exchanged.
const MAX_CHUNK: usize = 200;

/// A packet from the BMC.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// 1 to 15; 0: it is not to be acknowledged.
    pub(super) sequence: u8,
    /// The packet that it acknowledges; 0: none.
    pub(super) acknowledges: u8,
    /// How many characters of that were taken.
    pub(super) accepted: u8,
    /// [`status`].
    pub(super) status: u8,
    /// What the computer wrote.
    pub(super) characters: &'a [u8],
}

/// Reads a packet; absent: it is too short.
pub(super) fn packet(payload: &[u8]) -> Option<Packet<'_>> {
    let ([sequence, acknowledges, accepted, status], characters) = payload.split_first_chunk::<HEADER>()?;
    Some(Packet {
        sequence: sequence & 0x0f,
        acknowledges: acknowledges & 0x0f,
        accepted: *accepted,
        status: *status,
        characters,
    })
}

/// Says that all characters of a packet arrived.
pub(super) fn acknowledgement(sequence: u8, characters: usize) -> Vec<u8> {
    vec![0, sequence, u8::try_from(characters).unwrap_or(u8::MAX), 0]
}

/// Characters for the computer.
pub(super) fn characters(sequence: u8, characters: &[u8]) -> Vec<u8> {
    [&[sequence, 0, 0, 0], characters].concat()
}

/// A break for the computer.
pub(super) fn break_for(sequence: u8) -> Vec<u8> {
    vec![sequence, 0, 0, SEND_BREAK]
}

/// The number behind that one: 1 to 15 (15.9).
pub(super) const fn after(sequence: u8) -> u8 {
    sequence % 15 + 1
}

/// Activate Payload: encrypted and authenticated; an alert on a port that is shared succeeds; CTS and DCD are asserted (table 24-2).
pub(super) fn activate() -> Vec<u8> {
    [&INSTANCE[..], &[0xc8, 0, 0, 0]].concat()
}

/// Deactivate Payload (table 24-3).
pub(super) fn deactivate() -> Vec<u8> {
    [&INSTANCE[..], &[0; 4]].concat()
}

/// How many characters a packet to the BMC may have, of the answer to Activate Payload (table 24-2): the size is that of the whole payload.
/// The port in it is not looked at: it is the BMC's own, and a router may show another.
pub(super) fn chunk(answer: &[u8]) -> Option<usize> {
    let size = usize::from(u16::from_le_bytes(*answer.get(4..)?.first_chunk()?));
    Some(size.saturating_sub(HEADER).clamp(1, MAX_CHUNK))
}

/// The session that has the payload, of the answer to Get Payload Instance Info (table 24-6); absent: none.
pub(super) fn owner(answer: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*answer.first_chunk()?)).filter(|id| *id != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_bytes_of_the_specification() {
        for (made, bytes) in [
            (acknowledgement(5, 3), vec![0, 5, 3, 0]),
            (characters(1, b"ls\r"), vec![1, 0, 0, 0, b'l', b's', b'\r']),
            (break_for(15), vec![15, 0, 0, 0x10]),
            (activate(), vec![1, 1, 0xc8, 0, 0, 0]),
            (deactivate(), vec![1, 1, 0, 0, 0, 0]),
        ] {
            assert_eq!(made, bytes);
        }
        let read = packet(&[0xf2, 0xf1, 7, 0x60, b'x']).unwrap();
        let wanted = Packet { sequence: 2, acknowledges: 1, accepted: 7, status: 0x60, characters: b"x" };
        assert_eq!(read, wanted, "four bits of a number count");
        assert_eq!(packet(&[1, 0, 0]), None);
    }

    #[test]
    fn the_size_of_packets_is_bounded_on_both_sides() {
        let answer = |size: [u8; 2]| [&[0; 4], &size[..], &[0; 6]].concat();
        for (size, characters) in
            [([36, 0], Some(32)), ([4, 0], Some(1)), ([0, 0], Some(1)), ([0, 1], Some(200)), ([0xff, 0xff], Some(200))]
        {
            assert_eq!(chunk(&answer(size)), characters, "{size:?}");
        }
        assert_eq!(chunk(&[0; 5]), None);
    }

    #[test]
    fn numbers_go_from_one_to_fifteen() {
        let mut seen = vec![after(0)];
        (0..15).for_each(|n| seen.push(after(seen[n])));
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1]);
    }
}
