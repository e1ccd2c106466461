//! Whether a newer session may follow an older one: one writer a machine.

use landfall_api::{DiskId, ErrorCode, Problem, Workflow, message::Hello};

use crate::{limits::Limits, session::Session, time::Steady};

/// From when on a newer session may act although an older one was there; `None`: at once.
///
/// At once, if it is the same agent that connects again (same boot), or if it is provably the same computer booted again:
/// it has the same disks, by names that a disk carries with itself, or carries the very receipt that the older session was
/// writing. Else from the end of the older one's lease. An older session heard just now is proof of another computer: one
/// that boots again is silent for longer than a few heartbeats.
pub(crate) fn may_follow_from(
    older: &Session, hello: &Hello, workflow: Option<&Workflow>, limits: &Limits,
) -> Option<Steady> {
    if older.boot_id == hello.boot_id {
        return None;
    }
    let quiet = older.quiet(limits);
    match is_same_computer(older, hello, workflow) {
        true if older.connected => Some(quiet),
        true => None,
        false if older.connected => Some(older.lease.until().max(quiet)),
        false => Some(older.lease.until()),
    }
}

fn is_same_computer(older: &Session, hello: &Hello, workflow: Option<&Workflow>) -> bool {
    let uid = workflow.and_then(|w| w.metadata.uid);
    // On a disk that the older session had: another computer may carry a receipt of this workflow too, from when it had it.
    let was_there = |disk: &DiskId| older.disks.iter().any(|known| known.same_disk(disk));
    let carries = hello.receipts.iter().any(|r| Some(r.receipt.workflow_uid) == uid && was_there(&r.disk));
    carries || same_disks(&older.disks, &hello.disks)
}

/// Whether both lists name the same disks, every one by a wwn or serial: a place on the bus proves nothing.
fn same_disks(a: &[DiskId], b: &[DiskId]) -> bool {
    let named = |d: &DiskId| !d.wwn.is_empty() || !d.serial.is_empty();
    !a.is_empty()
        && a.len() == b.len()
        && a.iter().all(|x| named(x) && b.iter().any(|y| x.same_disk(y)))
        && b.iter().all(|y| a.iter().any(|x| x.same_disk(y)))
}

/// Why a second computer is refused.
pub(crate) fn two_computers(machine: &str, older: &Session, hello: &Hello, address: &str) -> Problem {
    let message = format!(
        "two computers claim machine \"{machine}\": {} (boot {}) holds its session, {address} (boot {}) asks for one",
        older.address, older.boot_id, hello.boot_id
    );
    Problem::new(ErrorCode::AmbiguousIdentity, message)
        .hint("give each computer its own machine document and addresses")
}

/// Whether the session of `epoch` is the newest.
///
/// # Errors
/// [`Problem`] with code `Fenced`.
pub fn newest(session: Option<&mut Session>, epoch: crate::Epoch) -> Result<&mut Session, Problem> {
    session.filter(|session| session.epoch == epoch).ok_or_else(|| {
        Problem::new(ErrorCode::Fenced, format!("session {epoch} was fenced by a newer one of this machine"))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use landfall_api::{DiskReceipt, Receipt, ReceiptState, WorkflowSpec};
    use uuid::Uuid;

    use super::*;
    use crate::{Epoch, Horizon, lease::Lease, time::Now};

    const LIMITS: Limits = Limits {
        lease: Duration::from_secs(60),
        heartbeat: Duration::from_secs(5),
        phone_home_deadline: Duration::from_secs(900),
        netboot_deadline: Duration::from_secs(900),
        oldest_protocol: 1,
        horizon: Horizon {
            as_of: Some(Timestamp::UNIX_EPOCH),
            started: Timestamp::UNIX_EPOCH,
            lease: Duration::from_secs(60),
        },
    };

    fn at(second: u64) -> Steady {
        Steady::after_start(Duration::from_secs(second))
    }

    fn disk(serial: &str) -> DiskId {
        DiskId { serial: serial.into(), path: "pci-1".into(), size_bytes: 1 << 30, ..DiskId::default() }
    }

    fn hello(boot: &str, disks: &[&str]) -> Hello {
        let disks = disks.iter().map(|serial| disk(serial)).collect();
        Hello { boot_id: boot.into(), disks, ..Hello::default() }
    }

    /// Heard at 100 s; with a lease to 140 s, or without.
    fn older(disks: &[&str], connected: bool, leased: bool) -> Session {
        let now = Now { wall: Timestamp::UNIX_EPOCH, steady: at(100) };
        let lease = if leased { Lease::remembered(true, at(140)) } else { Lease::none(at(100)) };
        let session = Session::opened(Epoch::new(1), &hello("a", disks), "10.0.0.1", lease, false, now);
        Session { connected, ..session }
    }

    fn workflow() -> Workflow {
        Workflow {
            api_version: landfall_api::API_VERSION.into(),
            kind: landfall_api::Kind::Workflow,
            metadata: landfall_api::Metadata { uid: Some(Uuid::from_u128(7)), ..Default::default() },
            spec: WorkflowSpec::default(),
            status: None,
        }
    }

    #[test]
    fn a_newer_session_waits_for_what_may_still_act() {
        let quiet = Some(at(115));
        let cases = [
            // The same agent, whatever else.
            ("a", vec!["x"], true, true, None),
            // The same computer booted again: silent for longer than a boot leaves it, unless its stream is gone already.
            ("b", vec!["x"], true, true, quiet),
            ("b", vec!["x"], false, true, None),
            // Another computer: the end of the lease, and silence.
            ("b", vec!["y"], true, true, Some(at(140))),
            ("b", vec!["y"], true, false, quiet),
            ("b", vec!["y"], false, true, Some(at(140))),
            ("b", vec!["y"], false, false, Some(at(100))),
            // A disk more or less, or none at all, proves nothing.
            ("b", vec!["x", "y"], false, true, Some(at(140))),
            ("b", vec![], false, true, Some(at(140))),
        ];
        for (boot, disks, connected, leased, from) in cases {
            let found = may_follow_from(&older(&["x"], connected, leased), &hello(boot, &disks), None, &LIMITS);
            assert_eq!(found, from, "{boot} {disks:?}, connected {connected}, leased {leased}");
        }
    }

    #[test]
    fn only_names_that_disks_carry_prove_the_computer() {
        let same = |a: &[&str], b: &[&str]| {
            let disks = |of: &[&str]| of.iter().map(|serial| disk(serial)).collect::<Vec<_>>();
            same_disks(&disks(a), &disks(b))
        };
        assert!(same(&["x", "y"], &["y", "x"]));
        assert!(!same(&["x", "y"], &["x", "x"]) && !same(&["x", "x"], &["x", "y"]));
        assert!(!same(&[], &[]));
        assert!(!same(&[""], &[""]), "a place on the bus");
        let wwn = DiskId { wwn: "5000".into(), ..disk("") };
        assert!(same_disks(std::slice::from_ref(&wwn), std::slice::from_ref(&wwn)));
    }

    #[test]
    fn a_receipt_proves_the_computer_on_its_own_disk_alone() {
        let receipt = |on: &str, workflow: u128| {
            let receipt = Receipt {
                machine_uid: Uuid::from_u128(1),
                workflow_uid: Uuid::from_u128(workflow),
                workflow_name: "w".into(),
                generation: 1,
                action_index: 0,
                image_digest: None,
                state: ReceiptState::Intent,
                written_at: Timestamp::UNIX_EPOCH,
            };
            let disks = hello("b", &["x", "z"]);
            Hello { receipts: vec![DiskReceipt { disk: disk(on), receipt }], ..disks }
        };
        let from = |hello: &Hello| may_follow_from(&older(&["x"], false, true), hello, Some(&workflow()), &LIMITS);
        assert_eq!(from(&receipt("x", 7)), None);
        assert_eq!(from(&receipt("x", 8)), Some(at(140)), "another workflow's");
        assert_eq!(from(&receipt("z", 7)), Some(at(140)), "on a disk that the older session did not have");
    }

    #[test]
    fn only_the_newest_epoch_is_the_session() {
        let mut session = older(&["x"], true, false);
        assert!(newest(Some(&mut session), Epoch::new(1)).is_ok());
        assert_eq!(newest(Some(&mut session), Epoch::new(2)).unwrap_err().code, ErrorCode::Fenced);
        assert!(newest(None, Epoch::new(1)).is_err());
    }
}
