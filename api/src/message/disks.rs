//! What an agent says of its disks: with its hello once they are known, else as soon as they are.

use crate::{DiskId, DiskReceipt};

/// Every disk of a machine and what they carry, after every bus was scanned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskReport {
    /// Which set of disks this is: it rises by one whenever a disk appeared, disappeared or changed. It counts from 1 in
    /// each boot of the agent.
    pub generation: u64,
    /// Every disk.
    pub disks: Vec<DiskId>,
    /// Every receipt found on them.
    pub receipts: Vec<DiskReceipt>,
    /// The disks of which the receipt could not be read. What they carry is unknown.
    pub unreadable: Vec<UnreadableDisk>,
}

/// A disk that does not answer, or that fails when it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnreadableDisk {
    /// The disk.
    pub disk: DiskId,
    /// Why its receipt is unknown, for people.
    pub reason: String,
}
