//! What a caller requests, and the result.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_api::{DiskFacts, DiskReceipt, Progress, WipeLevel};
use uuid::Uuid;

use crate::{Image, WriteError};

/// Who writes: the fields of the receipt that the caller knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptIntent {
    /// The machine.
    pub machine_uid: Uuid,
    /// The workflow.
    pub workflow_uid: Uuid,
    /// The workflow's name.
    pub workflow_name: String,
    /// The machine document's generation.
    pub generation: u64,
    /// Index of the action in the workflow's list.
    pub action_index: u32,
}

/// Whether the caller may still act. Asked before every destructive step and before the commit.
#[derive(Clone)]
pub struct LeaseGuard(Arc<dyn Fn() -> bool + Send + Sync>);

impl LeaseGuard {
    /// A guard that asks `valid` each time; it must answer at once.
    pub fn new(valid: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(valid))
    }
    /// For a person at the machine's own command line: there is no lease that could run out.
    pub fn unlimited() -> Self {
        Self::new(|| true)
    }
    /// Whether the lease still holds.
    pub fn is_valid(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseGuard(valid: {})", self.is_valid())
    }
}

/// Whether the disk of a request is still the one that its caller's selector chooses. Asked beside the disk's identity just
/// before the first write: a disk that appeared since then may match the selector as well.
#[derive(Clone)]
pub struct SelectionGuard(Arc<dyn Fn() -> Result<(), String> + Send + Sync>);

impl SelectionGuard {
    /// A guard that asks `still_chosen` each time; an error says what changed.
    pub fn new(still_chosen: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(still_chosen))
    }
    /// For a disk that was named by its path: no other disk can be meant.
    pub fn named() -> Self {
        Self::new(|| Ok(()))
    }
    /// Asks.
    ///
    /// # Errors
    /// [`WriteError::SelectionChanged`].
    pub(crate) fn check(&self, device: &str) -> Result<(), WriteError> {
        (self.0)().map_err(|reason| WriteError::SelectionChanged { device: device.into(), reason })
    }
}

impl fmt::Debug for SelectionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SelectionGuard")
    }
}

/// Set once from any thread; the write then ends before its next step, with nothing committed.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets it.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }
    /// The flag itself, for code that polls it.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }
    /// Whether it is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// On whose authority a disk is changed, and until when.
#[derive(Debug, Clone)]
pub struct Authority {
    /// Who changes it.
    pub receipt: ReceiptIntent,
    /// Every receipt that is believed to be on this machine: the compare of compare-and-swap.
    pub expected: Vec<DiskReceipt>,
    /// A person requested this workflow, so a disk that is not blank may be changed. Without, no disk is wiped.
    pub person_authorised: bool,
    /// A person accepted any receipt that is on the disk.
    pub force: bool,
    /// Whether the disk is still the one that the caller's selector chooses.
    pub selection: SelectionGuard,
    /// Whether the caller may still act.
    pub lease: LeaseGuard,
    /// Set to end early.
    pub cancel: CancelFlag,
}

impl Authority {
    /// Whether a person accepted any receipt, and that what cannot be read is lost. No rule can.
    pub(crate) const fn forced(&self) -> bool {
        self.force && self.person_authorised
    }

    /// Asks cancel and lease.
    ///
    /// # Errors
    /// [`WriteError::Cancelled`], [`WriteError::LeaseExpired`].
    pub(crate) fn may_act(&self, device: &str) -> Result<(), WriteError> {
        if self.cancel.is_cancelled() {
            return Err(WriteError::Cancelled { device: device.into() });
        }
        if !self.lease.is_valid() {
            return Err(WriteError::LeaseExpired { device: device.into() });
        }
        Ok(())
    }
}

/// One image onto one disk.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// The disk, as [`crate::Disk::select`] or [`crate::disk_at`] gave it. Its identity is checked again just before
    /// the first write.
    pub disk: DiskFacts,
    /// What to write.
    pub image: Image,
    /// Labels of partitions of the disk's present table that stay, with all their content. Refused if one is not there,
    /// if two carry the label, or if the image would touch it.
    pub keep: Vec<String>,
    /// Read everything back before the commit and compare it with what was written.
    pub read_back: bool,
    /// On whose authority.
    pub authority: Authority,
}

/// One disk to be wiped.
#[derive(Debug, Clone)]
pub struct WipeRequest {
    /// The disk, as [`crate::Disk::select`] or [`crate::disk_at`] gave it. Its identity is checked again just before
    /// the first write.
    pub disk: DiskFacts,
    /// How thoroughly.
    pub level: WipeLevel,
    /// Levels that will do if the disk does not support `level`, best first.
    pub fallback: Vec<WipeLevel>,
    /// On whose authority.
    pub authority: Authority,
}

/// What [`crate::install`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed {
    /// The receipt that is now on the disk.
    pub receipt: Option<DiskReceipt>,
    /// Why there is none.
    pub no_receipt: Option<String>,
    /// Bytes fetched and hashed.
    pub stored_bytes: u64,
    /// Bytes they decoded to.
    pub raw_bytes: u64,
    /// Bytes really written to the device; runs of zeroes that the device made itself are not among them.
    pub written_bytes: u64,
    /// Bytes that were on the disk already, from an install that was interrupted or from one of a similar image; they are not
    /// written again.
    pub unchanged_bytes: u64,
    /// Bytes read back before the commit and found as written.
    pub read_back_bytes: u64,
}

/// The result of a successful write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOutcome {
    /// False: the receipt already said `done` for this very action, so nothing was written again.
    pub written: bool,
    /// What was done, and the receipt that is now on the disk.
    pub installed: Installed,
    /// From call to return.
    pub elapsed: Duration,
}

/// Weight of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Normal progress.
    Info,
    /// Unusual, and handled.
    Warn,
}

/// Receives reports. Called from the calling thread and from those that fetch, write and read back; must return at
/// once. Reports of two threads may come in either order.
pub trait Observer: Send + Sync {
    /// At most every 250 ms, and at each change of stage.
    fn progress(&self, progress: &Progress);
    /// A receipt was flushed to the disk: `Intent` before the first destructive byte, `Done` with the commit.
    fn receipt_written(&self, receipt: &DiskReceipt);
    /// A line for people.
    fn log(&self, level: LogLevel, message: &str);
    /// From now on, or no longer, a disk erases itself: nothing stops the call before the disk has done it.
    fn cannot_stop(&self, _begun: bool) {}
    /// Waits at most `limit` until those who count on receipts know what was reported so far, and says whether they do. Asked
    /// again and again before a commit that leaves no receipt: the disk says nothing of the write any more then.
    fn is_known(&self, _limit: Duration) -> bool {
        true
    }
}

/// An observer that ignores all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn progress(&self, _: &Progress) {}
    fn receipt_written(&self, _: &DiskReceipt) {}
    fn log(&self, _: LogLevel, _: &str) {}
}

#[cfg(test)]
impl Authority {
    /// Machine 1's, for a workflow without a number; it expects no receipt.
    pub(crate) fn of_tests(person_authorised: bool) -> Self {
        Self {
            receipt: ReceiptIntent {
                machine_uid: Uuid::from_u128(1),
                workflow_uid: Uuid::nil(),
                workflow_name: "w".into(),
                generation: 4,
                action_index: 0,
            },
            expected: Vec::new(),
            person_authorised,
            force: false,
            selection: SelectionGuard::named(),
            lease: LeaseGuard::unlimited(),
            cancel: CancelFlag::new(),
        }
    }
}
