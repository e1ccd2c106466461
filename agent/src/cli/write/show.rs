//! Progress: one line redrawn on a terminal, one JSON object a line for programs.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(super) use landfall_api::readable_bytes as bytes;
use landfall_api::{DiskReceipt, Progress};
use landfall_disk::{LogLevel, Observer};
use serde_json::{Value, json};

use super::Mode;

/// More often is not useful to a program.
const JSON_INTERVAL: Duration = Duration::from_secs(1);
/// More often is not visible to a person.
const BAR_INTERVAL: Duration = Duration::from_millis(250);
/// Characters of the bar itself.
const BAR_WIDTH: u64 = 24;

/// Where progress and log lines go: stderr, so that stdout is the report's.
pub(super) struct Show {
    mode: Mode,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shown: Option<Instant>,
    stage: String,
    /// The newest that was left out; shown at the end.
    pending: Option<Progress>,
}

impl Show {
    pub(super) fn new(mode: Mode) -> Self {
        let mode = match mode {
            Mode::Auto if std::io::stderr().is_terminal() => Mode::Bar,
            Mode::Auto => Mode::Json,
            other => other,
        };
        Self { mode, state: Mutex::default() }
    }

    /// Shows the last report that was left out, and ends the line.
    pub(super) fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(progress) = state.pending.take() {
            self.print(&progress);
        }
        if self.mode == Mode::Bar && state.shown.is_some() {
            eprintln!();
        }
    }

    fn print(&self, progress: &Progress) {
        match self.mode {
            // Wrapping off (DECAWM) for the time of the line: a narrow terminal cuts it, and redrawing never smears.
            Mode::Bar => eprint!("\r\x1b[?7l{}\x1b[K\x1b[?7h", line(progress)),
            Mode::Json => eprintln!("{}", object(progress)),
            Mode::Auto | Mode::None => {}
        }
    }
}

impl Observer for Show {
    fn progress(&self, progress: &Progress) {
        let interval = if self.mode == Mode::Bar { BAR_INTERVAL } else { JSON_INTERVAL };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.stage == progress.stage && state.shown.is_some_and(|at| at.elapsed() < interval) {
            state.pending = Some(progress.clone());
            return;
        }
        state.shown = Some(Instant::now());
        state.stage.clone_from(&progress.stage);
        state.pending = None;
        self.print(progress);
    }

    fn receipt_written(&self, receipt: &DiskReceipt) {
        tracing::debug!("receipt {:?} on {}", receipt.receipt.state, receipt.disk.name);
    }

    fn log(&self, level: LogLevel, message: &str) {
        // Under the lock, so that this line and the progress line do not mix.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let word = match level {
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
        };
        match (self.mode, level) {
            (Mode::Json, _) => return eprintln!("{}", json!({ "level": word, "message": message })),
            (Mode::Bar, _) if state.shown.is_some() => eprint!("\r\x1b[K"),
            _ => {}
        }
        match level {
            LogLevel::Info => tracing::info!("{message}"),
            LogLevel::Warn => tracing::warn!("{message}"),
        }
    }
}

fn object(progress: &Progress) -> Value {
    json!({
        "stage": progress.stage,
        "storedBytes": progress.stored_bytes,
        "storedTotal": progress.stored_total,
        "rawBytes": progress.raw_bytes,
        "rawTotal": progress.raw_total,
        "writtenBytes": progress.written_bytes,
        "bytesPerSecond": progress.bytes_per_second,
        "etaSeconds": progress.remaining_seconds().unwrap_or(0),
        "slowest": progress.slowest,
    })
}

/// `body     [=======>                ]  31%  1.2 GiB/4.0 GiB  212.0 MiB/s  ETA 13s  write-bound`.
fn line(progress: &Progress) -> String {
    let (done, total) = progress.share();
    let mut parts = vec![format!("{:8}", progress.stage)];
    if total > 0 {
        let done = done.min(total);
        // Widened: a disk of 2^60 bytes times the width must not overflow.
        let of = |scale: u64| (u128::from(done) * u128::from(scale) / u128::from(total)) as usize;
        let (filled, percent) = (of(BAR_WIDTH), of(100));
        let head = if filled < BAR_WIDTH as usize { ">" } else { "" };
        parts.push(format!("[{:<1$}] {percent:>3}%", format!("{}{head}", "=".repeat(filled)), BAR_WIDTH as usize));
        parts.push(format!("{}/{}", bytes(done), bytes(total)));
    } else {
        parts.push(format!("{} in, {} out", bytes(progress.stored_bytes), bytes(progress.raw_bytes)));
    }
    if progress.bytes_per_second > 0 {
        parts.push(format!("{}/s", bytes(progress.bytes_per_second)));
    }
    if let Some(seconds) = progress.remaining_seconds() {
        parts.push(format!("ETA {}", span(seconds)));
    }
    if !progress.slowest.is_empty() {
        parts.push(format!("{}-bound", progress.slowest));
    }
    parts.join("  ")
}

/// `45s`, `2m05s`, `1h02m`.
fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_line_shows_every_figure() {
        let progress = Progress {
            stage: "body".into(),
            raw_bytes: 512 << 20,
            raw_total: 2 << 30,
            bytes_per_second: 128 << 20,
            eta_seconds: 75,
            slowest: "write".into(),
            ..Progress::default()
        };
        assert_eq!(
            line(&progress),
            "body      [======>                 ]  25%  512.0 MiB/2.0 GiB  128.0 MiB/s  ETA 1m15s  write-bound"
        );
        assert!(line(&Progress { raw_bytes: 2 << 30, ..progress.clone() }).contains("[========================] 100%"));
        assert!(line(&Progress { raw_bytes: u64::MAX, ..progress }).contains("100%"), "more than there should be");
        assert_eq!(line(&Progress { stage: "fetch".into(), ..Progress::default() }), "fetch     0 B in, 0 B out");
    }

    #[test]
    fn an_object_has_every_key_even_while_nothing_is_known() {
        let object = object(&Progress::default());
        let keys: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "stage storedBytes storedTotal rawBytes rawTotal writtenBytes bytesPerSecond etaSeconds slowest";
        assert_eq!(keys.join(" "), expected);
    }

    #[test]
    fn progress_is_thinned_except_new_stages_and_the_end() {
        let show = Show::new(Mode::Json);
        let at = |stage: &str, raw_bytes| Progress { stage: stage.into(), raw_bytes, ..Progress::default() };
        let pending = |show: &Show| show.state.lock().unwrap().pending.as_ref().map(|p| p.raw_bytes);
        show.progress(&at("body", 1));
        assert_eq!(pending(&show), None, "the first is shown");
        show.progress(&at("body", 2));
        assert_eq!(pending(&show), Some(2), "the second comes too soon");
        show.progress(&at("verify", 3));
        assert_eq!(pending(&show), None, "a new stage is shown");
        show.progress(&at("verify", 4));
        show.end();
        assert_eq!(pending(&show), None, "the last is shown");
    }
}
