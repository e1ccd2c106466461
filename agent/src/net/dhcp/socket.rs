//! A UDP socket that speaks DHCP on one port before the port has an address.
//!
//! Bound to the device, the kernel sends from 0.0.0.0 to 255.255.255.255 without a route, and hands over broadcasts that
//! arrive there. Every request asks for broadcast answers, so no raw socket is needed.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket as StdSocket};
use std::os::fd::AsRawFd;

use nix::sys::socket::sockopt::{BindToDevice, Broadcast, ReuseAddr};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket};
use tokio::net::UdpSocket;

use super::To;

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;

/// The socket of one port.
pub(crate) struct Socket(UdpSocket);

impl Socket {
    /// Opens it on the device `name`.
    ///
    /// # Errors
    /// No such device, no right to bind, or another DHCP client on it.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let fd =
            socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
        setsockopt(&fd, BindToDevice, &OsString::from(name))?;
        setsockopt(&fd, Broadcast, &true)?;
        setsockopt(&fd, ReuseAddr, &true)?;
        bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT)))?;
        Ok(Self(UdpSocket::from_std(StdSocket::from(fd))?))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The kernel's, such as a link that is down.
    pub(crate) async fn send(&self, message: &[u8], to: To) -> io::Result<()> {
        let address = match to {
            To::Everyone => Ipv4Addr::BROADCAST,
            To::Server(server) => server,
        };
        self.0.send_to(message, SocketAddrV4::new(address, SERVER_PORT)).await.map(drop)
    }

    /// Waits for a datagram; its length in `buffer`.
    ///
    /// # Errors
    /// The kernel's, such as a device that is gone.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer).await
    }
}
