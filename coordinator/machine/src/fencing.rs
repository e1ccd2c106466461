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
    older: &Session,
    hello: &Hello,
    workflow: Option<&Workflow>,
    limits: &Limits,
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
