//! Packets: what is around a payload on the network (13.1 to 13.6). Pure.

/// RMCP: version 1.0, no acknowledgement wanted, of the class IPMI (13.1.3).
const RMCP: [u8; 4] = [0x06, 0x00, 0xff, 0x07];
/// "Authentication type" of a packet without a session, in the format of IPMI 1.5 (13.6).
const NONE: u8 = 0x00;
/// The same of the format of IPMI 2.0 (13.6).
const RMCP_PLUS: u8 = 0x06;
/// Bits of the payload type (13.6).
const ENCRYPTED: u8 = 0x80;
const AUTHENTICATED: u8 = 0x40;
/// "Next header" behind the padding: always so (13.6).
const NEXT: u8 = 0x07;

/// Types of payloads (table 13-16).
pub(super) mod kind {
    pub(in super::super) const MESSAGE: u8 = 0x00;
    pub(in super::super) const SOL: u8 = 0x01;
    pub(in super::super) const OPEN_REQUEST: u8 = 0x10;
    pub(in super::super) const OPEN_ANSWER: u8 = 0x11;
    pub(in super::super) const RAKP_1: u8 = 0x12;
    pub(in super::super) const RAKP_2: u8 = 0x13;
    pub(in super::super) const RAKP_3: u8 = 0x14;
    pub(in super::super) const RAKP_4: u8 = 0x15;
}

/// A packet of a session, as received.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// The payload's type.
    pub(super) kind: u8,
    /// The session's id at the receiver.
    pub(super) session: u32,
    pub(super) sequence: u32,
    /// Encrypted.
    pub(super) payload: &'a [u8],
    /// What the code is computed of.
    pub(super) signed: &'a [u8],
    pub(super) code: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn header(kind: u8, session: u32, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let mut bytes = RMCP.to_vec();
    bytes.extend([RMCP_PLUS, kind]);
    bytes.extend(session.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A message before any session, in the format that every BMC reads.
pub(super) fn early(message: &[u8]) -> Vec<u8> {
    let mut bytes = RMCP.to_vec();
    bytes.push(NONE);
    // Session's sequence number and id.
    bytes.extend([0; 8]);
    bytes.push(u8::try_from(message.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(message);
    bytes
}

/// The message of a packet before any session, in either format.
pub(super) fn early_message(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(&RMCP)?;
    if *rest.first()? == NONE {
        let length = usize::from(*rest.get(9)?);
        return rest.get(10..)?.get(..length);
    }
    setup(bytes, kind::MESSAGE)
}

/// A payload that sets up a session: neither encrypted nor authenticated.
pub(super) fn plain(kind: u8, payload: &[u8]) -> Vec<u8> {
    header(kind, 0, 0, payload)
}

/// The payload of a packet that sets up a session.
pub(super) fn setup(bytes: &[u8], kind: u8) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(&RMCP)?;
    let matches = rest.get(..2)? == [RMCP_PLUS, kind] && u32_at(rest, 2)? == 0;
    let length = usize::from(u16_at(rest, 10)?);
    rest.get(12..)?.get(..length).filter(|_| matches)
}

/// A packet of a session, with what is to be signed: everything behind the header of RMCP. Its code comes behind it.
pub(super) fn sealed(kind: u8, session: u32, sequence: u32, encrypted: &[u8]) -> Vec<u8> {
    let mut bytes = header(kind | ENCRYPTED | AUTHENTICATED, session, sequence, encrypted);
    // What is signed has a multiple of four bytes, with the length of the padding and "next header".
    let padding = (4 - (bytes.len() - RMCP.len() + 2) % 4) % 4;
    bytes.extend(std::iter::repeat_n(0xff, padding));
    bytes.extend([padding as u8, NEXT]);
    bytes
}

/// What of those bytes is signed.
pub(super) fn signed(bytes: &[u8]) -> &[u8] {
    bytes.get(RMCP.len()..).unwrap_or_default()
}

/// A packet of a session with an encrypted payload, a message or Serial over LAN, and a code of `length` bytes; nothing in it is checked
/// yet.
pub(super) fn packet(bytes: &[u8], length: usize) -> Option<Packet<'_>> {
    let rest = bytes.strip_prefix(&RMCP)?;
    let (first, second) = (*rest.first()?, *rest.get(1)?);
    let kind = second ^ (ENCRYPTED | AUTHENTICATED);
    if first != RMCP_PLUS || !matches!(kind, kind::MESSAGE | kind::SOL) {
        return None;
    }
    let (signed, code) = rest.split_at_checked(rest.len().checked_sub(length)?)?;
    let payload = signed.get(12..)?.get(..usize::from(u16_at(signed, 10)?))?;
    Some(Packet { kind, session: u32_at(signed, 2)?, sequence: u32_at(signed, 6)?, payload, signed, code })
}
