//! Wiping a disk: the destructive start of an install, what erases the rest, and the removal of its own receipt.

use super::{Order, device_io, invalidate::invalidate, unreadable};
use crate::forgiving::Forgiving;
use crate::gpt::{Layout, Old};
use crate::{BlockDevice, Observer, WriteError, exact, receipt};

/// Clears tables and signatures of `device`, has `erase` erase what is between them, and clears the receipt last. Whether the disk
/// may be wiped at all is the caller's to decide first.
///
/// The receipt of this workflow stays on the disk from before the first change until after the last, unless the disk erases
/// itself: a power cut leaves the disk old, or unbootable with a receipt that names the workflow, or blank.
///
/// # Errors
/// [`WriteError`] of the device, of `erase` or of the order's checks; the disk is then old, or unbootable and marked.
pub fn clear_device<T>(
    device: &dyn BlockDevice, order: &Order<'_>, observer: &dyn Observer, erase: impl FnOnce() -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    let io = |action: &str| device_io(order.device, action.to_owned());
    let sector = device.logical_sector();
    let looked = Forgiving::new(device, order.forgive);
    let old = Old::read(&looked, sector).map_err(unreadable(order.device, "read the partition table of"))?;
    let layout = Layout::nothing(sector, device.size(), order.device)?;
    (order.may_act)()?;
    (order.same_disk)()?;
    invalidate(&looked, &layout, &old, order, None, observer)?;
    let erased = erase()?;
    (order.may_act)()?;
    exact::zero(device, receipt::PLACE).map_err(io("clear the receipt on"))?;
    device.flush().map_err(io("flush the clearing of the receipt on"))?;
    Ok(erased)
}
