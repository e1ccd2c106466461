//! `storage`: divides the disks by the plan, builds what stands on the partitions, and mounts it.
//!
//! The plan is computed anew each time, and comes out the same. So an attempt that was interrupted is simply made again: as long
//! as not every disk's receipt says *done*, everything but the partitions that stay is torn down and built again. And an action
//! that comes later finds its file systems by the same plan: [`Layout`].

mod chosen;
mod commands;
mod groups;
mod keys;
mod layout;
mod links;
mod mounts;
mod opened;
mod tools;

#[cfg(test)]
mod tests;

use landfall_api::{
    DiskFacts, ErrorCode, Problem, Storage,
    message::{ActionResult, OpenedLayout, StorageResult},
};
use landfall_disk::{
    DivideRequest, NewPartition, NewTable, SelectionGuard, Standing, TableKind, WriteError, check_free, divide,
    divided, may_divide, stop_all_on,
};
use landfall_plan::{DiskPlan, Origin};

pub(crate) use self::chosen::guard;
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
    let layout = Layout::of_earlier(context)?.filter(Layout::has_root).ok_or_else(|| {
        let message = "no storage action before this one mounts a root file system";
        Failure::last(Problem::new(ErrorCode::NoRootFilesystem, message).hint("report this with the workflow's log"))
    })?;
    layout.open()?;
    Ok(layout.described())
}

/// The same on these disks, with these tools.
fn lay_out(
    context: &Context<'_>,
    storage: &Storage,
    disks: Vec<DiskFacts>,
    selection: SelectionGuard,
    tools: &dyn Tools,
) -> Result<ActionResult, Failure> {
    let report = context.report;
    let index = context.job.assignment.start_index;
    let layout = Layout::new(context.job, index, storage, disks, tools)?;
    for line in layout.plan.to_string().lines() {
        report.info(line);
    }
    keys::check(&layout.plan.steps, &storage.keys)?;
    let plans = layout.plan.disks.iter().zip(&layout.disks).enumerate();
    let requests: Vec<DivideRequest> =
        plans.map(|(n, (plan, disk))| request(context, storage, n, plan, disk, &selection)).collect();
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
    if !stands {
        for request in &requests {
            divided(request, report).map_err(failed)?;
        }
    }
    let disks = layout.disks.into_iter().map(|disk| disk.id).collect();
    Ok(ActionResult::Storage(StorageResult { disks, written: !stands }))
}

fn request(
    context: &Context<'_>,
    storage: &Storage,
    n: usize,
    plan: &DiskPlan,
    disk: &DiskFacts,
    selection: &SelectionGuard,
) -> DivideRequest {
    let partitions = plan.partitions.iter().map(|part| NewPartition {
        number: part.number,
        label: part.name.clone(),
        kind: part.kind.gpt,
        mbr_kind: part.kind.mbr,
        guid: part.guid,
        first: part.first,
        last: part.last,
        active: part.active,
        kept: part.origin == Origin::Kept,
    });
    let kind = match plan.table {
        landfall_api::TableSpec::Gpt => TableKind::Gpt,
        landfall_api::TableSpec::Mbr => TableKind::Mbr,
    };
    DivideRequest {
        disk: disk.clone(),
        table: NewTable { kind, guid: plan.guid, partitions: partitions.collect() },
        keep: storage.layout.preserved(chosen::item(storage, n)),
        authority: context.authority(selection.clone()),
    }
}

fn failed(error: WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}
