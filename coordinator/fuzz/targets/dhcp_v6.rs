//! DHCPv6 packets, beside another server and as the only one: read, decided, answered.
//!
//! Input: flags, then packets, each after a byte of how its sender stands and where it comes from, and its length.
#![no_main]

use std::net::Ipv6Addr;

use dhcproto::v6::{DhcpOption, Message, OptionCode};
use dhcproto::{Encodable as _, Encoder};
use landfall_boot::dhcp::Standing;
use landfall_boot::dhcp::bootfile::BootServer;
use landfall_boot::dhcp::v6::address::Link;
use landfall_boot::dhcp::v6::answer::{Addresses, Gives, answer};
use landfall_boot::dhcp::v6::packet::Request;
use landfall_coordinator_fuzz::Input;
use libfuzzer_sys::fuzz_target;

const OWN: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);

/// What is sent fits one frame, is the sender's own, and ends with the URL, if it has one.
fn check(message: &Message, request: &Request, link: Link) {
    let mut bytes = Vec::new();
    message.encode(&mut Encoder::new(&mut bytes)).expect("what is answered can be sent");
    assert!(bytes.len() < 1400, "{} bytes", bytes.len());
    assert_eq!(message.xid(), request.xid);
    if let Some(DhcpOption::Unknown(url)) = message.opts().get(OptionCode::OptBootfileUrl) {
        assert!(bytes.ends_with(url.data()));
    }
    for option in message.opts().iter() {
        let DhcpOption::IANA(given) = option else { continue };
        for option in given.opts.iter() {
            let DhcpOption::IAAddr(address) = option else { panic!("{option:?}") };
            let is_its_own = address.addr == link.address(request.mac, given.id);
            assert_eq!(is_its_own, address.valid_life > 0, "only the port's own address may be used");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let flags = input.u8();
    let link = Link { own: OWN, prefix_length: 48 + flags % 17 };
    let addresses = Addresses {
        link,
        lease: std::time::Duration::from_secs(3600),
        dns: vec![OWN; usize::from(flags >> 6)],
        coordinators: vec!["https://[fd77::1]:7443".to_owned()],
    };
    let server = BootServer { address: OWN, http_port: 7480, arm64: flags & 32 != 0, uki: true, arm64_uki: true };
    let full = Gives { id: vec![0, 3, 0, 1, 2, 0, 0, 0, 0, 1], server, addresses: Some(addresses) };
    let beside = Gives { addresses: None, ..full.clone() };
    while !input.0.is_empty() {
        let how = input.u8();
        let standing = [Standing::Known, Standing::Discovered, Standing::Unknown][usize::from(how & 3) % 3];
        // One that shows its port, or not.
        let from = if how & 4 == 0 { "fe80::5054:ff:fe00:1" } else { "fe80::1:2:3:4" };
        let Ok(request) = Request::parse(input.bytes(), from.parse().expect("an address")) else { continue };
        for gives in [&full, &beside] {
            let Ok(message) = answer(&request, standing, gives) else { continue };
            assert!(standing != Standing::Unknown, "unknown machines get no answer");
            check(&message, &request, link);
            let gives_addresses = message.opts().get(OptionCode::IANA).is_some();
            assert!(gives.addresses.is_some() || !gives_addresses, "another server gives the addresses");
        }
    }
});
