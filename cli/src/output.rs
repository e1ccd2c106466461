//! Writing: standard output that may be closed at any moment, colours only on a terminal.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::text::{Text, rearranges};

/// Colours, by what they mean here.
pub(crate) const RED: &str = "31";
pub(crate) const GREEN: &str = "32";
pub(crate) const YELLOW: &str = "33";
pub(crate) const CYAN: &str = "36";
pub(crate) const BOLD: &str = "1";
pub(crate) const DIM: &str = "2";

/// <https://no-color.org>: present and not empty.
fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Colours text for standard error, if that is a terminal.
pub(crate) fn paint_stderr(text: &str, colour: &str) -> Text {
    if io::stderr().is_terminal() && colours_wanted() { Text::painted(text, colour) } else { text.into() }
}

/// A line for people on standard error. An error of this output cannot be reported.
pub(crate) fn to_stderr(line: &str) {
    text_to_stderr(&line.into());
}

/// The same, with colours.
pub(crate) fn text_to_stderr(text: &Text) {
    drop(writeln!(io::stderr().lock(), "{}", text.as_str()));
}

/// JSON in which DEL, C1 and what rearranges text are escaped as well: a terminal obeys them, and a reader of JSON gets the
/// same value. Outside of strings JSON has none of them.
fn escaped(json: String) -> String {
    let obeyed = |c: char| c == '\x7f' || matches!(c, '\u{80}'..='\u{9f}') || rearranges(c);
    if !json.contains(obeyed) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if obeyed(c) {
            // All of them are in the first plane.
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// Standard output.
pub(crate) struct Out {
    terminal: bool,
    colours: bool,
}

impl Out {
    pub(crate) fn stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        Self { terminal, colours: terminal && colours_wanted() }
    }

    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { terminal: false, colours: false }
    }

    #[cfg(test)]
    pub(crate) fn coloured() -> Self {
        Self { terminal: true, colours: true }
    }

    /// Whether the output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether text may be coloured.
    pub(crate) fn colours(&self) -> bool {
        self.colours
    }

    pub(crate) fn paint(&self, text: &str, colour: &str) -> Text {
        if self.colours { Text::painted(text, colour) } else { text.into() }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Those of writing; `BrokenPipe` when the reader is gone.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.text(&line.into())
    }

    /// Writes a line that may have colours.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub(crate) fn text(&mut self, text: &Text) -> io::Result<()> {
        Self::raw(text.as_str())
    }

    /// Writes a line that a program asked for: as it is where a program reads it.
    pub(crate) fn value(&mut self, line: &str) -> io::Result<()> {
        if self.terminal { self.line(line) } else { Self::raw(line) }
    }

    fn raw(line: &str) -> io::Result<()> {
        // Locked for a line only: the live display writes to the same place between lines.
        writeln!(io::stdout().lock(), "{line}")
    }

    /// Writes bytes as they are, at once.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// Writes a value as indented JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        Self::raw(&escaped(serde_json::to_string_pretty(value)?))
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        Self::raw(&escaped(serde_json::to_string(value)?))
    }

    /// Writes a value as a YAML document.
    pub(crate) fn yaml(&mut self, value: &impl Serialize) -> io::Result<()> {
        // By way of JSON's model: flattened fields and newtypes then look as the API has them.
        let tree = serde_json::to_value(value)?;
        let text = serde_saphyr::to_string(&tree).map_err(io::Error::other)?;
        write!(io::stdout().lock(), "{text}{}", if text.ends_with('\n') { "" } else { "\n" })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn json_holds_nothing_a_terminal_obeys_and_reads_the_same() {
        let value = json!({ "a\u{7f}": "\u{9b}31m\u{85}\u{202e}x\x1b ö 日 🦀" });
        let text = escaped(serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || rearranges(c)), "{text:?}");
        assert!(text.contains("ö 日 🦀") && text.contains("\\u009b31m"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
