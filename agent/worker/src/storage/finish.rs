//! What firmware starts of a layout is put in place last: by the `storage` action where nothing fills the layout, else by the last
//! `unpack` that does. Until then no disk of it has a table, and every receipt says *intent*.

use landfall_disk::{Authority, DivideRequest, ReceiptIntent, SelectionGuard, divided, hold_back};

use super::{
    chosen, failed,
    layout::{Layout, table},
};
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

/// Puts in place what firmware starts, one disk after another.
pub(super) fn all(requests: &[DivideRequest], report: &Reporter) -> Result<(), Failure> {
    requests.iter().try_for_each(|request| divided(request, report).map(drop)).map_err(failed)
}

/// A layout that the action of a job fills as the last one. Its disks start nothing.
pub(crate) struct HeldBack<'a> {
    pub(super) layout: Layout<'a>,
    requests: Vec<DivideRequest>,
}

impl<'a> HeldBack<'a> {
    /// That of this job; `None`: its action is not the last to fill one.
    ///
    /// # Errors
    /// Its disks are not there, were not laid out by this workflow, or fail.
    pub(crate) fn of(context: &Context<'a>) -> Result<Option<Self>, Failure> {
        if !context.job.completes {
            return Ok(None);
        }
        let Some(layout) = Layout::of_earlier(context)?.filter(Layout::has_root) else { return Ok(None) };
        let requests = requests(context, &layout, &chosen::guard(context.job));
        requests.iter().try_for_each(|request| hold_back(request, context.report)).map_err(failed)?;
        Ok(Some(Self { layout, requests }))
    }

    /// Everything is there: the disks may start.
    ///
    /// # Errors
    /// An array lacks a member, or a disk fails.
    pub(crate) fn finish(&self, report: &Reporter) -> Result<(), Failure> {
        self.layout.whole()?;
        // Of every file system: what fills the layout is on the disks before anything leads to it.
        nix::unistd::sync();
        all(&self.requests, report)
    }
}
