//! Before an action that needs a layout's disks as they are to start: the worker puts in place what firmware starts of it.

use std::sync::{MutexGuard, TryLockError};
use std::thread;

use landfall_api::message::{ActionKind, AssignedAction, commits_before};
use landfall_api::{ReceiptState, Storage};

use super::chosen_disk::{changes, is_own, list, one};
use super::installed_root::may_act;
use super::{CANCEL_POLL, Machine};
use crate::runner::{Failure, Job};
use crate::worker;

/// The place and the layout of the `storage` action that must be committed before this job's action begins.
pub(super) fn needed(job: &Job) -> Option<(usize, &Storage)> {
    let at = commits_before(&job.run.actions, job.action.action_index as usize)?;
    match job.run.actions.get(at) {
        Some(AssignedAction { kind: ActionKind::Storage(storage), .. }) => Some((at, storage)),
        _ => None,
    }
}

/// Commits it, unless every disk of it says that this is done.
pub(super) fn perform(machine: &Machine, job: &Job) -> Result<(), Failure> {
    let Some((at, storage)) = needed(job) else { return Ok(()) };
    let _alone = alone(machine, job)?;
    let disks = list()?;
    // What was wiped, or laid out anew, since then is no layout of that action any more.
    let later = job.run.actions.get(at + 1..job.action.action_index as usize).unwrap_or_default();
    let mut own = storage.selectors().filter_map(|selector| one(selector, &disks).ok());
    if own.any(|disk| later.iter().any(|action| changes(action, &disk, &disks))) {
        return Ok(());
    }
    let receipts = machine.disks.receipts().on(&disks).receipts;
    let own = receipts.iter().map(|found| &found.receipt);
    let own = own.filter(|receipt| receipt.action_index as usize == at && is_own(job, receipt.workflow_uid));
    let done = own.filter(|receipt| receipt.state == ReceiptState::Done).count();
    if done >= storage.selectors().count() {
        return Ok(());
    }
    tracing::info!("the layout is filled: its disks are made to start");
    job.doing.begin("commit the layout", "its disks");
    worker::ready(job, &|| may_act(job))?;
    let committed = worker::commit(job, disks, &|| may_act(job));
    job.doing.end();
    committed
}

/// Branches that begin at once commit one after another; the later ones find it done.
fn alone<'a>(machine: &'a Machine, job: &Job) -> Result<MutexGuard<'a, ()>, Failure> {
    loop {
        match machine.commits.try_lock() {
            Ok(alone) => return Ok(alone),
            Err(TryLockError::Poisoned(left)) => return Ok(left.into_inner()),
            Err(TryLockError::WouldBlock) => {
                may_act(job)?;
                thread::sleep(CANCEL_POLL);
            }
        }
    }
}
