use proptest::prelude::*;

use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const SERVER: &[u8] = &[0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const COORDINATOR: &str = "https://[2001:db8::1]:7443";
const CLIENT: &[u8] = &[0, 3, 0, 1, 2, 0, 0, 0, 0, 9];

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

/// An association with these options, T1 and T2.
fn association(renew: u32, rebind: u32, inside: &[u8]) -> Vec<u8> {
    option(3, &[&[0, 0, 0, 9], &renew.to_be_bytes()[..], &rebind.to_be_bytes(), inside].concat())
}

fn address(valid: u32) -> Vec<u8> {
    option(5, &[&ADDRESS.octets()[..], &valid.to_be_bytes(), &valid.to_be_bytes()].concat())
}

fn answer(kind: u8, xid: u32, options: &[Vec<u8>]) -> Vec<u8> {
    let known = [option(1, CLIENT), option(2, SERVER)];
    [&[kind], &xid.to_be_bytes()[1..], &[&known[..], options].concat().concat()].concat()
}

/// A name server, and the coordinator.
fn nameserver() -> Vec<u8> {
    let server = option(23, &Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53).octets());
    [server, option(SZTP_REDIRECT_V6, &landfall_api::redirect_to(&[COORDINATOR]))].concat()
}

/// The kind and exchange of the one message that is sent.
fn sent(steps: &[Step]) -> (u8, u32) {
    let [Step::Send(message)] = steps else { panic!("{steps:?}") };
    (message[0], u32::from_be_bytes([0, message[1], message[2], message[3]]))
}

fn given(address: Option<Ipv6Addr>) -> Vec<Step> {
    let nameservers = vec![Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53)];
    vec![Step::Bound(Given { address, nameservers, coordinators: vec![COORDINATOR.into()] })]
}

const ADVERTISE: u8 = 2;
const REPLY: u8 = 7;

#[test]
fn an_address_is_asked_for_offered_requested_and_renewed() {
    let start = Instant::now();
    let mut client = Client::new(Asks::Address, MAC, 7, start);
    let (kind, xid) = sent(&client.tick(start));
    assert_eq!((kind, xid), (1, 7));
    // Not for this exchange, and not for this client.
    assert_eq!(client.receive(&answer(ADVERTISE, xid + 1, &[association(0, 0, &address(3600))]), start), []);
    let offer = answer(ADVERTISE, xid, &[association(0, 0, &address(3600)), nameserver()]);
    let other = offer.iter().map(|b| if *b == 9 { 8 } else { *b }).collect::<Vec<_>>();
    assert_eq!(client.receive(&other, start), []);
    let (kind, xid) = sent(&client.receive(&offer, start));
    assert_eq!((kind, xid), (3, 8));
    let reply = |xid| answer(REPLY, xid, &[association(1000, 2000, &address(3600)), nameserver()]);
    assert_eq!(client.receive(&reply(xid), start), given(Some(ADDRESS)));

    // T1: its server; T2: any server; the end: from the beginning.
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(client.due(), at(1000));
    assert_eq!(sent(&client.tick(at(1000))).0, 5);
    assert_eq!(sent(&client.tick(at(2000))).0, 6);
    let (kind, xid) = sent(&client.tick(at(2500)));
    assert_eq!(kind, 6);
    assert_eq!(client.receive(&reply(xid), at(2500)), given(Some(ADDRESS)));
    assert_eq!(client.due(), at(3500));
    client.check(at(2600));
    assert_eq!(client.due(), at(2600));
    assert_eq!(sent(&client.tick(at(2600))).0, 5);
    let end = client.tick(at(2500 + 3600));
    assert_eq!(end[0], Step::Lost);
    assert_eq!(sent(&end[1..]).0, 1);
}

#[test]
fn a_server_may_answer_the_first_question_at_once() {
    let start = Instant::now();
    let mut client = Client::new(Asks::Address, MAC, 7, start);
    let (_, xid) = sent(&client.tick(start));
    let reply = answer(REPLY, xid, &[option(14, &[]), association(0, 0, &address(600)), nameserver()]);
    assert_eq!(client.receive(&reply, start), given(Some(ADDRESS)));
    assert_eq!(client.due(), start + Duration::from_secs(300));
}

#[test]
fn name_servers_alone_are_asked_for_once_a_day() {
    let start = Instant::now();
    let mut client = Client::new(Asks::NameServers, MAC, 7, start);
    let (kind, xid) = sent(&client.tick(start));
    assert_eq!(kind, 11);
    assert_eq!(client.receive(&answer(REPLY, xid, &[nameserver()]), start), given(None));
    let day = start + Duration::from_secs(86400);
    assert_eq!((client.due(), client.tick(day)), (day, vec![]));
    assert_eq!(sent(&client.tick(client.due())).0, 11);
}

#[test]
fn a_refusal_ends_the_lease_and_asks_again() {
    let start = Instant::now();
    let no_address = association(0, 0, &option(13, &[0, 2, b'n', b'o']));
    let mut client = Client::new(Asks::Address, MAC, 7, start);
    let (_, xid) = sent(&client.tick(start));
    assert_eq!(client.receive(&answer(ADVERTISE, xid, std::slice::from_ref(&no_address)), start), []);
    let reply = answer(REPLY, xid, &[association(0, 0, &address(600))]);
    assert!(matches!(client.receive(&reply, start)[..], [Step::Bound(_)]));
    let (kind, xid) = sent(&client.tick(client.due()));
    assert_eq!(kind, 5);
    assert_eq!(client.receive(&answer(REPLY, xid, &[no_address]), client.due()), [Step::Lost]);
    assert_eq!(sent(&client.tick(client.due())).0, 1);
}

#[test]
fn an_answer_that_is_cut_short_is_none() {
    let whole = answer(ADVERTISE, 7, &[association(0, 0, &address(3600)), nameserver()]);
    let parse = |bytes: &[u8]| Answer::parse(bytes, 7, CLIENT, 9);
    assert!(parse(&whole).unwrap().lease.is_some());
    // At an option's end it is whole, without what comes behind.
    let names_coordinator = 4 + 2 + COORDINATOR.len();
    let ends = [whole.len() - nameserver().len(), whole.len() - names_coordinator, 4 + 14 + 14];
    for length in 0..whole.len() {
        assert_eq!(parse(&whole[..length]).is_some(), ends.contains(&length), "{length}");
    }
    let failed = [whole, option(13, &[0, 1])].concat();
    assert_eq!(parse(&failed), None);
}

proptest! {
    #[test]
    fn no_options_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let known = answer(REPLY, 7, &[association(1, 2, &bytes)]);
        Answer::parse(&known, 7, CLIENT, 9);
        Answer::parse(&[&known[..], &bytes].concat(), 7, CLIENT, 9);
    }
}
