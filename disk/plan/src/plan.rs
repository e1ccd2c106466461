//! A plan as a whole.

use landfall_api::StorageSpec;
use uuid::Uuid;

use crate::error::PlanError;
use crate::ids::Ids;
use crate::input::{Architecture, PlanDisk};
use crate::mounts::{Mount, Swap, in_order};
use crate::names::distinct;
use crate::partitions::{Context, DiskPlan, partition};
use crate::stack::Stack;
use crate::step::Step;
use crate::texts::Texts;

/// What a layout comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The tables, in the order of the layout's selectors.
    pub disks: Vec<DiskPlan>,
    /// What is done once all tables are in place, in order.
    pub steps: Vec<Step>,
    /// What is mounted, in order.
    pub mounts: Vec<Mount>,
    /// Swap spaces.
    pub swaps: Vec<Swap>,
    /// What the installed system needs of all this.
    pub texts: Texts,
}

/// Computes what the layout comes to on these disks, which are in the order of its selectors. Every identity follows
/// from `seed` ([`crate::seed`]).
///
/// # Errors
/// [`PlanError`] if the layout contradicts itself or does not fit.
pub fn plan(
    layout: &StorageSpec, disks: &[PlanDisk], seed: Uuid, architecture: Architecture,
) -> Result<Plan, PlanError> {
    if let Some(fault) = layout.faults().into_iter().next() {
        return Err(PlanError::Invalid(fault));
    }
    // For each selector the item that it is of, and its number among the item's.
    let items = layout.disks.iter().enumerate();
    let of: Vec<(usize, Option<usize>)> = items
        .flat_map(|(item, of)| {
            let several = of.select.len() > 1;
            (0..of.select.len()).map(move |twin| (item, several.then_some(twin)))
        })
        .collect();
    if of.len() != disks.len() {
        return Err(PlanError::DiskCount { wanted: of.len(), given: disks.len() });
    }
    for (n, disk) in disks.iter().enumerate() {
        let twice =
            |other: &&PlanDisk| other.disk.id.name == disk.disk.id.name || other.disk.id.same_disk(&disk.disk.id);
        if disks.iter().take(n).any(|other| twice(&other)) {
            return Err(PlanError::SameDisk { disk: disk.disk.id.name.clone() });
        }
    }
    let context = Context { layout, ids: Ids(seed), architecture };
    let mut tables = Vec::with_capacity(disks.len());
    for (n, ((item, twin), disk)) in of.iter().zip(disks).enumerate() {
        let Some(of) = layout.disks.get(*item) else { continue };
        tables.push(partition(context, n, *twin, of, disk)?);
    }
    let items: Vec<usize> = of.iter().map(|(item, _)| *item).collect();
    let stack = Stack::build(context, &tables, &items)?;
    let Stack { steps, mounts, swaps, opened, .. } = stack;
    distinct(&tables, &steps)?;
    let mounts = in_order(mounts);
    let texts = Texts::of(&mounts, &swaps, &opened, &steps);
    Ok(Plan { disks: tables, steps, mounts, swaps, texts })
}

#[cfg(test)]
mod tests;
