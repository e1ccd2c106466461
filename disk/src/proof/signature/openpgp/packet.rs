//! Packets and the numbers in them, RFC 9580 sections 3 and 4.

/// The packets we look into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Signature,
    PublicKey,
    PublicSubkey,
    UserId,
    Other,
}

/// A packet of known length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) tag: Tag,
    pub(super) body: &'a [u8],
}

/// More packets than any key has.
const PACKETS: usize = 8192;

/// # Errors
/// A clause after "the file …".
pub(super) fn split(bytes: &[u8]) -> Result<Vec<Packet<'_>>, String> {
    let mut rest = Reader(bytes);
    let mut packets = Vec::new();
    while !rest.0.is_empty() {
        if packets.len() == PACKETS {
            return Err(format!("has more than {PACKETS} packets"));
        }
        packets.push(one(&mut rest).ok_or("has a packet that is cut, or of no stated length")?);
    }
    Ok(packets)
}

fn one<'a>(rest: &mut Reader<'a>) -> Option<Packet<'a>> {
    let header = rest.u8()?;
    let (tag, length) = match (header & 0x80, header & 0x40) {
        (0, _) => return None,
        // The old way: the low bits tell the width of the length; 3 means until the end, which detached packets never do.
        (_, 0) => {
            let length = match header & 3 {
                0 => usize::from(rest.u8()?),
                1 => usize::from(rest.u16()?),
                2 => usize::try_from(rest.u32()?).ok()?,
                _ => return None,
            };
            ((header >> 2) & 0xf, length)
        }
        _ => (header & 0x3f, rest.length()?),
    };
    let tag = match tag {
        2 => Tag::Signature,
        6 => Tag::PublicKey,
        13 => Tag::UserId,
        14 => Tag::PublicSubkey,
        _ => Tag::Other,
    };
    Some(Packet { tag, body: rest.take(length)? })
}

/// Big-endian numbers, one after the other; `None` at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (here, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(here)
    }
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }
    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }
    /// A number of any size, without leading zeroes; at most 8192 bits.
    pub(super) fn number(&mut self) -> Option<&'a [u8]> {
        let bits = usize::from(self.u16()?);
        if bits > 8192 {
            return None;
        }
        let bytes = self.take(bits.div_ceil(8))?;
        let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        bytes.get(first..)
    }
    /// A length in one, two or five octets; a part's length is refused.
    pub(super) fn length(&mut self) -> Option<usize> {
        match self.u8()? {
            short @ 0..=191 => Some(usize::from(short)),
            high @ 192..=223 => Some(((usize::from(high) - 192) << 8) + usize::from(self.u8()?) + 192),
            255 => usize::try_from(self.u32()?).ok(),
            _ => None,
        }
    }
}
