//! Building a reply: what every answer shares, and the boot options.

use std::net::Ipv4Addr;

use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Encodable, Encoder};
use landfall_api::{SZTP_REDIRECT, redirect_to};

use super::Silence;
use super::bootfile::{BootFile, BootServer};
use super::packet::{Client, Request};

/// BOOTP's least size; some ROMs drop anything shorter.
const MIN_REPLY: usize = 300;

/// PXE discovery control (option 43, sub-option 6), bit 3: boot the named file, ask no boot server, show no menu.
/// Without it firmware multicasts for boot servers and waits. 255 ends the list.
const PXE_BOOT_NAMED_FILE: [u8; 4] = [6, 1, 8, 255];

/// iPXE's own options (175), sub-option 176 `no-pxedhcp`: do not wait for a ProxyDHCP server to come along.
const IPXE_NO_PROXY_DHCP: [u8; 3] = [176, 1, 1];

/// The option with which a relay says where a client is attached (RFC 3046).
const RELAY_AGENT_INFORMATION: u8 = 82;
/// Ends the options.
const END: u8 = 255;

/// Where a reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// To 255.255.255.255:68: valid for every client without an address.
    Broadcast,
    /// To the client's own address, port 68.
    Client(Ipv4Addr),
    /// To a relay, port 67.
    Relay(Ipv4Addr),
    /// To the address and port it came from (port 4011).
    Sender,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The message.
    pub message: Message,
    /// Where it goes.
    pub to: Destination,
    /// Option 82 as the relay sent it. The encoder of `message` would write it twice, so [`Reply::encode`] adds it.
    relay_info: Option<Vec<u8>>,
}

impl Reply {
    /// A reply of that kind with everything that every reply carries.
    pub fn new(request: &Request, kind: MessageType, server: &BootServer, to: Destination) -> Self {
        let mut message = Message::new_with_id(
            request.xid,
            request.ciaddr,
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::UNSPECIFIED,
            request.giaddr,
            &request.mac.0,
        );
        message.set_opcode(Opcode::BootReply).set_flags(Flags::new(request.flags));
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::ServerIdentifier(server.address));
        if let Some(id) = &request.client_id {
            options.insert(DhcpOption::ClientIdentifier(id.clone()));
        }
        Self { message, to, relay_info: request.relay_info.clone() }
    }

    /// Adds what a netbooting client needs. `own_addresses` says that this server gives addresses too.
    ///
    /// # Errors
    /// [`Silence::UrlTooLong`] when the file's name does not fit the header's field.
    pub fn add_boot(
        &mut self, request: &Request, file: &BootFile, server: &BootServer, own_addresses: bool,
    ) -> Result<(), Silence> {
        // 128 with the zero that old ROMs need; the setter below panics on more.
        if file.name.len() > 127 {
            return Err(Silence::UrlTooLong);
        }
        self.message.set_siaddr(server.address);
        self.message.set_sname_str(server.address.to_string());
        self.message.set_fname_str(&file.name);
        let options = self.message.opts_mut();
        options.insert(DhcpOption::ClassIdentifier(file.class.as_bytes().to_vec()));
        if let Some(id) = &request.machine_id {
            options.insert(DhcpOption::ClientMachineIdentifier(id.clone()));
        }
        match request.client {
            // UEFI HTTP Boot reads the URL from option 67 first, and knows nothing of option 43.
            Client::Http => {
                options.insert(DhcpOption::BootfileName(file.name.as_bytes().to_vec()));
            }
            Client::Pxe | Client::Ipxe | Client::Ordinary => {
                options.insert(DhcpOption::VendorExtensions(PXE_BOOT_NAMED_FILE.to_vec()));
            }
        }
        if request.client == Client::Ipxe && own_addresses {
            insert_raw(&mut self.message, OptionCode::from(175), IPXE_NO_PROXY_DHCP.to_vec());
        }
        Ok(())
    }

    /// Adds the coordinator's address. One that does not fit an option is left out.
    pub fn add_coordinators(&mut self, urls: &[String]) {
        let value = Some(redirect_to(urls)).filter(|value| !value.is_empty());
        value.into_iter().for_each(|value| insert_raw(&mut self.message, OptionCode::from(SZTP_REDIRECT), value));
    }

    /// The bytes to send, at least BOOTP's 300.
    ///
    /// # Errors
    /// When the message does not encode, which a reply built here always does.
    pub fn encode(&self) -> Result<Vec<u8>, dhcproto::error::EncodeError> {
        let mut bytes = Vec::with_capacity(512);
        self.message.encode(&mut Encoder::new(&mut bytes))?;
        if let Some(info) = &self.relay_info
            && let Ok(length) = u8::try_from(info.len())
            && bytes.pop_if(|last| *last == END).is_some()
        {
            // The last option, as RFC 3046 asks.
            bytes.extend([RELAY_AGENT_INFORMATION, length]);
            bytes.extend(info);
            bytes.push(END);
        }
        if bytes.len() < MIN_REPLY {
            bytes.resize(MIN_REPLY, 0);
        }
        Ok(bytes)
    }

    /// Option 53.
    pub fn kind(&self) -> Option<MessageType> {
        self.message.opts().msg_type()
    }

    /// The word used in the log.
    pub fn kind_str(&self) -> &'static str {
        match self.kind() {
            Some(MessageType::Offer) => "offer",
            Some(MessageType::Ack) => "ack",
            Some(MessageType::Nak) => "nak",
            _ => "other",
        }
    }
}

fn insert_raw(message: &mut Message, code: OptionCode, data: Vec<u8>) {
    message.opts_mut().insert(DhcpOption::Unknown(UnknownOption::new(code, data)));
}
