//! Starts the loopback interface of a new network namespace: one message to the kernel. (rtnetlink(7).)

use std::{io, os::fd::AsRawFd as _};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// `RTM_NEWLINK`, for interface 1, which is the loopback interface of every namespace, with `IFF_UP`; an answer is asked for.
fn message() -> Vec<u8> {
    const LENGTH: u32 = 32;
    const RTM_NEWLINK: u16 = 16;
    /// `NLM_F_REQUEST` and `NLM_F_ACK`.
    const ASKS: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    let mut out = Vec::new();
    // nlmsghdr: length, type, flags, sequence, port.
    out.extend(LENGTH.to_ne_bytes());
    out.extend(RTM_NEWLINK.to_ne_bytes());
    out.extend(ASKS.to_ne_bytes());
    out.extend([1_u32, 0].map(u32::to_ne_bytes).concat());
    // ifinfomsg: family, padding, type; index, flags, which flags change.
    out.extend([0; 4]);
    out.extend([1_u32, IFF_UP, IFF_UP].map(u32::to_ne_bytes).concat());
    out
}

/// Starts it.
pub(super) fn up() -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let kernel = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    send(kernel.as_raw_fd(), &message(), MsgFlags::empty())?;
    let mut answer = [0; 512];
    let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // nlmsgerr behind the header: 0, or the negative of an error's number.
    let code =
        answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
