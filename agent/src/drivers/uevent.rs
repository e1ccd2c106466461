//! The kernel's notices of devices, from its netlink socket.

use std::io;

use nix::errno::Errno;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket, protocols::NETLINK_KOBJECT_UEVENT};

/// Room for notices that were not yet read, bytes. A big SCSI scan announces thousands of devices in a burst; a smaller
/// buffer would only mean an overrun and a scan.
const BUFFER: u32 = 1 << 20;

/// A socket on which the kernel announces devices.
pub(crate) struct Uevents(TokioSocket);

impl Uevents {
    /// Subscribes. From here on nothing is missed, so a scan made after this is complete.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn subscribe() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_KOBJECT_UEVENT)?;
        socket.socket_mut().set_rx_buf_sz(BUFFER).unwrap_or_default();
        // Group 1: the kernel's own notices (udevd re-sends on group 2).
        socket.socket_mut().bind(&SocketAddr::new(0, 1))?;
        Ok(Self(socket))
    }

    /// Waits for the next notice of which `wanted` makes something. `None`: so many came at once that some were dropped;
    /// only a new scan shows what they said.
    ///
    /// # Errors
    /// The socket broke; scan by time instead.
    pub(crate) async fn next<T>(&mut self, wanted: impl Fn(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
        loop {
            match self.0.recv_from_full().await {
                Ok((message, _)) => {
                    if let Some(notice) = wanted(&message) {
                        return Ok(Some(notice));
                    }
                }
                Err(e) if e.raw_os_error() == Some(Errno::ENOBUFS as i32) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }
}
