//! Packets (13.1 to 13.6, 13.8).

/// What arrived.
pub(super) enum Arrived<'a> {
    /// A message outside sessions.
    Early(&'a [u8]),
    /// A payload that sets up a session: its type, and it.
    Setup(u8, &'a [u8]),
    /// A packet of a session.
    Session(Sealed<'a>),
}

/// An encrypted and signed packet.
pub(super) struct Sealed<'a> {
    /// Of Serial over LAN; else a message.
    pub(super) is_sol: bool,
    pub(super) session: u32,
    pub(super) sequence: u32,
    pub(super) encrypted: &'a [u8],
    /// Everything behind the header of RMCP: what is signed, and the code.
    pub(super) all: &'a [u8],
}

impl Arrived<'_> {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Early(_) => 0xff,
            Self::Setup(kind, _) => *kind,
            Self::Session(packet) => u8::from(packet.is_sol),
        }
    }
}

pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?))
}

pub(super) fn read(bytes: &[u8]) -> Option<Arrived<'_>> {
    if bytes.get(..4)? != [6, 0, 0xff, 7] {
        return None;
    }
    let all = &bytes[4..];
    if all.first()? == &0 {
        let length = usize::from(*all.get(9)?);
        return Some(Arrived::Early(all.get(10..10 + length)?));
    }
    let length = usize::from(*all.get(10)?) | usize::from(*all.get(11)?) << 8;
    let payload = all.get(12..12 + length)?;
    let (session, sequence) = (number(&all[2..])?, number(&all[6..])?);
    match (all[0], all[1]) {
        (6, kind @ 0x10..=0x15) if session == 0 => Some(Arrived::Setup(kind, payload)),
        (6, kind @ 0xc0..=0xc1) => {
            Some(Arrived::Session(Sealed { is_sol: kind == 0xc1, session, sequence, encrypted: payload, all }))
        }
        _ => None,
    }
}

pub(super) fn early(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, message.len() as u8];
    bytes.extend(message);
    bytes
}

pub(super) fn setup(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![6, 0, 0xff, 7, 6, kind, 0, 0, 0, 0, 0, 0, 0, 0, payload.len() as u8, 0];
    bytes.extend(payload);
    bytes
}

/// A packet of a session, up to where its code comes.
pub(super) fn session(kind: u8, id: u32, sequence: u32, encrypted: &[u8]) -> Vec<u8> {
    let mut bytes = vec![6, 0, 0xff, 7, 6, 0xc0 | kind];
    bytes.extend(id.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend([encrypted.len() as u8, 0]);
    bytes.extend(encrypted);
    let mut padding = 0;
    while !(bytes.len() - 4 + 2).is_multiple_of(4) {
        bytes.push(0xff);
        padding += 1;
    }
    bytes.extend([padding, 7]);
    bytes
}

/// A request of a message: the function, the sequence number, the command and the data.
pub(super) fn request(message: &[u8]) -> Option<(u8, u8, u8, &[u8])> {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>() % 256;
    if message.len() < 7 || sum(&message[..3]) != 0 || sum(&message[3..]) != 0 || message[0] != 0x20 {
        return None;
    }
    Some((message[1] >> 2, message[4], message[5], &message[6..message.len() - 1]))
}

/// The answer to a request: a completion code, and data.
pub(super) fn answer(function: u8, sequence: u8, command: u8, code: u8, data: &[u8]) -> Vec<u8> {
    let negative = |bytes: &[u8]| (256 - bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>() % 256) as u8;
    let mut bytes = vec![0x81, (function + 1) << 2];
    bytes.push(negative(&bytes));
    bytes.extend([0x20, sequence, command, code]);
    bytes.extend(data);
    bytes.push(negative(&bytes[3..]));
    bytes
}
