//! Everything that touches a block device: listing and choosing disks, receipts, and writing an image so that at
//! whatever instant the power goes the disk is old, unbootable, or verified-new.
//!
//! Usable alone: nothing here knows of a coordinator or of gRPC.

mod error;
mod inuse;
mod list;
mod request;
mod select;

use std::path::Path;

use landfall_api::{DiskFacts, DiskReceipt, Receipt};

pub use error::{Candidate, DiskError, SelectError, WriteError};
pub use inuse::holders_of;
pub use list::{device_path, disk_at, list_disks};
pub use request::{
    CancelFlag, Expectation, Format, LeaseGuard, LogLevel, Observer, ReceiptIntent, UnknownFormat, Unobserved,
    WriteOutcome, WriteRequest,
};
pub use select::Disk;

/// The receipt on the device at this path, if there is one.
///
/// # Errors
/// [`DiskError`] if the device cannot be read.
pub fn read_receipt(device: &Path) -> Result<Option<Receipt>, DiskError> {
    Err(DiskError::NoSuchDisk { path: device.into() })
}

/// The receipts on these disks; a disk that cannot be read is left out, and said in the log.
pub fn scan_receipts(_disks: &[DiskFacts]) -> Vec<DiskReceipt> {
    Vec::new()
}

/// Writes an image to a disk, in the order that keeps it old, unbootable or verified-new at every instant.
///
/// Blocking: call it from a thread of its own (`tokio::task::spawn_blocking`). Needs no runtime around it.
///
/// # Errors
/// [`WriteError`]; nothing is committed then.
pub fn write_image(_request: &WriteRequest, _observer: &dyn Observer) -> Result<WriteOutcome, WriteError> {
    Err(WriteError::Internal("not built yet".into()))
}
