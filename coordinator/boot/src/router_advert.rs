//! Router advertisements that say "there is no router": sixteen seconds saved for every iPXE that starts.
//!
//! iPXE configures IPv4 and IPv6 side by side and goes on when both are settled. On a network without an IPv6 router it
//! solicits for one six times, doubling the wait: 16 s in which DHCP has long been answered (measured with Debian 12's
//! iPXE). An answer with a router lifetime of zero and no prefix (RFC 4861, 6.2.3: "not a default router") settles it
//! at once and changes nothing for other hosts. Sent only in answer to a solicitation, and only where this coordinator
//! is the network's own DHCP server. A convenience: where it cannot run, booting is slower and otherwise the same.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket as StdSocket};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::sockopt::{BindToDevice, Ipv6AddMembership, Ipv6MulticastHops};
use nix::sys::socket::{AddressFamily, Ipv6MembershipRequest, SockFlag, SockProtocol, SockType, setsockopt, socket};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

const ROUTER_SOLICITATION: u8 = 133;
/// Type 134, code 0, checksum (the kernel's to fill in), hop limit unspecified, no flags (no DHCPv6 either), router
/// lifetime 0, reachable and retransmission times unspecified, no options.
const NO_ROUTER: [u8; 16] = [134, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A listener for solicitations on one interface.
pub struct RouterAdverts {
    // A raw ICMPv6 socket. Both of tokio's calls used here are plain `recvfrom` and `sendto`, which know no UDP.
    socket: UdpSocket,
    scope: u32,
}

impl RouterAdverts {
    /// Listens. `None`, with a line in the log, where that is not possible, such as with IPv6 switched off.
    pub fn start(interface: &str) -> Option<Self> {
        match Self::open(interface) {
            Ok(adverts) => Some(adverts),
            Err(error) => {
                tracing::info!(service = "radv", interface, %error, "cannot answer router solicitations: iPXE waits 16 s");
                None
            }
        }
    }

    fn open(interface: &str) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
        setsockopt(&fd, BindToDevice, &interface.into())?;
        // Receivers drop an advertisement that a router could have passed on (RFC 4861, 6.1.2).
        setsockopt(&fd, Ipv6MulticastHops, &255)?;
        setsockopt(&fd, Ipv6AddMembership, &Ipv6MembershipRequest::new(ALL_ROUTERS))?;
        let scope = if_nametoindex(interface)?;
        Ok(Self { socket: UdpSocket::from_std(StdSocket::from(fd))?, scope })
    }

    /// Answers until cancelled, or until the socket fails.
    pub async fn run(self, cancel: CancellationToken) {
        let mut packet = [0; 1500];
        let everybody = SocketAddr::V6(SocketAddrV6::new(ALL_NODES, 0, 0, self.scope));
        loop {
            let received = tokio::select! {
                () = cancel.cancelled() => return,
                received = self.socket.recv_from(&mut packet) => received,
            };
            match received {
                Ok((8.., from)) if packet[0] == ROUTER_SOLICITATION => {
                    let sent = self.socket.send_to(&NO_ROUTER, everybody).await;
                    tracing::debug!(service = "radv", %from, answer = "no router", error = ?sent.err());
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
