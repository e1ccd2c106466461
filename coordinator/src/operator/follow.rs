//! Log lines of a run, and those to come until it ends.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use jiff::Timestamp;
use landfall_api::{Document, ErrorCode, Kind, LogRecord, Problem, Workflow, message::LogLine};
use landfall_machine::has_ended;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::body::Params;
use super::caller::Operator;
use super::documents::missing;
use super::elsewhere::with_agent;
use super::problem::Refusal;
use super::watch::{blanks, lines};
use crate::state::Coordinator;

/// How often a follower looks whether the lines come to another coordinator now.
const LOOK: Duration = Duration::from_secs(1);

/// Parameters of a log.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct LogsQuery {
    follow: bool,
    /// Only lines of this action.
    action: Option<String>,
    /// Of the lines there are already only so many, the newest.
    tail: Option<usize>,
    /// Of the lines there are already only those from then on, by the agent's clock. It may be set back meanwhile, so that of those to
    /// come none is left out.
    since: Option<Timestamp>,
}

impl LogsQuery {
    fn has(&self, line: &LogRecord) -> bool {
        self.action.as_ref().is_none_or(|action| *action == line.action)
    }

    fn has_kept(&self, line: &LogRecord) -> bool {
        self.has(line) && self.since.is_none_or(|since| line.time >= since)
    }
}

pub(super) async fn logs(
    _: Operator, State(coordinator): State<Arc<Coordinator>>, Path(name): Path<String>,
    Params(query): Params<LogsQuery>,
) -> Result<Response, Refusal> {
    // The revision is taken before the document, so that an end in between is seen by the watch.
    let revision = coordinator.store.documents().page(Kind::Workflow, "", 0).await?.revision;
    let run = coordinator.store.workflow(&name).await?.ok_or_else(|| missing(Kind::Workflow, &name))?;
    let (kept, mut live) = coordinator.engine.telemetry().logs(run.metadata.uid.unwrap_or_default());
    known(&run, query.action.as_deref())?;
    let follow = query.follow && !has_ended(&run);
    let mut kept: Vec<LogRecord> =
        kept.into_iter().map(|line| named(&run, line)).filter(|line| query.has_kept(line)).collect();
    kept.drain(..kept.len().saturating_sub(query.tail.unwrap_or(usize::MAX)));
    let mut watch = coordinator.store.documents().watch(Some(Kind::Workflow), revision);
    let (lines, response) = lines();
    tokio::spawn(async move {
        for line in kept {
            if !lines.send(&line).await {
                return;
            }
        }
        let (true, Ok(watch)) = (follow, &mut watch) else { return };
        let (mut blanks, mut looks) = (blanks(), interval_at(Instant::now() + LOOK, LOOK));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                line = live.recv() => match line {
                    Ok(line) => {
                        let line = named(&run, line);
                        if query.has(&line) && !lines.send(&line).await { return }
                    }
                    Err(RecvError::Lagged(missed)) => {
                        let line = LogRecord {
                            time: Timestamp::now(),
                            level: "warn".into(),
                            action: String::new(),
                            attempt: 0,
                            message: format!("{missed} lines were dropped because the reader was too slow"),
                        };
                        if !lines.send(&line).await { return }
                    }
                    Err(RecvError::Closed) => return,
                },
                change = watch.next() => match change {
                    // Every line before the end has been handed out: the select is biased to lines.
                    Ok(change) => match &change.document {
                        Document::Workflow(now) if now.metadata.uid == run.metadata.uid && has_ended(now) => return,
                        _ => {}
                    },
                    Err(_) => return,
                },
                // Who follows asks again, and is answered by that one.
                _ = looks.tick() => if matches!(with_agent(&coordinator, &name).await, Ok(Some(_))) { return },
                _ = blanks.tick() => if !lines.blank().await { return },
                () = lines.closed() => return,
            }
        }
    });
    Ok(response)
}

/// Refuses the name of an action that the run does not have: nothing would ever come.
fn known(run: &Workflow, action: Option<&str>) -> Result<(), Problem> {
    let Some(action) = action else { return Ok(()) };
    let names: Vec<&str> = run.status.iter().flat_map(|s| &s.actions).map(|a| a.action.name.as_str()).collect();
    if names.contains(&action) {
        return Ok(());
    }
    let name = &run.metadata.name;
    Err(Problem::new(ErrorCode::NotFound, format!("workflow \"{name}\" has no action \"{action}\""))
        .at("action")
        .hint(format!("its actions are {}", names.join(", "))))
}

fn named(run: &Workflow, line: LogLine) -> LogRecord {
    let action = run.status.as_ref().and_then(|s| s.action(line.action_index as usize));
    LogRecord {
        time: line.time,
        level: line.level.as_str().to_owned(),
        action: action.map(|a| a.action.name.clone()).unwrap_or_default(),
        attempt: line.attempt,
        message: line.message,
    }
}
