//! A DHCP request of a port without an address, as a whole Ethernet frame. The kernel would send it from the address of another port, and
//! some servers and switches drop that. Pure.

use std::net::Ipv4Addr;

use landfall_api::MacAddr;

/// UDP ports of DHCP (RFC 2131, section 4.1).
pub(super) const CLIENT_PORT: u16 = 68;
pub(super) const SERVER_PORT: u16 = 67;
/// EtherType of IPv4.
const IPV4: u16 = 0x0800;
/// UDP's number (IANA, Protocol Numbers).
const UDP: u8 = 17;
/// Bytes of an IPv4 header without options, and of UDP's.
const IP_HEADER: u16 = 20;
const UDP_HEADER: u16 = 8;

/// A DHCP message from 0.0.0.0 to everyone (RFC 2131, section 4.1); `None` if it is longer than a packet may be.
pub(super) fn from_nowhere(port: MacAddr, message: &[u8]) -> Option<Vec<u8>> {
    let datagram = UDP_HEADER.checked_add(message.len().try_into().ok()?)?;
    let packet = IP_HEADER.checked_add(datagram)?;
    let mut ip = Vec::with_capacity(usize::from(IP_HEADER));
    // Version 4, header of 5 words, no service class; one packet, not fragmented; 64 hops.
    ip.extend([0x45, 0]);
    ip.extend(packet.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
    ip.extend(Ipv4Addr::UNSPECIFIED.octets());
    ip.extend(Ipv4Addr::BROADCAST.octets());
    let sum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    let mut udp: Vec<u8> = [CLIENT_PORT, SERVER_PORT, datagram, 0].into_iter().flat_map(u16::to_be_bytes).collect();
    udp.extend(message);
    // With the addresses, the protocol and the length before it (RFC 768), where 0 stands for no checksum.
    let pseudo = [&ip[12..], &[0, UDP], &datagram.to_be_bytes(), &udp].concat();
    let sum = match checksum(&pseudo) {
        0 => u16::MAX,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    Some([&[0xff; 6], &port.0[..], &IPV4.to_be_bytes(), &ip, &udp].concat())
}

/// The Internet checksum (RFC 1071) of 128 KiB at most, as if a zero followed an odd last byte.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    // It carries twice at most; what is left fits.
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_comes_from_no_address() {
        let frame = from_nowhere(MacAddr([2, 0, 0, 0, 0, 7]), b"message").unwrap();
        let head = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 7, 8, 0];
        // 20 + 8 + 7 bytes; the sum of 0x4500, 0x0023, 0x4011 and twice 0xffff is 0x8534.
        let ip = [0x45, 0, 0, 35, 0, 0, 0, 0, 64, 17, 0x7a, 0xcb, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        // Twice 0xffff, 0x0011 and 0x000f; 0x0044, 0x0043, 0x000f; and the message's four words: 0x3_a7f3, which folds to 0xa7f6.
        let udp = [0, 68, 0, 67, 0, 15, 0x58, 0x09];
        assert_eq!(frame, [&head[..], &ip, &udp, b"message"].concat());
        assert_eq!(from_nowhere(MacAddr([0; 6]), &[0; 65536]), None);
    }
}
