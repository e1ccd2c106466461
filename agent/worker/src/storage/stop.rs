//! Stopping what an old system, or an attempt that was interrupted, left active on the disks.

use std::io;

use landfall_api::{DiskFacts, ErrorCode, Problem};
use landfall_plan::{Stop, StopError, stops};
use nix::mount::{MntFlags, umount2};

use super::{
    active,
    commands::{stop_array, stop_mapper},
    tools::Tools,
};
use crate::{Failure, Reporter};

/// Stops everything that stands on these disks, from the top down.
///
/// # Errors
/// Something must not or cannot be stopped; what was stopped before it stays so.
pub(super) fn everything_on(disks: &[DiskFacts], report: &Reporter, tools: &dyn Tools) -> Result<(), Failure> {
    let named = |problem: Problem| Failure::last(problem);
    let unknown = |error: io::Error| {
        let problem = Problem::new(ErrorCode::DeviceIo, format!("cannot read what stands on the disks: {error}"));
        named(problem.hint("check that /sys and /proc are mounted"))
    };
    let active = active::read().map_err(unknown)?;
    let names: Vec<&str> = disks.iter().map(|disk| disk.id.name.as_str()).collect();
    for stop in stops(&active, &names).map_err(|error| named(problem(&error)))? {
        report.info(format!("what stands on the disks is stopped: {stop}"));
        match &stop {
            Stop::Unmount(at) => umount2(at.as_str(), MntFlags::empty()).map_err(|error| {
                let problem = Problem::new(ErrorCode::DiskInUse, format!("cannot {stop}: {error}"));
                named(problem.hint("stop what uses it, or restart the machine"))
            })?,
            Stop::Mapper(name) => tools.run(&stop_mapper(name))?,
            Stop::Array(name) => tools.run(&stop_array(name))?,
        }
    }
    Ok(())
}

fn problem(error: &StopError) -> Problem {
    let hint = match error {
        StopError::Spans { .. } => "add the other disk to the layout, or clear it first with wipe",
        StopError::RunningSystem { .. } => "select other disks",
        StopError::Unsupported { .. } => "stop it with its own program, or restart the machine",
        StopError::Changed { .. } => "try again",
    };
    Problem::new(ErrorCode::DiskInUse, error.to_string()).hint(hint)
}
