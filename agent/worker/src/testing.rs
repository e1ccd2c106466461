//! A job for the tests of this crate.

use std::time::Duration;

use landfall_api::message::{ActionKind, AssignedAction, Assignment, Retry, WorkerJob};
use uuid::Uuid;

/// A job of this one action.
pub(crate) fn job(kind: ActionKind) -> WorkerJob {
    let second = Duration::from_secs(1);
    let retry = Retry { max_attempts: 1, initial_backoff: second, max_backoff: second };
    let run = Assignment {
        epoch: 1,
        workflow_uid: Uuid::from_u128(1),
        workflow_name: "run".into(),
        machine_uid: Uuid::from_u128(2),
        generation: 1,
        lease: second,
        counts_from: None,
        actions: vec![AssignedAction { name: "act".into(), timeout: second, retry, branch: None, kind }],
        start_index: 0,
        start_attempt: 1,
        starts: Vec::new(),
        earlier_runs: Vec::new(),
        expected_receipts: Vec::new(),
        person_authorised: true,
        force: false,
        precheck: true,
        tools: None,
    };
    WorkerJob::new(&run, 0, 1, Vec::new(), false).unwrap()
}
