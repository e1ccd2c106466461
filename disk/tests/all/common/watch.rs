//! Who receives the reports of a write, where a test waits for one of them or counts them.

use std::time::Duration;

use landfall_api::{DiskReceipt, Progress};
use landfall_disk::{LogLevel, Observer};

/// Does as it was asked to at each report, and by default nothing.
pub(crate) struct Watch<'a> {
    pub(crate) progress: &'a (dyn Fn(&Progress) + Sync),
    pub(crate) receipt: &'a (dyn Fn(&DiskReceipt) + Sync),
    pub(crate) log: &'a (dyn Fn(&str) + Sync),
    pub(crate) is_known: &'a (dyn Fn() -> bool + Sync),
}

impl Default for Watch<'_> {
    fn default() -> Self {
        Self { progress: &|_| {}, receipt: &|_| {}, log: &|_| {}, is_known: &|| true }
    }
}

impl Observer for Watch<'_> {
    fn progress(&self, progress: &Progress) {
        (self.progress)(progress);
    }
    fn receipt_written(&self, receipt: &DiskReceipt) {
        (self.receipt)(receipt);
    }
    fn log(&self, _: LogLevel, message: &str) {
        (self.log)(message);
    }
    fn is_known(&self, _: Duration) -> bool {
        (self.is_known)()
    }
}
