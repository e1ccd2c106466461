//! What a health test found out about a part of a machine.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{DiskId, readable_bytes};

words! {
    /// What a health test is about: the field of `healthTest` that asks for it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    HealthTestKind {
        /// Memory is written, read back and compared.
        Memory = "memory",
        /// Every CPU computes what is known.
        Cpu = "cpu",
        /// Disks are read.
        DiskRead = "diskRead",
        /// Disks are written, read back and compared: what was on them is lost.
        DiskWrite = "diskWrite",
        /// A file is fetched, again and again.
        Network = "network",
    }
}

/// How one part of a machine did in a health test.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthReport {
    /// Which test.
    pub test: HealthTestKind,
    /// What was tested: `memory`, `cpu`, `network`, or the name of a disk, such as `sda`.
    pub part: String,
    /// Of a test of disks: the disk.
    pub disk: Option<DiskId>,
    /// When it began, by the machine's clock.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Bytes that were read and compared, or, of `network`, received; 0 of `cpu`.
    pub bytes: u64,
    /// Bytes per second; of `diskWrite` writing or reading, whichever was slower; 0 of `cpu`.
    pub bytes_per_second: u64,
    /// The longest single read or write of a disk, milliseconds; 0 of other tests.
    pub slowest_ms: u64,
    /// Places of memory or of a disk that did not return what was written or could not be read, wrong results of CPUs, frames that
    /// ports counted as damaged.
    pub errors: u64,
    /// Errors of memory that the hardware corrected (ECC), as far as the kernel counts them.
    pub corrected: u64,
    /// Of `cpu`: the highest temperature, degrees Celsius; absent where no sensor of it answers.
    pub hottest_celsius: Option<i32>,
    /// Why it failed, in words; empty: it passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// The workflow that did it; in a machine's status.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workflow: String,
}

impl HealthReport {
    /// One about which nothing is known but when it began: each test fills in what it measures.
    pub fn begun(test: HealthTestKind, part: &str, started_at: Timestamp) -> Self {
        Self {
            test,
            part: part.to_owned(),
            disk: None,
            started_at,
            ended_at: started_at,
            bytes: 0,
            bytes_per_second: 0,
            slowest_ms: 0,
            errors: 0,
            corrected: 0,
            hottest_celsius: None,
            faults: Vec::new(),
            workflow: String::new(),
        }
    }

    /// Whether the part did what it should.
    pub fn passed(&self) -> bool {
        self.faults.is_empty()
    }

    /// Whether both are about the same part.
    pub fn same_part(&self, other: &Self) -> bool {
        self.test == other.test
            && match (&self.disk, &other.disk) {
                (Some(own), Some(others)) => own.same_disk(others),
                _ => self.part == other.part,
            }
    }

    /// What it says, as a sentence for people.
    pub fn summary(&self) -> String {
        let Self { test, part, bytes, .. } = self;
        let subject = if test.as_str() == part { part.clone() } else { format!("{test} of {part}") };
        let result = if self.passed() { "passed".to_owned() } else { format!("FAILED: {}", self.faults.join("; ")) };
        let measured = match bytes {
            0 => String::new(),
            _ => format!(", {} at {}/s", readable_bytes(*bytes), readable_bytes(self.bytes_per_second)),
        };
        let corrected = if self.corrected > 0 { format!(", {} corrected", self.corrected) } else { String::new() };
        let hottest = self.hottest_celsius.map(|celsius| format!(", up to {celsius} °C")).unwrap_or_default();
        format!("{subject}: {result}{measured}{corrected}{hottest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_what_was_measured_and_why_it_failed() {
        let begun = |test, part| HealthReport::begun(test, part, Timestamp::UNIX_EPOCH);
        let memory = HealthReport {
            bytes: 3 << 30,
            bytes_per_second: 1 << 29,
            corrected: 2,
            ..begun(HealthTestKind::Memory, "memory")
        };
        assert_eq!(memory.summary(), "memory: passed, 3.0 GiB at 512.0 MiB/s, 2 corrected");
        let cpu = HealthReport { hottest_celsius: Some(71), ..begun(HealthTestKind::Cpu, "cpu") };
        assert_eq!(cpu.summary(), "cpu: passed, up to 71 °C");
        let faults = vec!["cannot read 4096 bytes at 0".into(), "it is slow".into()];
        let disk = HealthReport { errors: 1, faults, ..begun(HealthTestKind::DiskRead, "sda") };
        assert_eq!(disk.summary(), "diskRead of sda: FAILED: cannot read 4096 bytes at 0; it is slow");
    }
}
