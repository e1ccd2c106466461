//! `storage`: divides the disks by the plan, builds what stands on the partitions, and mounts it. What firmware starts comes last:
//! [`commit`].
//!
//! The plan is computed anew each time, and comes out the same. So an attempt that was interrupted is simply made again: as long
//! as not every disk's receipt says *done*, everything but the partitions that stay is torn down and built again. And an action
//! that comes later finds its file systems by the same plan: [`Layout`].

mod chosen;
mod commands;
mod commit;
mod groups;
mod keys;
mod layout;
mod links;
mod mounts;
mod opened;
mod tools;

#[cfg(test)]
mod tests;

use landfall_api::message::{ActionResult, OpenedLayout, StorageResult};
use landfall_api::{DiskFacts, Storage};
use landfall_disk::{SelectionGuard, Standing, WriteError, check_free, divide, may_divide, stop_all_on};

pub(crate) use self::chosen::guard;
pub(crate) use self::commit::{Filled, commit};
use self::tools::{Installed, Tools};
pub use self::{layout::Layout, mounts::Mounted};
use crate::{Context, Failure};

/// Lays the disks out. Blocks until all stands, or until something fails.
pub(crate) fn perform(context: &Context<'_>, storage: &Storage) -> Result<ActionResult, Failure> {
    let disks = chosen::disks(context.job, storage)?;
    let selection = chosen::guard(context.job);
    lay_out(context, storage, disks, selection, &Installed { report: context.report })
}

/// Opens what the `storage` action before this one made; what is to be mounted.
///
/// # Errors
/// There is none with a root, its disks are not there, or something on them cannot be opened.
pub(crate) fn open(context: &Context<'_>) -> Result<OpenedLayout, Failure> {
    let layout = Layout::before(context)?;
    layout.open()?;
    Ok(layout.described())
}

/// The same on these disks, with these tools.
fn lay_out(
    context: &Context<'_>, storage: &Storage, disks: Vec<DiskFacts>, selection: SelectionGuard, tools: &dyn Tools,
) -> Result<ActionResult, Failure> {
    let report = context.report;
    let index = context.job.assignment.start_index;
    let layout = Layout::new(context.job, index, storage, disks, tools)?;
    for line in layout.plan.to_string().lines() {
        report.info(line);
    }
    keys::check(&layout.plan.steps, &storage.keys)?;
    let requests = commit::requests(context, &layout, &selection);
    // If one disk must not be divided, no disk is changed.
    let standing = requests.iter().map(|request| may_divide(request, report)).collect::<Result<Vec<_>, _>>();
    let standing = standing.map_err(failed)?;
    let stands = standing.iter().all(|standing| *standing == Standing::Done);
    if stands {
        report.info("the disks already carry this layout; nothing is written");
    } else {
        stop_all_on(&layout.disks, report).map_err(|error| Failure::last(error.problem()))?;
        links::forget(&layout.plan.steps)?;
        groups::none_elsewhere(&layout.plan.steps, &layout.disks, &layout.kept(), &context.job.silent, tools)?;
        requests.iter().try_for_each(check_free).map_err(failed)?;
        for request in &requests {
            divide(request, report).map_err(failed)?;
        }
        layout.build()?;
    }
    // Every later action does this; what it would stumble over is found now, while a repetition still makes everything anew.
    layout.mount(context.target)?.close()?;
    if !stands && context.job.commits {
        commit::all(&layout, &requests, report)?;
    } else if !stands {
        report.info("the disks start nothing until the layout is filled");
    }
    let disks = layout.disks.into_iter().map(|disk| disk.id).collect();
    Ok(ActionResult::Storage(StorageResult { disks, written: !stands }))
}

fn failed(error: WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}
