//! A growing log: in a file for people, and in memory for code that waits for a line.
//!
//! One task per source reads and appends; waiters are woken by growth, so a wait costs nothing until something is
//! written and ends at the moment it is.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::LabError;

/// Lines kept in memory; the file keeps all.
const KEPT_LINES: usize = 200_000;
/// Lines quoted when a wait fails.
const TAIL_LINES: usize = 12;

/// One line and when it arrived.
#[derive(Debug, Clone)]
pub struct Line {
    /// When its last byte was read.
    pub at: Instant,
    /// The text without its line end.
    pub text: String,
}

/// A place in a log: what was written before it does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(u64);

/// The lines that a wait judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lines {
    Complete,
    AlsoUnderWay,
}

/// A log that grows. Clones share it.
#[derive(Debug, Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
    grown: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    file: std::fs::File,
    /// Complete lines; the first has number `first`.
    lines: VecDeque<Line>,
    first: u64,
    partial: Vec<u8>,
}

impl Log {
    /// Opens a log that appends to `path`.
    ///
    /// # Errors
    /// [`LabError::File`] if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(LabError::file("cannot open log", path))?;
        let state = State { file, lines: VecDeque::new(), first: 0, partial: Vec::new() };
        Ok(Self {
            shared: Arc::new(Shared { path: path.to_owned(), state: Mutex::new(state), grown: watch::Sender::new(0) }),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Reads `source` into this log until it ends; the task ends when all of it is here.
    pub fn attach(&self, mut source: impl AsyncRead + Unpin + Send + 'static) -> JoinHandle<()> {
        let log = self.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 8192];
            // An error of a pipe is its end: the process is gone.
            while let Ok(n @ 1..) = source.read(&mut buffer).await {
                log.append(&buffer[..n]);
            }
        })
    }

    /// Appends bytes, as if a source had written them.
    pub fn append(&self, bytes: &[u8]) {
        let mut state = self.state();
        // A full disk must not stop waiters, who read from memory; the test fails by its own wait.
        let _ = state.file.write_all(bytes);
        let at = Instant::now();
        for &byte in bytes {
            if byte == b'\n' {
                let mut raw = std::mem::take(&mut state.partial);
                if raw.last() == Some(&b'\r') {
                    raw.pop();
                }
                state.lines.push_back(Line { at, text: String::from_utf8_lossy(&raw).into_owned() });
                if state.lines.len() > KEPT_LINES {
                    state.lines.pop_front();
                    state.first += 1;
                }
            } else if state.partial.len() < 64 * 1024 {
                state.partial.push(byte);
            }
        }
        drop(state);
        self.shared.grown.send_modify(|n| *n += 1);
    }

    /// The present end. A line under way counts as after it.
    pub fn mark(&self) -> Mark {
        let state = self.state();
        Mark(state.first + state.lines.len() as u64)
    }

    /// The lines since `mark`, the one under way last.
    pub fn lines_since(&self, mark: Mark) -> Vec<Line> {
        self.since(mark, Lines::AlsoUnderWay)
    }

    fn since(&self, mark: Mark, wanted: Lines) -> Vec<Line> {
        let state = self.state();
        let skip = usize::try_from(mark.0.saturating_sub(state.first)).unwrap_or(usize::MAX);
        let mut lines: Vec<Line> = state.lines.iter().skip(skip).cloned().collect();
        if wanted == Lines::AlsoUnderWay && !state.partial.is_empty() {
            let text = String::from_utf8_lossy(&state.partial).into_owned();
            lines.push(Line { at: Instant::now(), text });
        }
        lines
    }

    /// Whether a line since `mark` contains `pattern`.
    pub fn contains_since(&self, mark: Mark, pattern: &str) -> bool {
        self.lines_since(mark).iter().any(|line| line.text.contains(pattern))
    }

    /// The last `n` lines.
    pub fn tail(&self, n: usize) -> Vec<String> {
        let lines = self.lines_since(Mark(0));
        lines.iter().skip(lines.len().saturating_sub(n)).map(|line| printable(&line.text)).collect()
    }

    /// Waits for `pattern` since `mark`, also on a line without an end: a prompt has none. Gives no text, because the
    /// rest of the line may still be on its way; [`Log::wait_line`] gives it.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the log's end after `limit`.
    pub async fn wait_for(&self, mark: Mark, pattern: &str, limit: Duration) -> Result<(), LabError> {
        let what = format!("\"{pattern}\"");
        self.search(mark, &what, limit, Lines::AlsoUnderWay, |text| text.contains(pattern)).await.map(drop)
    }

    /// Waits for a complete line since `mark` for which `wanted` holds; `what` says it in an error.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the log's end after `limit`.
    pub async fn wait_line(
        &self, mark: Mark, what: &str, limit: Duration, wanted: impl Fn(&str) -> bool,
    ) -> Result<Line, LabError> {
        self.search(mark, what, limit, Lines::Complete, wanted).await
    }

    async fn search(
        &self, mark: Mark, what: &str, limit: Duration, lines: Lines, wanted: impl Fn(&str) -> bool,
    ) -> Result<Line, LabError> {
        let mut grown = self.shared.grown.subscribe();
        let mut from = mark;
        let search = async {
            loop {
                grown.mark_unchanged();
                let end = self.mark();
                if let Some(line) = self.since(from, lines).into_iter().find(|line| wanted(&line.text)) {
                    return Some(line);
                }
                // Complete lines were judged once; the one under way is judged again when it has grown.
                from = from.max(end);
                if grown.changed().await.is_err() {
                    return None;
                }
            }
        };
        match tokio::time::timeout(limit, search).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) | Err(_) => Err(LabError::Timeout {
                what: format!("{what} in {}", self.shared.path.display()),
                limit,
                tail: self.tail(TAIL_LINES),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock, so the lines are always consistent.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Text without escape sequences and control characters, which firmware uses to draw its console and which error
/// messages must not contain.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            if chars.peek() == Some(&'[') {
                chars.next();
                while chars.next_if(|c| !c.is_ascii_alphabetic()).is_some() {}
                chars.next();
            }
        } else if !c.is_control() || c == '\t' {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (tempfile::TempDir, Log) {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(&dir.path().join("a.log")).unwrap();
        (dir, log)
    }

    #[tokio::test]
    async fn a_wait_matches_a_pattern_without_a_line_end() {
        let (_dir, log) = log();
        let writer = log.clone();
        let waiter =
            tokio::spawn(async move { log.wait_for(Mark::default(), "login:", Duration::from_secs(60)).await });
        writer.append(b"booting\r\nhost log");
        writer.append(b"in: ");
        waiter.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_line_counts_once_its_end_has_arrived() {
        let (_dir, log) = log();
        let failed = |text: &str| text.contains("failed");
        log.append(b"it failed: ");
        let early = log.wait_line(Mark::default(), "a failure", Duration::from_millis(1), failed).await;
        assert!(early.is_err(), "{early:?}");
        log.append(b"the disk is gone\r\n");
        let line = log.wait_line(Mark::default(), "a failure", Duration::from_secs(60), failed).await;
        assert_eq!(line.unwrap().text, "it failed: the disk is gone");
    }

    #[tokio::test]
    async fn what_stands_before_the_mark_does_not_count() {
        let (_dir, log) = log();
        log.append(b"ready\n");
        let mark = log.mark();
        assert!(log.wait_for(Mark::default(), "ready", Duration::from_secs(60)).await.is_ok());
        let error = log.wait_for(mark, "ready", Duration::from_millis(1)).await.unwrap_err();
        assert!(error.to_string().contains("the log ends:\n    ready"), "{error}");
    }

    #[test]
    fn escape_sequences_are_not_quoted() {
        assert_eq!(printable("\u{1b}[2J\u{1b}[01;01HBdsDxe\u{7}: x\u{1b}[0m"), "BdsDxe: x");
    }
}
