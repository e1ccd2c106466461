//! TFTP on the wire (RFC 1350, 2347, 2348, 2349): what a read-only server needs.

/// The block size without negotiation.
pub(super) const DEFAULT_BLOCK: u16 = 512;
/// The largest block given: a data packet of this size just fits an Ethernet frame unfragmented (1500 - 20 - 8 - 4). Firmware
/// drops fragments.
pub(super) const MAX_BLOCK: u16 = 1468;
/// The same over IPv6, whose header has 40 bytes.
pub(super) const MAX_BLOCK_V6: u16 = 1448;
/// The longest wait a client may ask for. A longer one would only keep a place taken.
const LONGEST_ASKED: u8 = 5;

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A wish to read a file.
    Read(ReadRequest),
    /// A wish to read one in a mode that would change its bytes; the mode as sent, cut to 16 letters.
    OtherMode(String),
    /// A wish to write one, which is always refused.
    Write,
    /// A block arrived.
    Ack(u16),
    /// The client gives up.
    Error {
        /// The protocol's code.
        code: u16,
        /// The client's words, cut to 128 characters.
        message: String,
    },
}

/// A wish to read a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadRequest {
    /// The path as sent.
    pub(super) path: String,
    /// `blksize`, brought into this server's range.
    pub(super) block: Option<u16>,
    /// Whether the client asked for the size.
    pub(super) wants_size: bool,
    /// `timeout`, seconds, 1 to [`LONGEST_ASKED`].
    pub(super) timeout: Option<u8>,
}

impl Incoming {
    /// Reads a packet; `None` for one that is not TFTP, or not for a server.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (opcode, rest) = bytes.split_first_chunk::<2>()?;
        match u16::from_be_bytes(*opcode) {
            1 => ReadRequest::parse(rest),
            2 => Some(Self::Write),
            4 => rest.first_chunk::<2>().map(|n| Self::Ack(u16::from_be_bytes(*n))),
            5 => {
                let (code, text) = rest.split_first_chunk::<2>()?;
                let text = text.split(|b| *b == 0).next().unwrap_or_default();
                let message = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(128).collect();
                Some(Self::Error { code: u16::from_be_bytes(*code), message })
            }
            _ => None,
        }
    }
}

impl ReadRequest {
    fn parse(bytes: &[u8]) -> Option<Incoming> {
        // Every field ends with a zero; what follows the last one is padding that some ROMs send.
        let end = bytes.iter().rposition(|b| *b == 0)?;
        let mut fields = bytes[..end].split(|b| *b == 0).map(std::str::from_utf8);
        let path = fields.next()?.ok()?.to_owned();
        let mode = fields.next()?.ok()?;
        if path.is_empty() {
            return None;
        }
        // Loaders are binary; netascii would change them.
        if !mode.eq_ignore_ascii_case("octet") {
            return Some(Incoming::OtherMode(mode.chars().filter(char::is_ascii_alphanumeric).take(16).collect()));
        }
        let mut request = Self { path, block: None, wants_size: false, timeout: None };
        while let (Some(Ok(name)), Some(Ok(value))) = (fields.next(), fields.next()) {
            let value = value.parse::<u32>().ok();
            match (name.to_ascii_lowercase().as_str(), value) {
                // 8 is the RFC's least.
                ("blksize", Some(n @ 8..)) => {
                    request.block = Some(u16::try_from(n).map_or(MAX_BLOCK, |n| n.min(MAX_BLOCK)));
                }
                ("tsize", Some(_)) => request.wants_size = true,
                // One that asks for more is not heard, and goes by its own patience.
                ("timeout", Some(n)) if (1..=u32::from(LONGEST_ASKED)).contains(&n) => {
                    request.timeout = u8::try_from(n).ok();
                }
                _ => {}
            }
        }
        Some(Incoming::Read(request))
    }

    /// The answer to the options, of a file of this many bytes; `None` if the client sent none that are known.
    pub(super) fn option_ack(&self, size: usize) -> Option<Vec<u8>> {
        let mut packet = vec![0, 6];
        let mut add = |name: &str, value: String| {
            packet.extend_from_slice(name.as_bytes());
            packet.push(0);
            packet.extend_from_slice(value.as_bytes());
            packet.push(0);
        };
        if let Some(block) = self.block {
            add("blksize", block.to_string());
        }
        if self.wants_size {
            add("tsize", size.to_string());
        }
        if let Some(timeout) = self.timeout {
            add("timeout", timeout.to_string());
        }
        (packet.len() > 2).then_some(packet)
    }
}

/// One block of data.
pub(super) fn data(number: u16, block: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(4 + block.len());
    packet.extend_from_slice(&[0, 3]);
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(block);
    packet
}

/// Code 1.
pub(super) const NOT_FOUND: u16 = 1;
/// Code 2.
pub(super) const ACCESS_VIOLATION: u16 = 2;
/// Code 0: see the message.
pub(super) const UNDEFINED: u16 = 0;

/// A refusal.
pub(super) fn error(code: u16, message: &str) -> Vec<u8> {
    let mut packet = vec![0, 5];
    packet.extend_from_slice(&code.to_be_bytes());
    packet.extend_from_slice(message.as_bytes());
    packet.push(0);
    packet
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_as_firmware_sends_them() {
        let read = |bytes: &[u8]| match Incoming::parse(bytes) {
            Some(Incoming::Read(r)) => Some(r),
            _ => None,
        };
        // OVMF asks for the size first, then reads.
        let r = read(b"\0\x01snponly.efi\0octet\0tsize\x000\0blksize\x001468\0windowsize\x004\0").unwrap();
        assert_eq!((r.path.as_str(), r.block, r.wants_size), ("snponly.efi", Some(1468), true));
        assert_eq!(r.option_ack(173_792).unwrap(), b"\0\x06blksize\x001468\0tsize\x00173792\0");
        // A plain RFC 1350 ROM, upper-case mode, padded.
        let r = read(b"\0\x01/undionly.kpxe\0OCTET\0").unwrap();
        assert_eq!((r.path.as_str(), r.option_ack(1)), ("/undionly.kpxe", None));
        // Blocks that would be cut into fragments, and nonsense.
        assert_eq!(read(b"\0\x01a\0octet\0blksize\x0065464\0").unwrap().block, Some(MAX_BLOCK));
        assert_eq!(read(b"\0\x01a\0octet\0blksize\x001\0timeout\x000\0").unwrap().option_ack(1), None);
        assert_eq!(Incoming::parse(b"\0\x01a\0netascii\0"), Some(Incoming::OtherMode("netascii".into())));
        assert_eq!(read(b"\0\x01a\0octet"), None);
        assert_eq!(Incoming::parse(b"\0\x02a\0octet\0"), Some(Incoming::Write));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _parsed = Incoming::parse(&bytes);
        }
    }
}
