//! What a request is answered with. Pure.

use std::net::Ipv6Addr;
use std::time::Duration;

use dhcproto::v6::{DhcpOption, IAAddr, IANA, Message, MessageType, OptionCode, Status, StatusCode, UnknownOption};
use landfall_api::{SZTP_REDIRECT_V6, redirect_to};

use super::super::bootfile::{BootFile, BootServer};
use super::super::packet::Client;
use super::super::{Silence, Standing};
use super::address::Link;
use super::packet::Request;

/// The enterprise number in PXE's vendor class: Intel's (UEFI 2.10, 24.3.4).
const INTEL: u32 = 343;
/// Takes this server's answer at once, without a wait for others.
const AT_ONCE: u8 = 255;

/// What this server gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gives {
    /// Its own identifier (DUID).
    pub id: Vec<u8>,
    /// Where its loaders are.
    pub server: BootServer<Ipv6Addr>,
    /// The addresses that it gives out; `None` beside another DHCPv6 server.
    pub addresses: Option<Addresses>,
}

/// Addresses, and what goes with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The link that they are of.
    pub link: Link,
    /// How long one may be used.
    pub lease: Duration,
    /// Resolvers.
    pub dns: Vec<Ipv6Addr>,
    /// The coordinator's address, `https://HOST:PORT`, for those who ask.
    pub coordinators: Vec<String>,
}

/// The answer, to be sent to where the request came from.
///
/// # Errors
/// [`Silence`] with the reason.
pub fn answer(request: &Request, standing: Standing, gives: &Gives) -> Result<Message, Silence> {
    use MessageType as M;
    if request.server_id.as_ref().is_some_and(|id| *id != gives.id) {
        return Err(Silence::AnotherServer);
    }
    standing.check()?;
    let kind = if request.kind == M::Solicit { M::Advertise } else { M::Reply };
    let Some(addresses) = &gives.addresses else {
        if request.client != Client::Http {
            return Err(Silence::NoProxyV6);
        }
        if !matches!(request.kind, M::Solicit | M::InformationRequest) {
            return Err(Silence::Kind);
        }
        let mut reply = begin(request, kind, gives);
        add_boot(&mut reply, request, &gives.server.boot_file(request.client, request.arch, request.mac)?, gives);
        return Ok(reply);
    };
    // These are for one server, which they name (RFC 8415, 16.6 to 16.10).
    if matches!(request.kind, M::Request | M::Renew | M::Release | M::Decline) && request.server_id.is_none() {
        return Err(Silence::Kind);
    }
    let mut reply = begin(request, kind, gives);
    match request.kind {
        M::Solicit | M::Request | M::Renew | M::Rebind => {
            for asked in &request.asked {
                reply.opts_mut().insert(DhcpOption::IANA(addresses.given(request, asked.number, &asked.addresses)));
            }
        }
        M::Confirm => {
            let mut all = request.asked.iter().flat_map(|asked| &asked.addresses).peekable();
            if all.peek().is_none() {
                return Err(Silence::Kind);
            }
            let on_link = all.all(|address| addresses.link.contains(*address));
            reply.opts_mut().insert(status(if on_link { Status::Success } else { Status::NotOnLink }));
            return Ok(reply);
        }
        // Nothing is kept, so nothing is to be given back.
        M::Release | M::Decline => {
            reply.opts_mut().insert(status(Status::Success));
            return Ok(reply);
        }
        _ => {}
    }
    if kind == M::Advertise {
        reply.opts_mut().insert(DhcpOption::Preference(AT_ONCE));
    }
    if !addresses.dns.is_empty() {
        reply.opts_mut().insert(DhcpOption::DomainNameServers(addresses.dns.clone()));
    }
    // An ordinary client boots nothing, and one without a loader here still gets its address.
    match gives.server.boot_file(request.client, request.arch, request.mac) {
        Ok(file) => add_boot(&mut reply, request, &file, gives),
        // Its code is higher than that of a loader's URL, behind which nothing may stand; and no firmware asks.
        Err(_) if request.asks_coordinator => {
            let value = redirect_to(&addresses.coordinators);
            let option = UnknownOption::new(OptionCode::from(SZTP_REDIRECT_V6), value);
            reply.opts_mut().insert(DhcpOption::Unknown(option));
        }
        Err(_) => {}
    }
    Ok(reply)
}

impl Addresses {
    /// The port's address for this number; one that it has and is not it, it may no longer use.
    fn given(&self, request: &Request, number: u32, has: &[Ipv6Addr]) -> IANA {
        let seconds = u32::try_from(self.lease.as_secs()).unwrap_or(u32::MAX);
        let address = self.link.address(request.mac, number);
        let one = |addr, life| {
            DhcpOption::IAAddr(IAAddr {
                addr,
                preferred_life: life,
                valid_life: life,
                opts: Vec::new().into_iter().collect(),
            })
        };
        // A Solicit's and a Request's are wishes.
        let keeps = matches!(request.kind, MessageType::Renew | MessageType::Rebind);
        let old = has.iter().filter(|old| keeps && **old != address).map(|old| one(*old, 0));
        let opts = std::iter::once(one(address, seconds)).chain(old).collect();
        // When to renew, and when to ask any server: half and four fifths, as RFC 8415, 21.4 recommends.
        IANA { id: number, t1: seconds / 2, t2: seconds / 5 * 4, opts }
    }
}

fn begin(request: &Request, kind: MessageType, gives: &Gives) -> Message {
    let mut reply = Message::new_with_id(kind, request.xid);
    reply.opts_mut().insert(DhcpOption::ClientId(request.client_id.clone()));
    reply.opts_mut().insert(DhcpOption::ServerId(gives.id.clone()));
    reply
}

fn status(status: Status) -> DhcpOption {
    DhcpOption::StatusCode(StatusCode { status, msg: String::new() })
}

/// The loader's URL. EDK2 reads it to the first zero and not to its end, so nothing may stand behind it: options are sent in the order of
/// their codes, and no higher one is sent.
fn add_boot(reply: &mut Message, request: &Request, file: &BootFile, gives: &Gives) {
    let url = match request.client {
        // The class makes the firmware believe it. To PXE the same would say that the file is to be asked for at port 4011.
        Client::Http => {
            // Behind its length. The type that dhcproto has for it does not count the bytes when it is written.
            let class =
                [&INTEL.to_be_bytes()[..], &(file.class.len() as u16).to_be_bytes(), file.class.as_bytes()].concat();
            reply.opts_mut().insert(DhcpOption::Unknown(UnknownOption::new(OptionCode::VendorClass, class)));
            file.name.clone()
        }
        Client::Pxe => format!("tftp://[{}]/{}", gives.server.address, file.name),
        Client::Ipxe | Client::Ordinary => file.name.clone(),
    };
    reply.opts_mut().insert(DhcpOption::Unknown(UnknownOption::new(OptionCode::OptBootfileUrl, url.into_bytes())));
}
