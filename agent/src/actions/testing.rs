//! A job for tests of actions: one workflow of one action, under a lease that a test may have lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use landfall_api::message::{
    ActionKind, ActionRef, AssignedAction, Assignment, EventBody, LogLevel, Retry, Start, WriteImage,
};
use landfall_api::{Digest, DiskSelector, ImageAccess, ImageProof, ImageSource, Progress};
use landfall_disk::CancelFlag;
use landfall_session::{Report, Reporting, SessionEnded, Unflushed};
use uuid::Uuid;

use crate::runner::{Doing, Job, Term};

struct Lease(bool);

impl Term for Lease {
    fn is_valid(&self) -> bool {
        self.0
    }
    fn expired(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// The stages of the progress that was reported.
#[derive(Default)]
pub(super) struct Heard(pub(super) Mutex<Vec<String>>);

impl Report for Heard {
    fn report(&self, _: ActionRef, _: EventBody) -> Reporting<'_, SessionEnded> {
        Box::pin(async { Ok(()) })
    }
    fn report_blocking(&self, _: ActionRef, _: EventBody) -> Result<(), SessionEnded> {
        Ok(())
    }
    fn still_runs(&self) -> Box<dyn Send> {
        Box::new(())
    }
    fn progress(&self, _: ActionRef, progress: Progress) {
        self.0.lock().unwrap().push(progress.stage);
    }
    fn log(&self, _: ActionRef, _: LogLevel, _: String) {}
    fn flush(&self, _: Duration) -> Reporting<'_, Unflushed> {
        Box::pin(async { Ok(()) })
    }
}

/// A write of some image, which keeps the partition of that name.
pub(super) fn write_image(keep: &str) -> ActionKind {
    let image = ImageSource {
        urls: vec!["http://h/i".into()],
        proof: ImageProof::Stored(Digest::from_sha256([1; 32])),
        format: None,
        no_table: false,
        access: ImageAccess::default(),
    };
    ActionKind::WriteImage(WriteImage {
        disk: DiskSelector::default(),
        image,
        keep: vec![keep.to_owned()],
        read_back: false,
    })
}

/// An action of a list.
pub(super) fn listed(name: &str, kind: ActionKind) -> AssignedAction {
    let second = Duration::from_secs(1);
    let retry = Retry { max_attempts: 1, initial_backoff: second, max_backoff: second };
    AssignedAction { name: name.into(), timeout: second, retry, branch: None, when: None, kind }
}

/// A workflow of these actions; each branch starts at one of these, with that attempt.
pub(crate) fn run_of(actions: Vec<AssignedAction>, starts: &[(u32, u32)]) -> Assignment {
    Assignment {
        epoch: 1,
        workflow_uid: Uuid::from_u128(1),
        workflow_name: "run".into(),
        machine_uid: Uuid::from_u128(2),
        generation: 1,
        lease: Duration::from_secs(600),
        counts_from: None,
        actions,
        start_index: starts[0].0,
        start_attempt: starts[0].1,
        starts: starts.iter().map(|(index, attempt)| Start { index: *index, attempt: *attempt }).collect(),
        earlier_runs: Vec::new(),
        expected_receipts: Vec::new(),
        results: Vec::new(),
        person_authorised: true,
        force: false,
        tools: None,
        precheck: true,
    }
}

/// The first attempt at this action.
pub(super) fn job(kind: ActionKind) -> Job {
    heard(kind).0
}

/// The same, with what it reports.
pub(super) fn heard(kind: ActionKind) -> (Job, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let run = run_of(vec![listed("step", kind.clone())], &[(0, 1)]);
    let job = Job {
        action: ActionRef { workflow_uid: run.workflow_uid, action_index: 0, attempt: 1 },
        kind,
        run: Arc::new(run),
        lease: Arc::new(Lease(true)),
        cancel: CancelFlag::new(),
        report: heard.clone(),
        doing: Doing::default(),
    };
    (job, heard)
}

/// The same, after the lease has run out.
pub(super) fn without_lease(job: Job) -> Job {
    Job { lease: Arc::new(Lease(false)), ..job }
}
