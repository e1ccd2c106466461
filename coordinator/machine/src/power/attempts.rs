//! What was tried to have a machine netboot, in its status.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{BmcStatus, BootAttempt, BootMedium, BootWay};
use uuid::Uuid;

use super::step::{Outcome, Step};
use super::time::over;

/// Attempts that a status keeps.
const MAX_ATTEMPTS: usize = 16;

/// The attempt that is under way.
pub(super) fn open(status: &BmcStatus) -> Option<&BootAttempt> {
    status.attempts.last().filter(|attempt| attempt.ended.is_none())
}

fn open_mut(status: &mut BmcStatus) -> Option<&mut BootAttempt> {
    status.attempts.last_mut().filter(|attempt| attempt.ended.is_none())
}

/// A way is tried from now on. What was tried for other workflows is forgotten.
pub fn begin(status: &mut BmcStatus, workflow: Uuid, way: BootWay, now: Timestamp) {
    status.attempts.retain(|attempt| attempt.workflow_uid == workflow);
    let excess = (status.attempts.len() + 1).saturating_sub(MAX_ATTEMPTS);
    status.attempts.drain(..excess);
    status.attempts.push(BootAttempt {
        workflow_uid: workflow,
        way,
        begun: now,
        shutdown_at: None,
        off_at: None,
        boot_set_at: None,
        on_at: None,
        ended: None,
        failure: None,
    });
}

/// A step was made. One whose note is lost is made again, which changes nothing.
pub fn note(status: &mut BmcStatus, step: &Step, now: Timestamp) {
    let Some(attempt) = open_mut(status) else { return };
    let at = match step {
        Step::Shutdown => &mut attempt.shutdown_at,
        Step::Off => &mut attempt.off_at,
        Step::SetBoot(_) => &mut attempt.boot_set_at,
        Step::On => &mut attempt.on_at,
        _ => return,
    };
    *at = Some(now);
    if let Step::SetBoot(way) = step {
        status.every_start = *way == BootWay::PxeContinuous;
    }
}

/// The BMC may have forgotten the boot device: it is set again before the power is switched on.
pub fn doubt(status: &mut BmcStatus) {
    if let Some(attempt) = open_mut(status).filter(|attempt| attempt.on_at.is_none()) {
        attempt.boot_set_at = None;
    }
}

/// The attempt under way has ended. A way on which the agent came is tried first the next time.
pub fn end(status: &mut BmcStatus, outcome: Outcome, now: Timestamp) {
    let Some(attempt) = open_mut(status) else { return };
    attempt.ended = Some(now);
    let way = attempt.way;
    match outcome {
        // An agent that came before the power was switched on came by itself.
        Outcome::Heard if attempt.on_at.is_some() => {
            // The agent's facts have the mode now: the other one would be the wrong one.
            let same_mode = if way == BootWay::PxeOtherMode { BootWay::PxeOnce } else { way };
            status.worked = Some(same_mode);
        }
        Outcome::Heard => {}
        Outcome::Failed(why) => {
            attempt.failure = Some(why);
            status.worked = status.worked.filter(|worked| *worked != way);
        }
        // It says nothing of the way.
        Outcome::Dropped => drop(status.attempts.pop()),
    }
}

/// The BMC is about to be given the boot medium at this URL. Noted before it is done: what is not known is never ejected.
pub fn gives(status: &mut BmcStatus, url: &str) {
    status.medium = Some(BootMedium { url: url.to_owned(), drive: None, eject_since: None, not_ejected: None });
}

/// The BMC has it in that drive.
pub fn holds(status: &mut BmcStatus, drive: &str) {
    if let Some(medium) = &mut status.medium {
        medium.drive = Some(drive.to_owned());
    }
}

/// For so long a BMC that answers with errors is asked to eject a medium.
const EJECT: Duration = Duration::from_secs(300);

/// The BMC has answered a request to eject the medium with an error; whether it is to be asked again.
pub fn asks_again_to_eject(status: &mut BmcStatus, now: Timestamp) -> bool {
    status.medium.as_mut().is_some_and(|medium| !over(Some(*medium.eject_since.get_or_insert(now)), EJECT, now))
}

/// The firmware's own order decides again, and the medium is ejected; or it was not, for this reason.
pub fn cleared(status: &mut BmcStatus, not_ejected: Option<String>) {
    status.every_start = false;
    status.medium = status.medium.take().filter(|_| not_ejected.is_some());
    if let Some(medium) = &mut status.medium {
        medium.not_ejected = not_ejected;
    }
}

/// Whether a medium is to be ejected.
pub(super) fn has_medium(status: &BmcStatus) -> bool {
    status.medium.as_ref().is_some_and(|medium| medium.not_ejected.is_none())
}
