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

use super::advertisement::{Advertisement, Routers};
use super::dhcp6::{Asks, Client, Step};
use super::netlink::{Link, Netlink};
use super::port::{Ports, Seen};
use super::setup::Setup;

/// Waits between questions. RFC 4861 (6.3.7) gives up after three; a switch port in spanning-tree learning is no reason to.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(64);
/// Between looks at an address that is new: the kernel asks for a second whether someone has it already.
const ADDRESS_WAIT: Duration = Duration::from_millis(200);
/// How often an address is looked for so after an advertisement.
const ADDRESS_LOOKS: u32 = 50;
/// Between looks at an address that is used: a router may let it end.
const ADDRESS_CHECK: Duration = Duration::from_secs(10);
/// Every router on the link (RFC 4291, 2.7.1).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// RFC 8415, 7.1 and 7.2.
const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const CLIENT_PORT: u16 = 546;
const SERVER_PORT: u16 = 547;
/// RFC 4861, 6.1.1: a router takes no question that a router may have forwarded.
const HOPS: i32 = 255;

/// Follows the routers of one port until the carrier's sender is gone (the port vanished). `nameservers` come before the
/// routers' own.
pub(super) async fn run(
    link: Link, nameservers: Vec<IpAddr>, netlink: Netlink, seen: Seen, ports: watch::Sender<Ports>,
) {
    let Seen { mut carrier, mut check } = seen;
    let publish = |setup: Option<Setup>, coordinators: &[String]| {
        ports.send_if_modified(|ports| {
            let Some(port) = ports.get_mut(&link.index) else { return false };
            let changed = port.addresses.v6 != setup || port.coordinators_v6 != coordinators;
            port.addresses.v6 = setup;
            coordinators.clone_into(&mut port.coordinators_v6);
            changed
        });
    };
    loop {
        if carrier.wait_for(|c| *c).await.is_err() {
            return;
        }
        tokio::select! {
            () = follow(&link, &nameservers, &netlink, &mut check, publish) => {}
            _ = carrier.wait_for(|c| !*c) => {}
        }
        publish(None, &[]);
        // The network may be another one when the carrier is back, and the kernel would keep the addresses of this one.
        netlink.remove_global_ipv6(link.index).await;
    }
}

/// What one port has heard of its routers and of a DHCP server.
struct Follower<'a> {
    link: &'a Link,
    nameservers: &'a [IpAddr],
    netlink: &'a Netlink,
    socket: UdpSocket,
    routers: Routers,
    dhcp: Option<Dhcp>,
    /// Name servers of DHCPv6.
    by_dhcp: Vec<IpAddr>,
    /// Coordinators of DHCPv6.
    coordinators: Vec<String>,
    /// When routers are asked next; `None`: a default router has answered.
    ask: Option<Instant>,
    backoff: Backoff,
    /// How often the kernel is still asked for a new address.
    looks: u32,
    /// When it is asked next.
    look: Instant,
    /// The address and gateway that the log names.
    shown: Option<(Ipv6Net, Option<IpAddr>)>,
}

/// Asks for routers, and publishes what they and the kernel make of the port.
async fn follow(
    link: &Link, nameservers: &[IpAddr], netlink: &Netlink, check: &mut watch::Receiver<u64>,
    publish: impl Fn(Option<Setup>, &[String]),
) {
    let socket = match open(&link.name) {
        Ok(socket) => socket,
        Err(e) => {
            tracing::debug!("{}: no IPv6: {e}", link.name);
            return std::future::pending().await;
        }
    };
    let mut follower = Follower::new(link, nameservers, netlink, socket);
    let mut buffer = [0; 2048];
    loop {
        let wake = follower.routers.due().map_or(follower.look, |due| due.min(follower.look));
        let ask = follower.ask;
        tokio::select! {
            received = follower.socket.recv_from(&mut buffer) => match received {
                Ok((length, SocketAddr::V6(from)))
                    if from.ip().is_unicast_link_local() && follower.hear(&buffer[..length], *from.ip()) => {}
                // A neighbour's question.
                Ok(_) => continue,
                // ENETDOWN and similar: the carrier will show the port's state.
                Err(e) => {
                    tracing::debug!("{}: ICMPv6: {e}", link.name);
                    tokio::time::sleep(ADDRESS_WAIT).await;
                    continue;
                }
            },
            () = tokio::time::sleep_until(wake.into()) => follower.looks = follower.looks.saturating_sub(1),
            () = tokio::time::sleep_until(ask.unwrap_or(wake).into()), if ask.is_some() => {
                follower.solicit().await;
                continue;
            }
            steps = next(&mut follower.dhcp) => follower.take(steps).await,
            Ok(()) = check.changed() => {
                if let Some(dhcp) = &mut follower.dhcp {
                    dhcp.client.check(Instant::now());
                }
                follower.routers.doubt(Instant::now());
                follower.ask_anew();
            }
        }
        match follower.setup().await {
            // Its address ran out, or the DHCPv6 server took it back.
            None if follower.shown.take().is_some() => publish(None, &[]),
            None => {}
            setup => publish(setup, &follower.coordinators),
        }
    }
}

impl<'a> Follower<'a> {
    fn new(link: &'a Link, nameservers: &'a [IpAddr], netlink: &'a Netlink, socket: UdpSocket) -> Self {
        let now = Instant::now();
        Self {
            link,
            nameservers,
            netlink,
            socket,
            routers: Routers::default(),
            dhcp: None,
            by_dhcp: Vec::new(),
            coordinators: Vec::new(),
            ask: Some(now),
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
            looks: 0,
            look: now + ADDRESS_CHECK,
            shown: None,
        }
    }

    /// Asks for routers, at once and then at growing distances until a default router answers.
    fn ask_anew(&mut self) {
        self.ask = Some(Instant::now());
        self.backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    }

    async fn solicit(&mut self) {
        let routers = SocketAddrV6::new(ALL_ROUTERS, 0, 0, self.link.index);
        // Type 133 (RFC 4861, 4.1); the kernel adds the checksum. It is repeated after its wait, like a lost frame.
        if let Err(e) = self.socket.send_to(&[133, 0, 0, 0, 0, 0, 0, 0], routers).await {
            tracing::debug!("{}: ICMPv6: cannot send: {e}", self.link.name);
        }
        self.ask = Some(Instant::now() + self.backoff.step());
    }

    /// Takes a message in; whether it is a router's.
    fn hear(&mut self, message: &[u8], from: Ipv6Addr) -> bool {
        let Some(advertisement) = Advertisement::parse(message) else { return false };
        if !advertisement.lifetime.is_zero() {
            self.ask = None;
        }
        self.routers.hear(from, advertisement, Instant::now());
        // Never less than before: an address that is lent stays with its client.
        if let Some(asks) = self.routers.asks()
            && self.dhcp.as_ref().is_none_or(|dhcp| dhcp.asks < asks)
        {
            self.dhcp = Dhcp::start(self.link, asks);
            self.coordinators.clear();
        }
        self.looks = ADDRESS_LOOKS;
        true
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
                    if given.coordinators != self.coordinators && !given.coordinators.is_empty() {
                        let named = given.coordinators.join(", ");
                        tracing::info!("{name}: a DHCPv6 server names the coordinator {named}");
                    }
                    self.coordinators = given.coordinators;
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
                    self.looks = ADDRESS_LOOKS;
                }
                Step::Lost => {
                    tracing::warn!("{name}: the DHCPv6 server takes its address back");
                    self.coordinators.clear();
                    if let Some(old) = dhcp.lent.take() {
                        self.netlink.remove_address(self.link.index, old).await;
                    }
                }
            }
        }
    }

    /// The port's setup, once there are a router and an address.
    async fn setup(&mut self) -> Option<Setup> {
        let now = Instant::now();
        self.routers.expire(now);
        if !self.routers.has_default() && self.ask.is_none() {
            self.ask_anew();
        }
        let address = self.netlink.global_ipv6(self.link.index).await.unwrap_or_default();
        if address.is_some() {
            self.looks = 0;
        }
        self.look = now + if self.looks > 0 { ADDRESS_WAIT } else { ADDRESS_CHECK };
        let (address, router) = (address?, self.routers.followed()?);
        let setup = router.setup(address, self.nameservers, &self.by_dhcp);
        let shown = (address, setup.gateway());
        if self.shown != Some(shown) {
            let gateway = shown.1.map(|gateway| format!(", gateway {gateway}")).unwrap_or_default();
            tracing::info!("{}: address {address} from router {}{gateway}", self.link.name, router.address);
            self.shown = Some(shown);
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

/// A socket for ICMPv6 on the device `name`.
fn open(name: &str) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
    setsockopt(&fd, BindToDevice, &std::ffi::OsString::from(name))?;
    setsockopt(&fd, Ipv6MulticastHops, &HOPS)?;
    // What tokio calls a UDP socket is any socket with datagrams.
    UdpSocket::from_std(StdSocket::from(fd))
}
