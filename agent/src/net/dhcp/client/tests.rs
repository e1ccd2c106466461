use dhcproto::{Decodable, Decoder, v4::Opcode};

use super::*;

const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 1, 2, 3]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// What the client says, decoded.
fn said(steps: &[Step]) -> (Message, To) {
    match steps {
        [Step::Send(bytes, to)] => (Message::decode(&mut Decoder::new(bytes)).unwrap(), *to),
        other => panic!("not one message: {other:?}"),
    }
}

fn answer(to: &Message, kind: MessageType, seconds: u32) -> Vec<u8> {
    let mut message = Message::new_with_id(
        to.xid(),
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(10, 77, 0, 100),
        SERVER,
        Ipv4Addr::UNSPECIFIED,
        &MAC.0,
    );
    message.set_opcode(Opcode::BootReply);
    for option in [
        DhcpOption::MessageType(kind),
        DhcpOption::ServerIdentifier(SERVER),
        DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)),
        DhcpOption::Router(vec![SERVER]),
        DhcpOption::DomainNameServer(vec![SERVER]),
        DhcpOption::AddressLeaseTime(seconds),
    ] {
        message.opts_mut().insert(option);
    }
    message.to_vec().unwrap()
}

/// A client that holds a lease of `seconds`, got at `now`.
fn bound(now: Instant, seconds: u32) -> Client {
    let mut client = Client::new(MAC, 7, now);
    let (discover, _) = said(&client.tick(now));
    let (request, _) = said(&client.receive(&answer(&discover, MessageType::Offer, seconds), now));
    let steps = client.receive(&answer(&request, MessageType::Ack, seconds), now);
    assert!(
        matches!(&steps[..], [Step::Bound(lease)] if lease.setup.address.prefix_len() == 24 && lease.setup.routes.len() == 1),
        "{steps:?}"
    );
    client
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_lease_is_discovered_requested_and_held() {
    let now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (discover, to) = said(&client.tick(now));
    assert_eq!((discover.opts().msg_type(), to), (Some(MessageType::Discover), To::Everyone));
    assert!(discover.flags().broadcast());
    let (request, to) = said(&client.receive(&answer(&discover, MessageType::Offer, 600), now));
    assert_eq!((request.opts().msg_type(), to), (Some(MessageType::Request), To::Everyone));
    assert!(matches!(
        request.opts().get(OptionCode::RequestedIpAddress),
        Some(DhcpOption::RequestedIpAddress(a)) if *a == Ipv4Addr::new(10, 77, 0, 100)
    ));
    assert!(matches!(&client.receive(&answer(&request, MessageType::Ack, 600), now)[..], [Step::Bound(_)]));
    assert_eq!(client.due(), Some(now + s(300)));
}

#[test]
fn without_an_answer_it_asks_less_and_less_often() {
    let mut now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let mut last = s(0);
    for round in 1..100 {
        said(&client.tick(now));
        assert_eq!(client.unanswered(), round);
        let wait = client.due().unwrap() - now;
        assert!(wait > s(0) && wait <= LONGEST_WAIT, "{wait:?}");
        last = wait;
        now += wait;
    }
    assert!(last >= LONGEST_WAIT / 2);
}

#[test]
fn answers_to_others_and_to_older_questions_are_not_taken() {
    let now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (mut discover, _) = said(&client.tick(now));
    let good = answer(&discover, MessageType::Offer, 600);
    discover.set_xid(8);
    assert!(client.receive(&answer(&discover, MessageType::Offer, 600), now).is_empty());
    let mut other = Message::decode(&mut Decoder::new(&good)).unwrap();
    other.set_chaddr(&[2; 6]);
    assert!(client.receive(&other.to_vec().unwrap(), now).is_empty());
    assert!(!client.receive(&good, now).is_empty());
}

#[test]
fn a_proxy_offer_lends_nothing_and_is_passed_over() {
    let now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (discover, _) = said(&client.tick(now));
    let mut proxy = Message::decode(&mut Decoder::new(&answer(&discover, MessageType::Offer, 600))).unwrap();
    proxy.set_yiaddr(Ipv4Addr::UNSPECIFIED);
    assert!(client.receive(&proxy.to_vec().unwrap(), now).is_empty());
}

#[test]
fn a_refused_request_starts_again_after_a_wait() {
    let now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (discover, _) = said(&client.tick(now));
    let (request, _) = said(&client.receive(&answer(&discover, MessageType::Offer, 600), now));
    assert!(client.receive(&answer(&request, MessageType::Nak, 600), now).is_empty());
    let trouble = client.trouble().unwrap();
    assert!(trouble.contains("10.77.0.100 and refuses it"), "{trouble}");
    let due = client.due().unwrap();
    assert!(due > now);
    let (again, _) = said(&client.tick(due));
    assert_eq!(again.opts().msg_type(), Some(MessageType::Discover));
    assert_ne!(again.xid(), discover.xid());
}

#[test]
fn an_offer_that_is_never_granted_is_given_up() {
    let mut now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (discover, _) = said(&client.tick(now));
    said(&client.receive(&answer(&discover, MessageType::Offer, 600), now));
    for _ in 1..REQUESTS {
        now = client.due().unwrap();
        assert_eq!(said(&client.tick(now)).0.opts().msg_type(), Some(MessageType::Request));
    }
    now = client.due().unwrap();
    assert!(client.tick(now).is_empty());
    assert_eq!(said(&client.tick(client.due().unwrap())).0.opts().msg_type(), Some(MessageType::Discover));
}

#[test]
fn renewal_asks_its_server_then_any_server() {
    let start = Instant::now();
    let mut client = bound(start, 3600);
    let t1 = client.due().unwrap();
    assert_eq!(t1, start + s(1800));
    let (renewal, to) = said(&client.tick(t1));
    assert_eq!((to, renewal.ciaddr()), (To::Server(SERVER), Ipv4Addr::new(10, 77, 0, 100)));
    assert!(renewal.opts().get(OptionCode::ServerIdentifier).is_none());

    let mut renewed = client.clone();
    assert!(matches!(&renewed.receive(&answer(&renewal, MessageType::Ack, 3600), t1)[..], [Step::Bound(_)]));
    assert_eq!(renewed.due(), Some(t1 + s(1800)));

    let mut now = t1;
    let mut everyone = false;
    for _ in 0..100 {
        now = client.due().unwrap();
        let steps = client.tick(now);
        if matches!(steps.first(), Some(Step::Lost(_))) {
            assert!(everyone && now == start + s(3600));
            return;
        }
        everyone |= said(&steps).1 == To::Everyone;
    }
    panic!("still held at {now:?}");
}

#[test]
fn a_lease_taken_back_is_lost_at_once() {
    let start = Instant::now();
    let mut client = bound(start, 600);
    let t1 = client.due().unwrap();
    let (renewal, _) = said(&client.tick(t1));
    let steps = client.receive(&answer(&renewal, MessageType::Nak, 0), t1);
    assert!(matches!(&steps[..], [Step::Lost(_)]), "{steps:?}");
}

#[test]
fn an_endless_lease_needs_no_tick_until_the_link_returns() {
    let now = Instant::now();
    let mut client = bound(now, u32::MAX);
    assert_eq!(client.due(), None);
    client.link_returned(now);
    assert_eq!(said(&client.tick(now)).1, To::Everyone);
    assert!(client.due().unwrap() <= now + FIRST_WAIT);
}

#[test]
fn an_offer_does_not_outlive_the_link_it_came_by() {
    let now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (discover, _) = said(&client.tick(now));
    said(&client.receive(&answer(&discover, MessageType::Offer, 600), now));
    client.link_returned(now);
    let (again, _) = said(&client.tick(now));
    assert_eq!((again.opts().msg_type(), client.trouble()), (Some(MessageType::Discover), None));
}
