//! What real firmware sends, and what it gets.
//!
//! The packets carry the options that each firmware was seen to send (QEMU's SeaBIOS with its iPXE ROM, OVMF, Debian's
//! undionly.kpxe and snponly.efi), encoded by the independent encoder of dhcproto.

use std::time::Duration;

use dhcproto::v4::{self, DhcpOption, Flags, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Encodable, Encoder};
use landfall_api::MacAddr;
use proptest::prelude::*;

use super::bootfile::BootServer;
use super::full::{Network, Subnet, Subnets, answer};
use super::leases::Pool;
use super::packet::{Client, Request};
use super::proxy::{answer_67, answer_4011};
use super::reply::{Destination, Reply};
use super::*;
use crate::config::AddressRange;
use crate::policy::Reservations;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

fn server() -> BootServer {
    BootServer { address: OWN, http_port: 7480, arm64: false, uki: false, arm64_uki: false }
}

/// Of 100 to 199 in that /24.
fn subnet(third: u8, router: Option<Ipv4Addr>) -> Subnet {
    let (inside, netmask) = (Ipv4Addr::new(10, 77, third, 100), Ipv4Addr::new(255, 255, 255, 0));
    let range = AddressRange { first: inside, last: Ipv4Addr::new(10, 77, third, 199) };
    let coordinators = vec!["https://10.77.0.1:7443".to_owned()];
    let network = Network { inside, netmask, router, dns: vec![], coordinators, lease: Duration::from_secs(3600) };
    Subnet { network, pool: Pool::new(range, vec![OWN]).unwrap().within(netmask, vec![OWN]) }
}

fn subnets() -> Subnets {
    Subnets::new(subnet(0, None), vec![])
}

/// A client's packet under construction.
struct Packet(Message);

impl Packet {
    fn new(kind: MessageType) -> Self {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(0x1234_5678, none, none, none, none, &MAC);
        message.set_opcode(Opcode::BootRequest);
        message.opts_mut().insert(DhcpOption::MessageType(kind));
        Self(message)
    }
    fn with(mut self, option: DhcpOption) -> Self {
        self.0.opts_mut().insert(option);
        self
    }
    fn raw(self, code: u8, data: &[u8]) -> Self {
        self.with(DhcpOption::Unknown(UnknownOption::new(OptionCode::from(code), data.to_vec())))
    }
    fn header(mut self, change: impl FnOnce(&mut Message)) -> Self {
        change(&mut self.0);
        self
    }
    /// OVMF, or a BIOS ROM, of that architecture.
    fn pxe(kind: MessageType, class: &str, arch: u16) -> Self {
        Self::new(kind)
            .with(DhcpOption::MaxMessageSize(1472))
            .with(DhcpOption::ClassIdentifier(format!("{class}:Arch:{arch:05}:UNDI:003000").into_bytes()))
            .raw(93, &arch.to_be_bytes())
            .raw(94, &[1, 3, 0])
            .raw(97, &[[0].as_slice(), &[7; 16]].concat())
    }
    /// iPXE: in QEMU's ROM, or loaded by us.
    fn ipxe(kind: MessageType) -> Self {
        Self::pxe(kind, "PXEClient", 0).raw(77, b"iPXE").raw(175, &[0xb1, 5, 1, 0x1a, 0xf4, 0x10, 0, 0x13, 1, 1])
    }
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.encode(&mut Encoder::new(&mut bytes)).unwrap();
        bytes
    }
    fn parse(&self) -> Request {
        Request::parse(&self.encode()).unwrap()
    }
}

fn file(reply: &Reply) -> String {
    String::from_utf8(reply.message.fname().unwrap_or_default().to_vec()).unwrap()
}

fn raw(reply: &Reply, code: u8) -> Option<Vec<u8>> {
    let bytes = reply.encode().unwrap();
    let message = v4::borrowed::Message::new(&bytes).unwrap();
    message.opts().find(|o| u8::from(o.code()) == code).map(|o| o.data().to_vec())
}

const SCRIPT: &str =
    "http://10.77.0.1:7480/boot/ipxe?mac=52:54:00:00:00:01&uuid=${uuid}&platform=${platform}&chip=${netX/chip}";

#[test]
fn each_firmware_is_sent_to_its_own_loader() {
    use MessageType::Discover;
    let http = "http://10.77.0.1:7480/boot/snponly.efi";
    for (packet, expected) in [
        (Packet::pxe(Discover, "PXEClient", 0), Ok("undionly.kpxe")),
        (Packet::pxe(Discover, "PXEClient", 7), Ok("snponly.efi")),
        (Packet::pxe(Discover, "PXEClient", 9), Ok("snponly.efi")),
        (Packet::pxe(Discover, "HTTPClient", 16), Ok(http)),
        (Packet::ipxe(Discover), Ok(SCRIPT)),
        (Packet::pxe(Discover, "PXEClient", 0).raw(77, b"\x04iPXE"), Ok(SCRIPT)),
        (Packet::new(Discover).raw(60, b"PXEClient:Arch:00000:UNDI:002001"), Ok("undionly.kpxe")),
        (Packet::pxe(Discover, "PXEClient", 6), Err(Silence::Uefi32)),
        (Packet::pxe(Discover, "HTTPClient", 15), Err(Silence::Uefi32)),
        (Packet::pxe(Discover, "PXEClient", 11), Err(Silence::NoArm64Loader)),
        (Packet::pxe(Discover, "PXEClient", 41), Err(Silence::Architecture(41))),
        (Packet::new(Discover).raw(60, b"PXEClient"), Err(Silence::NoArchitecture)),
        (Packet::new(Discover).raw(60, b"MSFT 5.0"), Err(Silence::NotNetbooting)),
        (Packet::new(Discover), Err(Silence::NotNetbooting)),
    ] {
        let got = answer_67(&packet.parse(), Standing::Known, &server()).map(|r| file(&r));
        assert_eq!(got, expected.map(str::to_owned), "{:?}", packet.0);
    }
    let arm64 = BootServer { arm64: true, ..server() };
    let reply = answer_67(&Packet::pxe(Discover, "PXEClient", 11).parse(), Standing::Known, &arm64).unwrap();
    assert_eq!(file(&reply), "snponly-arm64.efi");
    let with_uki = BootServer { uki: true, ..server() };
    let reply = answer_67(&Packet::pxe(Discover, "HTTPClient", 16).parse(), Standing::Known, &with_uki).unwrap();
    assert_eq!(file(&reply), "http://10.77.0.1:7480/boot/uki/52-54-00-00-00-01.efi");
    // Each architecture has its own, and firmware that boots by PXE none.
    assert_eq!(
        answer_67(&Packet::pxe(Discover, "HTTPClient", 19).parse(), Standing::Known, &with_uki).map(|r| file(&r)),
        Err(Silence::NoArm64Loader)
    );
    let both = BootServer { arm64: true, arm64_uki: true, ..server() };
    for (class, arch, expected) in [
        ("HTTPClient", 19, "http://10.77.0.1:7480/boot/uki-arm64/52-54-00-00-00-01.efi"),
        ("HTTPClient", 16, http),
        ("PXEClient", 11, "snponly-arm64.efi"),
    ] {
        let reply = answer_67(&Packet::pxe(Discover, class, arch).parse(), Standing::Known, &both).unwrap();
        assert_eq!(file(&reply), expected);
    }
    let longest = BootServer { address: Ipv4Addr::new(255, 255, 255, 255), http_port: 65535, ..both };
    let url = longest.script_url("ff:ff:ff:ff:ff:ff".parse().unwrap(), Some(11));
    assert!(url.len() <= 127 && url.ends_with("&arch=arm64"), "{} bytes: {url}", url.len());
}

#[test]
fn the_first_architecture_with_a_loader_counts() {
    for (class, list, arch) in [
        ("PXEClient", &[0, 0x20, 0, 7][..], 7),
        ("PXEClient", &[0, 6, 0, 9, 0, 0], 9),
        ("HTTPClient", &[0, 7, 0, 16], 16),
        ("PXEClient", &[0, 0x20, 0, 0x21], 0x20),
    ] {
        let packet = Packet::new(MessageType::Discover).with(DhcpOption::ClassIdentifier(class.as_bytes().to_vec()));
        assert_eq!(packet.raw(93, list).parse().arch, Some(arch), "{class} {list:?}");
    }
}

#[test]
fn ipxe_is_known_in_every_form_of_its_user_class() {
    for (class, is) in [
        (&b"iPXE"[..], true),
        (b"iPXE\0", true),
        (b"\x04iPXE", true),
        (b"\x03foo\x04iPXE", true),
        (b"\x05iPXE\0\x03foo", true),
        (b"\x03foo\x09iPXE", false),
        (b"\0\0", false),
        (b"gPXE", false),
    ] {
        let request = Packet::pxe(MessageType::Discover, "PXEClient", 7).raw(77, class).parse();
        assert_eq!(request.client == Client::Ipxe, is, "{class:?}");
    }
}

#[test]
fn a_proxy_offer_has_what_keeps_firmware_from_looking_further() {
    let reply =
        answer_67(&Packet::pxe(MessageType::Discover, "PXEClient", 7).parse(), Standing::Known, &server()).unwrap();
    assert_eq!(reply.to, Destination::Broadcast);
    assert_eq!(reply.message.yiaddr(), Ipv4Addr::UNSPECIFIED, "a proxy gives no address");
    assert_eq!(reply.message.siaddr(), OWN);
    assert_eq!(reply.message.sname(), Some(b"10.77.0.1".as_slice()));
    assert_eq!(reply.message.xid(), 0x1234_5678);
    for (code, data) in [
        (43, vec![6, 1, 8, 255]),
        (53, vec![2]),
        (54, OWN.octets().to_vec()),
        (60, b"PXEClient".to_vec()),
        (97, [[0].as_slice(), &[7; 16]].concat()),
    ] {
        assert_eq!(raw(&reply, code), Some(data), "option {code}");
    }
    assert_eq!(raw(&reply, 51), None, "a proxy gives no lease");
    assert!(reply.encode().unwrap().len() >= 300);
}

#[test]
fn http_boot_gets_its_url_and_its_own_class() {
    let reply =
        answer_67(&Packet::pxe(MessageType::Discover, "HTTPClient", 16).parse(), Standing::Known, &server()).unwrap();
    assert_eq!(raw(&reply, 60), Some(b"HTTPClient".to_vec()));
    assert_eq!(raw(&reply, 67), Some(b"http://10.77.0.1:7480/boot/snponly.efi".to_vec()));
    assert_eq!(raw(&reply, 43), None);
}

#[test]
fn the_proxy_answers_only_requests_for_it() {
    let request = |id: Option<Ipv4Addr>| {
        let packet = Packet::ipxe(MessageType::Request).header(|m| {
            m.set_ciaddr([10, 77, 0, 150]);
        });
        let packet = id.into_iter().fold(packet, |p, id| p.with(DhcpOption::ServerIdentifier(id)));
        answer_67(&packet.parse(), Standing::Known, &server())
    };
    assert_eq!(request(Some(OTHER)), Err(Silence::OtherServer(OTHER)));
    assert_eq!(request(None), Err(Silence::Kind));
    assert_eq!(request(Some(OWN)).unwrap().to, Destination::Client([10, 77, 0, 150].into()));

    let reply =
        answer_4011(&Packet::pxe(MessageType::Request, "PXEClient", 0).parse(), Standing::Known, &server()).unwrap();
    assert_eq!((reply.to, reply.kind_str(), file(&reply).as_str()), (Destination::Sender, "ack", "undionly.kpxe"));
    let discover = Packet::pxe(MessageType::Discover, "PXEClient", 0).parse();
    assert_eq!(answer_4011(&discover, Standing::Known, &server()), Err(Silence::Kind));
}

#[test]
fn unknown_machines_get_answers_only_with_discovery() {
    for kind in [MessageType::Discover, MessageType::Request, MessageType::Inform] {
        let packet = Packet::ipxe(kind).with(DhcpOption::ServerIdentifier(OWN)).parse();
        for standing in [Standing::Unknown, Standing::Discovered] {
            let silent = standing == Standing::Unknown;
            if kind != MessageType::Inform {
                assert_eq!(answer_67(&packet, standing, &server()).is_err(), silent);
            }
            let full = answer(&packet, standing, &mut subnets(), &(), &server(), 0);
            assert_eq!(full == Err(Silence::UnknownMachine), silent);
        }
    }
}

#[test]
fn all_boot_stages_of_a_machine_get_one_address() {
    let (mut subnets, server) = (subnets(), server());
    let mut addresses = vec![];
    let clients: [fn(MessageType) -> Packet; 3] =
        [|kind| Packet::pxe(kind, "PXEClient", 7), Packet::ipxe, |kind| Packet::new(kind).raw(61, b"\xffagent")];
    for client in clients {
        let offer =
            answer(&client(MessageType::Discover).parse(), Standing::Known, &mut subnets, &(), &server, 0).unwrap();
        let address = offer.message.yiaddr();
        let request = client(MessageType::Request)
            .with(DhcpOption::ServerIdentifier(OWN))
            .with(DhcpOption::RequestedIpAddress(address));
        let ack = answer(&request.parse(), Standing::Known, &mut subnets, &(), &server, 0).unwrap();
        assert_eq!((ack.kind_str(), ack.message.yiaddr(), ack.to), ("ack", address, Destination::Broadcast));
        assert_eq!(raw(&ack, 51), Some(3600u32.to_be_bytes().to_vec()));
        assert_eq!(raw(&ack, 61), request.parse().client_id);
        // Boot options for those who netboot, none for the others.
        assert_eq!(raw(&ack, 60).is_some(), request.parse().client != Client::Ordinary);
        assert_eq!(raw(&ack, 175).is_some(), request.parse().client == Client::Ipxe, "no wait for a proxy");
        addresses.push(address);
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 1);
}

#[test]
fn a_client_that_asks_learns_the_coordinators_address() {
    for (asked, is_named) in [(&[1, 3, 143][..], true), (&[1, 3], false), (&[], false)] {
        for kind in [MessageType::Discover, MessageType::Inform] {
            let packet = Packet::new(kind).raw(55, asked).parse();
            let reply = answer(&packet, Standing::Known, &mut subnets(), &(), &server(), 0).unwrap();
            let value = raw(&reply, 143).unwrap_or_default();
            let wanted = is_named.then(|| "https://10.77.0.1:7443".to_owned());
            assert_eq!(landfall_api::redirected(&value), Vec::from_iter(wanted), "{asked:?}");
        }
    }
}

#[test]
fn wrong_addresses_are_refused_and_renewals_answered_to_the_client() {
    let (mut subnets, server) = (subnets(), server());
    let mut ask = |packet: Packet| answer(&packet.parse(), Standing::Known, &mut subnets, &(), &server, 0);
    let from = |address: [u8; 4]| {
        Packet::new(MessageType::Request).header(|m| {
            m.set_ciaddr(address);
        })
    };
    // Restarted with an address of another network.
    let elsewhere = Packet::new(MessageType::Request).with(DhcpOption::RequestedIpAddress([192, 168, 1, 5].into()));
    let nak = ask(elsewhere).unwrap();
    assert_eq!((nak.kind_str(), nak.to, nak.message.yiaddr()), ("nak", Destination::Broadcast, Ipv4Addr::UNSPECIFIED));
    // Renews one of ours, even if the lease file was lost.
    let ack = ask(from([10, 77, 0, 142])).unwrap();
    assert_eq!((ack.kind_str(), ack.to), ("ack", Destination::Client([10, 77, 0, 142].into())));
    // Renews the server's own.
    assert_eq!(ask(from([10, 77, 0, 1])).unwrap().kind_str(), "nak");
    // Chose another server.
    let chosen = Packet::new(MessageType::Request)
        .with(DhcpOption::ServerIdentifier(OTHER))
        .with(DhcpOption::RequestedIpAddress([10, 77, 0, 142].into()));
    assert_eq!(ask(chosen), Err(Silence::OtherServer(OTHER)));
    // Only asks for options.
    let inform = Packet::new(MessageType::Inform).header(|m| {
        m.set_ciaddr([10, 77, 0, 9]);
    });
    let ack = ask(inform).unwrap();
    assert_eq!((ack.message.yiaddr(), ack.to), (Ipv4Addr::UNSPECIFIED, Destination::Client([10, 77, 0, 9].into())));
    assert_eq!(raw(&ack, 51), None);
}

#[test]
fn relays_are_answered_and_strange_subnets_are_not() {
    let relayed = |giaddr: [u8; 4]| {
        Packet::ipxe(MessageType::Discover).raw(82, &[1, 2, 3, 4]).header(|m| {
            m.set_giaddr(giaddr);
        })
    };
    let near = relayed([10, 77, 0, 3]).parse();
    for reply in [
        answer(&near, Standing::Known, &mut subnets(), &(), &server(), 0).unwrap(),
        answer_67(&near, Standing::Known, &server()).unwrap(),
    ] {
        assert_eq!(
            (reply.to, reply.message.giaddr()),
            (Destination::Relay([10, 77, 0, 3].into()), [10, 77, 0, 3].into())
        );
        let bytes = reply.encode().unwrap();
        let options: Vec<_> = v4::borrowed::Message::new(&bytes).unwrap().opts().collect();
        let relay: Vec<_> = options.iter().filter(|o| u8::from(o.code()) == 82).map(|o| o.data().to_vec()).collect();
        assert_eq!(relay, [vec![1, 2, 3, 4]], "once");
    }
    let far = relayed([10, 78, 0, 3]).parse();
    let relay = Ipv4Addr::new(10, 78, 0, 3);
    assert_eq!(
        answer(&far, Standing::Known, &mut subnets(), &(), &server(), 0),
        Err(Silence::Relayed(relay)),
        "no range for that subnet"
    );
    let offer = answer_67(&far, Standing::Known, &server()).expect("a proxy gives no addresses");
    assert!(offer.message.flags().broadcast(), "there is no address to which the relay could send it");
}

#[test]
fn a_relayed_subnet_has_its_own_range_and_router() {
    let router = Ipv4Addr::new(10, 77, 9, 1);
    let mut subnets = Subnets::new(subnet(0, None), vec![subnet(9, Some(router))]);
    let mut ask = |packet: Packet| answer(&packet.parse(), Standing::Known, &mut subnets, &(), &server(), 0);
    let through = |packet: Packet, relay: [u8; 4], info: &[u8]| {
        packet.raw(82, info).header(|m| {
            m.set_giaddr(relay);
        })
    };
    let offer = ask(through(Packet::ipxe(MessageType::Discover), [10, 77, 9, 2], &[1, 1, 0])).unwrap();
    let address = offer.message.yiaddr();
    assert_eq!(address.octets()[..3], [10, 77, 9]);
    assert_eq!(raw(&offer, 3), Some(router.octets().to_vec()));
    assert_eq!(offer.message.siaddr(), OWN);
    let chosen = Packet::ipxe(MessageType::Request).with(DhcpOption::RequestedIpAddress(address));
    assert_eq!(ask(through(chosen, [10, 77, 9, 2], &[])).unwrap().kind_str(), "ack");
    // It renews without the relay.
    let renewal = |address: Ipv4Addr| {
        Packet::new(MessageType::Request).header(|m| {
            m.set_ciaddr(address);
        })
    };
    let ack = ask(renewal(address)).unwrap();
    assert_eq!((ack.kind_str(), ack.message.yiaddr(), ack.to), ("ack", address, Destination::Client(address)));
    for (elsewhere, why) in
        [([10, 99, 0, 7], "an address of no subnet"), ([10, 77, 9, 150], "one that it does not have")]
    {
        let elsewhere = Ipv4Addr::from(elsewhere);
        let nak = ask(renewal(elsewhere)).unwrap();
        assert_eq!((nak.kind_str(), nak.to), ("nak", Destination::Client(elsewhere)), "{why}");
    }
    // The relay's address is one of a management network; the link that it names decides (RFC 3527).
    let linked = through(Packet::ipxe(MessageType::Discover), [192, 0, 2, 9], &[1, 1, 7, 5, 4, 10, 77, 9, 0]);
    assert_eq!(ask(linked).unwrap().message.yiaddr(), address);
    let broken = through(Packet::ipxe(MessageType::Discover), [10, 77, 9, 2], &[5, 2, 1, 1]);
    assert_eq!(ask(broken).unwrap().message.yiaddr(), address, "a link that is none");
    let own = ask(Packet::ipxe(MessageType::Discover)).unwrap();
    assert_eq!((own.message.yiaddr().octets()[2], raw(&own, 3)), (0, None), "on the link itself it gets another");
}

#[test]
fn a_port_gets_another_address_while_its_own_is_used() {
    struct One;
    impl Reservations for One {
        fn address_for(&self, mac: MacAddr) -> Option<Ipv4Addr> {
            (mac.0 == MAC).then_some(Ipv4Addr::new(10, 77, 0, 30))
        }
        fn reserved_for(&self, address: Ipv4Addr) -> Option<MacAddr> {
            (address.octets()[3] == 30).then_some(MacAddr(MAC))
        }
    }
    let mut subnets = subnets();
    let mut ask = |packet: Packet, now| answer(&packet.parse(), Standing::Known, &mut subnets, &One, &server(), now);
    let reserved = Ipv4Addr::new(10, 77, 0, 30);
    assert_eq!(ask(Packet::ipxe(MessageType::Discover), 0).unwrap().message.yiaddr(), reserved);
    let decline = Packet::new(MessageType::Decline).with(DhcpOption::RequestedIpAddress(reserved));
    assert_eq!(ask(decline, 0), Err(Silence::Kind));
    assert_ne!(ask(Packet::ipxe(MessageType::Discover), 599).unwrap().message.yiaddr(), reserved);
    assert_eq!(ask(Packet::ipxe(MessageType::Discover), 600).unwrap().message.yiaddr(), reserved);
}

#[test]
fn an_unreadable_option_does_not_stop_a_machine_from_booting() {
    // A host name that is no UTF-8, an empty FQDN, a user class with a broken length.
    let packet = Packet::ipxe(MessageType::Discover).raw(12, b"\xff\xfe").raw(81, b"").raw(124, b"\x99");
    assert!(answer_67(&packet.parse(), Standing::Known, &server()).is_ok());
}

#[test]
fn broken_packets_are_silence() {
    let good = Packet::ipxe(MessageType::Discover).encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Request::parse(&bytes)
    };
    assert_eq!(Request::parse(&good[..239]), Err(Silence::NotDhcp));
    assert_eq!(with(236, 0), Err(Silence::NotDhcp));
    assert_eq!(with(0, 2), Err(Silence::NotARequest));
    assert_eq!(with(1, 32), Err(Silence::NotEthernet));
    assert_eq!(with(2, 255), Err(Silence::NotEthernet));
    assert_eq!(with(28, 0x53), Err(Silence::NotEthernet), "multicast");
    let mut bootp = Packet::ipxe(MessageType::Discover);
    bootp.0.opts_mut().remove(OptionCode::MessageType);
    assert_eq!(Request::parse(&bootp.encode()), Err(Silence::Bootp));
    let broadcast = Packet::new(MessageType::Discover).header(|m| {
        m.set_flags(Flags::default().set_broadcast());
    });
    assert!(broadcast.parse().broadcast);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_never_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        // 48 fixed bits must be right by chance (cookie, operation, hardware type, ...).
        prop_assert!(Request::parse(&bytes).is_err());
    }

    #[test]
    fn a_well_formed_packet_with_arbitrary_options_never_panics(
        tail in prop::collection::vec(any::<u8>(), 0..400),
        kind in 0u8..10,
        flip in 4usize..240,
        bit in 0u8..8,
    ) {
        let mut bytes = Packet::ipxe(MessageType::Discover).encode();
        bytes.truncate(240);
        bytes[flip] ^= 1 << bit;
        bytes.extend_from_slice(&[53, 1, kind]);
        bytes.extend_from_slice(&tail);
        if let Ok(request) = Request::parse(&bytes) {
            let mut subnets = subnets();
            for reply in [
                answer_67(&request, Standing::Known, &server()),
                answer_4011(&request, Standing::Known, &server()),
                answer(&request, Standing::Known, &mut subnets, &(), &server(), 0),
            ].into_iter().flatten() {
                prop_assert!(reply.encode().is_ok());
            }
        }
    }
}
