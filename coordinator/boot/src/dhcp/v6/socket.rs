//! UDP sockets of IPv6 on one interface, and the identifier of a server there.

use std::net::{Ipv6Addr, UdpSocket as StdSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::{fs, io};

use landfall_api::MacAddr;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::sockopt::{BindToDevice, Ipv6V6Only, RcvBuf, ReuseAddr};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn6, bind, setsockopt, socket};
use tokio::net::UdpSocket;

use super::super::DhcpError;
use super::super::socket::{RECEIVE_BUFFER, Sharing};

/// Every DHCPv6 server and relay on a link (RFC 8415, 7.1).
pub(super) const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
pub use dhcproto::v6::{CLIENT_PORT, SERVER_PORT};

/// A socket on `[::]:port` that sees and sends only through `interface`; the interface's number, which link-local addresses need.
///
/// # Errors
/// [`DhcpError::Bind`], such as when the port is taken or the caller may not open it.
pub fn open(interface: &str, port: u16, sharing: Sharing) -> Result<(UdpSocket, u32), DhcpError> {
    try_open(interface, port, sharing).map_err(|source| DhcpError::Bind {
        interface: interface.to_owned(),
        port,
        source,
    })
}

fn try_open(interface: &str, port: u16, sharing: Sharing) -> io::Result<(UdpSocket, u32)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd: OwnedFd = socket(AddressFamily::Inet6, SockType::Datagram, flags, None)?;
    setsockopt(&fd, BindToDevice, &interface.into())?;
    setsockopt(&fd, Ipv6V6Only, &true)?;
    if sharing == Sharing::Shared {
        setsockopt(&fd, ReuseAddr, &true)?;
    }
    setsockopt(&fd, RcvBuf, &RECEIVE_BUFFER)?;
    bind(fd.as_raw_fd(), &SockaddrIn6::from(std::net::SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)))?;
    let scope = if_nametoindex(interface)?;
    let socket = StdSocket::from(fd);
    // What this host asks is meant for others.
    socket.set_multicast_loop_v6(false)?;
    if port == SERVER_PORT {
        socket.join_multicast_v6(&ALL_SERVERS, scope)?;
    }
    Ok((UdpSocket::from_std(socket)?, scope))
}

/// This server's identifier: DUID-LL of the interface that it serves.
pub(super) fn identifier(interface: &str) -> Vec<u8> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/address")).unwrap_or_default();
    // An interface without one has none to be confused with.
    let mac = text.trim().parse::<MacAddr>().map(|mac| mac.0).unwrap_or_default();
    [&[0, 3, 0, 1][..], &mac].concat()
}
