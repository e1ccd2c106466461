//! A UDP socket that speaks DHCP on one port before the port has an address.
//!
//! Every request asks for broadcast answers, and a UDP socket that is bound to the device receives them. Until the port has an address,
//! requests go out as whole frames: on a UDP socket the kernel would send them from the address of another port.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket as StdSocket};
use std::os::fd::AsRawFd;

use landfall_api::MacAddr;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::sockopt::{BindToDevice, Broadcast, ReuseAddr};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, bind, sendto, setsockopt, socket};
use socket2::{Domain, Socket as PacketSocket, Type};
use tokio::net::UdpSocket;

use super::To;
use super::frame::{CLIENT_PORT, SERVER_PORT, from_nowhere};

/// Where a message says which address the client has (RFC 2131, figure 1: `ciaddr`).
const CIADDR: std::ops::Range<usize> = 12..16;

/// The socket of one port.
pub(crate) struct Socket {
    udp: UdpSocket,
    /// For frames of our own; it receives none.
    raw: PacketSocket,
    name: String,
}

impl Socket {
    /// Opens it on the device `name`.
    ///
    /// # Errors
    /// No such device, no right to bind, another DHCP client on it, or no packet sockets in the kernel.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let fd =
            socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
        setsockopt(&fd, BindToDevice, &OsString::from(name))?;
        setsockopt(&fd, Broadcast, &true)?;
        setsockopt(&fd, ReuseAddr, &true)?;
        bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT)))?;
        let udp = UdpSocket::from_std(StdSocket::from(fd))?;
        let raw = PacketSocket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
        Ok(Self { udp, raw, name: name.to_owned() })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The kernel's, such as a link that is down.
    pub(crate) async fn send(&self, message: &[u8], to: To) -> io::Result<()> {
        let has_address = message.get(CIADDR).is_some_and(|address| address != [0; 4]);
        let address = match to {
            To::Everyone if !has_address => return self.ask(message),
            To::Everyone => Ipv4Addr::BROADCAST,
            To::Server(server) => server,
        };
        self.udp.send_to(message, SocketAddrV4::new(address, SERVER_PORT)).await.map(drop)
    }

    /// Sends a message to everyone from no address.
    fn ask(&self, message: &[u8]) -> io::Result<()> {
        // The kernel's number of the port and the port's present Ethernet address: a bond's changes with its first port.
        let of_the_port = getifaddrs()?.filter(|port| port.interface_name == self.name);
        let port = of_the_port.filter_map(|port| port.address?.as_link_addr().copied()).next();
        let (port, mac) = port.and_then(|port| Some((port, MacAddr(port.addr()?)))).ok_or(io::ErrorKind::NotFound)?;
        let frame = from_nowhere(mac, message).ok_or(io::ErrorKind::InvalidInput)?;
        sendto(self.raw.as_raw_fd(), &frame, &port, MsgFlags::empty())?;
        Ok(())
    }

    /// Waits for a datagram; its length in `buffer`.
    ///
    /// # Errors
    /// The kernel's, such as a device that is gone.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.udp.recv(buffer).await
    }
}
