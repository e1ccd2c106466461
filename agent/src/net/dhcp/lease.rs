//! A DHCP server's answer, parsed once.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dhcproto::v4::{DhcpOption, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder};
use ipnet::{IpNet, Ipv4Net};
use landfall_api::{MacAddr, SZTP_REDIRECT, redirected};

use super::{Route, Setup};

/// A shorter lease is taken as this: a server's mistake must not make the agent ask without pause.
const SHORTEST: Duration = Duration::from_secs(60);

/// What the server lends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The address lent.
    pub(crate) address: Ipv4Addr,
    /// The same, and what comes with it.
    pub(crate) setup: Setup,
    /// The coordinators that the server names.
    pub(crate) coordinators: Vec<String>,
    /// Who lends it.
    pub(crate) server: Ipv4Addr,
    /// For how long; absent: for ever.
    pub(crate) length: Option<Times>,
}

/// When to renew, from the moment of the request (RFC 2131 4.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// T1: ask the server.
    pub(crate) renew: Duration,
    /// T2: ask any server.
    pub(crate) rebind: Duration,
    /// The address must not be used any more.
    pub(crate) expire: Duration,
}

/// An answer meant for this client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A lease is offered.
    Offer(Lease),
    /// The lease is granted.
    Ack(Lease),
    /// The request is refused, with the server's words if it has any.
    Nak {
        /// Who refuses.
        server: Option<Ipv4Addr>,
        /// Why, for people.
        message: String,
    },
}

impl Answer {
    /// Reads a datagram. `None`: it is not DHCP, not for `mac` and `xid`, or of no use (a ProxyDHCP offer lends nothing).
    pub(crate) fn parse(datagram: &[u8], mac: MacAddr, xid: u32) -> Option<Self> {
        let message = Message::decode(&mut Decoder::new(&well_formed(datagram)?)).ok()?;
        if message.opcode() != Opcode::BootReply || message.xid() != xid || message.chaddr() != mac.0.as_slice() {
            return None;
        }
        match message.opts().msg_type()? {
            MessageType::Offer => lease(&message).map(Self::Offer),
            MessageType::Ack => lease(&message).map(Self::Ack),
            MessageType::Nak => Some(Self::Nak {
                server: server(&message),
                message: match message.opts().get(OptionCode::Message) {
                    // It goes to the log: not as a line of the agent's own.
                    Some(DhcpOption::Message(text)) => text.replace(char::is_control, " "),
                    _ => String::new(),
                },
            }),
            _ => None,
        }
    }
}

/// The datagram with only those options that are used here, and of those only the ones whose length fits their type.
/// dhcproto 0.15 does not hold options to their stated lengths and has assertions on some, and takes the stated length of the
/// client's address for its own: any host on the LAN could end the port's task with one datagram.
fn well_formed(datagram: &[u8]) -> Option<Vec<u8>> {
    /// Fixed fields (RFC 2131, 2) and magic cookie (RFC 2132, 2).
    const FIXED: usize = 236;
    const COOKIE: [u8; 4] = [99, 130, 83, 99];
    /// The field with the length of the client's address, and what it is here.
    const HLEN: usize = 2;
    const ETHERNET: u8 = 6;
    const PAD: u8 = 0;
    const END: u8 = 255;
    let (head, mut rest) = datagram.split_at_checked(FIXED + COOKIE.len())?;
    if head[FIXED..] != COOKIE || head[HLEN] != ETHERNET {
        return None;
    }
    let mut out = head.to_vec();
    while let [code, tail @ ..] = rest {
        match *code {
            PAD => rest = tail,
            END => break,
            code => {
                let (length, tail) = tail.split_first()?;
                let (value, tail) = tail.split_at_checked((*length).into())?;
                let fits = match code {
                    // Subnet mask, lease time, server, T1, T2.
                    1 | 51 | 54 | 58 | 59 => value.len() == 4,
                    // Routers and name servers.
                    3 | 6 => !value.is_empty() && value.len() % 4 == 0,
                    // MTU.
                    26 => value.len() == 2,
                    // Message type.
                    53 => value.len() == 1,
                    // Message, classless routes.
                    56 | 121 | SZTP_REDIRECT => true,
                    _ => false,
                };
                if fits {
                    out.extend_from_slice(&[code, *length]);
                    out.extend_from_slice(value);
                }
                rest = tail;
            }
        }
    }
    out.push(END);
    Some(out)
}

fn server(message: &Message) -> Option<Ipv4Addr> {
    match message.opts().get(OptionCode::ServerIdentifier) {
        Some(DhcpOption::ServerIdentifier(server)) => Some(*server),
        _ => None,
    }
}

fn lease(message: &Message) -> Option<Lease> {
    let address = message.yiaddr();
    if address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_loopback() {
        return None;
    }
    let prefix_length = match message.opts().get(OptionCode::SubnetMask) {
        Some(DhcpOption::SubnetMask(mask)) => prefix_of(*mask)?,
        _ => class_prefix(address),
    };
    let nameservers = match message.opts().get(OptionCode::DomainNameServer) {
        // resolv.conf(5) takes three.
        Some(DhcpOption::DomainNameServer(list)) => {
            list.iter().copied().filter(usable).take(3).map(IpAddr::V4).collect()
        }
        _ => Vec::new(),
    };
    let mtu = match message.opts().get(OptionCode::InterfaceMtu) {
        // RFC 791: every host takes 576.
        Some(DhcpOption::InterfaceMtu(mtu)) if *mtu >= 576 => Some(u32::from(*mtu)),
        _ => None,
    };
    let coordinators = match message.opts().get(OptionCode::from(SZTP_REDIRECT)) {
        Some(DhcpOption::Unknown(option)) => redirected(option.data()),
        _ => Vec::new(),
    };
    let net = IpNet::V4(Ipv4Net::new(address, prefix_length).ok()?);
    Some(Lease {
        address,
        setup: Setup { address: net, routes: routes(message), nameservers, mtu },
        coordinators,
        // A server must name itself; one that does not is asked again at its own address.
        server: server(message).unwrap_or_else(|| message.siaddr()),
        length: times(message),
    })
}

/// RFC 3442: where classless routes are given, the router option is ignored.
fn routes(message: &Message) -> Vec<Route> {
    match (message.opts().get(OptionCode::ClasslessStaticRoute), message.opts().get(OptionCode::Router)) {
        (Some(DhcpOption::ClasslessStaticRoute(list)), _) => list
            .iter()
            .map(|(net, gateway)| Route {
                to: IpNet::V4(net.trunc()),
                // RFC 3442: 0.0.0.0 stands for the link itself.
                via: Some(IpAddr::V4(*gateway)).filter(|gateway| !gateway.is_unspecified()),
            })
            .take(64)
            .collect(),
        (_, Some(DhcpOption::Router(list))) => list
            .iter()
            .copied()
            .filter(usable)
            .take(1)
            .map(|gateway| Route { to: IpNet::V4(Ipv4Net::default()), via: Some(IpAddr::V4(gateway)) })
            .collect(),
        _ => Vec::new(),
    }
}

fn times(message: &Message) -> Option<Times> {
    let seconds = |code| match message.opts().get(code) {
        Some(DhcpOption::AddressLeaseTime(s) | DhcpOption::Renewal(s) | DhcpOption::Rebinding(s)) => Some(*s),
        _ => None,
    };
    // All ones is RFC 2131's "for ever"; so is a BOOTP answer, which has no lease time.
    let expire = seconds(OptionCode::AddressLeaseTime).filter(|s| *s != u32::MAX)?;
    let expire = Duration::from_secs(expire.into()).max(SHORTEST);
    let stated = |code| seconds(code).map(|s| Duration::from_secs(s.into())).filter(|t| !t.is_zero() && *t < expire);
    let renew = stated(OptionCode::Renewal).unwrap_or(expire / 2);
    let rebind = stated(OptionCode::Rebinding).filter(|t| *t > renew).unwrap_or((renew + expire * 3) / 4);
    Some(Times { renew, rebind, expire })
}

fn usable(address: &Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_broadcast()
}

/// The prefix length of a mask whose ones are all on the left.
fn prefix_of(mask: Ipv4Addr) -> Option<u8> {
    let bits = u32::from(mask);
    let ones = bits.leading_ones();
    (bits.checked_shl(ones).unwrap_or(0) == 0 && ones > 0).then(|| u8::try_from(ones).unwrap_or(32))
}

/// Without a mask, the one of the address's class.
fn class_prefix(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        _ => 24,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn masks_with_holes_are_refused() {
        assert_eq!(prefix_of(Ipv4Addr::new(255, 255, 255, 0)), Some(24));
        assert_eq!(prefix_of(Ipv4Addr::BROADCAST), Some(32));
        assert_eq!(prefix_of(Ipv4Addr::new(255, 0, 255, 0)), None);
        assert_eq!(prefix_of(Ipv4Addr::UNSPECIFIED), None);
    }

    #[test]
    fn an_option_of_wrong_length_is_skipped() {
        let mut datagram = vec![2, 1, 6, 0];
        datagram.resize(236, 0);
        datagram[16..20].copy_from_slice(&[10, 0, 0, 9]);
        // 153 (bulk lease query's base time) of one byte is what dhcproto asserts on.
        datagram
            .extend_from_slice(&[99, 130, 83, 99, 53, 1, 2, 153, 1, 7, 1, 3, 255, 255, 255, 54, 4, 10, 0, 0, 1, 255]);
        let answer = Answer::parse(&datagram, MacAddr([0; 6]), 0);
        let Some(Answer::Offer(lease)) = answer else { panic!("{answer:?}") };
        assert_eq!((lease.server, lease.setup.address.prefix_len()), (Ipv4Addr::new(10, 0, 0, 1), 8));
        datagram.truncate(datagram.len() - 4);
        assert_eq!(Answer::parse(&datagram, MacAddr([0; 6]), 0), None, "cut short inside an option");
    }

    #[test]
    fn a_server_names_the_coordinator() {
        let url = "https://10.77.0.1:7443";
        let mut datagram = vec![2, 1, 6, 0];
        datagram.resize(236, 0);
        datagram[16..20].copy_from_slice(&[10, 0, 0, 9]);
        datagram.extend_from_slice(&[99, 130, 83, 99, 53, 1, 2, SZTP_REDIRECT, url.len().try_into().unwrap()]);
        datagram.extend_from_slice(url.as_bytes());
        let answer = Answer::parse(&datagram, MacAddr([0; 6]), 0);
        let Some(Answer::Offer(lease)) = answer else { panic!("{answer:?}") };
        assert_eq!(lease.coordinators, [url]);
    }

    #[test]
    fn an_address_of_a_false_length_is_no_answer() {
        let mut datagram = vec![2, 1, 6, 0];
        datagram.resize(236, 0);
        datagram[16..20].copy_from_slice(&[10, 0, 0, 9]);
        datagram.extend_from_slice(&[99, 130, 83, 99, 53, 1, 2, 255]);
        assert!(Answer::parse(&datagram, MacAddr([0; 6]), 0).is_some());
        for length in [0, 5, 7, 17, 255] {
            datagram[2] = length;
            assert_eq!(Answer::parse(&datagram, MacAddr([0; 6]), 0), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_datagram_makes_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            Answer::parse(&bytes, MacAddr([0; 6]), 0);
        }

        #[test]
        fn no_options_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut datagram = vec![2, 1, 6, 0];
            datagram.resize(236, 0);
            datagram.extend_from_slice(&[99, 130, 83, 99, 53, 1, 2]);
            datagram.extend_from_slice(&bytes);
            Answer::parse(&datagram, MacAddr([0; 6]), 0);
        }

        #[test]
        fn renewal_comes_before_rebinding_and_that_before_the_end(lease: u32, t1: u32, t2: u32) {
            let mut message = Message::default();
            message.opts_mut().insert(DhcpOption::AddressLeaseTime(lease));
            message.opts_mut().insert(DhcpOption::Renewal(t1));
            message.opts_mut().insert(DhcpOption::Rebinding(t2));
            if let Some(times) = times(&message) {
                prop_assert!(!times.renew.is_zero() && times.renew < times.rebind && times.rebind <= times.expire);
            }
        }
    }
}
