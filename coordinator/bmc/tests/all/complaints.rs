//! The client against a BMC that does what people complain about.

use std::time::Duration;

use landfall_api::{BmcSpec, Digest, PowerState};
use landfall_bmc::{BmcError, BootDevice, BootOverride, Inserted, PowerChange, connect};
use landfall_bmcsim::{BmcSim, Eject, EntityTags, Insert, MediaAt, PASSWORD, Quirks};

use crate::common::{ONCE, account, connected, spec};

#[tokio::test]
async fn a_computer_is_read_set_and_switched() {
    let sim = BmcSim::start(Quirks::default()).await;
    let mut bmc = connected(&sim).await;
    let system = bmc.inventory().await.unwrap();
    assert_eq!((system.model.as_str(), system.serial.as_str()), ("Anvil 3000", "ACME-1"));
    assert_eq!((system.bmc_firmware.as_str(), system.macs.len()), ("1.2", 1));
    assert_eq!(bmc.power().await.unwrap(), Some(PowerState::Off));
    bmc.set_boot(ONCE).await.unwrap();
    bmc.change_power(PowerChange::On).await.unwrap();
    assert_eq!(bmc.power().await.unwrap(), Some(PowerState::On));
    assert_eq!(sim.seen().computer.starts[0].from, "Pxe");
    bmc.change_power(PowerChange::Shutdown).await.unwrap();
    bmc.close().await;
    let state = sim.seen();
    assert_eq!((state.accounts.opened, state.accounts.sessions.len(), state.accounts.failed), (1, 0, 0));
    assert!(!state.computer.is_on);
}

/// Each is one that a computer can be had to netboot with.
#[tokio::test]
async fn odd_bmcs_set_the_boot_device() {
    let quirks = Quirks::default();
    for (about, quirks) in [
        ("no sessions", Quirks { no_sessions: true, ..quirks.clone() }),
        ("no session left", Quirks { session_limit: Some(0), ..quirks.clone() }),
        ("no mode", Quirks { no_mode: true, ..quirks.clone() }),
        ("a mode that cannot be changed", Quirks { refuses_mode: true, ..quirks.clone() }),
        ("tags that are demanded", Quirks { tags: EntityTags::Required, ..quirks.clone() }),
        ("weak tags that are refused", Quirks { tags: EntityTags::Weak, ..quirks.clone() }),
        ("any tag but *", Quirks { tags: EntityTags::OnlyAny, ..quirks.clone() }),
        ("settings at /SD", Quirks { settings: true, tags: EntityTags::Required, ..quirks.clone() }),
        ("other names of resets", Quirks { reset_types: vec!["ForceOn", "PushPowerButton"], ..quirks.clone() }),
        ("odd fields", Quirks { odd_fields: true, ..quirks.clone() }),
    ] {
        let sim = BmcSim::start(quirks).await;
        let mut bmc = connected(&sim).await;
        bmc.inventory().await.unwrap_or_else(|error| panic!("{about}: {error}"));
        bmc.set_boot(ONCE).await.unwrap_or_else(|error| panic!("{about}: {error}"));
        bmc.change_power(PowerChange::On).await.unwrap_or_else(|error| panic!("{about}: {error}"));
        assert_eq!(sim.seen().computer.starts.len(), 1, "{about}");
        assert_eq!(sim.seen().computer.starts[0].from, "Pxe", "{about}");
        bmc.close().await;
        assert!(sim.seen().accounts.sessions.is_empty(), "{about}");
    }
}

#[tokio::test]
async fn a_boot_device_that_is_not_kept_is_an_error() {
    let sim = BmcSim::start(Quirks { reverts_boot: true, ..Quirks::default() }).await;
    let error = connected(&sim).await.set_boot(ONCE).await.unwrap_err();
    assert!(matches!(error, BmcError::NotKept { .. }), "{error}");
}

const MEDIUM: &str = "http://192.0.2.1:7480/boot/landfall.iso";

/// Each is one that a computer can be started from a virtual CD with, twice.
#[tokio::test]
async fn odd_bmcs_start_from_virtual_media() {
    let quirks = Quirks::default();
    for (about, quirks) in [
        ("drives of the system", quirks.clone()),
        ("drives of the manager", Quirks { media_at: MediaAt::Managers, ..quirks.clone() }),
        ("a manager that no system names", Quirks { media_at: MediaAt::Managers, odd_fields: true, ..quirks.clone() }),
        ("a URL and nothing else", Quirks { insert: Insert::UrlAlone, ..quirks.clone() }),
        ("flags that are demanded", Quirks { insert: Insert::WantsFlags, ..quirks.clone() }),
        ("a protocol that is demanded", Quirks { insert: Insert::WantsProtocol, ..quirks.clone() }),
        ("no action", Quirks { insert: Insert::ByPatch, tags: EntityTags::Required, ..quirks.clone() }),
        ("an ejected medium that is shown", Quirks { eject: Eject::ShownStill, ..quirks.clone() }),
    ] {
        let sim = BmcSim::start(quirks).await;
        // It was left there.
        sim.change(|state| state.drive.image = Some("http://192.0.2.9/other.iso".into()));
        let mut bmc = connected(&sim).await;
        for starts in 1..=2 {
            let Inserted { device, drive } =
                bmc.insert(MEDIUM).await.unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!((device, sim.seen().drive.image.as_deref()), (BootDevice::Cd, Some(MEDIUM)), "{about}");
            bmc.set_boot(BootOverride { device, ..ONCE }).await.unwrap_or_else(|error| panic!("{about}: {error}"));
            bmc.power().await.unwrap();
            bmc.change_power(PowerChange::On).await.unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!(sim.seen().computer.starts.len(), starts, "{about}");
            assert_eq!(sim.seen().computer.starts[starts - 1].from, "Cd", "{about}");
            bmc.eject(MEDIUM, Some(&drive)).await.unwrap_or_else(|error| panic!("{about}: {error}"));
            bmc.power().await.unwrap();
            bmc.change_power(PowerChange::Off).await.unwrap();
        }
        let drive = sim.seen().drive;
        assert_eq!((drive.image, drive.inserts, drive.ejects), (None, 2, 3), "{about}");
    }
}

#[tokio::test]
async fn a_medium_that_is_not_there_is_an_error() {
    let quirks = Quirks::default();
    for (quirks, is_left, why) in [
        (Quirks { media_at: MediaAt::Nowhere, ..quirks.clone() }, false, "does not support virtual media"),
        (Quirks { insert: Insert::FailsLater, ..quirks.clone() }, false, "the remote file is not accessible"),
        (Quirks { insert: Insert::CannotReach, ..quirks.clone() }, false, "no route to the file"),
        (Quirks { media_busy: true, ..quirks.clone() }, false, "503"),
        (Quirks { media_at: MediaAt::SharedManager, ..quirks.clone() }, false, "does not support virtual media"),
        (Quirks { eject: Eject::Ignored, ..quirks.clone() }, true, "other.iso"),
        (Quirks { eject: Eject::Refused, ..quirks }, true, "it cannot be ejected"),
    ] {
        let sim = BmcSim::start(quirks).await;
        let other = "http://192.0.2.9/other.iso";
        sim.change(|state| state.drive.image = is_left.then(|| other.to_owned()));
        let error = connected(&sim).await.insert(MEDIUM).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(sim.seen().drive.inserts, 0, "{why}");
    }
    // One that is there already serves, also where it cannot be ejected; and it is not said to be ejected where that is not known.
    let sim = BmcSim::start(Quirks { eject: Eject::Refused, ..Quirks::default() }).await;
    sim.change(|state| state.drive.image = Some(MEDIUM.into()));
    let mut bmc = connected(&sim).await;
    assert_eq!(bmc.insert(MEDIUM).await.unwrap().device, BootDevice::Cd);
    assert!(bmc.eject(MEDIUM, None).await.is_err());
    sim.change(|state| state.quirks.media_busy = true);
    assert!(bmc.eject(MEDIUM, None).await.unwrap_err().is_passing());
    // A person's medium stays where it is.
    let sim = BmcSim::start(Quirks::default()).await;
    sim.change(|state| (state.drive.image, state.drive.is_persons) = (Some("own.iso".into()), true));
    let mut bmc = connected(&sim).await;
    let error = bmc.insert(MEDIUM).await.unwrap_err();
    assert!(error.to_string().contains("persons use"), "{error}");
    bmc.eject(MEDIUM, None).await.unwrap();
    assert_eq!(sim.seen().drive.ejects, 0);
}

#[tokio::test]
async fn off_is_no_error_of_a_computer_that_is_off() {
    let sim = BmcSim::start(Quirks { off_is_error: true, ..Quirks::default() }).await;
    let mut bmc = connected(&sim).await;
    bmc.power().await.unwrap();
    bmc.change_power(PowerChange::Off).await.unwrap();
    bmc.change_power(PowerChange::Shutdown).await.unwrap();
    let computer = &sim.seen().computer;
    assert_eq!((computer.cuts, computer.shutdowns), (0, 0), "nothing was asked for");
}

#[tokio::test]
async fn a_wrong_account_is_shown_once_to_the_bmc() {
    for (no_sessions, path) in [(false, ""), (true, ""), (true, "/redfish/v1/Systems/1")] {
        let sim = BmcSim::start(Quirks { no_sessions, lockout_after: Some(3), ..Quirks::default() }).await;
        let spec = BmcSpec { address: format!("{}{path}", sim.address()).parse().unwrap(), ..spec(&sim) };
        let error = connect(&spec, account("wrong"), "m1").await.err().unwrap();
        assert!(matches!(error, BmcError::Refused { .. }) && !error.to_string().contains("wrong"), "{error}");
        assert_eq!(sim.seen().accounts.failed, 1);
    }
}

#[tokio::test]
async fn a_client_never_logs_in_again_by_itself() {
    let sim = BmcSim::start(Quirks::default()).await;
    let mut bmc = connected(&sim).await;
    sim.change(|state| state.accounts.sessions.clear());
    assert!(matches!(bmc.power().await.unwrap_err(), BmcError::SessionEnded { .. }));
    assert_eq!((sim.seen().accounts.opened, sim.seen().accounts.failed), (1, 0));
}

/// None of them looks like a wrong account, and none is taken for a state of the power.
#[tokio::test]
async fn what_cannot_be_used_is_named() {
    let quirks = Quirks::default();
    let sim = BmcSim::start(Quirks { other_systems: 1, ..quirks.clone() }).await;
    let error = connect(&spec(&sim), account(PASSWORD), "m1").await.err().unwrap();
    assert!(matches!(&error, BmcError::Invalid { what, .. } if what.contains("/redfish/v1/Systems/2")), "{error}");
    assert!(sim.seen().accounts.sessions.is_empty(), "the session of a failed start is closed");
    let mut named = spec(&sim);
    named.address = format!("{}/redfish/v1/Systems/1", sim.address()).parse().unwrap();
    assert!(connect(&named, account(PASSWORD), "m1").await.is_ok());

    let sim = BmcSim::start(Quirks { huge: true, ..quirks.clone() }).await;
    let error = connect(&spec(&sim), account(PASSWORD), "m1").await.err().unwrap();
    assert!(matches!(error, BmcError::Invalid { .. }), "{error}");

    let sim = BmcSim::start(Quirks { is_down: true, ..quirks.clone() }).await;
    let error = connect(&spec(&sim), account(PASSWORD), "m1").await.err().unwrap();
    assert!(matches!(error, BmcError::Unreachable { .. }), "{error}");

    let sim = BmcSim::start(Quirks { read_only: true, ..quirks.clone() }).await;
    let error = connected(&sim).await.set_boot(ONCE).await.unwrap_err();
    assert!(matches!(&error, BmcError::Forbidden { said, .. } if said.contains("may not")), "{error}");

    let sim = BmcSim::start(Quirks { no_power_state: true, ..quirks }).await;
    assert_eq!(connected(&sim).await.power().await, Ok(None));
}

#[tokio::test]
async fn a_certificate_is_trusted_by_its_digest_alone() {
    // Of a clock in 1970 the dates are wrong too; old firmware has no TLS 1.3.
    let quirks = Quirks { clock: Some("1970-01-02T00:00:00Z"), only_tls12: true, ..Quirks::default() };
    for quirks in [Quirks::default(), quirks] {
        is_trusted_by_its_digest_alone(quirks).await;
    }
}

async fn is_trusted_by_its_digest_alone(quirks: Quirks) {
    let sim = BmcSim::start_tls(quirks).await;
    let shown = Digest::from_sha256(sim.fingerprint().unwrap());
    let mut spec = spec(&sim);
    for wrong in [None, Some(Digest::from_sha256([7; 32]))] {
        spec.certificate = wrong;
        let error = connect(&spec, account(PASSWORD), "m1").await.err().unwrap();
        assert!(matches!(&error, BmcError::Untrusted { certificate, .. } if *certificate == shown), "{error}");
    }
    assert!(sim.seen().requests.is_empty(), "no password before trust");
    spec.certificate = Some(shown);
    assert_eq!(connect(&spec, account(PASSWORD), "m1").await.unwrap().power().await, Ok(Some(PowerState::Off)));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_hangs_ends_a_request_in_time() {
    let sim = BmcSim::start(Quirks { hangs: true, ..Quirks::default() }).await;
    let begun = tokio::time::Instant::now();
    let error = connect(&spec(&sim), account(PASSWORD), "m1").await.err().unwrap();
    assert!(matches!(error, BmcError::Unreachable { .. }), "{error}");
    assert!(begun.elapsed() <= Duration::from_secs(31), "{:?}", begun.elapsed());
}
