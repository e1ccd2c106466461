//! A layout's commit: what firmware starts of it is put in place while nothing fills it. Until then no disk of it has a table, and
//! every receipt says *intent*. `landfall_api::message::commits_before` says which action of a list has it done.

use std::path::Path;

use landfall_api::{Unpack, message::OpenedLayout};
use landfall_disk::{Authority, DivideRequest, ReceiptIntent, SelectionGuard, divided, hold_back, is_divided};

use landfall_plan::DiskPlan;

use super::layout::{Layout, table};
use super::{chosen, failed, mounts};
use crate::{Context, Failure, Reporter};

/// What each disk of the layout is asked for, in their order.
pub(super) fn requests(context: &Context<'_>, layout: &Layout<'_>, selection: &SelectionGuard) -> Vec<DivideRequest> {
    let plans = layout.plan.disks.iter().zip(&layout.disks).enumerate();
    let requests = plans.map(|(n, (plan, disk))| {
        let authority = context.authority(selection.clone());
        DivideRequest {
            disk: disk.clone(),
            table: table(plan),
            keep: layout.storage.layout.preserved(chosen::item(layout.storage, n)),
            // The receipt is that of the action which laid the disks out, whichever action ends it.
            authority: Authority {
                receipt: ReceiptIntent { action_index: layout.index, ..authority.receipt },
                ..authority
            },
            earlier_runs: context.job.assignment.earlier_runs.clone(),
        }
    });
    requests.collect()
}

/// Puts in place what firmware starts, one disk after another. If one fails, none starts.
pub(super) fn all(layout: &Layout<'_>, requests: &[DivideRequest], report: &Reporter) -> Result<(), Failure> {
    let ordered = in_order(layout, requests);
    ordered.iter().try_for_each(|request| divided(request, report).map(drop)).map_err(|error| {
        for request in ordered.iter().rev() {
            // The one that failed may refuse this too; the first error is what people need.
            let _ = hold_back(request, report);
        }
        failed(error)
    })
}

/// The disks of a layout, those last from which the system starts: it never starts without the others.
fn in_order<'r>(layout: &Layout<'_>, requests: &'r [DivideRequest]) -> Vec<&'r DivideRequest> {
    let mut ordered: Vec<_> = layout.plan.disks.iter().map(DiskPlan::starts).zip(requests).collect();
    ordered.sort_by_key(|(starts, _)| *starts);
    ordered.into_iter().map(|(_, request)| request).collect()
}

/// Takes back what an earlier commit put in place.
fn start_nothing(layout: &Layout<'_>, requests: &[DivideRequest], report: &Reporter) -> Result<(), Failure> {
    in_order(layout, requests).into_iter().rev().try_for_each(|request| hold_back(request, report)).map_err(failed)
}

/// Puts in place what firmware starts of the layout that the `storage` action before this one made; what is to be mounted of it.
/// Nothing of it is mounted. Where every disk is committed already nothing changes.
///
/// # Errors
/// Its disks are not there, were not laid out by this workflow, or fail; an array lacks a member.
pub(crate) fn commit(context: &Context<'_>) -> Result<OpenedLayout, Failure> {
    let layout = Layout::before(context)?;
    layout.open()?;
    let requests = requests(context, &layout, &chosen::guard(context.job));
    let divided = requests.iter().map(is_divided).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if divided.contains(&false) {
        start_nothing(&layout, &requests, context.report)?;
        all(&layout, &requests, context.report)?;
    }
    Ok(layout.described())
}

/// A layout that an action is about to fill. Its disks start nothing.
pub(crate) struct Filled<'a> {
    pub(super) layout: Layout<'a>,
    requests: Vec<DivideRequest>,
}

impl<'a> Filled<'a> {
    /// That which this archive is unpacked to. `None`: the system is no layout.
    ///
    /// # Errors
    /// Its disks are not there, were not laid out by this workflow, or fail.
    pub(crate) fn of(context: &Context<'a>, spec: &Unpack) -> Result<Option<Self>, Failure> {
        let layout = if spec.disk.is_some() { None } else { Layout::of_earlier(context)?.filter(Layout::has_root) };
        let Some(layout) = layout else { return Ok(None) };
        let requests = requests(context, &layout, &chosen::guard(context.job));
        start_nothing(&layout, &requests, context.report)?;
        Ok(Some(Self { layout, requests }))
    }

    /// Everything is there, below `target` too: the disks may start.
    ///
    /// # Errors
    /// An array lacks a member, or a disk fails.
    pub(crate) fn commit(&self, target: &Path, report: &Reporter) -> Result<(), Failure> {
        self.layout.whole()?;
        // What fills the layout is on the disks before anything leads to it.
        mounts::sync_below(target)?;
        all(&self.layout, &self.requests, report)
    }
}
