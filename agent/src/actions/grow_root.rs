//! `growRoot`: the agent mounts the installed root, and the worker of the tools layer makes its partition and file system larger.

use landfall_api::{DiskFacts, ErrorCode, GrowRootSpec, Problem, message::ActionResult};

use super::chosen_disk::{is_laid_out, list, one};
use super::installed_root::{InstalledRoot, in_root, means_layout};
use super::{Machine, final_failure};
use crate::runner::{Failure, Job};

/// Grows it.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &GrowRootSpec) -> Result<ActionResult, Failure> {
    check(job, spec, &list()?)?;
    in_root(job, || Ok((InstalledRoot::open(machine, job, spec.disk.as_ref(), &[])?, Vec::new())))
}

/// The root is an image's: that of a layout has the size that its plan gives it, and every later action computes that plan again.
pub(super) fn check(job: &Job, spec: &GrowRootSpec, disks: &[DiskFacts]) -> Result<(), Failure> {
    let before = job.run.actions.get(..job.action.action_index as usize).unwrap_or_default();
    let of_layout = match &spec.disk {
        Some(selector) => is_laid_out(before, &one(selector, disks)?, disks),
        None => means_layout(job),
    };
    if !of_layout {
        return Ok(());
    }
    let message = "growRoot grows the root of an image, and this workflow's root is on a layout of its storage action";
    let hint = "remove growRoot, and write size: rest for the root's partition in the storage action";
    Err(final_failure(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::message::{ActionKind, AssignedAction, Retry};
    use landfall_api::{DiskId, StorageSpec, WipeSpec};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_layouts_disk_is_not_grown_by_its_name() {
        let second = Duration::from_secs(1);
        let retry = Retry { max_attempts: 1, initial_backoff: second, max_backoff: second };
        let action = |kind| AssignedAction { name: "a".into(), timeout: second, retry, branch: None, when: None, kind };
        let layout = json!({"disks": [{"select": [{"name": "vda"}], "partitions": [{"role": "root"}]}]});
        let layout = serde_json::from_value::<StorageSpec>(layout).unwrap().resolved();
        let storage = action(ActionKind::Storage(layout));
        let wipe = action(ActionKind::Wipe(WipeSpec::default()));
        let disks = ["vda", "vdb"].map(|name| DiskFacts {
            id: DiskId { name: name.into(), serial: name.into(), ..DiskId::default() },
            ..DiskFacts::default()
        });
        for (before, vda, vdb) in [
            (vec![], false, false),
            (vec![storage.clone()], true, false),
            (vec![storage.clone(), wipe.clone()], false, false),
            (vec![wipe, storage], true, false),
        ] {
            let found = disks.each_ref().map(|disk| is_laid_out(&before, disk, &disks));
            assert_eq!(found, [vda, vdb], "{before:?}");
        }
    }
}
