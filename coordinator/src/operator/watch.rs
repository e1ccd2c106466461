//! Watching documents: one line of JSON a change.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use landfall_api::{ErrorCode, Problem, WatchLine, WatchType};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use super::pages;
use super::pages::Wanted;
use super::problem::Refusal;
use crate::state::Coordinator;
use landfall_store::{Change, ChangeOp, Watch, WatchError};

/// A line is sent at least this often, so that either side learns of a dead connection.
pub(super) const BOOKMARK_EVERY: Duration = Duration::from_secs(15);

/// Lines held for a reader that is slower than the changes; the cursor behind them holds none.
const QUEUE: usize = 64;

/// An answer that goes on: what is sent into the sender, as lines of JSON. Ends when the sender is dropped.
pub(super) fn lines() -> (Lines, Response) {
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE);
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, std::convert::Infallible>));
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    (Lines(sender), (headers, body).into_response())
}

/// When an answer that goes on without bookmarks is to have its next empty line.
pub(super) fn blanks() -> Interval {
    let mut blanks = interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
    blanks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    blanks
}

/// The writing end of such an answer.
pub(super) struct Lines(mpsc::Sender<Bytes>);

impl Lines {
    /// Sends one line; `false` when the reader has gone.
    pub(super) async fn send(&self, line: &impl Serialize) -> bool {
        let Ok(mut bytes) = serde_json::to_vec(line) else {
            tracing::error!(service = "operator", "a line does not serialise");
            return false;
        };
        bytes.push(b'\n');
        self.0.send(bytes.into()).await.is_ok()
    }
    /// Sends an empty line, which only shows that the connection lives; `false` when the reader has gone.
    pub(super) async fn blank(&self) -> bool {
        self.0.send(Bytes::from_static(b"\n")).await.is_ok()
    }
    /// Waits until the reader has gone.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Changes after `from`; without it what is there first, as `ADDED`, then changes.
pub(super) async fn stream(
    coordinator: &Arc<Coordinator>, wanted: Wanted, from: Option<u64>,
) -> Result<Response, Refusal> {
    let documents = coordinator.store.documents();
    coordinator.engine.fleet().beside().hear_of(from.unwrap_or_default()).await;
    let (first, revision, listing) = match from {
        Some(from) if !wanted.may_change() => (Vec::new(), from, None),
        _ => {
            let all = pages::list(documents, &wanted, 0, pages::Token::default()).await?;
            let (first, listed_at) = (all.items, all.metadata.resource_version);
            let shown = first.iter().map(|document| document.metadata().name.clone()).collect();
            let listing = wanted.may_change().then_some(Listing { shown, listed_at });
            match from {
                Some(from) => (Vec::new(), from, listing),
                None => (first, listed_at, listing),
            }
        }
    };
    // Of every kind, so that a bookmark moves on with the store and not only with the kind that is watched.
    let watch = documents.watch(None, revision).map_err(expired)?;
    let (lines, response) = lines();
    let view = View { wanted, listing };
    let coordinator = coordinator.clone();
    tokio::spawn(async move {
        for document in first {
            let line =
                WatchLine { kind: WatchType::Added, resource_version: revision, object: Some(document), problem: None };
            if !lines.send(&line).await {
                return;
            }
        }
        run(&coordinator, watch, revision, view, &lines).await;
    });
    Ok(response)
}

/// What a reader receives.
struct View {
    wanted: Wanted,
    /// Only where documents come into what is wanted and leave it: labels change.
    listing: Option<Listing>,
}

/// What a reader has received.
struct Listing {
    shown: BTreeSet<String>,
    /// The revision at which `shown` was drawn up. For changes before it, it is unknown what the reader has.
    listed_at: u64,
}

impl View {
    /// How the reader learns of a change, if at all. One that resumes with a selector may learn twice that a document is
    /// there, and of the end of one it never had; nothing is kept from it.
    fn line(&mut self, change: &Change) -> Option<WatchType> {
        let (document, name) = (&change.document, &change.document.metadata().name);
        if document.kind() != self.wanted.kind || !self.wanted.named(name) {
            return None;
        }
        let Some(listing) = &mut self.listing else {
            return Some(match change.op {
                ChangeOp::Added => WatchType::Added,
                ChangeOp::Modified => WatchType::Modified,
                ChangeOp::Deleted => WatchType::Deleted,
            });
        };
        if change.op != ChangeOp::Deleted && self.wanted.has(document) {
            let new = listing.shown.insert(name.clone()) || change.op == ChangeOp::Added;
            return Some(if new { WatchType::Added } else { WatchType::Modified });
        }
        let had = listing.shown.remove(name);
        (had || change.revision <= listing.listed_at).then_some(WatchType::Deleted)
    }
}

async fn run(coordinator: &Coordinator, mut watch: Watch, mut revision: u64, mut view: View, lines: &Lines) {
    let mut due = Instant::now() + BOOKMARK_EVERY;
    loop {
        // Changes that this reader does not want put no bookmark off.
        let change = tokio::select! {
            change = tokio::time::timeout_at(due, watch.next()) => change,
            () = lines.closed() => return,
        };
        let json: Arc<RawValue>;
        let line = match change {
            Ok(Ok(change)) => {
                revision = change.revision;
                let Some(kind) = view.line(&change) else { continue };
                match change.json() {
                    Ok(encoded) => json = encoded,
                    Err(error) => {
                        tracing::error!(%error, "a change cannot be sent to its watchers");
                        return;
                    }
                }
                WatchLine { kind, resource_version: revision, object: Some(&*json), problem: None }
            }
            Ok(Err(WatchError::Closed)) => return,
            Ok(Err(error @ WatchError::Expired { .. })) => WatchLine {
                kind: WatchType::Error,
                resource_version: revision,
                object: None,
                problem: Some(expired(error)),
            },
            // Another one knows more: who watches asks again.
            Err(_elapsed) if coordinator.has_lost_store_to_others() => return,
            Err(_elapsed) => {
                WatchLine { kind: WatchType::Bookmark, resource_version: revision, object: None, problem: None }
            }
        };
        if !lines.send(&line).await || line.kind == WatchType::Error {
            return;
        }
        due = Instant::now() + BOOKMARK_EVERY;
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
