//! Log lines of a run, and those to come until it ends.

use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use landfall_api::{API_PATH, Document, ErrorCode, Kind, LogRecord, Problem, Workflow, message::LogLine};
use landfall_machine::has_ended;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::body::Params;
use super::caller::Operator;
use super::documents::missing;
use super::elsewhere::{is_passed_on, parts, with_agent};
use super::problem::Refusal;
use super::watch::{blanks, lines};
use crate::state::Coordinator;
use crate::tls::Peer;

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
    /// Another coordinator asks for the lines that this one has, all of them in one list.
    own: bool,
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
    peer: Option<Extension<Peer>>, operator: Operator, State(coordinator): State<Arc<Coordinator>>,
    Path(name): Path<String>, Params(query): Params<LogsQuery>,
) -> Result<Response, Refusal> {
    let is_own = query.own && is_passed_on(peer.as_deref());
    let others = match is_own || coordinator.config.others.is_empty() {
        true => Others::default(),
        false => of_others(&coordinator, &operator, &name).await,
    };
    // The revision is taken before the document, so that an end in between is seen by the watch.
    let revision = coordinator.store.documents().page(Kind::Workflow, "", 0).await?.revision;
    let run = coordinator.store.workflow(&name).await?.ok_or_else(|| missing(Kind::Workflow, &name))?;
    known(&run, query.action.as_deref())?;
    let follow = query.follow && !has_ended(&run);
    let uid = run.metadata.uid.unwrap_or_default();
    let all_named = |kept: Vec<LogLine>| kept.into_iter().map(|line| named(&run, line)).collect();
    if is_own {
        let kept: VecDeque<LogRecord> = all_named(coordinator.engine.telemetry().kept_logs(uid));
        return Ok(Json(kept).into_response());
    }
    let (kept, mut live) = coordinator.engine.telemetry().logs(uid);
    let mut kept = merged(iter::once(all_named(kept)).chain(others.lists).collect());
    kept.retain(|line| query.has_kept(line));
    kept.drain(..kept.len().saturating_sub(query.tail.unwrap_or(usize::MAX)));
    kept.splice(..0, others.warnings);
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
                        let line = format!("{missed} lines were dropped because the reader was too slow");
                        if !lines.send(&own_warning(line)).await { return }
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

/// The lines that other coordinators have, from when the agent was there.
#[derive(Default)]
struct Others {
    lists: Vec<VecDeque<LogRecord>>,
    /// One for each that gave no answer.
    warnings: Vec<LogRecord>,
}

async fn of_others(coordinator: &Coordinator, operator: &Operator, workflow: &str) -> Others {
    let path = format!("{API_PATH}/workflows/{workflow}/logs?own=true");
    let warn = |who: &str, why: &str| own_warning(format!("lines that {who} may have are missing: {why}"));
    match parts(coordinator, operator, &path).await {
        Ok((lists, silent)) => {
            let warnings =
                silent.iter().map(|at| warn(&format!("the coordinator at {at}"), "it gave no answer")).collect();
            Others { lists, warnings }
        }
        Err(problem) => Others { warnings: vec![warn("other coordinators", &problem.message)], ..Others::default() },
    }
}

/// The lines of several coordinators by the agent's clock, and those of each in the order in which they came: that clock may be set back.
fn merged(mut lists: Vec<VecDeque<LogRecord>>) -> Vec<LogRecord> {
    iter::from_fn(|| {
        let oldest = lists.iter_mut().filter(|list| !list.is_empty()).min_by_key(|list| list[0].time)?;
        oldest.pop_front()
    })
    .collect()
}

/// A line of the coordinator itself.
fn own_warning(message: String) -> LogRecord {
    LogRecord { time: Timestamp::now(), level: "warn".into(), action: String::new(), attempt: 0, message }
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
