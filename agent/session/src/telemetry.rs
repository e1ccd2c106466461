//! Progress and log lines: a bounded, lossy queue, and the stream of its own that drains it.
//!
//! The queue must never delay the control stream or the actions: adding an item never waits. A newer progress replaces
//! an older one that still waits; when the queue is full the oldest line goes, and the next line that leaves says how
//! many went.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use landfall_api::Progress;
use landfall_api::message::{ActionRef, LogLevel, LogLine, Telemetry as Item};
use landfall_proto::v1::{TelemetryRequest, agent_service_client::AgentServiceClient};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::{Backoff, Surroundings};

/// Lines and counters kept until they are sent.
const CAPACITY: usize = 512;
/// A line is cut here: one runaway message must not fill the coordinator's ring.
const MAX_LINE: usize = 4096;

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    ring: Mutex<Ring>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Ring {
    items: VecDeque<Item>,
    dropped: u64,
}

impl Ring {
    fn push(&mut self, item: Item) {
        if let Item::Progress { action, .. } = &item {
            self.items.retain(|old| !matches!(old, Item::Progress { action: of, .. } if of == action));
        }
        if self.items.len() >= CAPACITY && matches!(self.items.pop_front(), Some(Item::Log { .. })) {
            self.dropped += 1;
        }
        self.items.push_back(item);
    }
    fn pop(&mut self) -> Option<Item> {
        let mut item = self.items.pop_front()?;
        if let Item::Log { line, .. } = &mut item {
            match std::mem::take(&mut self.dropped) {
                0 => {}
                n => line.message.insert_str(0, &format!("[{n} older lines were dropped] ")),
            }
        }
        Some(item)
    }
}

impl Telemetry {
    pub(crate) fn progress(&self, action: ActionRef, progress: Progress) {
        self.push(Item::Progress { action, progress });
    }
    pub(crate) fn log(&self, action: ActionRef, level: LogLevel, mut line: String) {
        if line.len() > MAX_LINE {
            let cut = (0..=MAX_LINE).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            line.truncate(cut);
            line.push_str(" […]");
        }
        self.push(log_item(action, crate::clock::wall_time(), level, line));
    }
    fn push(&self, item: Item) {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).push(item);
        self.filled.notify_one();
    }
    async fn next(&self) -> Item {
        loop {
            if let Some(item) = self.ring.lock().unwrap_or_else(PoisonError::into_inner).pop() {
                return item;
            }
            self.filled.notified().await;
        }
    }

    /// Drains the queue over `client` until dropped. A stream that breaks is opened anew after a bounded wait.
    pub(crate) async fn run(self: Arc<Self>, client: AgentServiceClient<Channel>, world: Surroundings) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        loop {
            // The stream is opened only once there is something to say, and holds little: the rest waits in the ring,
            // where it can be thinned.
            let first = self.next().await;
            let (out, stream) = mpsc::channel(8);
            let mut client = client.clone();
            let call = tokio::spawn(async move { client.telemetry(ReceiverStream::new(stream)).await.map(drop) });
            let aborts = AbortOnDrop(call);
            let mut item = first;
            while out.send(TelemetryRequest::from(item)).await.is_ok() {
                item = tokio::select! {
                    biased;
                    item = self.next() => item,
                    () = out.closed() => break,
                };
                backoff.reset();
            }
            drop(aborts);
            tokio::time::sleep(backoff.step_by((world.chance)())).await;
        }
    }
}

fn log_item(action: ActionRef, time: Timestamp, level: LogLevel, message: String) -> Item {
    let ActionRef { workflow_uid, action_index, attempt } = action;
    Item::Log { workflow_uid, line: LogLine { time, level, action_index, attempt, message } }
}

/// Ends the call when the session's connection goes.
struct AbortOnDrop(tokio::task::JoinHandle<Result<(), tonic::Status>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(index: u32) -> ActionRef {
        ActionRef { workflow_uid: uuid::Uuid::nil(), action_index: index, attempt: 1 }
    }

    fn log(n: usize) -> Item {
        log_item(action(0), Timestamp::UNIX_EPOCH, LogLevel::Info, n.to_string())
    }

    #[test]
    fn newer_progress_replaces_what_still_waits_of_the_same_attempt() {
        let mut ring = Ring::default();
        for bytes in 0..1000 {
            for action in [action(0), action(1)] {
                ring.push(Item::Progress { action, progress: Progress { raw_bytes: bytes, ..Progress::default() } });
            }
        }
        assert_eq!(ring.items.len(), 2);
        assert!(
            matches!(ring.pop(), Some(Item::Progress { action: a, progress }) if a == action(0) && progress.raw_bytes == 999)
        );
    }

    #[test]
    fn a_full_queue_drops_and_counts_the_oldest_lines() {
        let mut ring = Ring::default();
        (0..CAPACITY + 3).for_each(|n| ring.push(log(n)));
        assert_eq!(ring.items.len(), CAPACITY);
        assert!(matches!(ring.pop(), Some(Item::Log { line, .. }) if line.message == "[3 older lines were dropped] 3"));
        assert_eq!(ring.pop(), Some(log(4)));
    }

    #[test]
    fn an_endless_line_is_cut_at_a_character() {
        let telemetry = Telemetry::default();
        telemetry.log(action(0), LogLevel::Info, "ü".repeat(MAX_LINE));
        let item = telemetry.ring.lock().unwrap().pop();
        assert!(
            matches!(item, Some(Item::Log { line, .. }) if line.message.len() < MAX_LINE + 10 && line.message.ends_with("[…]"))
        );
    }
}
