//! Reports to the agent, each one message on the worker's original standard output.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use landfall_api::message::{LogLevel, WorkerReport};
use landfall_api::{DiskReceipt, Progress};
use landfall_disk::Observer;
use landfall_proto::{delimited, worker};

/// Progress goes out this often; a change of stage at once.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Where reports go. Threads share it.
pub struct Reporter {
    to: Mutex<Box<dyn Write + Send>>,
    thinned: Mutex<Option<(Instant, String)>>,
}

impl Reporter {
    /// Reports go into this pipe.
    pub fn new(to: impl Write + Send + 'static) -> Self {
        Self { to: Mutex::new(Box::new(to)), thinned: Mutex::default() }
    }

    /// A line for the workflow's log.
    pub fn info(&self, message: impl fmt::Display) {
        self.line(LogLevel::Info, message);
    }

    /// A line about something that is wrong and goes on.
    pub fn warn(&self, message: impl fmt::Display) {
        self.line(LogLevel::Warn, message);
    }

    fn line(&self, level: LogLevel, message: impl fmt::Display) {
        self.or_complain(WorkerReport::Log { level, message: message.to_string() });
    }

    /// How far the action is. Thinned: call it as often as is convenient.
    pub fn progress(&self, progress: &Progress) {
        let mut last = self.thinned.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let soon = last.as_ref().is_some_and(|(at, stage)| now - *at < PROGRESS_INTERVAL && *stage == progress.stage);
        if !soon {
            *last = Some((now, progress.stage.clone()));
            self.or_complain(WorkerReport::Progress(progress.clone()));
        }
    }

    /// The receipt on a disk changed.
    pub fn receipt_written(&self, receipt: &DiskReceipt) {
        self.or_complain(WorkerReport::ReceiptWritten(receipt.clone()));
    }

    /// Sends a report.
    ///
    /// # Errors
    /// The pipe's: the agent has gone.
    pub(crate) fn send(&self, report: WorkerReport) -> io::Result<()> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        delimited::write(&mut *to, &worker::Report::from(report))
    }

    /// A report that the action does not wait for. Without its agent a worker ends soon; the last report says so.
    fn or_complain(&self, report: WorkerReport) {
        if let Err(e) = self.send(report) {
            eprintln!("landfall-worker: cannot report to the agent: {e}");
        }
    }
}

impl Observer for Reporter {
    fn progress(&self, progress: &Progress) {
        Self::progress(self, progress);
    }

    fn receipt_written(&self, receipt: &DiskReceipt) {
        Self::receipt_written(self, receipt);
    }

    fn log(&self, level: landfall_disk::LogLevel, message: &str) {
        match level {
            landfall_disk::LogLevel::Info => self.info(message),
            landfall_disk::LogLevel::Warn => self.warn(message),
        }
    }
}
