//! Disks: read, or written and read back, all at once.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use landfall_api::{
    DiskFacts, DiskSelector, ErrorCode, HealthReport, HealthTest, HealthTestKind, Problem, WipeLevel, WipeSpec,
};
use landfall_disk::{SelectionGuard, Surface, WriteError, read_surface, test_disk};

use super::super::at_once::Together;
use super::super::chosen_disk::{list, one};
use super::super::{Machine, authority, final_failure, wipe};
use super::{tell, too_slow};
use crate::runner::{Failure, Job};

/// How much of each disk is tested, and what it has to reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// 1 to 100.
    pub(super) percent: u8,
    /// Bytes per second.
    pub(super) min_speed: Option<u64>,
}

/// Whether it would begin.
pub(in crate::actions) fn check(machine: &Machine, job: &Job, test: &HealthTest) -> Result<(), Failure> {
    match test {
        HealthTest::Disks { write: true, disks, percent, .. } => wipe::check(machine, job, &emptied(disks, *percent)),
        HealthTest::Disks { write: false, disks, .. } => chosen(disks).map(drop),
        _ => Ok(()),
    }
}

/// Tests them. Blocking.
pub(super) fn test(
    machine: &Machine, job: &Job, write: bool, disks: &[DiskSelector], limits: Limits,
) -> Result<Vec<HealthReport>, Failure> {
    let reports = Mutex::new(Vec::new());
    let done = |began: Timestamp, disk: &DiskFacts, found: &Surface| {
        let report = report(write, began, disk, found, limits);
        tell(job, &report);
        reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
    };
    if write {
        let requests = wipe::requests(machine, job, &emptied(disks, limits.percent))?;
        wipe::each(job, &requests, |request, observer| {
            let began = Timestamp::now();
            let mut found = Surface::default();
            let emptied = test_disk(request, limits.percent, &mut found, observer);
            if let Some(emptied) = counted(emptied, &mut found)? {
                machine.note_wiped(job.run.workflow_uid, emptied.disk.clone());
                wipe::tell(job, emptied);
            }
            done(began, &request.disk, &found);
            Ok(())
        })?;
        wipe::forget(&requests);
    } else {
        let disks = chosen(disks)?;
        let authority = authority(job, SelectionGuard::named());
        Together::new(job, &disks).at_once(|n, observer| {
            let began = Timestamp::now();
            let mut found = Surface::default();
            let read = read_surface(&disks[n], limits.percent, &authority, observer);
            if let Some(read) = counted(read, &mut found)? {
                found = read;
            }
            done(began, &disks[n], &found);
            Ok(())
        })?;
    }
    Ok(reports.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// A disk that fails in another way than its test looks for has failed its test too: counted, so that its report is made.
fn counted<T>(result: Result<T, WriteError>, found: &mut Surface) -> Result<Option<T>, WriteError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ (WriteError::DeviceIo { .. } | WriteError::Unreadable { .. })) => {
            found.errors += 1;
            found.first_error.get_or_insert_with(|| error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What empties them: a test of a whole disk leaves zeroes everywhere.
fn emptied(disks: &[DiskSelector], percent: u8) -> WipeSpec {
    let level = if percent == 100 { WipeLevel::Zero } else { WipeLevel::Signatures };
    WipeSpec { disks: disks.to_vec(), level, fallback: Vec::new() }
}

/// The disks that are read; each once.
fn chosen(selectors: &[DiskSelector]) -> Result<Vec<DiskFacts>, Failure> {
    let all = list()?;
    if selectors.is_empty() {
        let with_a_medium: Vec<DiskFacts> = all.into_iter().filter(|disk| disk.id.size_bytes > 0).collect();
        if with_a_medium.is_empty() {
            let problem = Problem::new(ErrorCode::NoDiskMatches, "this machine has no disk to read");
            return Err(final_failure(
                problem.hint("remove the test, or add the driver of its disks to the boot image"),
            ));
        }
        return Ok(with_a_medium);
    }
    let mut chosen: Vec<DiskFacts> = Vec::new();
    for selector in selectors {
        let disk = one(selector, &all)?;
        if !chosen.iter().any(|known| known.id.name == disk.id.name) {
            chosen.push(disk);
        }
    }
    Ok(chosen)
}

fn report(write: bool, began: Timestamp, disk: &DiskFacts, found: &Surface, limits: Limits) -> HealthReport {
    let kind = if write { HealthTestKind::DiskWrite } else { HealthTestKind::DiskRead };
    let Surface { bytes, bytes_per_second, slowest, errors, first_error } = found;
    let first = first_error.iter().map(|first| match errors {
        1 => first.clone(),
        _ => format!("{errors} errors, the first: {first}"),
    });
    // Of a disk with errors the speed says nothing: the kernel tries each bad place again.
    let slow = too_slow("it reaches", *bytes_per_second, limits.min_speed.filter(|_| *errors == 0));
    HealthReport {
        disk: Some(disk.id.clone()),
        ended_at: Timestamp::now(),
        bytes: *bytes,
        bytes_per_second: *bytes_per_second,
        slowest_ms: u64::try_from(slowest.as_millis()).unwrap_or(u64::MAX),
        errors: *errors,
        faults: first.chain(slow).collect(),
        ..HealthReport::begun(kind, &disk.id.name, began)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::DiskId;

    use super::*;

    #[test]
    fn a_disk_that_fails_in_another_way_failed_its_test() {
        let mut found = Surface { errors: 2, first_error: Some("first".into()), ..Surface::default() };
        let device = || "/dev/sda".to_owned();
        let io =
            WriteError::DeviceIo { device: device(), action: "flush".into(), source: std::io::Error::other("dead") };
        assert_eq!(counted::<()>(Err(io), &mut found).unwrap(), None);
        assert_eq!((found.errors, found.first_error.as_deref()), (3, Some("first")));
        assert!(counted::<()>(Err(WriteError::Cancelled { device: device() }), &mut found).is_err());
    }

    #[test]
    fn a_disk_fails_by_its_errors_or_its_speed() {
        let disk = DiskFacts { id: DiskId { name: "sda".into(), ..DiskId::default() }, ..DiskFacts::default() };
        let of = |errors, bytes_per_second, min_speed| {
            let first_error = (errors > 0).then(|| "cannot read 4096 bytes at 0".to_owned());
            let found = Surface { bytes: 9, bytes_per_second, slowest: Duration::from_millis(7), errors, first_error };
            report(false, Timestamp::UNIX_EPOCH, &disk, &found, Limits { percent: 100, min_speed })
        };
        assert!(of(0, 100, Some(100)).passed() && of(0, 0, None).passed());
        assert_eq!(of(0, 99, Some(100)).faults, ["it reaches 99 bytes/s, and the limit is 100"]);
        assert_eq!(of(1, 1, None).faults, ["cannot read 4096 bytes at 0"]);
        let bad = of(2, 1, Some(100));
        assert_eq!(bad.faults, ["2 errors, the first: cannot read 4096 bytes at 0"]);
        assert_eq!((bad.slowest_ms, bad.part.as_str(), bad.disk.unwrap().name), (7, "sda", "sda".into()));
    }
}
