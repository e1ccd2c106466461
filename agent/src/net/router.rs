//! IPv6 on one port: the kernel makes an address from a router's advertisements. Here is done what it leaves to programs: the name
//! servers, an address by DHCPv6 where the router says so, and the wait until the address may be used.

use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket as StdSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};
use landfall_session::Backoff;
use nix::sys::socket::sockopt::{BindToDevice, Ipv6MulticastHops, Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn6, bind, setsockopt, socket};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::dhcp6::{Asks, Client, Step};
use super::netlink::{Link, Netlink};
use super::port::Ports;
use super::setup::{Route, Setup};

/// Waits between questions. RFC 4861 (6.3.7) gives up after three; a switch port in spanning-tree learning is no reason to.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(64);
/// Between looks at an address that is new: the kernel asks for a second whether someone has it already.
const ADDRESS_WAIT: Duration = Duration::from_millis(200);
/// How long an address is waited for after an advertisement.
const ADDRESS_PATIENCE: u32 = 50;
/// Every router on the link (RFC 4291, 2.7.1).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// RFC 8415, 7.1 and 7.2.
const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const CLIENT_PORT: u16 = 546;
const SERVER_PORT: u16 = 547;
/// RFC 4861, 6.1.1: a router takes no question that a router may have forwarded.
const HOPS: i32 = 255;

/// What a router says of the link (RFC 4861, 4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Advertisement {
    /// Whether it is a default router.
    is_default: bool,
    /// RFC 8106, best first.
    nameservers: Vec<IpAddr>,
    /// What is to be asked of a DHCPv6 server.
    asks: Option<Asks>,
}

impl Advertisement {
    /// Reads a message of ICMPv6. `None`: it is not an advertisement, or it is cut short.
    fn parse(message: &[u8]) -> Option<Self> {
        const ADVERTISEMENT: u8 = 134;
        const RDNSS: u8 = 25;
        const MANAGED: u8 = 0x80;
        const OTHER: u8 = 0x40;
        let (head, mut options) = message.split_at_checked(16)?;
        if head[..2] != [ADVERTISEMENT, 0] {
            return None;
        }
        let lifetime = u16::from_be_bytes([head[6], head[7]]);
        let asks = match head[5] {
            flags if flags & MANAGED != 0 => Some(Asks::Address),
            flags if flags & OTHER != 0 => Some(Asks::NameServers),
            _ => None,
        };
        let mut out = Self { is_default: lifetime > 0, nameservers: Vec::new(), asks };
        while let [kind, units, ..] = options {
            // In units of 8 bytes, this head included.
            let (option, rest) = options.split_at_checked(usize::from(*units) * 8)?;
            if option.is_empty() {
                return None;
            }
            // Kind, length, two bytes that are not used, and for how long in seconds.
            if *kind == RDNSS && option.len() >= 8 && option[4..8] != [0; 4] {
                let servers =
                    option[8..].chunks_exact(16).filter_map(|a| <[u8; 16]>::try_from(a).ok()).map(Ipv6Addr::from);
                // One on the link alone would need the port's name in resolv.conf.
                let usable = servers.filter(|a| !a.is_unspecified() && !a.is_multicast() && !a.is_unicast_link_local());
                out.nameservers.extend(usable.map(IpAddr::V6).take(3));
            }
            options = rest;
        }
        Some(out)
    }
}

/// Follows the routers of one port until the carrier's sender is gone (the port vanished). `nameservers` come before the
/// routers' own.
pub(super) async fn run(
    link: Link, nameservers: Vec<IpAddr>, netlink: Netlink, mut carrier: watch::Receiver<bool>,
    ports: watch::Sender<Ports>,
) {
    let publish = |setup: Option<Setup>| {
        ports.send_if_modified(|ports| {
            let Some(port) = ports.get_mut(&link.index) else { return false };
            let changed = port.addresses.v6 != setup;
            port.addresses.v6 = setup;
            changed
        });
    };
    loop {
        if carrier.wait_for(|c| *c).await.is_err() {
            return;
        }
        tokio::select! {
            () = follow(&link, &nameservers, &netlink, publish) => {}
            _ = carrier.wait_for(|c| !*c) => {}
        }
        publish(None);
    }
}

/// What one port has heard of its routers and of a DHCP server.
struct Follower<'a> {
    link: &'a Link,
    nameservers: &'a [IpAddr],
    netlink: &'a Netlink,
    socket: UdpSocket,
    heard: Option<(Advertisement, Ipv6Addr)>,
    dhcp: Option<Dhcp>,
    /// Name servers of DHCPv6.
    by_dhcp: Vec<IpAddr>,
    /// How often the kernel is still asked for an address.
    looks: u32,
    shown: Option<Ipv6Net>,
}

/// Asks for routers, and publishes what they and the kernel make of the port.
async fn follow(link: &Link, nameservers: &[IpAddr], netlink: &Netlink, publish: impl Fn(Option<Setup>)) {
    let socket = match open(&link.name) {
        Ok(socket) => socket,
        Err(e) => {
            tracing::debug!("{}: no IPv6: {e}", link.name);
            return std::future::pending().await;
        }
    };
    let (by_dhcp, dhcp) = (Vec::new(), None);
    let mut follower =
        Follower { link, nameservers, netlink, socket, heard: None, dhcp, by_dhcp, looks: 0, shown: None };
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut ask = Instant::now();
    let mut buffer = [0; 2048];
    loop {
        let look = if follower.looks > 0 { ADDRESS_WAIT } else { Duration::MAX };
        tokio::select! {
            received = follower.socket.recv_from(&mut buffer) => match received {
                Ok((length, SocketAddr::V6(from))) if from.ip().is_unicast_link_local() => {
                    follower.hear(&buffer[..length], *from.ip());
                }
                Ok(_) => continue,
                // ENETDOWN and similar: the carrier will show the port's state.
                Err(e) => {
                    tracing::debug!("{}: ICMPv6: {e}", link.name);
                    tokio::time::sleep(ADDRESS_WAIT).await;
                    continue;
                }
            },
            () = tokio::time::sleep(look) => follower.looks -= 1,
            () = tokio::time::sleep_until(ask.into()), if follower.heard.is_none() => {
                let routers = SocketAddrV6::new(ALL_ROUTERS, 0, 0, link.index);
                // Type 133 (RFC 4861, 4.1); the kernel adds the checksum. It is repeated after its wait, like a lost frame.
                if let Err(e) = follower.socket.send_to(&[133, 0, 0, 0, 0, 0, 0, 0], routers).await {
                    tracing::debug!("{}: ICMPv6: cannot send: {e}", link.name);
                }
                ask += backoff.step();
                continue;
            }
            steps = next(&mut follower.dhcp) => follower.take(steps).await,
        }
        if let Some(setup) = follower.setup().await {
            publish(Some(setup));
        }
    }
}

impl Follower<'_> {
    fn hear(&mut self, message: &[u8], from: Ipv6Addr) {
        let Some(advertisement) = Advertisement::parse(message) else { return };
        if let Some(asks) = advertisement.asks
            && self.dhcp.as_ref().is_none_or(|dhcp| dhcp.asks != asks)
        {
            self.dhcp = Dhcp::start(self.link, asks);
        }
        self.heard = Some((advertisement, from));
        self.looks = ADDRESS_PATIENCE;
    }

    async fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            let Some(dhcp) = &mut self.dhcp else { return };
            let name = &self.link.name;
            match step {
                Step::Send(message) => {
                    let servers = SocketAddrV6::new(ALL_SERVERS, SERVER_PORT, 0, self.link.index);
                    // It is repeated after its wait, like a lost frame.
                    if let Err(e) = dhcp.socket.send_to(&message, servers).await {
                        tracing::debug!("{name}: DHCPv6: cannot send: {e}");
                    }
                }
                Step::Bound(given) => {
                    self.by_dhcp = given.nameservers.into_iter().map(IpAddr::V6).collect();
                    let lent = given.address.map(|address| IpNet::from(IpAddr::V6(address)));
                    if let Some(old) = dhcp.lent.filter(|old| Some(*old) != lent) {
                        self.netlink.remove_address(self.link.index, old).await;
                    }
                    if let Some(net) = lent
                        && let Err(e) = self.netlink.set_address(self.link.index, net).await
                    {
                        let source = std::error::Error::source(&e).map(ToString::to_string).unwrap_or_default();
                        tracing::error!("{name}: {e}: {source}");
                    }
                    dhcp.lent = lent;
                    self.looks = ADDRESS_PATIENCE;
                }
                Step::Lost => {
                    tracing::warn!("{name}: the DHCPv6 server takes its address back");
                    if let Some(old) = dhcp.lent.take() {
                        self.netlink.remove_address(self.link.index, old).await;
                    }
                }
            }
        }
    }

    /// The port's setup, once there are a router and an address.
    async fn setup(&mut self) -> Option<Setup> {
        let address = self.netlink.global_ipv6(self.link.index).await.unwrap_or_default()?;
        let (advertisement, router) = self.heard.as_ref()?;
        self.looks = 0;
        let setup = setup(advertisement, *router, address, self.nameservers, &self.by_dhcp);
        if self.shown != Some(address) {
            let gateway = setup.gateway().map(|gateway| format!(", gateway {gateway}")).unwrap_or_default();
            tracing::info!("{}: address {address} from router {router}{gateway}", self.link.name);
            self.shown = Some(address);
        }
        Some(setup)
    }
}

/// The DHCPv6 client that a router asks for, and its socket.
struct Dhcp {
    asks: Asks,
    client: Client,
    socket: UdpSocket,
    lent: Option<IpNet>,
}

impl Dhcp {
    fn start(link: &Link, asks: Asks) -> Option<Self> {
        let opened = || {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let fd = socket(AddressFamily::Inet6, SockType::Datagram, flags, None)?;
            setsockopt(&fd, BindToDevice, &std::ffi::OsString::from(&link.name))?;
            setsockopt(&fd, ReuseAddr, &true)?;
            setsockopt(&fd, Ipv6V6Only, &true)?;
            bind(fd.as_raw_fd(), &SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, CLIENT_PORT, 0, 0)))?;
            UdpSocket::from_std(StdSocket::from(fd))
        };
        match opened() {
            Ok(socket) => {
                // As in `port`: an exchange number need only differ from its neighbours'.
                let [a, b, c, d, ..] = std::hash::RandomState::new().hash_one(link.mac).to_ne_bytes();
                let client = Client::new(asks, link.mac, u32::from_ne_bytes([a, b, c, d]), Instant::now());
                Some(Self { asks, client, socket, lent: None })
            }
            // Another advertisement comes, and with it another attempt.
            Err(e) => {
                tracing::warn!("{}: cannot open a socket for DHCPv6: {e}", link.name);
                None
            }
        }
    }
}

/// The steps after the next answer or wait; never, without a client.
async fn next(dhcp: &mut Option<Dhcp>) -> Vec<Step> {
    let Some(dhcp) = dhcp else { return std::future::pending().await };
    let mut buffer = [0; 2048];
    tokio::select! {
        received = dhcp.socket.recv(&mut buffer) => match received {
            Ok(length) => dhcp.client.receive(&buffer[..length], Instant::now()),
            Err(_) => {
                tokio::time::sleep(ADDRESS_WAIT).await;
                Vec::new()
            }
        },
        () = tokio::time::sleep_until(dhcp.client.due().into()) => dhcp.client.tick(Instant::now()),
    }
}

fn setup(heard: &Advertisement, router: Ipv6Addr, address: Ipv6Net, own: &[IpAddr], by_dhcp: &[IpAddr]) -> Setup {
    let default = Route { to: IpNet::V6(Ipv6Net::default()), via: Some(IpAddr::V6(router)) };
    let mut nameservers = own.to_vec();
    for server in heard.nameservers.iter().chain(by_dhcp) {
        if !nameservers.contains(server) {
            nameservers.push(*server);
        }
    }
    Setup {
        address: IpNet::V6(address),
        routes: heard.is_default.then_some(default).into_iter().collect(),
        nameservers,
        // The kernel follows the routers' MTU by itself.
        mtu: None,
    }
}

/// A socket for ICMPv6 on the device `name`.
fn open(name: &str) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
    setsockopt(&fd, BindToDevice, &std::ffi::OsString::from(name))?;
    setsockopt(&fd, Ipv6MulticastHops, &HOPS)?;
    // What tokio calls a UDP socket is any socket with datagrams.
    UdpSocket::from_std(StdSocket::from(fd))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn advertisement(flags: u8, lifetime: u16, options: &[&[u8]]) -> Vec<u8> {
        let [high, low] = lifetime.to_be_bytes();
        let head: [u8; 16] = [134, 0, 0, 0, 64, flags, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
        [&head, &options.concat()[..]].concat()
    }

    /// RDNSS with these addresses, for so many seconds.
    fn rdnss(seconds: u32, servers: &[&str]) -> Vec<u8> {
        let units = u8::try_from(1 + 2 * servers.len()).unwrap();
        let addresses: Vec<u8> = servers.iter().flat_map(|s| s.parse::<Ipv6Addr>().unwrap().octets()).collect();
        [&[25, units, 0, 0], &seconds.to_be_bytes()[..], &addresses].concat()
    }

    #[test]
    fn name_servers_are_read_among_other_options() {
        let mtu = [5, 1, 0, 0, 0, 0, 5, 220];
        let servers = rdnss(600, &["2001:db8::53", "fe80::53", "2001:db8::54"]);
        let heard = Advertisement::parse(&advertisement(0xc0, 1800, &[&mtu, &servers])).unwrap();
        let expected: Vec<IpAddr> = ["2001:db8::53", "2001:db8::54"].map(|s| s.parse().unwrap()).to_vec();
        assert_eq!(heard, Advertisement { is_default: true, nameservers: expected.clone(), asks: Some(Asks::Address) });
        let ended = Advertisement::parse(&advertisement(0x40, 0, &[&rdnss(0, &["2001:db8::53"])])).unwrap();
        assert_eq!(ended, Advertisement { is_default: false, nameservers: vec![], asks: Some(Asks::NameServers) });

        let [own, by_dhcp] = ["2001:db8::1", "2001:db8::2"].map(|s| s.parse::<IpAddr>().unwrap());
        let address = "2001:db8::7/64".parse().unwrap();
        let made = setup(&heard, "fe80::1".parse().unwrap(), address, &[own, expected[1]], &[by_dhcp, expected[0]]);
        assert_eq!(made.nameservers, [own, expected[1], expected[0], by_dhcp]);
        assert_eq!((made.gateway(), made.address), (Some("fe80::1".parse().unwrap()), IpNet::V6(address)));
        assert_eq!(setup(&ended, "fe80::1".parse().unwrap(), address, &[], &[]).routes, []);
    }

    #[test]
    fn what_is_cut_short_or_no_advertisement_is_nothing() {
        let whole = advertisement(0, 1800, &[&rdnss(600, &["2001:db8::53"])]);
        for length in 0..whole.len() {
            assert!(length == 16 || Advertisement::parse(&whole[..length]).is_none(), "{length}");
        }
        let empty_option = advertisement(0, 1800, &[&[5, 0, 0, 0, 0, 0, 0, 0]]);
        let mut solicitation = whole;
        solicitation[0] = 133;
        assert_eq!([Advertisement::parse(&empty_option), Advertisement::parse(&solicitation)], [None, None]);
    }

    proptest! {
        #[test]
        fn no_message_makes_the_parser_panic(options in proptest::collection::vec(any::<u8>(), 0..200)) {
            Advertisement::parse(&advertisement(0, 1, &[&options]));
        }
    }
}
