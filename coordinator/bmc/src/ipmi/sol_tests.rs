//! The link against a script of what a BMC sends.

use super::*;
use ConsoleEvent::{Available, Break, Output, Overrun, Unavailable, Unsent};

/// What is done to a link, or expected of it.
enum Step {
    /// Characters are typed.
    Type(&'static str),
    /// A break is typed.
    SendBreak,
    /// So many milliseconds pass.
    Pass(u64),
    /// The BMC sends this, and gets that acknowledgement.
    Get(Vec<u8>, Option<Vec<u8>>),
    /// This is sent now.
    Sends(Vec<u8>),
    /// Nothing is sent now.
    SendsNothing,
    /// This has happened.
    Happens(ConsoleEvent),
    /// Nothing more has happened.
    Quiet,
}
use Step::{Get, Happens, Pass, Quiet, SendBreak, Sends, SendsNothing, Type};

fn bytes(header: [u8; 4], text: &str) -> Vec<u8> {
    [&header[..], text.as_bytes()].concat()
}

/// A packet of the BMC with characters, and the acknowledgement of them.
fn writes(sequence: u8, text: &str) -> Step {
    Get(bytes([sequence, 0, 0, 0], text), Some(vec![0, sequence, text.len() as u8, 0]))
}

/// An acknowledgement of the BMC.
fn acknowledges(sequence: u8, accepted: u8, status: u8) -> Step {
    Get(vec![0, sequence, accepted, status], None)
}

fn said(text: &str) -> Step {
    Happens(Output(text.into()))
}

fn play(about: &str, steps: Vec<Step>) {
    let (mut link, mut now) = (Link::new(4), Instant::now());
    for (n, step) in steps.into_iter().enumerate() {
        let at = format!("{about}: step {n}");
        match step {
            Type(text) => link.type_in(text.as_bytes()),
            SendBreak => link.send_break(),
            Pass(millis) => now += Duration::from_millis(millis),
            Get(payload, answer) => assert_eq!(link.take(&payload, now), answer, "{at}"),
            Sends(packet) => assert_eq!(link.due(now), Some(packet), "{at}"),
            SendsNothing => assert_eq!(link.due(now), None, "{at}"),
            Happens(event) => assert_eq!(link.event(), Some(event), "{at}"),
            Quiet => assert_eq!(link.event(), None, "{at}"),
        }
    }
}

#[test]
fn what_the_computer_writes_comes_once_and_in_order() {
    for (about, steps) in [
        ("in order", vec![writes(1, "ab"), writes(2, "c"), said("ab"), said("c"), Quiet]),
        ("sent again", vec![writes(1, "ab"), writes(1, "ab"), said("ab"), Quiet]),
        ("sent again with more", vec![writes(3, "ab"), writes(3, "abcd"), said("ab"), said("cd"), Quiet]),
        (
            "the one before comes late",
            vec![writes(15, "x"), writes(1, "y"), writes(15, "x"), said("x"), said("y"), Quiet],
        ),
        ("numbers begin anew", vec![writes(9, "x"), writes(1, "y"), said("x"), said("y"), Quiet]),
        ("without a number", vec![Get(bytes([0, 0, 0, 0], "lost"), None), Quiet]),
        ("too short", vec![Get(vec![1, 0, 0], None), Quiet]),
    ] {
        play(about, steps);
    }
}

#[test]
fn what_is_typed_is_sent_until_it_is_taken() {
    for (about, steps) in [
        (
            "in packets, one after the other",
            vec![
                Type("ls -l\r"),
                Sends(bytes([1, 0, 0, 0], "ls -")),
                SendsNothing,
                acknowledges(1, 4, 0),
                Sends(bytes([2, 0, 0, 0], "l\r")),
                acknowledges(2, 2, 0),
                SendsNothing,
            ],
        ),
        (
            "not acknowledged: the same again",
            vec![
                Type("x"),
                Sends(bytes([1, 0, 0, 0], "x")),
                Pass(499),
                SendsNothing,
                Pass(1),
                Sends(bytes([1, 0, 0, 0], "x")),
                acknowledges(1, 1, 0),
                Pass(500),
                SendsNothing,
            ],
        ),
        (
            "taken in part: the rest at once, as another packet",
            vec![
                Type("abcd"),
                Sends(bytes([1, 0, 0, 0], "abcd")),
                acknowledges(1, 3, 0),
                Sends(bytes([2, 0, 0, 0], "d")),
                acknowledges(1, 4, 0),
                Pass(500),
                Sends(bytes([2, 0, 0, 0], "d")),
            ],
        ),
        (
            "refused: the same again, later",
            vec![
                Type("a"),
                Sends(bytes([1, 0, 0, 0], "a")),
                acknowledges(1, 0, 0x40),
                SendsNothing,
                Pass(500),
                Sends(bytes([1, 0, 0, 0], "a")),
            ],
        ),
        (
            "refused in part: the rest, later",
            vec![
                Type("ab"),
                Sends(bytes([1, 0, 0, 0], "ab")),
                acknowledges(1, 1, 0x40),
                SendsNothing,
                Pass(500),
                Sends(bytes([2, 0, 0, 0], "b")),
            ],
        ),
        (
            "a late acknowledgement of another packet",
            vec![
                Type("a"),
                Sends(bytes([1, 0, 0, 0], "a")),
                acknowledges(1, 1, 0),
                Type("b"),
                Sends(bytes([2, 0, 0, 0], "b")),
                acknowledges(1, 1, 0),
                Pass(500),
                Sends(bytes([2, 0, 0, 0], "b")),
            ],
        ),
        (
            "a break stands where it was typed",
            vec![
                Type("a"),
                SendBreak,
                Type("b"),
                Sends(bytes([1, 0, 0, 0], "a")),
                acknowledges(1, 1, 0),
                Sends(vec![2, 0, 0, 0x10]),
                acknowledges(2, 0, 0),
                Sends(bytes([3, 0, 0, 0], "b")),
            ],
        ),
        (
            "acknowledged in a packet with characters",
            vec![
                Type("a"),
                Sends(bytes([1, 0, 0, 0], "a")),
                Get(bytes([1, 1, 1, 0], "a"), Some(vec![0, 1, 1, 0])),
                said("a"),
                Pass(500),
                SendsNothing,
            ],
        ),
    ] {
        play(about, steps);
    }
}

#[test]
fn what_the_bmc_says_of_the_line_is_reported() {
    play(
        "no power, then power",
        vec![
            acknowledges(0, 0, 0x20),
            acknowledges(0, 0, 0x20),
            writes(1, "x"),
            Happens(Unavailable),
            Happens(Available),
            said("x"),
            Quiet,
        ],
    );
    let both = || Get(bytes([1, 0, 0, 0x0c], "x"), Some(vec![0, 1, 1, 0]));
    play("overrun and break, once", vec![both(), both(), Happens(Overrun), said("x"), Happens(Break), Quiet]);
    let mut link = Link::new(4);
    link.take(&bytes([1, 0, 0, 0x10], "bye"), Instant::now());
    assert!(link.has_ended() && link.event() == Some(Output(b"bye".into())), "what came with the end is not lost");
}

#[test]
fn what_is_never_taken_is_given_up() {
    let mut steps = vec![Type("abcdef"), SendBreak];
    for _ in 0..TRIES {
        steps.extend([Sends(bytes([1, 0, 0, 0], "abcd")), acknowledges(1, 0, 0x40), Pass(500)]);
    }
    steps.extend([SendsNothing, Happens(Unsent(7)), Quiet, Type("x"), Sends(bytes([2, 0, 0, 0], "x"))]);
    play("refused for ever", steps);
    let mut link = Link::new(4);
    link.type_in(&[b'x'; MAX_WAITING]);
    assert!(!link.has_room(), "what waits has a bound");
}
