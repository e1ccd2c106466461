//! UDP sockets bound to one interface, and the address book of replies.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket as StdSocket};
use std::os::fd::OwnedFd;

use nix::sys::socket::sockopt::{BindToDevice, Broadcast, RcvBuf, ReuseAddr};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket};
use tokio::net::UdpSocket;

use super::DhcpError;
use super::reply::Destination;

/// A DHCP server's port.
pub const SERVER_PORT: u16 = 67;
/// A DHCP client's port.
pub const CLIENT_PORT: u16 = 68;
/// The port where a PXE client asks for its boot file once it has an address.
pub const PXE_PORT: u16 = 4011;

/// Bytes of packets that the kernel holds for us (it takes no more than `net.core.rmem_max`): about a thousand, so that
/// a rack powered on at once, or a flood, loses no packet.
pub(super) const RECEIVE_BUFFER: usize = 1 << 20;

/// Whether another socket may hold the port too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// No: a second server on this host must fail to start.
    Alone,
    /// Yes: a DHCP client of this host may be listening on port 68.
    Shared,
}

/// A socket on 0.0.0.0:`port` that sees and sends only through `interface`, broadcasts included.
///
/// # Errors
/// [`DhcpError::Bind`], such as when the port is taken or the caller may not open it.
pub fn open(interface: &str, port: u16, sharing: Sharing) -> Result<UdpSocket, DhcpError> {
    try_open(interface, port, sharing).map_err(|source| DhcpError::Bind {
        interface: interface.to_owned(),
        port,
        source,
    })
}

fn try_open(interface: &str, port: u16, sharing: Sharing) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd: OwnedFd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    setsockopt(&fd, BindToDevice, &interface.into())?;
    setsockopt(&fd, Broadcast, &true)?;
    if sharing == Sharing::Shared {
        setsockopt(&fd, ReuseAddr, &true)?;
    }
    setsockopt(&fd, RcvBuf, &RECEIVE_BUFFER)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &SockaddrIn::new(0, 0, 0, 0, port))?;
    UdpSocket::from_std(StdSocket::from(fd))
}

/// The socket address for a reply to a packet that came from `sender`.
pub fn resolve(to: Destination, sender: SocketAddr) -> SocketAddr {
    let at = |address: Ipv4Addr, port| SocketAddr::V4(SocketAddrV4::new(address, port));
    match to {
        Destination::Broadcast => at(Ipv4Addr::BROADCAST, CLIENT_PORT),
        Destination::Client(address) => at(address, CLIENT_PORT),
        Destination::Relay(address) => at(address, SERVER_PORT),
        Destination::Sender => sender,
    }
}
