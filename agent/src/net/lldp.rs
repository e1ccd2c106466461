//! What a switch says of itself on a port: LLDP (IEEE 802.1AB-2016). Anything on the cable can send such a frame: it proves nothing, and tells
//! people where a machine is plugged in.

use std::net::IpAddr;

use landfall_api::{MacAddr, Neighbour};

/// Its EtherType.
pub(super) const ETHER_TYPE: u16 = 0x88cc;

/// Characters of a text.
const LONGEST: usize = 255;

/// Reads the payload of a frame; nothing for one that lacks what each must have, and for the farewell of one that shuts down.
pub(super) fn read(payload: &[u8]) -> Option<Neighbour> {
    let mut neighbour = Neighbour::default();
    let (mut chassis, mut port, mut lives) = (None, None, false);
    let mut rest = payload;
    // A header is seven bits of type and nine of length (8.4).
    while let [high, low, after @ ..] = rest {
        let (kind, length) = (high >> 1, usize::from(high & 1) << 8 | usize::from(*low));
        let value = after.get(..length)?;
        rest = &after[length..];
        match (kind, value) {
            (0, _) => break,
            // Subtypes of a chassis (table 8-2): 4 MAC address, 5 network address, others text.
            (1, [kind, id @ ..]) => chassis = Some(name(*kind == 4, *kind == 5, id)),
            // Subtypes of a port (table 8-3): 3 MAC address, 4 network address, others text.
            (2, [kind, id @ ..]) => port = Some(name(*kind == 3, *kind == 4, id)),
            // For how many seconds this holds.
            (3, [high, low, ..]) => lives = [*high, *low] != [0, 0],
            (4, text) => neighbour.port_description = clean(text),
            (5, text) => neighbour.system = clean(text),
            (6, text) => neighbour.description = clean(text),
            // The first address is the one to prefer (8.5.9).
            (8, [length, address @ ..]) if neighbour.management_address.is_none() => {
                neighbour.management_address = address.get(..usize::from(*length)).and_then(network_address);
            }
            // Of IEEE 802.1, subtype 1: the VLAN of untagged frames; 0 for none (D.2.1).
            (127, [0x00, 0x80, 0xc2, 1, high, low]) => {
                neighbour.vlan = Some(u16::from_be_bytes([*high, *low])).filter(|vlan| *vlan != 0);
            }
            _ => {}
        }
    }
    (neighbour.chassis, neighbour.port) = (chassis?, port?);
    lives.then_some(neighbour)
}

fn name(is_mac: bool, is_network: bool, id: &[u8]) -> String {
    let mac = || <[u8; 6]>::try_from(id).ok().filter(|_| is_mac).map(|mac| MacAddr(mac).to_string());
    let address = || network_address(id).filter(|_| is_network).map(|address| address.to_string());
    mac().or_else(address).unwrap_or_else(|| clean(id))
}

/// The number of an address family (IANA: 1 IPv4, 2 IPv6), then the address.
fn network_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes {
        [1, address @ ..] => <[u8; 4]>::try_from(address).ok().map(IpAddr::from),
        [2, address @ ..] => <[u8; 16]>::try_from(address).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Text for people and templates: one line, without what a terminal obeys.
fn clean(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).replace(char::is_control, " ");
    // The standard allows 255 bytes; one that is no UTF-8 takes three.
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap();
        [&(u16::from(kind) << 9 | length).to_be_bytes()[..], value].concat()
    }

    fn frame() -> Vec<Vec<u8>> {
        vec![
            tlv(1, &[&[4][..], &[0x00, 0x1c, 0x73, 0x01, 0x02, 0x03]].concat()),
            tlv(2, b"\x05Ethernet17/1"),
            tlv(3, &120_u16.to_be_bytes()),
            tlv(4, b"to rack r7"),
            tlv(5, b"leaf-3.example"),
            tlv(6, b"Arista EOS\x1b[31m\r\nversion 4.30"),
            tlv(8, &[&[5, 1, 10, 0, 0, 3, 2][..], &[0; 4], &[0]].concat()),
            tlv(127, &[0x00, 0x80, 0xc2, 1, 0, 70]),
            tlv(127, &[0x00, 0x12, 0x0f, 4, 0x23, 0xf0]),
            tlv(0, b""),
            vec![0; 20],
        ]
    }

    #[test]
    fn an_announcement_names_the_switch_and_its_port() {
        let expected = Neighbour {
            chassis: "00:1c:73:01:02:03".into(),
            port: "Ethernet17/1".into(),
            port_description: "to rack r7".into(),
            system: "leaf-3.example".into(),
            description: "Arista EOS [31m version 4.30".into(),
            management_address: Some("10.0.0.3".parse().unwrap()),
            vlan: Some(70),
        };
        assert_eq!(read(&frame().concat()), Some(expected));
    }

    #[test]
    fn identifiers_of_each_kind_are_readable() {
        let of = |kind: u8, id: &[u8]| {
            let frame = [tlv(1, &[&[kind], id].concat()), tlv(2, b"\x07p"), tlv(3, &[0, 1])].concat();
            read(&frame).unwrap().chassis
        };
        assert_eq!(of(5, &[1, 192, 0, 2, 1]), "192.0.2.1");
        assert_eq!(of(5, &[2, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]), "2001:db8::7");
        assert_eq!(of(7, b"SN123"), "SN123");
        // Not of the length that its kind has.
        assert_eq!(of(4, b"abc"), "abc");
    }

    #[test]
    fn a_frame_that_is_cut_or_incomplete_is_none() {
        let whole = frame().concat();
        let end = whole.len() - 22;
        for cut in 0..end {
            // A cut between two parts is a shorter frame.
            let read = read(&whole[..cut]);
            assert!(read.is_none_or(|read| read.chassis == "00:1c:73:01:02:03"), "{cut}");
        }
        for missing in 0..3 {
            let mut parts = frame();
            parts.remove(missing);
            assert_eq!(read(&parts.concat()), None, "without part {missing}");
        }
        let mut farewell = frame();
        farewell[2] = tlv(3, &[0, 0]);
        assert_eq!(read(&farewell.concat()), None);
    }
}
