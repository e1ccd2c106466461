//! DHCP packets, one after another, as the proxy and as the only server: read, decided, answered, leases kept.
//!
//! Input: flags, then packets, each after a byte of how much later it came and whether its sender is known, and its length.
#![no_main]

use std::net::Ipv4Addr;

use dhcproto::v4::{Message, MessageType};
use dhcproto::{Decodable as _, Decoder};
use landfall_boot::config::AddressRange;
use landfall_boot::dhcp::bootfile::BootServer;
use landfall_boot::dhcp::full::{Network, Subnet, Subnets};
use landfall_boot::dhcp::leases::{LeaseState, Pool};
use landfall_boot::dhcp::packet::Request;
use landfall_boot::dhcp::reply::Reply;
use landfall_boot::dhcp::{Silence, Standing, full, proxy};
use landfall_coordinator_fuzz::Input;
use libfuzzer_sys::fuzz_target;

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 100);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 107);

fn check(reply: &Reply, request: &Request) {
    let bytes = reply.encode().expect("what is answered can be sent");
    assert!((300..1400).contains(&bytes.len()), "it fits one frame, whatever was asked: {}", bytes.len());
    let read = Message::decode(&mut Decoder::new(&bytes)).expect("what is sent can be read");
    assert_eq!((read.xid(), read.chaddr()), (request.xid, request.mac.0.as_slice()), "it is the sender's own");
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let flags = input.u8();
    let server = BootServer {
        address: Ipv4Addr::new(10, 77, 0, 1),
        http_port: 7480,
        arm64: flags & 1 != 0,
        uki: flags & 8 != 0,
        arm64_uki: flags & 16 != 0,
    };
    let network = Network {
        inside: server.address,
        netmask: Ipv4Addr::new(255, 255, 255, 0),
        router: (flags & 2 != 0).then_some(server.address),
        dns: vec![server.address; usize::from(flags >> 4)],
        coordinators: vec!["https://10.77.0.1:7443".to_owned()],
        lease: std::time::Duration::from_secs(3600),
    };
    let pool = Pool::new(AddressRange { first: FIRST, last: LAST }, vec![server.address]).expect("a range");
    let mut subnets = Subnets::new(Subnet { network, pool }, Vec::new());
    let mut now = 1_700_000_000;
    while !input.0.is_empty() {
        let how = input.u8();
        now += u64::from(how >> 2) * 30;
        let standing = [Standing::Known, Standing::Discovered, Standing::Unknown][usize::from(how & 3) % 3];
        let Ok(request) = Request::parse(input.bytes()) else { continue };
        for answer in [proxy::answer_67(&request, standing, &server), proxy::answer_4011(&request, standing, &server)] {
            match answer {
                Ok(reply) => {
                    assert!(standing != Standing::Unknown, "unknown machines get no answer");
                    assert!(reply.message.yiaddr().is_unspecified(), "a proxy gives no addresses");
                    check(&reply, &request);
                }
                Err(why) => assert!(standing != Standing::Unknown || why != Silence::NoAddress),
            }
        }
        let (before, revision) = (subnets.kept(), subnets.revision());
        if let Ok(reply) = full::answer(&request, standing, &mut subnets, &(), &server, now) {
            assert!(standing != Standing::Unknown, "unknown machines get no answer");
            check(&reply, &request);
            let given = reply.message.yiaddr();
            let kind = reply.message.opts().msg_type();
            assert!(given.is_unspecified() || (FIRST..=LAST).contains(&given), "{given} is outside the range");
            if kind == Some(MessageType::Ack) && !given.is_unspecified() {
                assert_eq!(subnets.holder(given, now), Some(request.mac), "what is given is kept");
            }
        }
        let kept = subnets.kept();
        assert!(kept == before || subnets.revision() != revision, "a change is never overlooked");
        let live = kept.values().filter(|lease| lease.unknown && lease.until > now);
        assert!(live.count() <= 4, "unknown machines hold half of the range at most");
        for (address, lease) in &kept {
            assert!((FIRST..=LAST).contains(address) && lease.state != LeaseState::Offered);
            let twice = kept.iter().filter(|(_, l)| l.mac == lease.mac && l.state == LeaseState::Bound);
            assert!(twice.count() <= 1, "a machine has one address");
        }
        let mut again = Pool::new(AddressRange { first: FIRST, last: LAST }, vec![server.address]).expect("a range");
        again.restore(kept.clone(), u64::MAX);
        assert_eq!(again.kept(), kept, "a restart forgets nothing");
    }
});
