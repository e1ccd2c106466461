//! What the last scan of the directory found.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use landfall_api::ManifestReport;
use landfall_edge::metrics::metrics;

/// The result of the last scan, shared with its readers.
#[derive(Debug, Default)]
pub struct Manifests(Mutex<ManifestReport>);

impl Manifests {
    /// What the last look found.
    pub fn report(&self) -> ManifestReport {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn publish(&self, report: ManifestReport) {
        let good = report.files.iter().filter(|file| file.problems.is_empty()).count();
        let gauge = |state, count| metrics().manifest_files.of(&[("state", state)]).set(whole(count));
        gauge("applied", good);
        gauge("faulty", report.files.len() - good);
        let problems = report.files.iter().map(|file| file.problems.len()).sum::<usize>() + report.problems.len();
        metrics().manifest_problems.set(whole(problems));
        metrics().manifest_scanned.set(report.scanned_at.map_or(0, Timestamp::as_second));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
