//! One received DHCPv6 packet, reduced to what a decision needs. As lenient as its twin of IPv4: an option that does not decode counts
//! as absent.
//!
//! Read by hand: dhcproto 0.15 subtracts from the lengths in a packet without a check, which a made-up one turns into a panic.

use std::net::Ipv6Addr;

use dhcproto::v6::MessageType;
use landfall_api::{MacAddr, SZTP_REDIRECT_V6};

use super::super::Silence;
use super::super::packet::{Client, arch_in_class, choose, classify};
use super::address::{eui64, is_port};

/// Addresses that one request may ask for: firmware asks for one, and each answer takes some dozens of bytes.
const MAX_ASKED: usize = 4;
/// The longest identifier of a client, bytes (RFC 8415, 11.1).
const MAX_ID: usize = 130;

/// A request for one address (IA_NA).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The client's own number for it (IAID).
    pub number: u32,
    /// The addresses that it has, or wants.
    pub addresses: Vec<Ipv6Addr>,
}

/// A well-formed request from an Ethernet client on this link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The message's type.
    pub kind: MessageType,
    /// Transaction id, echoed.
    pub xid: [u8; 3],
    /// Option 1, echoed.
    pub client_id: Vec<u8>,
    /// Option 2: the server the client chose.
    pub server_id: Option<Vec<u8>>,
    /// The port's Ethernet address.
    pub mac: MacAddr,
    /// Options 3.
    pub asked: Vec<Asked>,
    /// Option 6 asks for the coordinator's address.
    pub asks_coordinator: bool,
    /// Options 15 and 16.
    pub client: Client,
    /// Option 61, else the number in option 16.
    pub arch: Option<u16>,
}

impl Request {
    /// Reads a packet that came from this address.
    ///
    /// # Errors
    /// [`Silence`] with the reason why it deserves no answer.
    pub fn parse(bytes: &[u8], from: Ipv6Addr) -> Result<Self, Silence> {
        let ([kind, xid @ ..], rest) = bytes.split_first_chunk::<4>().ok_or(Silence::NotDhcp)?;
        let kind = MessageType::from(*kind);
        match kind {
            MessageType::RelayForw => return Err(Silence::RelayedV6),
            MessageType::Solicit
            | MessageType::Request
            | MessageType::Confirm
            | MessageType::Renew
            | MessageType::Rebind
            | MessageType::Release
            | MessageType::Decline
            | MessageType::InformationRequest => {}
            _ => return Err(Silence::NotARequest),
        }
        let (mut client_id, mut server_id, mut asked, mut architectures) = (None, None, Vec::new(), Vec::new());
        let (mut vendor_class, mut user_class, mut asks_coordinator) = (&[][..], &[][..], false);
        for (code, data) in options(rest) {
            match code {
                1 => client_id = Some(data.to_vec()),
                SERVER_ID => server_id = Some(data.to_vec()),
                IA_NA if asked.len() < MAX_ASKED => asked.extend(association(data)),
                6 => asks_coordinator |= data.as_chunks::<2>().0.contains(&SZTP_REDIRECT_V6.to_be_bytes()),
                15 => user_class = first_word(data),
                // Behind the number of the enterprise that gives the class its meaning.
                16 => vendor_class = first_word(data.get(4..).unwrap_or_default()),
                61 => architectures = data.as_chunks::<2>().0.iter().map(|n| u16::from_be_bytes(*n)).collect(),
                _ => {}
            }
        }
        let client_id = client_id.filter(|id| (1..=MAX_ID).contains(&id.len())).ok_or(Silence::NoClientId)?;
        let client = classify(vendor_class, user_class);
        Ok(Self {
            kind,
            xid: *xid,
            mac: eui64(from).or_else(|| mac_in(&client_id)).ok_or(Silence::NoMac)?,
            client_id,
            server_id,
            asked,
            asks_coordinator,
            client,
            arch: choose(&architectures, client).or_else(|| arch_in_class(vendor_class)),
        })
    }

    /// The word used in the log.
    pub fn kind_str(&self) -> &'static str {
        match self.kind {
            MessageType::Solicit => "solicit",
            MessageType::Request => "request",
            MessageType::Confirm => "confirm",
            MessageType::Renew => "renew",
            MessageType::Rebind => "rebind",
            MessageType::Release => "release",
            MessageType::Decline => "decline",
            MessageType::InformationRequest => "information-request",
            _ => "other",
        }
    }
}

/// A request for an address (RFC 8415, 21.4).
const IA_NA: u16 = 3;
/// The server that is meant, or that answers (21.3).
pub(super) const SERVER_ID: u16 = 2;
/// An address in one (21.6).
const IA_ADDRESS: u16 = 5;

/// The options of a message, or in an option: a code and a length of two bytes each, then the data. One that is cut off ends them.
pub(super) fn options(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (code, after) = rest.split_first_chunk::<2>()?;
        let (length, after) = after.split_first_chunk::<2>()?;
        let (data, next) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
        rest = next;
        Some((u16::from_be_bytes(*code), data))
    })
}

/// The first of a list of words, each behind its length.
fn first_word(data: &[u8]) -> &[u8] {
    let word =
        data.split_first_chunk::<2>().and_then(|(length, after)| after.get(..u16::from_be_bytes(*length).into()));
    word.unwrap_or_default()
}

/// The client's number, two times of four bytes, and options with its addresses.
fn association(data: &[u8]) -> Option<Asked> {
    let (number, rest) = data.split_first_chunk::<4>()?;
    Some(Asked { number: u32::from_be_bytes(*number), addresses: addresses(rest.get(8..)?).take(MAX_ASKED).collect() })
}

/// The addresses among these options.
fn addresses(data: &[u8]) -> impl Iterator<Item = Ipv6Addr> {
    let all = options(data).filter(|(code, _)| *code == IA_ADDRESS);
    all.filter_map(|(_, data)| Some(Ipv6Addr::from(*data.first_chunk::<16>()?)))
}

/// The Ethernet address in a client's identifier (DUID-LLT and DUID-LL, RFC 8415, 11.2 and 11.4).
fn mac_in(id: &[u8]) -> Option<MacAddr> {
    let address = match id {
        [0, 1, 0, 1, _, _, _, _, address @ ..] | [0, 3, 0, 1, address @ ..] => address,
        _ => return None,
    };
    Some(MacAddr(address.try_into().ok()?)).filter(|mac| is_port(*mac))
}
