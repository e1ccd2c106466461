//! Log lines to standard error, and a filter that can be changed while they are written.
//!
//! Machines send serial numbers, boot ids and file names of their choice. In the text format every value is escaped here, so
//! that none forges a line or steers a terminal; JSON escapes by itself.

use std::fmt;

use clap::ValueEnum;
use tracing_subscriber::{
    EnvFilter,
    field::RecordFields,
    fmt::{
        FormatFields,
        format::{DefaultFields, Writer},
    },
};

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
            let logs = logs.fmt_fields(Escaped).with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter| handle.reload(filter).is_ok())
        }
        LogFormat::Json => {
            let logs = logs.json().with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter| handle.reload(filter).is_ok())
        }
    };
    Logs { replace, by_environment }
}

/// The fields of a line, its message among them, without a character that is not shown as itself.
struct Escaped;

impl<'writer> FormatFields<'writer> for Escaped {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        for c in text.chars() {
            if is_unseen(c) { write!(writer, "{}", c.escape_default())? } else { writer.write_char(c)? }
        }
        Ok(())
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
}
