//! The agent's log: to the console (or stderr), into a short memory, and from there to the coordinator.
//!
//! The memory holds the last lines, so that a problem is reported with the lines before it. While an action runs, each
//! line is also handed to the session's telemetry, which is bounded and may drop it; logging never waits.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_api::message::{ActionRef, LogLevel};
use landfall_api::{DiskReceipt, Progress};
use landfall_disk::Observer;
use landfall_session::Report;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Lines remembered.
const CAPACITY: usize = 200;
/// Longer lines are cut: one line must not fill the memory.
const LONGEST: usize = 2000;

thread_local! {
    /// Set while a line is handed to the session, so that the session's own log lines about it are not handed over
    /// again.
    static HANDING_OVER: Cell<bool> = const { Cell::new(false) };
}

/// The last lines, and where new ones go.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    /// Actions under way, the newest last. One a branch, so a handful at most.
    followers: Vec<(Arc<dyn Report>, ActionRef)>,
}

impl Tail {
    /// Hands new lines to a session's telemetry under this action, until another takes its place or it is over.
    pub(crate) fn follow(&self, session: Arc<dyn Report>, action: ActionRef) {
        let mut state = self.lock();
        state.followers.retain(|(_, known)| known.action_index != action.action_index);
        state.followers.push((session, action));
    }

    /// This action is over: later lines do not belong to it.
    pub(crate) fn unfollow(&self, action: ActionRef) {
        self.lock().followers.retain(|(_, known)| *known != action);
    }

    /// The newest lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<String> {
        let state = self.lock();
        state.lines.iter().skip(state.lines.len().saturating_sub(count)).cloned().collect()
    }

    /// Writes a line around the log: for the panic hook, which must not wait for a lock that the panicking thread
    /// holds.
    pub(crate) fn last_words(&self, line: &str) {
        if let Ok(state) = self.0.try_lock()
            && let Some((session, action)) = state.followers.last()
        {
            session.log(*action, LogLevel::Error, line.to_owned());
        }
    }

    /// `of`: the action that the line names itself, if several are under way.
    fn push(&self, level: LogLevel, mut line: String, of: Option<u64>) {
        if line.len() > LONGEST {
            let cut = (0..=LONGEST).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            line.truncate(cut);
        }
        let follower = {
            let mut state = self.lock();
            if state.lines.len() == CAPACITY {
                state.lines.pop_front();
            }
            state.lines.push_back(format!("{} {line}", level.as_str()));
            let named = |(_, action): &&(Arc<dyn Report>, ActionRef)| of == Some(u64::from(action.action_index));
            state.followers.iter().find(named).or(state.followers.last()).cloned()
        };
        if let Some((session, action)) = follower {
            HANDING_OVER.set(true);
            session.log(action, level, line);
            HANDING_OVER.set(false);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for Tail {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warn,
            Level::INFO => LogLevel::Info,
            Level::DEBUG | Level::TRACE => return,
        };
        if HANDING_OVER.get() {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        self.push(level, line.text, line.action);
    }
}

/// The field that names the line's action; it is not shown.
const ACTION_FIELD: &str = "action_index";

/// The message first, then every field as `name=value`.
#[derive(Default)]
struct Line {
    text: String,
    action: Option<u64>,
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == ACTION_FIELD {
            self.action = Some(value);
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => {
                let fields = std::mem::take(&mut self.text);
                write!(self.text, "{value:?}{fields}")
            }
            name => write!(self.text, " {name}={value:?}"),
        };
        // Writing to a String does not fail.
        written.unwrap_or_default();
    }
}

/// Starts logging to `writer`; `RUST_LOG` (as PID 1: the kernel command line's, which the kernel hands on) may say more.
pub(crate) fn init<W>(writer: W, with_time: bool) -> Tail
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let tail = Tail::default();
    // `Targets` and not `EnvFilter`, which brings a regular-expression engine of 1 MB into the boot image.
    let asked = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_target(false).with_writer(writer);
    let lines = if with_time { lines.boxed() } else { lines.without_time().boxed() };
    // Already set by another part of this process (a test), which is good enough.
    tracing_subscriber::registry().with(filter).with(tail.clone()).with(lines).try_init().unwrap_or_default();
    tail
}

/// Of what fetches bytes, and reports no progress, the lines go to the log: why a connection ended, where it goes on.
pub(crate) struct Logged;

impl Observer for Logged {
    fn progress(&self, _: &Progress) {}
    fn receipt_written(&self, _: &DiskReceipt) {}
    fn log(&self, level: landfall_disk::LogLevel, message: &str) {
        match level {
            landfall_disk::LogLevel::Info => tracing::info!("{message}"),
            landfall_disk::LogLevel::Warn => tracing::warn!("{message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded_in_lines_and_in_length() {
        let tail = Tail::default();
        for i in 0..CAPACITY * 2 {
            tail.push(LogLevel::Info, format!("{i} {}", "ä".repeat(LONGEST)), None);
        }
        let lines = tail.last(usize::MAX);
        assert_eq!(lines.len(), CAPACITY);
        assert!(lines.iter().all(|l| l.len() <= LONGEST + 10));
        assert_eq!(tail.last(2).len(), 2);
        assert!(tail.last(1)[0].contains(&format!("{} ", CAPACITY * 2 - 1)));
    }

    #[test]
    fn a_line_is_its_message_and_then_its_fields() {
        let tail = Tail::default();
        let subscriber = tracing_subscriber::registry().with(tail.clone());
        tracing::subscriber::with_default(subscriber, || tracing::warn!(port = 7, action_index = 1u32, "no answer"));
        assert_eq!(tail.last(1), ["warn no answer port=7"]);
    }
}
