//! The client of IPMI against a BMC that does what people complain about.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use landfall_api::PowerState;
use landfall_bmc::{Account, BmcError, BootDevice, BootMode, BootOverride, PowerChange, connect};
use landfall_bmcsim::{BmcSim, PASSWORD, Quirks};

use crate::common::{ONCE, account, connected, spec};

const NONE: BootOverride = BootOverride { device: BootDevice::None, once: false, mode: None };

async fn refused(sim: &BmcSim, account: Account) -> BmcError {
    connect(&spec(sim), account, "m1").await.err().unwrap()
}

#[tokio::test]
async fn a_computer_is_read_set_and_switched() {
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let mut bmc = connected(&sim).await;
    let system = bmc.inventory().await.unwrap();
    assert_eq!((system.manufacturer.as_str(), system.model.as_str()), ("ACME", "Anvil 3000"));
    assert_eq!((system.serial.as_str(), system.bmc_firmware.as_str()), ("ACME-1", "1.02"));
    assert_eq!(system.uuid.unwrap().to_string(), "01234567-89ab-4cde-8f01-23456789abcd");
    assert_eq!(bmc.power().await.unwrap(), Some(PowerState::Off));
    bmc.set_boot(ONCE).await.unwrap();
    bmc.change_power(PowerChange::On).await.unwrap();
    assert_eq!(bmc.power().await.unwrap(), Some(PowerState::On));
    let start = sim.seen().computer.starts.pop().unwrap();
    assert_eq!((start.from.as_str(), start.mode.as_str()), ("Pxe", "UEFI"));
    bmc.change_power(PowerChange::Shutdown).await.unwrap();
    bmc.change_power(PowerChange::Off).await.unwrap();
    bmc.close().await;
    sim.until("the end of the session", |state| state.accounts.sessions.is_empty()).await;
    let state = sim.seen();
    assert_eq!((state.accounts.opened, state.accounts.failed), (1, 0));
    assert_eq!((state.computer.is_on, state.computer.shutdowns, state.computer.cuts), (false, 1, 0));
}

#[tokio::test]
async fn a_lasting_device_is_set_and_taken_back() {
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let mut bmc = connected(&sim).await;
    bmc.set_boot(BootOverride { once: false, mode: Some(BootMode::Legacy), ..ONCE }).await.unwrap();
    let computer = sim.seen().computer;
    assert_eq!(
        (computer.target.as_str(), computer.enabled.as_str(), computer.mode.as_str()),
        ("Pxe", "Continuous", "Legacy")
    );
    bmc.set_boot(NONE).await.unwrap();
    assert_eq!(sim.seen().computer.enabled, "Disabled");
    let error = bmc.set_boot(BootOverride { device: BootDevice::UefiHttp, ..ONCE }).await.unwrap_err();
    assert!(matches!(error, BmcError::Unsupported { .. }), "{error}");
    // Kept also if the start comes late.
    assert!(sim.seen().requests.iter().any(|request| request == "0x00 0x08 [03, 08]"));
}

#[tokio::test]
async fn new_faults_are_read_from_the_end_of_the_log() {
    let record = |at: u32, sensor: u8, data1: u8| {
        let [a, b, c, d] = at.to_le_bytes();
        [0, 0, 0x02, a, b, c, d, 0x20, 0, 0x04, sensor, 0x30, 0x6f, data1, 0xff, 0xff]
    };
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let mut bmc = connected(&sim).await;
    let now: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
    let since = now - SignedDuration::from_secs(100);
    assert_eq!(bmc.signs(since, now).await, Ok(vec![]), "the log is empty");
    let removed = [0; 16];
    // An older start; a fault; one that was removed; no fault; another fault.
    let log = [record(700, 0x1e, 0), record(950, 0x0c, 0xa1), removed, record(960, 0x08, 0), record(990, 0x1e, 2)];
    sim.change(|state| state.computer.sel = log.to_vec());
    let faults = ["Memory, sensor 0x30: uncorrectable ECC error", "Boot, sensor 0x30: no PXE server"];
    assert_eq!(bmc.signs(since, now).await.unwrap(), faults);
    // Of a long log the end alone is read.
    sim.change(|state| {
        state.computer.sel = [vec![record(950, 0x0c, 0xa1); 500], vec![record(990, 0x08, 0); 30]].concat()
    });
    assert_eq!(bmc.signs(since, now).await, Ok(vec![]));
    assert!(sim.seen().requests.iter().filter(|request| request.starts_with("0x0a 0x43")).count() < 30);
}

/// Each is one that a computer can be had to netboot with.
#[tokio::test]
async fn odd_bmcs_set_the_boot_device() {
    let quirks = Quirks::default();
    for (about, quirks) in [
        ("suite 3 alone", Quirks { suites: vec![3], ..quirks.clone() }),
        ("suite 3 alone, and silence to others", Quirks { suites: vec![3], ignores_suites: true, ..quirks.clone() }),
        ("suite 17 alone", Quirks { suites: vec![17], ..quirks.clone() }),
        ("answers sent twice", Quirks { answers_twice: true, ..quirks.clone() }),
        ("answers out of order", Quirks { repeats_old: true, answers_twice: true, ..quirks.clone() }),
        ("for administrators alone", Quirks { wants_administrator: true, ..quirks.clone() }),
        ("an account of an operator", Quirks { is_operator: true, ..quirks.clone() }),
        ("every second packet is lost", Quirks { drops_packets: true, ..quirks.clone() }),
    ] {
        let sim = BmcSim::start_ipmi(quirks).await;
        let mut bmc = connected(&sim).await;
        bmc.set_boot(ONCE).await.unwrap_or_else(|error| panic!("{about}: {error}"));
        bmc.change_power(PowerChange::On).await.unwrap_or_else(|error| panic!("{about}: {error}"));
        assert_eq!(sim.seen().computer.starts.len(), 1, "{about}");
        assert_eq!(sim.seen().computer.starts[0].from, "Pxe", "{about}");
        assert_eq!(sim.seen().accounts.failed, 0, "{about}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_never_counted_by_the_bmc() {
    for suite in [3, 17] {
        let quirks = Quirks { suites: vec![suite], lockout_after: Some(1), ..Quirks::default() };
        let sim = BmcSim::start_ipmi(quirks).await;
        let error = refused(&sim, account("wrong")).await;
        assert!(matches!(error, BmcError::Refused { .. }) && !error.to_string().contains("wrong"), "{error}");
        let seen = sim.seen();
        assert_eq!((seen.accounts.failed, seen.accounts.is_locked), (0, false));
        assert!(!seen.requests.iter().any(|request| request == "payload 0x14"), "no proof was sent");
        assert_eq!(connected(&sim).await.power().await, Ok(Some(PowerState::Off)));
    }
}

#[tokio::test]
async fn an_account_that_cannot_be_is_refused() {
    let sim = BmcSim::start_ipmi(Quirks { lockout_after: Some(3), ..Quirks::default() }).await;
    let error = refused(&sim, Account { username: "other".into(), password: PASSWORD.into() }).await;
    assert!(matches!(error, BmcError::Refused { .. }), "{error}");
    assert_eq!(sim.seen().accounts.failed, 1, "the name was shown once");
    let asked = sim.seen().requests.len();
    let error = refused(&sim, account(&"x".repeat(21))).await;
    assert!(matches!(error, BmcError::Refused { .. }) && error.to_string().contains("at most 20 bytes"), "{error}");
    let error = refused(&sim, Account { username: "x".repeat(17), password: PASSWORD.into() }).await;
    assert!(matches!(error, BmcError::Refused { .. }) && error.to_string().contains("at most 16 bytes"), "{error}");
    assert_eq!(sim.seen().requests.len(), asked, "nothing was sent");
}

#[tokio::test]
async fn an_ended_session_is_renewed_once() {
    let sim = BmcSim::start_ipmi(Quirks::default()).await;
    let mut bmc = connected(&sim).await;
    sim.change(|state| state.accounts.sessions.clear());
    bmc.power().await.unwrap();
    assert_eq!(sim.seen().accounts.opened, 2);
    sim.change(|state| {
        state.accounts.sessions.clear();
        state.accounts.password = "changed".into();
    });
    assert!(matches!(bmc.power().await.unwrap_err(), BmcError::Refused { .. }));
    assert_eq!(sim.seen().accounts.failed, 0);
}

/// None of them looks like a wrong account, and none is taken for a state of the power.
#[tokio::test]
async fn what_cannot_be_used_is_named() {
    let quirks = Quirks::default();
    let sim = BmcSim::start_ipmi(Quirks { suites: vec![99], ..quirks.clone() }).await;
    let error = refused(&sim, account(PASSWORD)).await;
    assert!(matches!(&error, BmcError::Unsupported { what, .. } if what.contains("17 or 3")), "{error}");

    let sim = BmcSim::start_ipmi(Quirks { reverts_boot: true, ..quirks.clone() }).await;
    let error = connected(&sim).await.set_boot(ONCE).await.unwrap_err();
    assert!(matches!(error, BmcError::NotKept { .. }), "{error}");

    let sim = BmcSim::start_ipmi(Quirks { read_only: true, ..quirks.clone() }).await;
    let error = connected(&sim).await.set_boot(ONCE).await.unwrap_err();
    assert!(matches!(error, BmcError::Forbidden { .. }), "{error}");

    let sim = BmcSim::start_ipmi(Quirks { wants_administrator: true, is_operator: true, ..quirks }).await;
    let mut bmc = connected(&sim).await;
    let error = bmc.change_power(PowerChange::On).await.unwrap_err();
    assert!(matches!(error, BmcError::Forbidden { .. }), "{error}");
    assert_eq!(bmc.power().await, Ok(Some(PowerState::Off)), "as an operator it still reads");
}

#[tokio::test]
async fn a_silent_bmc_ends_a_request_in_time() {
    let sim = BmcSim::start_ipmi(Quirks { hangs: true, ..Quirks::default() }).await;
    let begun = Instant::now();
    let error = refused(&sim, account(PASSWORD)).await;
    assert!(matches!(error, BmcError::Unreachable { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(sim.seen().requests.len(), 5, "it was asked five times");
}
