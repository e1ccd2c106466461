//! What firmware starts of a layout is put in place last: by the `storage` action where nothing fills the layout, else by the last
//! `unpack` that does. Until then no disk of it has a table, and every receipt says *intent*.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use landfall_api::{ErrorCode, Problem};
use landfall_disk::{Authority, DivideRequest, ReceiptIntent, SelectionGuard, divided, hold_back};

use landfall_plan::DiskPlan;

use super::{
    chosen, failed,
    layout::{Layout, table},
};
use crate::{Context, Failure, Reporter};

const MOUNTS: &str = "/proc/thread-self/mountinfo";

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

/// Puts in place what firmware starts, one disk after another: those last from which the system starts, so that it never starts
/// without the others. If one fails, none starts.
pub(super) fn all(layout: &Layout<'_>, requests: &[DivideRequest], report: &Reporter) -> Result<(), Failure> {
    let mut ordered: Vec<_> = layout.plan.disks.iter().map(DiskPlan::starts).zip(requests).collect();
    ordered.sort_by_key(|(starts, _)| *starts);
    ordered.iter().try_for_each(|(_, request)| divided(request, report).map(drop)).map_err(|error| {
        for (_, request) in ordered.iter().rev() {
            // The one that failed may refuse this too; the first error is what people need.
            let _ = hold_back(request, report);
        }
        failed(error)
    })
}

/// Brings what was written below `target` to the disks. The kernel's call for everything at once reports no error.
fn sync_below(target: &Path) -> Result<(), Failure> {
    let failed = |what: &str, error: io::Error| {
        let message = format!("{what}: {error}");
        Failure::last(Problem::new(ErrorCode::DeviceIo, message).hint("check the disk's health and the kernel log"))
    };
    let mounts = fs::read_to_string(MOUNTS).map_err(|error| failed("cannot read the mounts", error))?;
    // 36 35 98:0 /root /mount/point options …; the names of a layout's mounts have no character that the kernel escapes.
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    for place in places.filter(|place| place.starts_with(target)) {
        let synced = File::open(place).and_then(|open| Ok(nix::unistd::syncfs(&open)?));
        synced.map_err(|error| failed(&format!("cannot write {} to its disk", place.display()), error))?;
    }
    Ok(())
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

    /// Everything is there, below `target` too: the disks may start.
    ///
    /// # Errors
    /// An array lacks a member, or a disk fails.
    pub(crate) fn finish(&self, target: &Path, report: &Reporter) -> Result<(), Failure> {
        self.layout.whole()?;
        // What fills the layout is on the disks before anything leads to it.
        sync_below(target)?;
        all(&self.layout, &self.requests, report)
    }
}
