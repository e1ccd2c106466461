//! The kernel's notices of new devices, from its netlink socket.

use std::io;

use nix::errno::Errno;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket, protocols::NETLINK_KOBJECT_UEVENT};

/// Room for notices that were not yet read, bytes. A big SCSI scan announces thousands of devices in a burst; a smaller
/// buffer would only mean an overrun and a scan.
const BUFFER: u32 = 1 << 20;

/// A socket on which the kernel announces devices.
pub(crate) struct Uevents(TokioSocket);

/// One notice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A device was added or changed.
    Device,
    /// So many notices came at once that some were dropped; only a new scan tells.
    Overrun,
}

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

    /// Waits for the next notice that may mean a driver is wanted.
    ///
    /// # Errors
    /// The socket broke; scan by time instead.
    pub(crate) async fn next(&mut self) -> io::Result<Notice> {
        loop {
            match self.0.recv_from_full().await {
                Ok((message, _)) if announces_device(&message) => return Ok(Notice::Device),
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(Errno::ENOBUFS as i32) => return Ok(Notice::Overrun),
                Err(e) => return Err(e),
            }
        }
    }
}

/// Whether a notice is of a device added; a message is `ACTION@PATH`, then `KEY=VALUE`, each ended by a NUL.
fn announces_device(message: &[u8]) -> bool {
    let mut fields = message.split(|&b| b == 0);
    fields.next().is_some_and(|head| head.starts_with(b"add@") || head.starts_with(b"bind@"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_additions_call_for_a_scan() {
        assert!(announces_device(b"add@/devices/pci0000:00/0000:00:03.0\0ACTION=add\0"));
        assert!(!announces_device(b"remove@/devices/pci0000:00/0000:00:03.0\0ACTION=remove\0"));
        assert!(!announces_device(b""));
    }
}
