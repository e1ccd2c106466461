//! What a port's driver says of itself (`linux/ethtool.h`): sysfs does not have it.
//!
//! Sound because the kernel gets pointers to memory of this module's own alone, which outlives the call, and writes no more than one
//! structure, laid out as C's.
#![allow(unsafe_code)] // The ioctl has no safe binding; the block below says why it holds.

use std::ffi::CStr;
use std::os::fd::AsRawFd;

use landfall_api::MacAddr;
use nix::libc::{SIOCETHTOOL, c_char, ifreq};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// `ETHTOOL_GDRVINFO`.
const GET_DRIVER_INFO: u32 = 3;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    extended_rom: [u8; 32],
    reserved: [u8; 12],
    counts: [u32; 5],
}

/// `ETHTOOL_GPERMADDR`.
const GET_PERMANENT_ADDRESS: u32 = 0x20;
/// `MAX_ADDR_LEN`.
const LONGEST_ADDRESS: usize = 32;

/// `struct ethtool_perm_addr`, with room for the address.
#[repr(C)]
struct PermanentAddress {
    command: u32,
    size: u32,
    address: [u8; LONGEST_ADDRESS],
}

mod raw {
    nix::ioctl_readwrite_bad!(ethtool, super::SIOCETHTOOL, super::ifreq);
}

/// The version of the port's firmware, in its driver's words; empty where the driver states none.
pub(super) fn firmware(port: &str) -> String {
    match driver_info(port) {
        // Some drivers say that they have none.
        Ok(info) => Some(text(&info.firmware)).filter(|text| text != "N/A").unwrap_or_default(),
        Err(e) => {
            tracing::debug!("{port} does not state its firmware: {e}");
            String::new()
        }
    }
}

fn text(field: &[u8; 32]) -> String {
    let text = CStr::from_bytes_until_nul(field).unwrap_or_default();
    text.to_string_lossy().trim().to_owned()
}

/// The Ethernet address that the port was made with; `None` where its driver does not say.
pub(super) fn permanent_address(port: &str) -> Option<MacAddr> {
    let (command, size) = (GET_PERMANENT_ADDRESS, LONGEST_ADDRESS as u32);
    let mut asked = PermanentAddress { command, size, address: [0; LONGEST_ADDRESS] };
    // SAFETY: the kernel answers that command with one such structure.
    unsafe { ask(port, &mut asked) }.ok()?;
    let address = asked.address.first_chunk::<6>().copied().map(MacAddr)?;
    (asked.size == 6 && address.0 != [0; 6]).then_some(address)
}

fn driver_info(port: &str) -> nix::Result<DriverInfo> {
    let mut info = DriverInfo {
        command: GET_DRIVER_INFO,
        driver: [0; 32],
        version: [0; 32],
        firmware: [0; 32],
        bus: [0; 32],
        extended_rom: [0; 32],
        reserved: [0; 12],
        counts: [0; 5],
    };
    // SAFETY: the kernel answers that command with one such structure.
    unsafe { ask(port, &mut info) }?;
    Ok(info)
}

/// Has the port's driver fill in a structure that begins with a command.
///
/// # Safety
/// The kernel writes one `T`, and nothing behind it, for that command.
unsafe fn ask<T>(port: &str, structure: &mut T) -> nix::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: zeros are a valid `ifreq`.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero; no name of a port is longer (IFNAMSIZ).
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(port.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(structure).cast();
    // SAFETY: `request` names a port with a zero behind it, and points to one `T`; both are ours and outlive the call.
    unsafe { raw::ethtool(socket.as_raw_fd(), &raw mut request) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_firmware_states_none() {
        // The kernel's structure has as many bytes.
        assert_eq!(size_of::<DriverInfo>(), 196);
        for port in ["lo", "no-such-port", &"x".repeat(100)] {
            assert_eq!(firmware(port), "");
            assert_eq!(permanent_address(port), None);
        }
        assert_eq!(driver_info("no-such-port").err(), Some(nix::errno::Errno::ENODEV));
    }
}
