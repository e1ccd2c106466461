//! Router advertisements of a host that is no router.
//!
//! Where the coordinator serves IPv4 they say "there is no router", which saves sixteen seconds for every iPXE that starts: it configures IPv4 and IPv6 side by side and goes on when both are settled. On a network without an IPv6 router it
//! solicits for one six times, doubling the wait: 16 s in which DHCP has long been answered (measured with Debian 12's
//! iPXE). An answer with a router lifetime of zero and no prefix (RFC 4861, 6.2.3: "not a default router") settles it
//! at once and changes nothing for other hosts. A convenience: where it cannot run, booting is slower and otherwise the same.
//!
//! Where it serves IPv6 they say "ask for an address by DHCPv6", without which iPXE and most systems do not, and name the prefix of the
//! link. Either is sent only where this coordinator is the network's own DHCP server.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket as StdSocket};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::sockopt::{BindToDevice, Ipv6MulticastHops};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use landfall_edge::gate::Limiter;

const ROUTER_SOLICITATION: u8 = 133;
/// Type 134, code 0, checksum (the kernel's to fill in), hop limit unspecified, no flags (no DHCPv6 either), router
/// lifetime 0, reachable and retransmission times unspecified, no options.
const NO_ROUTER: [u8; 16] = [134, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// In the flags: addresses and all else are to be had by DHCPv6 (M and O).
const MANAGED: u8 = 0xc0;
/// Of a prefix: its hosts are on this link (L), and make no addresses of it themselves (no A).
const ON_LINK: u8 = 0x80;
/// How long the prefix holds, seconds: the default of RFC 4861, 6.2.1, so that a coordinator that is down for long cuts no host off another.
const PREFIX_SECONDS: u32 = 2_592_000;
/// Between advertisements that no host asked for.
const REPEAT: Duration = Duration::from_secs(300);
/// Between the first three, and after one that could not be sent, as while the interface has no address yet (RFC 4861, 6.2.4).
const FIRST: Duration = Duration::from_secs(16);
const RETRY: Duration = Duration::from_secs(1);
/// Each goes to every host of the link.
static ASKED: Limiter = Limiter::a_second(2);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advert {
    /// There is no router.
    NoRouter,
    /// There is none, and addresses of this prefix are given out by DHCPv6.
    Managed {
        /// The prefix.
        prefix: Ipv6Addr,
        /// Its bits.
        length: u8,
    },
}

impl Advert {
    fn packet(self) -> Vec<u8> {
        let mut packet = NO_ROUTER.to_vec();
        if let Self::Managed { prefix, length } = self {
            packet[5] = MANAGED;
            // The option "prefix information", 4 times 8 bytes (RFC 4861, 4.6.2).
            packet.extend([3, 4, length, ON_LINK]);
            packet.extend([PREFIX_SECONDS.to_be_bytes(), PREFIX_SECONDS.to_be_bytes(), [0; 4]].concat());
            packet.extend(prefix.octets());
        }
        packet
    }
}

/// A listener for solicitations on one interface.
pub struct RouterAdverts {
    // A raw ICMPv6 socket. Both of tokio's calls used here are plain `recvfrom` and `sendto`, which know no UDP.
    socket: UdpSocket,
    scope: u32,
    advert: Advert,
}

impl RouterAdverts {
    /// Listens.
    ///
    /// # Errors
    /// There is no such socket to be had, such as with IPv6 switched off.
    pub fn start(interface: &str, advert: Advert) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
        setsockopt(&fd, BindToDevice, &interface.into())?;
        // Receivers drop an advertisement that a router could have passed on (RFC 4861, 6.1.2).
        setsockopt(&fd, Ipv6MulticastHops, &255)?;
        let (socket, scope) = (StdSocket::from(fd), if_nametoindex(interface)?);
        socket.join_multicast_v6(&ALL_ROUTERS, scope)?;
        // What this host says is for others.
        socket.set_multicast_loop_v6(false)?;
        Ok(Self { socket: UdpSocket::from_std(socket)?, scope, advert })
    }

    /// Answers until cancelled, or until the socket fails.
    pub async fn run(self, cancel: CancellationToken) {
        let mut packet = [0; 1500];
        let everybody = SocketAddr::V6(SocketAddrV6::new(ALL_NODES, 0, 0, self.scope));
        let advert = self.advert.packet();
        let (mut sent_unasked, mut next) = (0_u32, Instant::now());
        loop {
            let received = tokio::select! {
                () = cancel.cancelled() => return,
                received = self.socket.recv_from(&mut packet) => received,
                // Hosts that started before the coordinator asked in vain.
                () = sleep_until(next), if self.advert != Advert::NoRouter => {
                    let sent = self.socket.send_to(&advert, everybody).await;
                    sent_unasked += u32::from(sent.is_ok());
                    next = Instant::now() + match (&sent, sent_unasked) {
                        (Err(_), _) => RETRY,
                        (Ok(_), ..3) => FIRST,
                        (Ok(_), _) => REPEAT,
                    };
                    tracing::debug!(service = "radv", answer = ?self.advert, error = ?sent.err());
                    continue;
                }
            };
            match received {
                Ok((8.., from)) if packet[0] == ROUTER_SOLICITATION && ASKED.step().is_some() => {
                    let sent = self.socket.send_to(&advert, everybody).await;
                    tracing::debug!(service = "radv", %from, answer = ?self.advert, error = ?sent.err());
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::info!(service = "radv", %error, "the coordinator no longer answers router solicitations");
                    return;
                }
            }
        }
    }
}
