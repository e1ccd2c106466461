use std::net::Ipv6Addr;
use std::time::Duration;

use dhcproto::v4::Architecture;
use dhcproto::v6::{DhcpOption, IAAddr, IANA, Message, MessageType, OptionCode, Status, UnknownOption};
use dhcproto::{Encodable, Encoder};
use landfall_api::MacAddr;

use super::address::Link;
use super::answer::{Addresses, Gives, answer};
use super::packet::Request;
use crate::dhcp::bootfile::BootServer;
use crate::dhcp::{Silence, Standing};

const OWN: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
/// As firmware, iPXE and Linux make it of [`MAC`].
const FROM: &str = "fe80::5054:ff:fe12:3456";
const SERVER: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const NUMBER: u32 = 0x0001_0203;

fn gives(full: bool) -> Gives {
    let addresses = Addresses {
        link: Link { own: OWN, prefix_length: 64 },
        lease: Duration::from_secs(1000),
        dns: vec!["fd77::53".parse().unwrap()],
        coordinators: vec!["https://[fd77::1]:7443".into()],
    };
    Gives {
        id: SERVER.to_vec(),
        server: BootServer { address: OWN, http_port: 7480, arm64: false, uki: true, arm64_uki: true },
        addresses: full.then_some(addresses),
    }
}

fn association(addresses: &[Ipv6Addr]) -> DhcpOption {
    let one = |addr: &Ipv6Addr| {
        let opts = Vec::new().into_iter().collect();
        DhcpOption::IAAddr(IAAddr { addr: *addr, preferred_life: 0, valid_life: 0, opts })
    };
    DhcpOption::IANA(IANA { id: NUMBER, t1: 0, t2: 0, opts: addresses.iter().map(one).collect() })
}

/// With a DUID-UUID, which names no port.
fn bytes(kind: MessageType, more: impl IntoIterator<Item = DhcpOption>) -> Vec<u8> {
    let mut message = Message::new_with_id(kind, [1, 2, 3]);
    message.opts_mut().insert(DhcpOption::ClientId([&[0, 4][..], &[7; 16]].concat()));
    more.into_iter().for_each(|option| message.opts_mut().insert(option));
    let mut bytes = Vec::new();
    message.encode(&mut Encoder::new(&mut bytes)).unwrap();
    bytes
}

fn request(kind: MessageType, more: impl IntoIterator<Item = DhcpOption>) -> Request {
    Request::parse(&bytes(kind, more), FROM.parse().unwrap()).unwrap()
}

fn netboots(class: &str, arch: u16) -> Vec<DhcpOption> {
    let class = format!("{class}:Arch:{arch:05}:UNDI:003000");
    vec![
        association(&[]),
        raw(OptionCode::VendorClass, &[&343_u32.to_be_bytes()[..], &word(&class)].concat()),
        DhcpOption::ClientArchType(vec![Architecture::from(arch)]),
    ]
}

fn raw(code: OptionCode, data: &[u8]) -> DhcpOption {
    DhcpOption::Unknown(UnknownOption::new(code, data.to_vec()))
}

fn word(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn is_ours() -> DhcpOption {
    DhcpOption::ServerId(SERVER.to_vec())
}

fn said(request: &Request, full: bool) -> Result<Message, Silence> {
    answer(request, Standing::Known, &gives(full))
}

fn url(message: &Message) -> Option<String> {
    match message.opts().get(OptionCode::OptBootfileUrl)? {
        DhcpOption::Unknown(option) => Some(String::from_utf8(option.data().to_vec()).unwrap()),
        other => panic!("{other:?}"),
    }
}

/// The addresses given, each with how long it may be used.
fn given(message: &Message) -> Vec<(Ipv6Addr, u32)> {
    let Some(DhcpOption::IANA(one)) = message.opts().get(OptionCode::IANA) else { return Vec::new() };
    assert_eq!(one.id, NUMBER);
    let address = |option: &DhcpOption| match option {
        DhcpOption::IAAddr(address) => (address.addr, address.valid_life),
        other => panic!("{other:?}"),
    };
    one.opts.iter().map(address).collect()
}

#[test]
fn each_client_gets_an_address_and_its_own_loader() {
    let ipxe = [netboots("PXEClient", 7), vec![raw(OptionCode::UserClass, &word("iPXE"))]].concat();
    for (options, wanted) in [
        (netboots("HTTPClient", 16), Some("http://[fd77::1]:7480/boot/uki/52-54-00-12-34-56.efi")),
        (netboots("HTTPClient", 19), Some("http://[fd77::1]:7480/boot/uki-arm64/52-54-00-12-34-56.efi")),
        (netboots("PXEClient", 7), Some("tftp://[fd77::1]/snponly.efi")),
        (
            ipxe,
            Some(
                "http://[fd77::1]:7480/boot/ipxe?mac=52:54:00:12:34:56&uuid=${uuid}&platform=${platform}&chip=${netX/chip}",
            ),
        ),
        (vec![association(&[])], None),
        // No loader for it, but an address all the same.
        (netboots("PXEClient", 6), None),
    ] {
        let message = said(&request(MessageType::Solicit, options.clone()), true).unwrap();
        assert_eq!((message.msg_type(), message.xid()), (MessageType::Advertise, [1, 2, 3]));
        assert_eq!(url(&message).as_deref(), wanted);
        let [(address, 1000)] = given(&message)[..] else { panic!("{:?}", given(&message)) };
        assert!(address != OWN && Link { own: OWN, prefix_length: 64 }.contains(address), "{address}");
        let asked = request(MessageType::Request, [options, vec![is_ours()]].concat());
        let reply = said(&asked, true).unwrap();
        assert_eq!(
            (reply.msg_type(), url(&reply), given(&reply)),
            (MessageType::Reply, url(&message), given(&message))
        );
    }
}

#[test]
fn a_client_that_asks_learns_the_coordinators_address() {
    let asks =
        |codes: &[u16]| raw(OptionCode::ORO, &codes.iter().flat_map(|code| code.to_be_bytes()).collect::<Vec<_>>());
    let named = Some("https://[fd77::1]:7443".to_owned());
    for (kind, options, wanted) in [
        (MessageType::Solicit, vec![association(&[]), asks(&[23, 136])], named.clone()),
        (MessageType::InformationRequest, vec![asks(&[136])], named),
        (MessageType::Solicit, vec![association(&[]), asks(&[23])], None),
        (MessageType::Solicit, vec![association(&[])], None),
        // Nothing may stand behind a loader's URL.
        (MessageType::Solicit, [netboots("HTTPClient", 16), vec![asks(&[136])]].concat(), None),
    ] {
        let message = said(&request(kind, options), true).unwrap();
        let value = message.opts().get(OptionCode::from(136)).map(|option| match option {
            DhcpOption::Unknown(option) => option.data().to_vec(),
            other => panic!("{other:?}"),
        });
        assert_eq!(landfall_api::redirected(&value.unwrap_or_default()), Vec::from_iter(wanted), "{kind:?}");
    }
}

#[test]
fn nothing_stands_behind_the_url() {
    for class in ["HTTPClient", "PXEClient"] {
        let arch = if class == "HTTPClient" { 16 } else { 7 };
        let message = said(&request(MessageType::Solicit, netboots(class, arch)), true).unwrap();
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).unwrap();
        assert!(bytes.ends_with(url(&message).unwrap().as_bytes()), "{class}");
        // EDK2 believes an HTTP offer by its class, and takes a PXE one with a class to port 4011.
        assert_eq!(message.opts().get(OptionCode::VendorClass).is_some(), class == "HTTPClient");
    }
}

#[test]
fn beside_another_server_only_http_boot_is_answered() {
    let http = request(MessageType::Solicit, netboots("HTTPClient", 16));
    let message = said(&http, false).unwrap();
    assert_eq!((given(&message), message.opts().get(OptionCode::Preference)), (Vec::new(), None));
    assert!(url(&message).unwrap().starts_with("http://[fd77::1]:7480/boot/uki/"));
    let pxe = request(MessageType::Solicit, netboots("PXEClient", 7));
    assert_eq!(said(&pxe, false), Err(Silence::NoProxyV6));
    let other = DhcpOption::ServerId(vec![0, 3, 0, 1, 9, 9, 9, 9, 9, 9]);
    let asked = request(MessageType::Request, [netboots("HTTPClient", 16), vec![other]].concat());
    assert_eq!((said(&asked, false), said(&asked, true)), (Err(Silence::AnotherServer), Err(Silence::AnotherServer)));
}

#[test]
fn an_unknown_machine_gets_no_answer() {
    let asked = request(MessageType::Solicit, netboots("HTTPClient", 16));
    assert_eq!(answer(&asked, Standing::Unknown, &gives(true)), Err(Silence::UnknownMachine));
    assert!(answer(&asked, Standing::Discovered, &gives(true)).is_ok());
}

#[test]
fn an_address_is_renewed_and_a_foreign_one_ends() {
    let own = given(&said(&request(MessageType::Solicit, [association(&[])]), true).unwrap())[0].0;
    let foreign: Ipv6Addr = "fd77::9".parse().unwrap();
    for kind in [MessageType::Renew, MessageType::Rebind] {
        let message = said(&request(kind, [association(&[own, foreign]), is_ours()]), true).unwrap();
        assert_eq!(given(&message), [(own, 1000), (foreign, 0)]);
    }
    let status = |kind, address| {
        let message = said(&request(kind, [association(&[address]), is_ours()]), true).unwrap();
        match message.opts().get(OptionCode::StatusCode) {
            Some(DhcpOption::StatusCode(code)) => code.status,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(status(MessageType::Confirm, own), Status::Success);
    assert_eq!(status(MessageType::Confirm, "fd78::9".parse().unwrap()), Status::NotOnLink);
    assert_eq!(
        (status(MessageType::Release, own), status(MessageType::Decline, own)),
        (Status::Success, Status::Success)
    );
    // A request that names no server is meant for none.
    assert_eq!(said(&request(MessageType::Renew, [association(&[own])]), true), Err(Silence::Kind));
}

#[test]
fn a_port_is_known_by_its_address_or_its_identifier() {
    let mac_of = |id: &[u8], from: &str| {
        let mut message = Message::new_with_id(MessageType::Solicit, [1, 2, 3]);
        message.opts_mut().insert(DhcpOption::ClientId(id.to_vec()));
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).unwrap();
        Request::parse(&bytes, from.parse().unwrap()).map(|request| request.mac)
    };
    let private = "fe80::1234:5678:9abc:def0";
    let with_time = [&[0, 1, 0, 1, 9, 9, 9, 9][..], &MAC.0].concat();
    let without = [&[0, 3, 0, 1][..], &MAC.0].concat();
    assert_eq!(mac_of(&[0, 4, 7], FROM), Ok(MAC));
    assert_eq!((mac_of(&with_time, private), mac_of(&without, private)), (Ok(MAC), Ok(MAC)));
    for id in [&[0, 4, 7][..], &[0, 3, 0, 1, 1, 2, 3], &[0, 3, 0, 1, 1, 0, 0, 0, 0, 1]] {
        assert_eq!(mac_of(id, private), Err(Silence::NoMac), "{id:?}");
    }
    assert_eq!(mac_of(&[], FROM), Err(Silence::NoClientId));
}

#[test]
fn what_is_no_request_is_not_answered() {
    let from = FROM.parse().unwrap();
    let of = |bytes: &[u8]| Request::parse(bytes, from).unwrap_err();
    assert_eq!((of(&[]), of(&[1, 2])), (Silence::NotDhcp, Silence::NotDhcp));
    assert_eq!(of(&bytes(MessageType::Advertise, [])), Silence::NotARequest);
    assert_eq!(of(&[12; 40]), Silence::RelayedV6);
    // Many are asked for; a few are answered.
    let asked = request(MessageType::Solicit, (0..100).map(|_| association(&[OWN; 100])));
    assert!(asked.asked.len() == 4 && asked.asked.iter().all(|one| one.addresses.len() == 4));
    // Options that say they are longer or shorter than they are.
    for (code, data) in [
        (OptionCode::VendorClass, &[1, 2][..]),
        (OptionCode::VendorClass, &[0, 0, 1, 87, 0xff, 0xff, 1]),
        (OptionCode::UserClass, &[9]),
        (OptionCode::IANA, &[1, 2, 3]),
        (OptionCode::StatusCode, &[]),
        (OptionCode::ClientArchType, &[1]),
    ] {
        let asked = request(MessageType::Solicit, [raw(code, data)]);
        assert_eq!((asked.arch, asked.asked.len()), (None, 0), "{code:?}");
    }
    let whole = bytes(MessageType::Solicit, netboots("HTTPClient", 16));
    for length in 0..whole.len() {
        // Whatever is left is read or refused.
        let _ = Request::parse(&whole[..length], from);
    }
}

#[test]
fn ports_and_numbers_have_addresses_of_their_own() {
    let own = "fd77:0:0:5::1".parse().unwrap();
    let link = Link { own, prefix_length: 48 };
    assert_eq!(link.prefix().to_string(), "fd77::");
    let other = MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x57]);
    let all = [link.address(MAC, 1), link.address(MAC, 2), link.address(other, 1)];
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    // In the coordinator's own network of 64 bits, whatever the prefix.
    let near = Link { prefix_length: 64, ..link };
    assert!(all.iter().all(|address| near.contains(*address)), "{all:?}");
    assert!(link.shows(all[0], MAC) && !link.shows(all[0], other) && !link.shows(own, MAC));
    let taken = Link { own: all[0], ..link };
    assert_ne!(taken.address(MAC, 1), all[0], "the coordinator's own is not given out");
}
