//! A worker's life: ready, job, action, result.

use std::io;
use std::io::{Read, Write};
use std::path::Path;

use landfall_api::message::{Purpose, WorkerJob, WorkerReady, WorkerReport};
use landfall_api::{ErrorCode, Problem};
use landfall_proto::{ConvertError, PROTOCOL, delimited, worker};

use crate::{Context, Failure, Reporter, actions, storage};

/// The worker could not even report a failure.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No job came.
    #[error("cannot read the job from the standard input")]
    Job(#[from] delimited::ReadError),
    /// The input ended.
    #[error("the standard input ended without a job; the agent starts this program")]
    NoJob,
    /// The agent has gone.
    #[error("cannot report to the agent")]
    Report(#[from] io::Error),
}

/// Says that it is ready, reads one job, performs it and reports how it ended. `target` is where the new system's root is to
/// be.
///
/// # Errors
/// [`ServeError`]; an action that fails is a report.
pub fn serve(mut jobs: impl Read, reports: impl Write + Send + 'static, target: &Path) -> Result<(), ServeError> {
    let report = Reporter::new(reports);
    let software = env!("CARGO_PKG_VERSION").to_owned();
    report.send(WorkerReport::Ready(WorkerReady { protocol: PROTOCOL, software }))?;
    let wire: worker::Job = delimited::read(&mut jobs)?.ok_or(ServeError::NoJob)?;
    let ended = match WorkerJob::try_from(wire) {
        Ok(job) => done(&job, &report, target),
        Err(error) => Err(unusable(&error)),
    };
    report.send(ended.unwrap_or_else(|Failure { problem, retryable }| WorkerReport::Failed { problem, retryable }))?;
    Ok(())
}

/// The last report of a job that was done.
fn done(job: &WorkerJob, report: &Reporter, target: &Path) -> Result<WorkerReport, Failure> {
    let context = Context { job, report, target };
    let action = job.action().ok_or_else(|| unusable(&ConvertError::missing("assignment.start_index")))?;
    match &job.purpose {
        Purpose::Open => storage::open(&context).map(WorkerReport::Opened),
        Purpose::Commit => storage::commit(&context).map(WorkerReport::Opened),
        Purpose::Perform { .. } => actions::perform(&context, action).map(WorkerReport::Finished),
    }
}

fn unusable(error: &ConvertError) -> Failure {
    let message = format!("the worker cannot use the job that the agent sent: {error}");
    Failure::last(Problem::new(ErrorCode::Internal, message).hint("report this with the workflow's log"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use landfall_api::{HoldSpec, message::ActionKind};

    use super::*;
    use crate::testing;

    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn served(jobs: &[u8]) -> (Result<(), ServeError>, Vec<WorkerReport>) {
        let pipe = Pipe::default();
        let done = serve(jobs, pipe.clone(), Path::new("/target"));
        let bytes = pipe.0.lock().unwrap().clone();
        let (mut from, mut reports) = (&bytes[..], Vec::new());
        while let Some(wire) = delimited::read::<worker::Report>(&mut from).unwrap() {
            reports.push(wire.try_into().unwrap());
        }
        (done, reports)
    }

    fn job() -> Vec<u8> {
        let job = testing::job(ActionKind::Hold(HoldSpec { message: "m".into() }));
        let mut bytes = Vec::new();
        delimited::write(&mut bytes, &worker::Job::try_from(job).unwrap()).unwrap();
        bytes
    }

    #[test]
    fn readiness_comes_first_and_the_end_last() {
        let (done, reports) = served(&job());
        done.unwrap();
        let [WorkerReport::Ready(ready), WorkerReport::Failed { problem, retryable: false }] = &reports[..] else {
            panic!("{reports:?}");
        };
        assert_eq!(ready.protocol, PROTOCOL);
        assert!(problem.code == ErrorCode::Internal && problem.message.contains("act"), "{problem}");
    }

    #[test]
    fn without_a_job_nothing_is_done() {
        let whole = job();
        for cut in [0, 1, whole.len() - 1] {
            let (done, reports) = served(&whole[..cut]);
            assert!(done.is_err() && matches!(reports[..], [WorkerReport::Ready(_)]), "{cut}: {reports:?}");
        }
        // A message, but no job: it has no assignment.
        let (done, reports) = served(&[0]);
        done.unwrap();
        assert!(matches!(&reports[1], WorkerReport::Failed { problem, .. } if problem.message.contains("assignment")));
    }
}
