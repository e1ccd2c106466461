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
    /// A device appeared that names what could drive it.
    Device {
        /// Its modalias.
        alias: String,
    },
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
                Ok((message, _)) => {
                    if let Some(alias) = announced(&message) {
                        return Ok(Notice::Device { alias });
                    }
                }
                Err(e) if e.raw_os_error() == Some(Errno::ENOBUFS as i32) => return Ok(Notice::Overrun),
                Err(e) => return Err(e),
            }
        }
    }
}

/// The modalias in a notice of a device added; a message is `ACTION@PATH`, then `KEY=VALUE`, each ended by a NUL.
fn announced(message: &[u8]) -> Option<String> {
    let mut fields = message.split(|&b| b == 0);
    if !fields.next()?.starts_with(b"add@") {
        return None;
    }
    let alias = fields.find_map(|field| field.strip_prefix(b"MODALIAS="))?;
    Some(String::from_utf8_lossy(alias).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_added_devices_with_a_modalias_request_a_driver() {
        let added = b"add@/devices/pci0000:00/0000:00:03.0\0ACTION=add\0MODALIAS=pci:v00001AF4\0SEQNUM=7\0";
        assert_eq!(announced(added).as_deref(), Some("pci:v00001AF4"));
        assert_eq!(announced(b"add@/devices/virtual/tty/tty7\0ACTION=add\0SUBSYSTEM=tty\0"), None);
        assert_eq!(announced(b"remove@/devices/pci0000:00/0000:00:03.0\0MODALIAS=pci:v00001AF4\0"), None);
        assert_eq!(announced(b""), None);
    }
}
