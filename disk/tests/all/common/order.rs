//! The order of a write, as the tests make it where they have nothing of their own to say.

use landfall_api::DiskReceipt;
use landfall_disk::{Expectation, Order};

/// What the device is called in messages.
pub(crate) const DEVICE: &str = "test-disk";

/// Writes an image of any format that has a table, over everything, without reading back; the lease holds, and the disk
/// stays the same one.
pub(crate) fn order(expectation: Expectation<'_>, mark: DiskReceipt) -> Order<'_> {
    Order { expectation, ..Order::new(DEVICE, mark, &|| Ok(()), &|| Ok(())) }
}
