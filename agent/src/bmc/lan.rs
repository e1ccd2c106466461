//! What the BMC is, and where its LAN port is.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use landfall_api::{BmcFacts, MacAddr};

use super::device::{Answer, Command, Device};

// By the section that defines each.

/// 20.1.
const GET_DEVICE_ID: Command = Command(0x06, 0x01);
/// 22.24.
const GET_CHANNEL_INFO: Command = Command(0x06, 0x42);
/// 23.2.
const GET_LAN_PARAMETERS: Command = Command(0x0c, 0x02);

/// Channels that may be a LAN port (6.3).
pub(super) const CHANNELS: std::ops::RangeInclusive<u8> = 1..=0x0b;
/// 802.3 LAN (table 6-3).
const LAN: u8 = 4;

// Parameters of a LAN port (table 23-4).
const ADDRESS: u8 = 3;
const ADDRESS_SOURCE: u8 = 4;
const MAC: u8 = 5;
const VLAN: u8 = 20;
const STATIC_V6: u8 = 56;
const DYNAMIC_V6: u8 = 59;
/// IPv6 addresses of one kind that are looked at.
const MAX_V6: u8 = 4;

/// Asks the BMC once; `None`, with a line in the log, where there is none or it does not answer. Blocking: each answer takes some
/// milliseconds, and a BMC that restarts takes as long as the limit of an answer.
pub(crate) fn facts() -> Option<BmcFacts> {
    let device = Device::open()?;
    let asked = gather(&|command, data| device.call(command, data)).map(|(facts, _)| facts);
    asked.inspect_err(|e| tracing::warn!("the BMC's address stays unknown: {}: {e}", device.name())).ok()
}

/// Facts, and the channel of the LAN port with the address, if one has any. `ask` sends a command. What the BMC does not answer ends
/// all: half an answer would look like a BMC that lost its address.
pub(super) fn gather(ask: &impl Fn(Command, &[u8]) -> io::Result<Answer>) -> io::Result<(BmcFacts, Option<u8>)> {
    let id = ask(GET_DEVICE_ID, &[])?.map_err(|_| io::Error::other("the BMC does not say what it is"))?;
    let mut facts = BmcFacts::default();
    if let [_, _, major, minor, _, _, m0, m1, m2, p0, p1, ..] = id[..] {
        // The minor version is BCD; the first bit of the major one says that the firmware is being replaced.
        facts.firmware = format!("{}.{minor:02x}", major & 0x7f);
        facts.manufacturer = u32::from_le_bytes([m0, m1, m2 & 0x0f, 0]);
        facts.product = u16::from_le_bytes([p0, p1]);
    }
    // A port that is not connected has a channel, too: the one with an address is wanted.
    let mut first = None;
    for channel in CHANNELS {
        let info = ask(GET_CHANNEL_INFO, &[channel])?.unwrap_or_default();
        if info.get(1).is_none_or(|medium| medium & 0x7f != LAN) {
            continue;
        }
        let found = port(ask, channel, facts.clone())?;
        // One of the link alone is what a port has whose DHCP failed, or a network between computer and BMC.
        if found.address.is_some_and(|address| !address.is_link_local()) || found.address_v6.is_some() {
            return Ok((found, Some(channel)));
        }
        first.get_or_insert(found);
    }
    Ok((first.unwrap_or(facts), None))
}

/// What one LAN port of the BMC is set to. A parameter that it does not have is left out.
fn port(ask: &impl Fn(Command, &[u8]) -> io::Result<Answer>, channel: u8, mut facts: BmcFacts) -> io::Result<BmcFacts> {
    // The first byte is the revision of the parameter.
    let get = |parameter: u8, set: u8| {
        let answer = ask(GET_LAN_PARAMETERS, &[channel, parameter, set, 0])?.unwrap_or_default();
        io::Result::Ok(answer.get(1..).map(<[u8]>::to_vec).unwrap_or_default())
    };
    if let [a, b, c, d, ..] = get(ADDRESS, 0)?[..] {
        facts.address = Some(Ipv4Addr::new(a, b, c, d)).filter(|address| !address.is_unspecified());
    }
    if let [source, ..] = get(ADDRESS_SOURCE, 0)?[..] {
        let word = match source & 0x0f {
            1 => "static",
            2 => "dhcp",
            3 => "bios",
            4 => "other",
            _ => "",
        };
        word.clone_into(&mut facts.address_source);
    }
    if let [a, b, c, d, e, f, ..] = get(MAC, 0)?[..] {
        facts.mac = Some(MacAddr([a, b, c, d, e, f])).filter(|mac| *mac != MacAddr([0; 6]));
    }
    if let [low, high, ..] = get(VLAN, 0)?[..] {
        facts.vlan = (high & 0x80 != 0).then(|| u16::from_le_bytes([low, high & 0x0f]));
    }
    for kind in [STATIC_V6, DYNAMIC_V6] {
        for set in 0..MAX_V6 {
            facts.address_v6 = facts.address_v6.or(address_v6(&get(kind, set)?));
        }
    }
    Ok(facts)
}

/// Which of the set, where it is from, the address, its prefix's length, its state (0: in use).
fn address_v6(answer: &[u8]) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = answer.get(2..18)?.try_into().ok()?;
    let address = Ipv6Addr::from(octets);
    let in_use = answer.get(19).is_none_or(|state| *state == 0);
    (in_use && !address.is_unspecified() && !address.is_unicast_link_local()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number, set and value of each parameter that a port has.
    type Parameters<'a> = &'a [(u8, u8, &'a [u8])];

    /// A BMC of Dell's, of firmware 2.10, with LAN ports on these channels.
    fn asked(ports: &[(u8, Parameters<'_>)]) -> BmcFacts {
        let answer = |command: Command, data: &[u8]| {
            let port = |channel: u8| ports.iter().find(|(number, _)| *number == channel);
            match (command, data) {
                (GET_DEVICE_ID, []) => Ok(Ok(vec![0x20, 0x81, 0x82, 0x10, 2, 0xdf, 0xa2, 2, 0, 0, 1, 0, 0, 0, 0])),
                (GET_CHANNEL_INFO, &[7]) => Ok(Ok(vec![7, 5, 1])),
                (GET_CHANNEL_INFO, &[channel]) => Ok(port(channel).map(|_| vec![channel, LAN, 1]).ok_or(0xcc)),
                (GET_LAN_PARAMETERS, &[channel, parameter, set, 0]) => {
                    let all = port(channel).map_or(&[][..], |(_, all)| all);
                    let found = all.iter().find(|(number, at, _)| (*number, *at) == (parameter, set));
                    Ok(found.map(|(.., value)| [&[0x11], *value].concat()).ok_or(0x80))
                }
                other => panic!("{other:?}"),
            }
        };
        gather(&answer).unwrap().0
    }

    #[test]
    fn the_port_with_an_address_is_the_bmcs() {
        let base = BmcFacts { firmware: "2.10".into(), manufacturer: 674, product: 256, ..BmcFacts::default() };
        assert_eq!(asked(&[]), base, "no LAN port");
        let mac = [0xd0, 0x94, 0x66, 0, 0, 1];
        let unset: Parameters<'_> = &[(ADDRESS, 0, &[0; 4]), (MAC, 0, &mac), (VLAN, 0, &[9, 0])];
        let without = BmcFacts { mac: Some(MacAddr(mac)), ..base.clone() };
        assert_eq!(asked(&[(1, unset)]), without);
        let set: Parameters<'_> = &[(ADDRESS, 0, &[10, 0, 0, 9]), (ADDRESS_SOURCE, 0, &[2]), (VLAN, 0, &[0x05, 0x81])];
        let with = BmcFacts {
            address: Some(Ipv4Addr::new(10, 0, 0, 9)),
            address_source: "dhcp".into(),
            vlan: Some(0x105),
            ..base.clone()
        };
        assert_eq!(asked(&[(1, unset), (8, set)]), with);
        let v6 = |head: [u8; 2], state: u8| [&[0, 0x81], &head[..], &[0; 13], &[5, 64, state]].concat();
        let (local, used, failed) = (v6([0xfe, 0x80], 0), v6([0xfd, 0], 0), v6([0xfd, 1], 4));
        let all: Parameters<'_> = &[(STATIC_V6, 0, &failed), (DYNAMIC_V6, 0, &local), (DYNAMIC_V6, 1, &used)];
        assert_eq!(asked(&[(2, all)]), BmcFacts { address_v6: Some("fd00::5".parse().unwrap()), ..base });
    }

    #[test]
    fn a_silent_bmc_and_short_answers_give_nothing() {
        assert!(gather(&|_, _| Err(io::ErrorKind::TimedOut.into())).is_err() && gather(&|_, _| Ok(Err(0xc1))).is_err());
        // It says what it is, and is silent then: that is not a BMC without an address.
        let dies = |command, _: &[u8]| match command {
            GET_DEVICE_ID => Ok(Ok(vec![0; 15])),
            _ => Err(io::ErrorKind::TimedOut.into()),
        };
        assert!(gather(&dies).is_err());
        for length in 0..3 {
            let answer =
                |command, _: &[u8]| Ok(Ok(if command == GET_CHANNEL_INFO { vec![1, LAN] } else { vec![0; length] }));
            assert_eq!(gather(&answer).unwrap(), (BmcFacts::default(), None));
        }
    }
}
