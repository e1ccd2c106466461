//! Writing: standard output that may be closed at any moment, colours only where a person looks.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

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

fn painted(text: &str, colour: &str) -> String {
    format!("\x1b[{colour}m{text}\x1b[0m")
}

/// Colours text for standard error, if that is a terminal.
pub(crate) fn paint_stderr(text: &str, colour: &str) -> String {
    if io::stderr().is_terminal() && colours_wanted() { painted(text, colour) } else { text.to_owned() }
}

/// A line for people on standard error. There is nobody to tell when that fails.
pub(crate) fn to_stderr(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
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

    /// Whether a person looks at a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether text may be coloured.
    pub(crate) fn colours(&self) -> bool {
        self.colours
    }

    pub(crate) fn paint(&self, text: &str, colour: &str) -> String {
        if self.colours && !colour.is_empty() { painted(text, colour) } else { text.to_owned() }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Those of writing; `BrokenPipe` when the reader is gone.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        // Locked for a line only: the live display writes to the same place between lines.
        writeln!(io::stdout().lock(), "{line}")
    }

    /// Writes a value as indented JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value)?;
        self.line(&text)
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        self.line(&text)
    }

    /// Writes a value as a YAML document.
    pub(crate) fn yaml(&mut self, value: &impl Serialize) -> io::Result<()> {
        // By way of JSON's model: flattened fields and newtypes then look as the API has them.
        let tree = serde_json::to_value(value)?;
        let text = serde_saphyr::to_string(&tree).map_err(io::Error::other)?;
        write!(io::stdout().lock(), "{text}{}", if text.ends_with('\n') { "" } else { "\n" })
    }
}
