//! What is said between the agent and a worker: the worker is ready, gets its job, reports, and ends with a result. No process and
//! no mount here.

use std::io::{self, Read, Write};

use landfall_api::message::{ActionResult, OpenedLayout, WorkerReady, WorkerReport};
use landfall_proto::{ConvertError, PROTOCOL, delimited, worker};

use crate::runner::Failure;

/// What came of a job.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one exists at a time; a box would only burden who makes one")]
pub(super) enum Done {
    /// Of the action.
    Action(ActionResult),
    /// The layout is open.
    Layout(OpenedLayout),
}

/// The worker did not come to a result.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    /// Its reports ended.
    #[error("the worker ended without a result")]
    NoResult,
    /// It is of another version.
    #[error("the worker of the tools layer ({software}) has protocol revision {theirs}, and this agent has {PROTOCOL}")]
    OtherRevision { software: String, theirs: u32 },
    /// It reported before it was ready.
    #[error("the worker's first report does not say which revision it has")]
    NotReady,
    /// What it prints are no reports.
    #[error("the worker printed what is no report")]
    Garbage(#[source] delimited::ReadError),
    /// A report does not convert.
    #[error("a report of the worker cannot be used")]
    Report(#[source] ConvertError),
    /// The job did not reach it.
    #[error("cannot send the worker its job")]
    Job(#[source] io::Error),
}

/// Sends the job once the worker is ready, and hands over every report but the last, which is the result. The pipe for jobs is
/// closed when this returns.
///
/// # Errors
/// [`RelayError`]: the worker must be ended then.
pub(super) fn relay(
    mut reports: impl Read, mut jobs: impl Write, job: &worker::Job, mut hear: impl FnMut(WorkerReport),
) -> Result<Result<Done, Failure>, RelayError> {
    match next(&mut reports)? {
        WorkerReport::Ready(WorkerReady { protocol: PROTOCOL, .. }) => {}
        WorkerReport::Ready(WorkerReady { protocol, software }) => {
            return Err(RelayError::OtherRevision { software, theirs: protocol });
        }
        _ => return Err(RelayError::NotReady),
    }
    delimited::write(&mut jobs, job).map_err(RelayError::Job)?;
    loop {
        match next(&mut reports)? {
            WorkerReport::Finished(result) => return Ok(Ok(Done::Action(result))),
            WorkerReport::Opened(layout) => return Ok(Ok(Done::Layout(layout))),
            WorkerReport::Failed { problem, retryable } => return Ok(Err(Failure { problem, retryable })),
            other => hear(other),
        }
    }
}

fn next(reports: &mut impl Read) -> Result<WorkerReport, RelayError> {
    let wire: worker::Report = match delimited::read(reports) {
        Ok(report) => report.ok_or(RelayError::NoResult)?,
        Err(delimited::ReadError::Cut) => return Err(RelayError::NoResult),
        Err(e) => return Err(RelayError::Garbage(e)),
    };
    wire.try_into().map_err(RelayError::Report)
}

#[cfg(test)]
pub(super) mod tests {
    use landfall_api::message::{LayoutMount, LogLevel};
    use landfall_api::{ErrorCode, Problem};

    use super::*;

    pub(in crate::worker) fn ready(protocol: u32) -> WorkerReport {
        WorkerReport::Ready(WorkerReady { protocol, software: "1.2.3".into() })
    }

    fn line() -> WorkerReport {
        WorkerReport::Log { level: LogLevel::Info, message: "line".into() }
    }

    fn root() -> LayoutMount {
        let text = String::new;
        LayoutMount {
            device: "/dev/vda2".into(),
            at: "/".into(),
            kind: "ext4".into(),
            uuid: text(),
            options: text(),
            read_only: false,
        }
    }

    pub(in crate::worker) fn bytes(reports: &[WorkerReport]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for report in reports {
            delimited::write(&mut bytes, &worker::Report::from(report.clone())).unwrap();
        }
        bytes
    }

    /// What came of it, what was heard, and whether the job was sent.
    fn relayed(reports: &[u8]) -> (Result<Result<Done, Failure>, RelayError>, usize, bool) {
        let (mut heard, mut jobs) = (0, Vec::new());
        let job = worker::Job { uefi: true, ..worker::Job::default() };
        let outcome = relay(reports, &mut jobs, &job, |_| heard += 1);
        (outcome, heard, !jobs.is_empty())
    }

    #[test]
    fn the_last_report_is_the_result() {
        let failed = WorkerReport::Failed { problem: Problem::new(ErrorCode::DeviceIo, "m"), retryable: true };
        let opened = WorkerReport::Opened(OpenedLayout { mounts: vec![root()], disks: Vec::new() });
        for (last, succeeded) in [(WorkerReport::Finished(ActionResult::Hold), true), (opened, true), (failed, false)] {
            let (outcome, heard, sent) = relayed(&bytes(&[ready(PROTOCOL), line(), line(), last]));
            assert_eq!((outcome.unwrap().is_ok(), heard, sent), (succeeded, 2, true));
        }
    }

    #[test]
    fn a_worker_of_another_revision_gets_no_job() {
        let (outcome, _, sent) = relayed(&bytes(&[ready(PROTOCOL + 1), WorkerReport::Finished(ActionResult::Hold)]));
        let error = outcome.unwrap_err();
        assert!(matches!(error, RelayError::OtherRevision { .. }) && !sent, "{error}");
        assert!(error.to_string().contains(&format!("revision {}", PROTOCOL + 1)), "{error}");
        let (outcome, _, sent) = relayed(&bytes(&[line()]));
        assert!(matches!(outcome, Err(RelayError::NotReady)) && !sent);
    }

    #[test]
    fn a_cut_report_is_never_a_result() {
        let whole = bytes(&[ready(PROTOCOL), WorkerReport::Finished(ActionResult::Hold)]);
        for length in 0..whole.len() {
            let (outcome, ..) = relayed(&whole[..length]);
            assert!(matches!(outcome, Err(RelayError::NoResult)), "{length}");
        }
    }

    #[test]
    fn garbage_is_never_a_result() {
        let mut text = bytes(&[ready(PROTOCOL)]);
        text.extend_from_slice(
            b"Segmentation fault (core dumped) and a whole lot of text that is longer than S says, which is 83",
        );
        assert!(matches!(relayed(&text).0, Err(RelayError::Garbage(_))));
        assert!(matches!(relayed(b"mkfs.ext4: not found").0, Err(RelayError::Garbage(_) | RelayError::NoResult)));
        let mut unknown = bytes(&[ready(PROTOCOL)]);
        delimited::write(&mut unknown, &worker::Report { report: None }).unwrap();
        assert!(matches!(relayed(&unknown).0, Err(RelayError::Report(_))));
    }
}
