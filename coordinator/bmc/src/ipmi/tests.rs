//! What a broken or hostile BMC may send: any bytes, and packets that are almost right.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::time::Instant;

use super::channel::Channel;
use super::keys::Keys;
use super::packet::{early, early_message, packet, plain, setup};
use super::sol_link::Link;
use super::suite::Suite;
use super::{boot, fru, identity, message, setup as payload, sol};
use crate::ConsoleEvent;

/// Both ends of one session.
fn ends(suite: Suite) -> (Channel, Channel) {
    let keys = || Keys { integrity: vec![7; suite.whole()], encryption: [9; 16] };
    (Channel::new(suite, keys(), 1, 2), Channel::new(suite, keys(), 2, 1))
}

/// Everything that reads what comes from the network; how much of it made sense. That it ends is what is tested.
fn read_all(bytes: &[u8]) -> usize {
    let of = |suite: Suite| {
        [
            packet(bytes, suite.cut()).is_some(),
            ends(suite).0.open(bytes).is_some(),
            payload::opened(bytes, suite).is_some(),
        ]
    };
    let read = [
        message::answer(bytes).is_some(),
        early_message(bytes).is_some(),
        setup(bytes, 0x13).is_some(),
        payload::reply(bytes, 1, true, 2).is_some(),
        payload::rakp_2(bytes).is_some(),
        boot::read(bytes).is_some(),
        identity::firmware(bytes).is_some(),
        identity::uuid(bytes).is_some(),
        fru::areas(bytes).is_some(),
        fru::length(bytes).is_some(),
        fru::product(bytes).is_some(),
        fru::board(bytes).is_some(),
        sol::packet(bytes).is_some(),
        sol::chunk(bytes).is_some(),
        sol::owner(bytes).is_some(),
    ];
    Suite::ALL.into_iter().flat_map(of).chain(read).filter(|read| *read).count()
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
        read_all(&early(&bytes));
        read_all(&plain(0x13, &bytes));
    }

    #[test]
    fn a_message_comes_through_once(message in vec(any::<u8>(), 0..80), first in any::<bool>()) {
        let suite = Suite::ALL[usize::from(first)];
        let (mut from, mut to) = ends(suite);
        let sealed = from.seal(&message, [3; 16]);
        let again = from.seal(&message, [3; 16]);
        prop_assert_ne!(&sealed, &again, "each has a number of its own");
        prop_assert_eq!(to.open(&again), Some(message.clone()), "overtaken");
        prop_assert_eq!(to.open(&sealed), Some(message));
        prop_assert_eq!(to.open(&sealed), None, "twice");
    }

    #[test]
    fn a_changed_packet_is_dropped(
        message in vec(any::<u8>(), 0..80), first in any::<bool>(), at in any::<Index>(), bit in 0u8..8, cut in any::<Index>(),
    ) {
        let (mut from, mut to) = ends(Suite::ALL[usize::from(first)]);
        let sealed = from.seal(&message, [3; 16]);
        let mut changed = sealed.clone();
        changed[at.index(sealed.len())] ^= 1 << bit;
        read_all(&changed);
        prop_assert_eq!(to.open(&changed), None);
        prop_assert_eq!(to.open(&sealed[..cut.index(sealed.len())]), None);
        prop_assert_eq!(to.open(&sealed), Some(message), "what was dropped counts for nothing");
    }

    #[test]
    fn any_packets_leave_a_console_that_goes_on(packets in vec(vec(any::<u8>(), 0..40), 0..40)) {
        let (mut link, now) = (Link::new(8), Instant::now());
        link.type_in(b"some text");
        for (n, packet) in packets.iter().enumerate() {
            link.due(now + Duration::from_millis(n as u64 * 300));
            link.take(packet, now);
        }
        while link.event().is_some() {}
        // Whatever came before, the next new characters are shown.
        link.take(&[1, 0, 0, 0, b'x'], now);
        link.take(&[7, 0, 0, 0, b'y'], now);
        link.take(&[8, 0, 0, 0, b'z'], now);
        let shown: Vec<_> = std::iter::from_fn(|| link.event()).collect();
        prop_assert!(shown.ends_with(&[ConsoleEvent::Output(b"z".to_vec())]), "{shown:?}");
    }

    #[test]
    fn a_setup_payload_comes_through(body in vec(any::<u8>(), 0..300)) {
        let sent = plain(0x12, &body);
        prop_assert_eq!(setup(&sent, 0x12), Some(body.as_slice()));
        prop_assert_eq!(setup(&sent, 0x13), None);
    }
}
