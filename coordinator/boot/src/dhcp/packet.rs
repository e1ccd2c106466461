//! One received DHCP packet, reduced to what a decision needs.
//!
//! Options are read lazily and leniently: a firmware that sends a malformed host name must still boot, so only the
//! options that matter here are decoded, and one that does not decode counts as absent. The fixed header is strict.

use std::net::Ipv4Addr;

use dhcproto::v4::{HType, MessageType, Opcode, borrowed};
use landfall_api::{MacAddr, SZTP_REDIRECT};

use super::Silence;

/// Header of 236 bytes and the magic cookie of RFC 2131.
const MIN_PACKET: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
/// Sub-option of option 82 (RFC 3527).
const LINK_SELECTION: u8 = 5;

/// Who is asking, from options 60 and 77.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// An operating system, or anything that does not netboot.
    Ordinary,
    /// Firmware's PXE (`PXEClient` in option 60).
    Pxe,
    /// Firmware's UEFI HTTP Boot (`HTTPClient` in option 60).
    Http,
    /// iPXE, whether in ROM or loaded by us (`iPXE` in option 77).
    Ipxe,
}

impl Client {
    /// The word used in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::Pxe => "pxe",
            Self::Http => "http",
            Self::Ipxe => "ipxe",
        }
    }
}

/// A well-formed request from an Ethernet client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Option 53.
    pub kind: MessageType,
    /// Transaction id, echoed.
    pub xid: u32,
    /// The client cannot take a unicast reply yet.
    pub broadcast: bool,
    /// Header flags as sent, echoed.
    pub flags: u16,
    /// The address the client has and answers on; unspecified if none.
    pub ciaddr: Ipv4Addr,
    /// The relay that passed it on; unspecified if none.
    pub giaddr: Ipv4Addr,
    /// The client's Ethernet address.
    pub mac: MacAddr,
    /// Option 50.
    pub requested: Option<Ipv4Addr>,
    /// Option 54: the server the client chose.
    pub server_id: Option<Ipv4Addr>,
    /// Options 60 and 77.
    pub client: Client,
    /// Of the list in option 93 the first for which there may be a loader, else its first; else the number in option 60 (`PXEClient:Arch:00007:…`).
    pub arch: Option<u16>,
    /// Option 97, echoed: PXE clients drop replies without it.
    pub machine_id: Option<Vec<u8>>,
    /// Option 61, echoed as RFC 6842 asks.
    pub client_id: Option<Vec<u8>>,
    /// Option 82, echoed to the relay as RFC 3046 asks.
    pub relay_info: Option<Vec<u8>>,
    /// Option 55 asks for the coordinator's address.
    pub asks_coordinator: bool,
}

impl Request {
    /// Reads a packet.
    ///
    /// # Errors
    /// [`Silence`] with the reason why it deserves no answer.
    pub fn parse(bytes: &[u8]) -> Result<Self, Silence> {
        // The length and the hardware length are checked first: the decoder below indexes by them.
        if bytes.len() < MIN_PACKET || bytes[236..240] != MAGIC {
            return Err(Silence::NotDhcp);
        }
        let packet = borrowed::Message::new(bytes).map_err(|_| Silence::NotDhcp)?;
        if packet.opcode() != Opcode::BootRequest {
            return Err(Silence::NotARequest);
        }
        if packet.htype() != HType::Eth || packet.hlen() != 6 {
            return Err(Silence::NotEthernet);
        }
        let mac = MacAddr(bytes[28..34].try_into().map_err(|_| Silence::NotDhcp)?);
        if mac.0[0] & 1 == 1 || mac.0 == [0; 6] {
            return Err(Silence::NotEthernet);
        }
        let mut kind = None;
        let (mut requested, mut server_id, mut architectures) = (None, None, Vec::new());
        let (mut vendor_class, mut user_class) = (Vec::new(), Vec::new());
        let (mut machine_id, mut client_id, mut relay_info) = (None, None, None);
        let mut asks_coordinator = false;
        for option in packet.opts() {
            let data = option.data();
            match u8::from(option.code()) {
                50 => requested = address(data),
                53 => kind = data.first().map(|n| MessageType::from(*n)),
                54 => server_id = address(data),
                55 => asks_coordinator |= data.contains(&SZTP_REDIRECT),
                60 => vendor_class = data.to_vec(),
                61 => client_id = Some(data.to_vec()),
                77 => user_class = data.to_vec(),
                82 => relay_info = Some(data.to_vec()),
                93 => architectures = data.as_chunks::<2>().0.iter().map(|n| u16::from_be_bytes(*n)).collect(),
                97 => machine_id = Some(data.to_vec()),
                _ => {}
            }
        }
        let client = classify(&vendor_class, &user_class);
        Ok(Self {
            kind: kind.ok_or(Silence::Bootp)?,
            xid: packet.xid(),
            broadcast: packet.flags().broadcast(),
            flags: packet.flags().into(),
            ciaddr: packet.ciaddr(),
            giaddr: packet.giaddr(),
            mac,
            requested: requested.filter(|a| !a.is_unspecified()),
            server_id,
            client,
            arch: choose(&architectures, client).or_else(|| arch_in_class(&vendor_class)),
            machine_id,
            client_id,
            relay_info,
            asks_coordinator,
        })
    }

    /// The link that a relay says the client is on: the link selection of option 82 (RFC 3527), else the relay's own address there.
    pub fn link(&self) -> Option<Ipv4Addr> {
        let mut rest = self.relay_info.as_deref().unwrap_or_default();
        while let [code, length, after @ ..] = rest
            && let Some((value, next)) = after.split_at_checked(usize::from(*length))
        {
            if *code == LINK_SELECTION
                && !self.giaddr.is_unspecified()
                && let Some(link) = address(value)
            {
                return Some(link);
            }
            rest = next;
        }
        Some(self.giaddr).filter(|relay| !relay.is_unspecified())
    }

    /// The word used in the log for option 53.
    pub fn kind_str(&self) -> &'static str {
        match self.kind {
            MessageType::Discover => "discover",
            MessageType::Offer => "offer",
            MessageType::Request => "request",
            MessageType::Decline => "decline",
            MessageType::Ack => "ack",
            MessageType::Nak => "nak",
            MessageType::Release => "release",
            MessageType::Inform => "inform",
            _ => "other",
        }
    }
}

fn address(data: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(data).ok().map(Ipv4Addr::from)
}

pub(super) fn classify(vendor_class: &[u8], user_class: &[u8]) -> Client {
    if is_ipxe(user_class) {
        Client::Ipxe
    } else if vendor_class.starts_with(b"HTTPClient") {
        Client::Http
    } else if vendor_class.starts_with(b"PXEClient") {
        Client::Pxe
    } else {
        Client::Ordinary
    }
}

/// iPXE sends the bare word. RFC 3004 wants a list of words, each with its length before it: some builds and relays make one,
/// and some end the word with zeros.
fn is_ipxe(user_class: &[u8]) -> bool {
    let is_word = |mut text: &[u8]| {
        while let Some(shorter) = text.strip_suffix(&[0]) {
            text = shorter;
        }
        text == b"iPXE"
    };
    if is_word(user_class) {
        return true;
    }
    let mut rest = user_class;
    while let Some((&length, after)) = rest.split_first()
        && let Some((word, next)) = after.split_at_checked(length.into())
    {
        if is_word(word) {
            return true;
        }
        rest = next;
    }
    false
}

/// Firmware that can start several kinds of loader lists them all (RFC 4578).
pub(super) fn choose(architectures: &[u16], client: Client) -> Option<u16> {
    let loads = |arch: &&u16| match client {
        Client::Http => matches!(arch, 16 | 19),
        Client::Pxe | Client::Ipxe | Client::Ordinary => matches!(arch, 0 | 7 | 9 | 11),
    };
    architectures.iter().find(loads).or_else(|| architectures.first()).copied()
}

/// Old ROMs leave option 93 out and name the architecture in option 60 alone.
pub(super) fn arch_in_class(vendor_class: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(vendor_class).ok()?;
    let mut words = text.split(':');
    words.find(|w| *w == "Arch")?;
    words.next().filter(|w| w.len() == 5 && w.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}
