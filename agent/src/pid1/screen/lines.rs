//! The rows of the status as text.

use std::iter;

use landfall_api::Progress;

use crate::status::{Action, Status};

/// How many rows [`of`] makes.
pub(super) const ROWS: u16 = 9;
/// Rows of actions: one of several branches is one row.
const ACTIONS: usize = 2;
/// Rows of the last error.
const ERROR: usize = 2;
/// Columns of the words on the left.
const LABEL: usize = 13;

/// [`ROWS`] rows of at most so many columns, with the terminal's own codes for colours.
pub(super) fn of(status: &Status, columns: usize) -> Vec<String> {
    let name = status.machine.as_deref().unwrap_or("not enrolled yet");
    let title = fit(&format!(" Landfall {}   {name}", env!("CARGO_PKG_VERSION")), columns);
    let mut rows = vec![format!("\x1b[7m{title:columns$}\x1b[0m")];
    let text = columns.saturating_sub(LABEL);
    let mut add = |label: &str, text: String| rows.push(format!("{label:LABEL$}{text}"));
    let coordinator = [status.coordinator.as_str(), &status.connection].map(str::trim);
    let coordinator: Vec<_> = coordinator.into_iter().filter(|part| !part.is_empty()).collect();
    add("coordinator", fit(&coordinator.join(", "), text));
    add("address", fit(&status.port, text));
    add("now", fit(if status.now.is_empty() { "starting" } else { &status.now }, text));
    let fingerprint = status.fingerprint.as_ref().map(|digits| wrapped(digits, text, ACTIONS));
    let shown = match fingerprint {
        Some(rows) => rows.into_iter().map(|row| ("fingerprint", row)).collect(),
        None => actions(status, text),
    };
    for (label, line) in padded(shown, ACTIONS) {
        add(label, line);
    }
    let error = wrapped(status.error.as_deref().unwrap_or_default(), text, ERROR);
    for (at, (_, line)) in padded(error.into_iter().map(|line| ("", line)).collect(), ERROR).enumerate() {
        let label = if at == 0 && !line.is_empty() { "last error" } else { "" };
        // Red.
        add(label, if line.is_empty() { line } else { format!("\x1b[1;31m{line}\x1b[0m") });
    }
    rows.push(rule(" l: the log ---", columns));
    rows
}

fn actions(status: &Status, columns: usize) -> Vec<(&'static str, String)> {
    let more = status.actions.len().saturating_sub(ACTIONS);
    let lines = status.actions.values().take(ACTIONS).enumerate().map(|(at, one)| {
        let more = if at + 1 == ACTIONS && more > 0 { format!(" (and {more} more)") } else { String::new() };
        ("", fit(&format!("{}{more}", action(one)), columns))
    });
    lines.collect()
}

/// One action on one line: its number, its name, and how far it is.
pub(super) fn action(action: &Action) -> String {
    let Action { number: (number, of), name, attempt, progress } = action;
    let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    let progress = progress.as_ref().map(far).unwrap_or_default();
    format!("action {number} of {of}: {name}{again}{progress}")
}

fn far(progress: &Progress) -> String {
    let (done, total) = (progress.raw_bytes, progress.raw_total);
    // The stored size is known of every image, the size on the disk only of some.
    let (part, of) = if total > 0 { (done, total) } else { (progress.stored_bytes, progress.stored_total) };
    let percent = (part.min(of) * 100).checked_div(of).map(|percent| format!("{percent} %"));
    let bytes = (done > 0).then(|| format!("{} MB", done / 1_000_000));
    let rate = (progress.bytes_per_second > 0).then(|| format!("{} MB/s", progress.bytes_per_second / 1_000_000));
    let to_go = (progress.eta_seconds > 0).then(|| format!("{} s to go", progress.eta_seconds));
    let stage = Some(progress.stage.clone()).filter(|stage| !stage.is_empty());
    let parts: Vec<_> = [stage, percent, bytes, rate, to_go].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!(", {}", parts.join(", ")) }
}

/// One line of at most so many columns; what a terminal would obey is left out.
fn fit(text: &str, columns: usize) -> String {
    // From here on characters may take two columns (U+1100 is the first), and a row would be longer than the screen.
    let clean = || {
        text.chars().map(|c| match c {
            c if c.is_control() => ' ',
            '\u{1100}'.. => '?',
            c => c,
        })
    };
    if clean().count() <= columns {
        clean().collect()
    } else {
        clean().take(columns.saturating_sub(2)).chain("..".chars()).collect()
    }
}

/// The row below a page of the log.
pub(super) fn pages(columns: usize) -> String {
    rule(" b: back, f: forward, l: the status ---", columns)
}

/// A row of dashes that ends with the keys that do something.
fn rule(keys: &str, columns: usize) -> String {
    fit(&format!("{:-<1$}{keys}", "", columns.saturating_sub(keys.len())), columns)
}

/// A line of the log as rows of a screen.
pub(super) fn rows(line: &str, columns: usize) -> Vec<String> {
    wrapped(line.trim_end(), columns, usize::MAX)
}

/// At most so many lines; the last is cut.
fn wrapped(text: &str, columns: usize, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while !rest.is_empty() && columns > 0 {
        if lines.len() + 1 == most {
            lines.push(fit(&rest.iter().collect::<String>(), columns));
            break;
        }
        let blank = rest.iter().take(columns + 1).rposition(|c| *c == ' ');
        let cut = if rest.len() <= columns { rest.len() } else { blank.filter(|at| *at > 0).unwrap_or(columns) };
        lines.push(fit(&rest.drain(..cut).collect::<String>(), columns));
        if rest.first() == Some(&' ') {
            rest.remove(0);
        }
    }
    lines
}

fn padded(rows: Vec<(&'static str, String)>, count: usize) -> impl Iterator<Item = (&'static str, String)> {
    rows.into_iter().chain(iter::repeat_with(|| ("", String::new()))).take(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the codes for colours, and without the blanks at the end.
    fn plain(status: &Status, columns: usize) -> Vec<String> {
        let plain = |line: &String| {
            let line =
                ["\x1b[7m", "\x1b[0m", "\x1b[1;31m"].iter().fold(line.clone(), |line, code| line.replace(code, ""));
            assert!(line.chars().count() <= columns && !line.contains('\x1b'), "{line:?}");
            line.trim_end().to_owned()
        };
        of(status, columns).iter().map(plain).collect()
    }

    fn status() -> Status {
        Status { coordinator: "https://10.77.0.1:7443".into(), port: "eth0 10.77.0.21/24".into(), ..Status::default() }
    }

    #[test]
    fn the_rows_say_who_and_what() {
        let progress = Progress {
            stage: "fetch".into(),
            raw_bytes: 430_000_000,
            raw_total: 1_000_000_000,
            bytes_per_second: 57_000_000,
            eta_seconds: 10,
            ..Progress::default()
        };
        let write = Action { number: (2, 5), name: "write".into(), attempt: 2, progress: Some(progress) };
        let status = Status {
            machine: Some("node-1".into()),
            connection: "connected".into(),
            now: "workflow node-1-x7k2, 5 actions".into(),
            actions: [(1, write)].into(),
            error: Some("action 2 (write): Network: http://10.77.0.1/image: the connection was closed after 12 MB; check the server's log".into()),
            ..status()
        };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            plain(&status, 80),
            [
                &*format!(" Landfall {version}   node-1"),
                "coordinator  https://10.77.0.1:7443, connected",
                "address      eth0 10.77.0.21/24",
                "now          workflow node-1-x7k2, 5 actions",
                "             action 2 of 5: write, attempt 2, fetch, 43 %, 430 MB, 57 MB/s, 10..",
                "",
                "last error   action 2 (write): Network: http://10.77.0.1/image: the connection",
                "             was closed after 12 MB; check the server's log",
                &format!("{} l: the log ---", "-".repeat(65)),
            ]
        );
    }

    #[test]
    fn a_fingerprint_is_shown_whole() {
        let digits = ["0123"; 16].join(" ");
        let rows = plain(&Status { fingerprint: Some(digits.clone()), ..status() }, 80);
        let shown: Vec<_> = rows[4..6].iter().map(|row| row.trim_start_matches("fingerprint").trim()).collect();
        assert_eq!(shown.join(" "), digits);
    }

    #[test]
    fn every_status_has_the_same_rows() {
        let actions =
            (0..5).map(|n| (n, Action { number: (n + 1, 5), name: "wipe".repeat(30), attempt: 1, progress: None }));
        let long = Some("x\x1b[2J\n".repeat(400));
        let full = Status { actions: actions.collect(), error: long, now: "n".repeat(500), ..status() };
        for status in [Status::default(), status(), full] {
            for columns in [1, 14, 80, 240] {
                assert_eq!(plain_rows(&status, columns), usize::from(ROWS));
            }
        }
    }

    fn plain_rows(status: &Status, columns: usize) -> usize {
        of(status, columns).len()
    }
}
