//! Watching documents: one line of JSON a change.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use landfall_api::{Document, ErrorCode, Kind, Problem, WatchLine, WatchType};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use super::problem::Refusal;
use crate::{
    state::Coordinator,
    store::{ChangeOp, Watch, WatchError},
};

/// A line is sent at least this often, so that either side learns of a dead connection.
const BOOKMARK_EVERY: Duration = Duration::from_secs(15);

/// Lines held for a reader that is slower than the changes; the cursor behind them holds none.
const QUEUE: usize = 64;

/// An answer that goes on: what is sent into the sender, as lines of JSON. Ends when the sender is dropped.
pub(super) fn lines() -> (Lines, Response) {
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE);
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, std::convert::Infallible>));
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    (Lines(sender), (headers, body).into_response())
}

/// The writing end of such an answer.
pub(super) struct Lines(mpsc::Sender<Bytes>);

impl Lines {
    /// Sends one line; `false` when nobody reads any more.
    pub(super) async fn send(&self, line: &impl Serialize) -> bool {
        let Ok(mut bytes) = serde_json::to_vec(line) else {
            tracing::error!(service = "operator", "a line does not serialise");
            return false;
        };
        bytes.push(b'\n');
        self.0.send(bytes.into()).await.is_ok()
    }
    /// Waits until nobody reads any more.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Changes after `from`; without it what is there first, as `ADDED`, then changes.
pub(super) async fn stream(
    coordinator: &Arc<Coordinator>,
    kind: Kind,
    name: Option<String>,
    from: Option<u64>,
) -> Result<Response, Refusal> {
    let documents = coordinator.store.documents();
    let (first, revision) = match from {
        Some(revision) => (Vec::new(), revision),
        None => documents.list(kind).await?,
    };
    // Of every kind, so that a bookmark moves on with the store and not only with the kind that is watched.
    let watch = documents.watch(None, revision).map_err(expired)?;
    let (lines, response) = lines();
    let wanted = move |document: &Document| {
        document.kind() == kind && name.as_ref().is_none_or(|name| &document.metadata().name == name)
    };
    tokio::spawn(async move {
        for document in first.into_iter().filter(|d| wanted(d)) {
            let line =
                WatchLine { kind: WatchType::Added, resource_version: revision, object: Some(document), problem: None };
            if !lines.send(&line).await {
                return;
            }
        }
        run(watch, revision, wanted, &lines).await;
    });
    Ok(response)
}

async fn run(mut watch: Watch, mut revision: u64, wanted: impl Fn(&Document) -> bool, lines: &Lines) {
    loop {
        let change = tokio::select! {
            change = tokio::time::timeout(BOOKMARK_EVERY, watch.next()) => change,
            () = lines.closed() => return,
        };
        let line = match change {
            Ok(Ok(change)) => {
                revision = change.revision;
                if !wanted(&change.document) {
                    continue;
                }
                let kind = match change.op {
                    ChangeOp::Added => WatchType::Added,
                    ChangeOp::Modified => WatchType::Modified,
                    ChangeOp::Deleted => WatchType::Deleted,
                };
                WatchLine { kind, resource_version: revision, object: Some(change.document), problem: None }
            }
            Ok(Err(WatchError::Closed)) => return,
            Ok(Err(error @ WatchError::Expired { .. })) => WatchLine {
                kind: WatchType::Error,
                resource_version: revision,
                object: None,
                problem: Some(expired(error)),
            },
            Err(_elapsed) => {
                WatchLine { kind: WatchType::Bookmark, resource_version: revision, object: None, problem: None }
            }
        };
        if !lines.send(&line).await || line.kind == WatchType::Error {
            return;
        }
    }
}

fn expired(error: WatchError) -> Problem {
    match error {
        WatchError::Expired { .. } => Problem::new(ErrorCode::Expired, error.to_string())
            .at("resourceVersion")
            .hint("list, then watch from there"),
        WatchError::Closed => Problem::new(ErrorCode::Internal, error.to_string()).hint("ask again in a moment"),
    }
}
