//! Log lines to standard error, and a filter that can be changed while they are written.
//!
//! Machines send serial numbers, boot ids and file names of their choice. In the text format every value is escaped here, so
//! that none forges a line or steers a terminal, and the line is cut; JSON escapes by itself. Who reaches a port decides
//! how often a line is caused, so every place in the code has a budget, and what is over it is counted.

use std::{fmt, time::Duration};

use clap::ValueEnum;
use landfall_edge::gate::{Limiters, Rate};
use landfall_edge::text::cut;
use tracing::{Event, Level, Subscriber, callsite::Identifier};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Lines of one place in the code: 10 a second, some 200 MB a day of a flood that does not end; and 6000 at once, so that
/// a fleet that comes back leaves its lines.
const RATE: Rate = Rate::a_second(10, Duration::from_secs(600));
/// Places that are counted apart; there are some hundreds.
const PLACES: usize = 4096;
/// Bytes of a line's fields in the text format: a problem with its causes and the last lines of an action.
const MAX_LINE: usize = 32 << 10;

/// How a line looks.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The filter in force.
pub(crate) struct Logs {
    replace: Box<dyn Fn(EnvFilter) -> bool + Send>,
    /// RUST_LOG says which lines, and goes before the configuration.
    by_environment: bool,
}

impl Logs {
    /// Goes by another filter from now on; `false` if RUST_LOG stands in the way, or the filter does not read.
    pub(crate) fn filter(&self, filter: &str) -> bool {
        !self.by_environment && EnvFilter::try_new(filter).is_ok_and(|filter| (self.replace)(filter))
    }
}

/// Starts logging. `filter` is the configuration's, which was checked.
pub(crate) fn start(format: LogFormat, filter: &str) -> Logs {
    let environment = EnvFilter::try_from_default_env().ok();
    let by_environment = environment.is_some();
    let filter = environment.unwrap_or_else(|| EnvFilter::new(filter));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let replace: Box<dyn Fn(EnvFilter) -> bool + Send> = match format {
        LogFormat::Text => {
            let logs = logs.fmt_fields(Escaped).map_event_format(|format| Budget::new(format, note_as_text));
            let logs = logs.with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter| handle.reload(filter).is_ok())
        }
        LogFormat::Json => {
            let logs = logs.json().map_event_format(|format| Budget::new(format, note_as_json));
            let logs = logs.with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter| handle.reload(filter).is_ok())
        }
    };
    Logs { replace, by_environment }
}

/// Writes a place's lines as long as its budget lasts, and then how many were left out before the next one.
struct Budget<F> {
    format: F,
    places: Limiters<Identifier>,
    note: fn(&mut Writer<'_>, u64, &'static str) -> fmt::Result,
}

impl<F> Budget<F> {
    fn new(format: F, note: fn(&mut Writer<'_>, u64, &'static str) -> fmt::Result) -> Self {
        Self { format, places: Limiters::new(RATE, PLACES), note }
    }
}

impl<S, N, F> FormatEvent<S, N> for Budget<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let place = event.metadata();
        // Who asks for more than `info` asks for all of it.
        if *place.level() > Level::INFO {
            return self.format.format_event(context, out, event);
        }
        match self.places.step(place.callsite()) {
            None => return Ok(()),
            Some(0) => {}
            Some(left_out) => (self.note)(&mut out, left_out, place.target())?,
        }
        self.format.format_event(context, out, event)
    }
}

/// What stands before the first line that is written again.
fn left_out(lines: u64) -> String {
    format!("{lines} lines such as the next one were left out: more than 10 a second came from the same place")
}

fn note_as_text(out: &mut Writer<'_>, lines: u64, target: &'static str) -> fmt::Result {
    SystemTime.format_time(out)?;
    writeln!(out, "  WARN {target}: {}", left_out(lines))
}

fn note_as_json(out: &mut Writer<'_>, lines: u64, target: &'static str) -> fmt::Result {
    write!(out, "{{\"timestamp\":\"")?;
    SystemTime.format_time(out)?;
    let fields = serde_json::json!({ "message": left_out(lines), "left_out": lines });
    writeln!(out, "\",\"level\":\"WARN\",\"fields\":{fields},\"target\":\"{target}\"}}")
}

/// The fields of a line, its message among them, cut, and without a character that is not shown as itself.
struct Escaped;

impl<'writer> FormatFields<'writer> for Escaped {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        let shown = cut(&text, MAX_LINE);
        for c in shown.chars() {
            if is_unseen(c) { write!(writer, "{}", c.escape_default())? } else { writer.write_char(c)? }
        }
        match text.len() - shown.len() {
            0 => Ok(()),
            more => write!(writer, "… ({more} bytes more)"),
        }
    }
}

/// Control characters (newline, ESC, DEL and C1 among them), line separators, and what reorders the text around it.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Dispatch;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_value_forges_a_line_or_steers_a_terminal() {
        let lines = Lines::default();
        let writer = lines.clone();
        let logs = tracing_subscriber::fmt().fmt_fields(Escaped).with_writer(move || writer.clone()).with_ansi(false);
        let evil = "a\nINFO forged\r\x1b[2J\x7f\u{9b}31m\u{202e}\u{2066}\u{2028}é";
        tracing::subscriber::with_default(logs.finish(), || {
            let span = tracing::info_span!("call", from = evil);
            let _in = span.enter();
            tracing::info!(shown = %evil, debug = ?evil, plain = evil, "said {evil}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(!text.trim_end_matches('\n').chars().any(is_unseen), "{text:?}");
        assert!(text.contains("said a\\nINFO forged\\r") && text.contains('é'), "{text:?}");
    }

    #[test]
    fn a_long_line_is_cut() {
        let lines = Lines::default();
        let writer = lines.clone();
        let logs = tracing_subscriber::fmt().fmt_fields(Escaped).with_writer(move || writer.clone()).with_ansi(false);
        tracing::subscriber::with_default(logs.finish(), || tracing::info!("{}", "é".repeat(MAX_LINE)));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(text.len() < MAX_LINE + 200 && text.ends_with("… (32768 bytes more)\n"), "{} bytes", text.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_lines_is_counted_and_not_written() {
        let (text, json) = (Lines::default(), Lines::default());
        let (to_text, to_json) = (text.clone(), json.clone());
        let as_text = tracing_subscriber::fmt()
            .fmt_fields(Escaped)
            .with_writer(move || to_text.clone())
            .map_event_format(|format| Budget::new(format, note_as_text));
        let as_json = tracing_subscriber::fmt()
            .json()
            .with_writer(move || to_json.clone())
            .map_event_format(|format| Budget::new(format, note_as_json));
        let (as_text, as_json) = (Dispatch::new(as_text.finish()), Dispatch::new(as_json.finish()));
        let flood = || {
            for _ in 0..100_000 {
                tracing::info!("from outside");
            }
        };
        for (format, lines) in [(&as_text, &text), (&as_json, &json)] {
            tracing::dispatcher::with_default(format, flood);
            let written = |lines: &Lines| String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            assert_eq!(written(lines).lines().count(), 6000);
            tokio::time::advance(Duration::from_secs(1)).await;
            tracing::dispatcher::with_default(format, || {
                tracing::info!("of another place");
                flood();
            });
            let (all, said) = (written(lines), "94000 lines such as the next one were left out");
            assert!(all.lines().nth(6000).is_some_and(|line| line.contains("of another place")), "it has its own");
            assert!(all.lines().nth(6001).is_some_and(|line| line.contains(said)), "{said}");
            assert_eq!(all.lines().count(), 6000 + 1 + 1 + 10);
        }
        let all = json.0.lock().unwrap().clone();
        let note = all.split(|byte| *byte == b'\n').nth(6001).unwrap();
        let note: serde_json::Value = serde_json::from_slice(note).unwrap();
        assert_eq!((&note["level"], &note["fields"]["left_out"]), (&"WARN".into(), &94_000.into()));
    }
}
