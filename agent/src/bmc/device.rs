//! The kernel's IPMI device: one command, one answer (`linux/ipmi.h`).
//!
//! Sound because every pointer that the kernel gets is to memory of this function's own that outlives the call, with its true length
//! beside it, in structures laid out as C's; the kernel writes no more than those lengths.
#![allow(unsafe_code)] // The ioctls have no safe binding; the blocks below say why each holds.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{c_int, c_long, c_short, c_uint};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A network function and a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Command(pub(super) u8, pub(super) u8);

/// What the BMC answers behind its completion code; or that code, with which it refuses (table 5-2).
pub(super) type Answer = Result<Vec<u8>, u8>;

/// Its names: devtmpfs makes the first, older rules of udev the others.
pub(crate) const NAMES: [&str; 3] = ["/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"];
/// The kernel itself gives a BMC five seconds, and tries again after that.
const LIMIT: Duration = Duration::from_secs(6);
/// No answer is longer, bytes (`IPMI_MAX_MSG_LENGTH`).
const MAX_ANSWER: u16 = 272;
/// `IPMI_SYSTEM_INTERFACE_ADDR_TYPE`, `IPMI_BMC_CHANNEL`.
static BMC: Address = Address { kind: 0x0c, channel: 0x0f, lun: 0 };

/// `struct ipmi_system_interface_addr`.
#[repr(C)]
struct Address {
    kind: c_int,
    channel: c_short,
    lun: u8,
}

/// `struct ipmi_msg`.
#[repr(C)]
struct Message {
    function: u8,
    command: u8,
    length: u16,
    data: *mut u8,
}

/// `struct ipmi_req`.
#[repr(C)]
pub(super) struct Request {
    address: *const Address,
    address_length: c_uint,
    id: c_long,
    message: Message,
}

/// `struct ipmi_recv`.
#[repr(C)]
pub(super) struct Received {
    kind: c_int,
    address: *mut Address,
    address_length: c_uint,
    id: c_long,
    message: Message,
}

mod raw {
    // IPMICTL_SEND_COMMAND: the kernel reads it, whatever the direction of the request's number says.
    nix::ioctl_read!(send, b'i', 13, super::Request);
    // IPMICTL_RECEIVE_MSG_TRUNC
    nix::ioctl_readwrite!(receive, b'i', 11, super::Received);
}

/// The open device.
pub(super) struct Device {
    file: File,
    name: &'static str,
    /// Of the last command: an answer that comes after its limit is not taken for that of the next.
    id: Cell<c_long>,
}

impl Device {
    /// `None`: there is none, or, with a line in the log, it cannot be opened.
    pub(super) fn open() -> Option<Self> {
        NAMES.into_iter().find_map(|name| match File::options().read(true).write(true).open(name) {
            Ok(file) => Some(Self { file, name, id: Cell::new(0) }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => {
                tracing::warn!("the BMC cannot be asked: {name}: {e}");
                None
            }
        })
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The kernel's refusal, or no answer in time.
    pub(super) fn call(&self, Command(function, command): Command, data: &[u8]) -> io::Result<Answer> {
        let mut data = data.to_vec();
        self.id.update(|id| id.wrapping_add(1));
        let length = u16::try_from(data.len()).map_err(io::Error::other)?;
        let mut request = Request {
            address: &raw const BMC,
            address_length: size_of::<Address>() as c_uint,
            id: self.id.get(),
            message: Message { function, command, length, data: data.as_mut_ptr() },
        };
        // SAFETY: `request`, the address and `data` are valid for reads of the lengths beside them, and outlive the call.
        unsafe { raw::send(self.file.as_raw_fd(), &raw mut request) }?;
        let end = Instant::now() + LIMIT;
        loop {
            self.wait(end)?;
            let mut answer = [0; MAX_ANSWER as usize];
            let mut from = Address { kind: 0, channel: 0, lun: 0 };
            let mut received = Received {
                kind: 0,
                address: &raw mut from,
                address_length: size_of::<Address>() as c_uint,
                id: 0,
                message: Message { function: 0, command: 0, length: MAX_ANSWER, data: answer.as_mut_ptr() },
            };
            // SAFETY: `received`, `from` and `answer` are valid for writes of the lengths beside them, and outlive the call.
            unsafe { raw::receive(self.file.as_raw_fd(), &raw mut received) }?;
            if received.id != self.id.get() {
                continue;
            }
            return match answer.get(..received.message.length.into()) {
                Some([0, rest @ ..]) => Ok(Ok(rest.to_vec())),
                // In time it would have another answer: it is busy, starts, or did not get to its own parts (5.2).
                Some([code @ (0xc0 | 0xc3 | 0xd2 | 0xce), ..]) => Err(io::Error::other(format!(
                    "command {function:#04x} {command:#04x}: the BMC is not ready (completion code {code:#04x})"
                ))),
                Some([code, ..]) => Ok(Err(*code)),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
    }

    /// Waits for an answer.
    fn wait(&self, end: Instant) -> io::Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], limit) {
            Ok(1..) if !left.is_zero() => Ok(()),
            Err(Errno::EINTR) => self.wait(end),
            Err(e) => Err(e.into()),
            Ok(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the BMC does not answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_kernels() {
        // On 64 bits, as in linux/ipmi.h; the numbers of the requests hold them.
        assert_eq!((size_of::<Address>(), size_of::<Message>()), (8, 16));
        assert_eq!((size_of::<Request>(), size_of::<Received>()), (40, 48));
    }
}
