//! The serial console against a BMC that does what people complain about.

use std::time::Duration;

use landfall_bmc::{Account, BmcError, Console, ConsoleEvent};
use landfall_bmcsim::{BmcSim, PASSWORD, Quirks, USERNAME};
use tokio::time::timeout;

/// Generous: a loaded machine must not fail a test.
const LIMIT: Duration = Duration::from_secs(60);

async fn try_open(sim: &BmcSim, take_over: bool) -> Result<Console, BmcError> {
    let account = Account { username: USERNAME.into(), password: PASSWORD.into() };
    Console::open(&sim.address().parse().unwrap(), account, take_over).await
}

async fn opened(quirks: Quirks) -> (BmcSim, Console) {
    let sim = BmcSim::start_ipmi(quirks).await;
    let console = try_open(&sim, false).await.unwrap();
    (sim, console)
}

async fn next(console: &mut Console) -> Result<ConsoleEvent, BmcError> {
    timeout(LIMIT, console.next()).await.expect("an event in time")
}

/// Reads until so much has come.
async fn read(console: &mut Console, length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < length {
        match next(console).await.unwrap() {
            ConsoleEvent::Output(bytes) => out.extend(bytes),
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&out)),
        }
    }
    out
}

/// Lets the console work until the BMC is as wanted.
async fn until(sim: &BmcSim, console: &mut Console, what: &str, wanted: impl Fn(&landfall_bmcsim::State) -> bool) {
    tokio::select! {
        () = sim.until(what, wanted) => {}
        event = async { loop { if let Err(error) = console.next().await { break error } } } => panic!("{event}"),
    }
}

/// More than one number goes round, with every byte there is.
fn text() -> Vec<u8> {
    (0..=255).cycle().take(1500).collect()
}

#[tokio::test]
async fn every_byte_passes_both_ways_once_despite_losses() {
    let quirks = Quirks::default();
    for (about, quirks) in [
        ("as it should be", quirks.clone()),
        ("each packet is lost once", Quirks { console_loses: true, ..quirks.clone() }),
        ("each packet comes twice", Quirks { console_repeats: true, ..quirks.clone() }),
        ("every second packet is lost", Quirks { drops_packets: true, ..quirks.clone() }),
        ("answers sent twice, old ones before", Quirks { answers_twice: true, repeats_old: true, ..quirks.clone() }),
        ("packets taken in part", Quirks { console_takes: Some(5), ..quirks.clone() }),
        ("the first packets refused", Quirks { console_refuses: 3, ..quirks.clone() }),
        ("for administrators alone", Quirks { wants_administrator: true, ..quirks.clone() }),
        ("suite 3", Quirks { suites: vec![3], ..quirks.clone() }),
    ] {
        let (sim, mut console) = opened(quirks).await;
        sim.writes(&text());
        assert_eq!(read(&mut console, text().len()).await, text(), "{about}");
        let typed: Vec<u8> = text().into_iter().take(200).collect();
        console.type_in(&typed);
        console.send_break();
        until(&sim, &mut console, about, |state| state.serial.breaks == 1).await;
        assert_eq!(sim.seen().serial.typed, typed, "{about}");
        console.close().await;
        sim.until("the end", |state| state.serial.owner.is_none() && state.accounts.sessions.is_empty()).await;
        assert_eq!(sim.seen().accounts.failed, 0, "{about}");
    }
}

#[tokio::test]
async fn a_console_in_use_is_taken_over_only_when_asked() {
    let sim = BmcSim::start_ipmi(Quirks { console_taken: true, ..Quirks::default() }).await;
    let error = try_open(&sim, false).await.err().unwrap();
    assert!(matches!(error, BmcError::ConsoleBusy { .. }) && error.to_string().contains("--take-over"), "{error}");
    sim.until("the end of the session", |state| state.accounts.sessions.is_empty()).await;
    let mut first = try_open(&sim, true).await.unwrap();
    let second = try_open(&sim, true).await.unwrap();
    let ended = next(&mut first).await.unwrap_err();
    assert!(matches!(ended, BmcError::ConsoleEnded { .. }), "{ended}");
    first.close().await;
    assert!(sim.seen().serial.owner.is_some(), "the first does not end the console of the second");
    // One that has not learned of it does not either.
    sim.change(|state| state.serial.owner = Some("0badcafe".into()));
    second.close().await;
    sim.until("the end of the sessions", |state| state.accounts.sessions.is_empty()).await;
    assert_eq!(sim.seen().serial.owner.as_deref(), Some("0badcafe"));
}

#[tokio::test]
async fn a_console_switched_off_is_named() {
    let sim = BmcSim::start_ipmi(Quirks { console_off: true, ..Quirks::default() }).await;
    let error = try_open(&sim, true).await.err().unwrap();
    assert!(matches!(error, BmcError::ConsoleOff { .. }), "{error}");
    sim.until("the end of the session", |state| state.accounts.sessions.is_empty()).await;
}

#[tokio::test]
async fn a_computer_without_power_takes_nothing_and_that_is_said() {
    let (sim, mut console) = opened(Quirks { console_needs_power: true, ..Quirks::default() }).await;
    console.type_in(b"abc");
    assert_eq!(next(&mut console).await, Ok(ConsoleEvent::Unavailable));
    sim.change(|state| state.computer.is_on = true);
    assert_eq!(next(&mut console).await, Ok(ConsoleEvent::Available));
    until(&sim, &mut console, "what was typed", |state| state.serial.typed == b"abc").await;
    console.close().await;
}

#[tokio::test]
async fn a_silent_bmc_is_probed_and_then_given_up() {
    let (sim, mut console) = opened(Quirks::default()).await;
    sim.restart();
    let begun = std::time::Instant::now();
    let error = next(&mut console).await.unwrap_err();
    assert!(matches!(error, BmcError::Unreachable { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    console.close().await;
}

/// How often it was asked who has the console.
fn asks(state: &landfall_bmcsim::State) -> usize {
    state.requests.iter().filter(|request| request.starts_with("0x06 0x4b")).count()
}

#[tokio::test]
async fn a_console_that_was_taken_without_a_word_ends() {
    let (sim, mut console) = opened(Quirks::default()).await;
    until(&sim, &mut console, "the first question", |state| asks(state) == 1).await;
    // Its answer is there before what the computer writes.
    sim.writes(b"x");
    assert_eq!(read(&mut console, 1).await, b"x");
    sim.change(|state| state.serial.owner = Some("00000099".into()));
    let error = next(&mut console).await.unwrap_err();
    assert!(matches!(error, BmcError::ConsoleEnded { .. }), "{error}");
    console.close().await;
    assert_eq!(sim.seen().serial.deactivated, 0, "the other one keeps it");
}

/// It is asked for a sign of life well within the 60 s after which a BMC ends a session; packets with characters do not count for all.
#[tokio::test]
async fn a_console_is_kept_alive_idle_or_not() {
    let asked = |state: &landfall_bmcsim::State| asks(state) == 2;
    let (sim, mut console) = opened(Quirks::default()).await;
    // Its losses make it slow.
    let (busy_sim, mut busy) = opened(Quirks { console_loses: true, ..Quirks::default() }).await;
    busy_sim.change(|state| state.serial.echoes = true);
    let talks = async {
        loop {
            busy.type_in(b"x");
            read(&mut busy, 1).await;
        }
    };
    let busy_is_asked = async {
        tokio::select! {
            () = busy_sim.until("a sign of life", asked) => {}
            () = talks => {}
        }
    };
    tokio::join!(until(&sim, &mut console, "a sign of life", asked), busy_is_asked);
    sim.writes(b"x");
    assert_eq!(read(&mut console, 1).await, b"x");
    console.close().await;
    busy.close().await;
}
