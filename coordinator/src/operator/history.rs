//! What happened to a run or a machine: the agents' events, and the run's own turning points.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use landfall_api::{EventRecord, Kind, RunRequestKind, Workflow, message::EventBody};
use serde::Deserialize;

use super::{body::Params, caller::Operator, documents::missing, problem::Refusal, watch::lines};
use crate::state::Coordinator;
use landfall_store::{LoggedEvent, MAX_EVENTS_PER_WORKFLOW, StoreError};

/// A machine's history goes back so many runs.
const RUNS_PER_MACHINE: usize = 20;

/// Parameters of an event list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct EventsQuery {
    /// Only events after this position of the log; the run's own turning points have none and are left out then.
    after: u64,
}

pub(super) async fn of_workflow(
    _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
    Params(query): Params<EventsQuery>,
) -> Result<Response, Refusal> {
    let workflow = coordinator.store.workflow(&name).await?.ok_or_else(|| missing(Kind::Workflow, &name))?;
    Ok(answer(records(&coordinator, &workflow, query.after).await?))
}

pub(super) async fn of_machine(
    _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
    Params(query): Params<EventsQuery>,
) -> Result<Response, Refusal> {
    coordinator.store.machine(&name).await?.ok_or_else(|| missing(Kind::Machine, &name))?;
    let mut runs = coordinator.engine.fleet().workflows_of(&name).await?;
    runs.sort_by_key(|run| std::cmp::Reverse(run.metadata.creation_timestamp));
    let mut all = Vec::new();
    for run in runs.iter().take(RUNS_PER_MACHINE) {
        all.extend(records(&coordinator, run, query.after).await?);
    }
    Ok(answer(all))
}

fn answer(mut records: Vec<EventRecord>) -> Response {
    records.sort_by_key(|record| record.time);
    let (lines, response) = lines();
    tokio::spawn(async move {
        for record in records {
            if !lines.send(&record).await {
                return;
            }
        }
    });
    response
}

/// Everything known of one run, in the log's order; bounded by what the log keeps of a run.
async fn records(coordinator: &Coordinator, run: &Workflow, after: u64) -> Result<Vec<EventRecord>, StoreError> {
    let mut out = if after == 0 { turning_points(run) } else { Vec::new() };
    if let Some(uid) = run.metadata.uid {
        // Cannot truncate: the bound is small.
        let logged = coordinator.store.events().list(uid, after, MAX_EVENTS_PER_WORKFLOW as usize).await?;
        out.extend(logged.into_iter().map(|event| record(run, event)));
    }
    Ok(out)
}

fn blank(run: &Workflow, time: jiff::Timestamp, reason: &str, message: String) -> EventRecord {
    EventRecord {
        position: 0,
        time,
        machine: run.spec.machine.clone(),
        workflow: run.metadata.name.clone(),
        workflow_uid: run.metadata.uid.unwrap_or_default(),
        action_index: None,
        action: String::new(),
        attempt: 0,
        reason: reason.to_owned(),
        message,
        problem: None,
    }
}

/// What the run's document itself tells: who asked, when the machine went down, how it ended.
fn turning_points(run: &Workflow) -> Vec<EventRecord> {
    let mut out = Vec::new();
    if let Some(asked) = &run.spec.authority {
        let force = if asked.force { ", with any receipt on the disk" } else { "" };
        out.push(blank(
            run,
            asked.at,
            "Requested",
            match &run.spec.retry_of {
                Some(failed) => format!("{} requested to continue where {failed} stopped{force}", asked.person),
                None => format!("{} requested template {}{force}", asked.person, run.spec.template),
            },
        ));
    }
    if let Some(cancel) = &run.spec.cancel {
        out.push(blank(run, cancel.at, "CancelRequested", format!("{} requested to stop it", cancel.person)));
    }
    for request in &run.spec.requests {
        let (reason, what) = match request.what {
            RunRequestKind::Pause => ("PauseRequested", "to pause before the next action"),
            RunRequestKind::Resume => ("ResumeRequested", "to resume"),
            RunRequestKind::Confirm => ("Confirmed", "to begin, although the coordinator was away"),
        };
        out.push(blank(run, request.by.at, reason, format!("{} requested {what}", request.by.person)));
    }
    let Some(status) = &run.status else { return out };
    if let Some(at) = status.rebooted_at {
        out.push(blank(run, at, "Rebooting", "the machine went down to start the installed system".into()));
    }
    if let Some(at) = status.phoned_home_at {
        out.push(blank(run, at, "PhonedHome", "the installed system phoned home".into()));
    }
    if let Some(at) = status.ended_at {
        let message = status.problem.as_ref().map_or_else(|| "the workflow ended".to_owned(), |p| p.message.clone());
        let mut ended = blank(run, at, &format!("{:?}", status.phase), message);
        ended.problem.clone_from(&status.problem);
        out.push(ended);
    }
    out
}

fn record(run: &Workflow, event: LoggedEvent) -> EventRecord {
    let LoggedEvent { position, record } = event;
    let action = run.status.as_ref().and_then(|s| s.action(record.action_index as usize)).map(|a| &a.action);
    let name = action.map(|action| action.name.clone()).unwrap_or_default();
    let (reason, message, problem) = match record.body {
        EventBody::Started => ("Started", format!("attempt {} began", record.attempt), None),
        EventBody::Finished { result } => ("Finished", result.summary(), None),
        EventBody::Failed { problem, retryable } => {
            let next = if retryable { "" } else { " (not retried)" };
            ("Failed", format!("{}: {}{next}", problem.code, problem.message), Some(problem))
        }
        EventBody::Skipped => {
            let when = action.and_then(|action| action.when.as_deref()).unwrap_or_default();
            ("Skipped", format!("left out: {when} does not hold"), None)
        }
        EventBody::ReceiptWritten { receipt } => {
            ("ReceiptWritten", format!("receipt {:?} on disk {}", receipt.receipt.state, receipt.disk.name), None)
        }
        EventBody::DiskWiped { report } => {
            let why: String = report.limits.iter().map(|limit| format!("; {limit}")).collect();
            let message = format!("disk {}: level {} by {}{why}", report.disk.name, report.level, report.method);
            ("DiskWiped", message, None)
        }
        EventBody::HealthTested { report } => ("HealthTested", report.summary(), None),
    };
    EventRecord {
        position,
        action_index: Some(record.action_index),
        action: name,
        attempt: record.attempt,
        problem,
        ..blank(run, record.time, reason, message)
    }
}
