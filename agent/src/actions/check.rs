//! Before the first action that destroys data: would the actions after it begin? What they fetch answers, their disks are
//! there, their images fit, and the tools layer is mounted for those that need it. Nothing is written.

use std::io::Read as _;

use landfall_api::{
    Digest, DiskFacts, DiskSelector, ErrorCode, FileSource, Problem, UnpackSource,
    message::{ActionKind, ActionRef, AssignedAction},
};
use landfall_disk::{Access, Disk, ProvenFile, Unobserved, root_layers};

use super::{
    Machine,
    chosen_disk::{list, one},
    clear_disks, final_failure,
    installed_root::may_act,
    write_file::MAX_DOWNLOAD,
    write_image,
};
use crate::{
    runner::{Failure, Job},
    worker,
};

/// Checks every other action of the list that is still to run; `job` checks itself before its own first write.
pub(super) fn the_rest(machine: &Machine, job: &Job) -> Result<(), Failure> {
    all_but(Some(job.action.action_index as usize), machine, job)
}

/// Checks every action of the list.
pub(super) fn all(machine: &Machine, job: &Job) -> Result<(), Failure> {
    all_but(None, machine, job)
}

fn all_but(own: Option<usize>, machine: &Machine, job: &Job) -> Result<(), Failure> {
    let first = job.run.start_index as usize;
    for (index, action) in job.run.actions.iter().enumerate().skip(first).filter(|(index, _)| Some(*index) != own) {
        may_act(job)?;
        let action_index = u32::try_from(index).unwrap_or(u32::MAX);
        let reference = ActionRef { action_index, ..job.action };
        let checked = Job { action: reference, kind: action.kind.clone(), ..job.clone() };
        let before = job.run.actions.get(first..index).unwrap_or_default();
        if let Err(failure) = one_action(machine, &checked, before) {
            // Why it was stopped, if it was.
            may_act(job)?;
            return Err(named(failure, &action.name));
        }
    }
    Ok(())
}

fn one_action(machine: &Machine, job: &Job, before: &[AssignedAction]) -> Result<(), Failure> {
    match &job.kind {
        ActionKind::WriteImage(spec) => write_image::check(machine, job, spec, |disk, disks| {
            before.iter().any(|action| changes(action, disk, disks))
        }),
        // An earlier action may write what this one clears.
        ActionKind::ClearDisks(_) if before.iter().any(|action| is_destructive(&action.kind)) => Ok(()),
        ActionKind::ClearDisks(spec) => clear_disks::check(machine, job, spec),
        ActionKind::WriteFile(spec) => {
            is_there(spec.disk.as_ref())?;
            match &spec.source {
                FileSource::Download { url, digest } => answers(job, url, *digest, &Access::default(), MAX_DOWNLOAD),
                FileSource::Content(_) => Ok(()),
            }
        }
        ActionKind::Storage(spec) => {
            for selector in spec.selectors() {
                is_there(Some(selector))?;
            }
            worker::ready(job, &|| may_act(job))
        }
        ActionKind::Unpack(spec) => {
            is_there(spec.disk.as_ref())?;
            worker::ready(job, &|| may_act(job))?;
            let access = Access::from(&spec.access);
            match &spec.source {
                UnpackSource::Archive { url, digest } => answers(job, url, *digest, &access, u64::MAX),
                UnpackSource::Image { url } => {
                    let failure =
                        |e: landfall_disk::WriteError| Failure { problem: e.problem(), retryable: e.retryable() };
                    root_layers(url, &access, &Unobserved, &job.cancel).map(drop).map_err(failure)
                }
            }
        }
        ActionKind::CloudInit(spec) => is_there(spec.disk.as_ref()),
        ActionKind::Exec(spec) => is_there(spec.disk.as_ref()),
        ActionKind::Kexec(spec) => is_there(spec.disk.as_ref()),
        ActionKind::Hold(_) | ActionKind::Reboot(_) | ActionKind::PowerOff(_) => Ok(()),
    }
}

/// Whether an action destroys data.
pub(super) const fn is_destructive(kind: &ActionKind) -> bool {
    matches!(kind, ActionKind::WriteImage(_) | ActionKind::ClearDisks(_) | ActionKind::Storage(_))
}

/// Whether an action replaces what is on this disk: what is there now says nothing of what follows.
fn changes(action: &AssignedAction, disk: &DiskFacts, disks: &[DiskFacts]) -> bool {
    let chooses = |selector: &DiskSelector| Disk::select(selector, disks).is_ok_and(|it| it.id.same_disk(&disk.id));
    match &action.kind {
        ActionKind::WriteImage(spec) => chooses(&spec.disk),
        ActionKind::Storage(spec) => spec.selectors().any(chooses),
        // Without selectors it clears each disk with a receipt of this machine.
        ActionKind::ClearDisks(spec) => spec.disks.is_empty() || spec.disks.iter().any(chooses),
        _ => false,
    }
}

/// The disk that a field `disk` selects is present. Without that field it is one that the workflow writes.
fn is_there(selector: Option<&DiskSelector>) -> Result<(), Failure> {
    selector.map_or(Ok(()), |selector| one(selector, &list()?).map(drop))
}

/// The file's server answers and begins to send it.
fn answers(job: &Job, url: &str, digest: Digest, access: &Access, limit: u64) -> Result<(), Failure> {
    let failure = |e: landfall_disk::WriteError| Failure { problem: e.problem(), retryable: e.retryable() };
    let mut file = ProvenFile::open_by(url, access, digest, limit, &Unobserved, &job.cancel).map_err(failure)?;
    let Err(error) = file.read(&mut [0]) else { return Ok(()) };
    let unknown = || final_failure(Problem::new(ErrorCode::SourceUnreachable, error.to_string()).at(url));
    Err(file.into_failure().map_or_else(unknown, failure))
}

fn named(failure: Failure, action: &str) -> Failure {
    let Failure { mut problem, retryable } = failure;
    problem.message = format!("nothing was written, because action {action} would fail: {}", problem.message);
    Failure { problem, retryable }
}
