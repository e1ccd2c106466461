//! What a program prints, as lines for the log: bounded, without control characters, and without secrets.

use std::io::{self, Read};

/// The longest line, bytes; a longer one becomes several.
const LONGEST: usize = 1000;
/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// The shortest text that is hidden, bytes: a shorter one stands in ordinary output by chance.
const SHORTEST_SECRET: usize = 4;

/// Texts that no line may show.
#[derive(Debug, Default)]
pub(crate) struct Hidden(Vec<String>);

impl Hidden {
    /// Each line of each of these values: output is hidden line by line.
    pub(crate) fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        // As a printed line would show them.
        let lines = values.into_iter().flat_map(str::lines).map(|line| plain(line.trim().as_bytes()));
        let mut texts: Vec<String> = lines.filter(|text| text.len() >= SHORTEST_SECRET).collect();
        // One may contain another.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(texts)
    }

    fn apply(&self, mut line: String) -> String {
        for text in &self.0 {
            if line.contains(text) {
                line = line.replace(text, HIDDEN);
            }
        }
        line
    }

    /// Bytes of the longest: so much is kept back when a line is cut, so that no secret is cut in two.
    fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }
}

/// Hands over every line until the last process that prints has ended.
///
/// # Errors
/// The pipe's.
pub(crate) fn lines(mut from: impl Read, hidden: &Hidden, mut line: impl FnMut(String)) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let mut open: Vec<u8> = Vec::new();
    let limit = LONGEST + hidden.longest();
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        for byte in buffer.iter().take(count) {
            // A progress bar ends its line with a carriage return.
            let ends = matches!(byte, b'\n' | b'\r');
            if !ends {
                open.push(*byte);
            }
            if ends {
                said(&hidden.apply(plain(&open)), &mut line);
                open.clear();
            } else if open.len() >= limit {
                let text = hidden.apply(plain(&open));
                // What is kept back may be the begin of a secret.
                let most = LONGEST.min(text.len().saturating_sub(hidden.longest()));
                let cut = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                let (first, rest) = text.split_at(cut);
                said(first, &mut line);
                open = rest.as_bytes().to_vec();
            }
        }
    }
    said(&hidden.apply(plain(&open)), &mut line);
    Ok(())
}

fn said(text: &str, line: &mut impl FnMut(String)) {
    let text = text.trim_end();
    if !text.is_empty() {
        line(text.to_owned());
    }
}

/// Without terminal sequences and control characters.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // ECMA-48: ESC [ parameters, then one final byte from @ to ~.
            '\u{1b}' if rest.next_if_eq(&'[').is_some() => {
                while rest.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
            }
            '\t' => out.push(' '),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(text: &[u8], secrets: &[&str]) -> Vec<String> {
        let mut out = Vec::new();
        lines(text, &Hidden::new(secrets.iter().copied()), |line| out.push(line)).unwrap();
        out
    }

    #[test]
    fn output_becomes_plain_lines() {
        let text = b"one\n\n\x1b[1;31mtwo\x1b[0m\r\n 10%\r 20%\rthree\xff\x07\tend";
        assert_eq!(said_of(text, &[]), ["one", "two", " 10%", " 20%", "three\u{fffd} end"]);
    }

    #[test]
    fn no_line_shows_a_secret_or_part_of_it() {
        let key = "-----BEGIN-----\ngeheim\nge\thei\n";
        let text = format!("+ TOKEN=hunter22\nx geheim y\nx ge\thei y\n{}", "zhunter22".repeat(LONGEST));
        for line in said_of(text.as_bytes(), &["hunter22", key, "abc"]) {
            for part in ["hunt", "er22", "geheim", "hei"] {
                assert!(!line.contains(part), "{line}");
            }
        }
        assert_eq!(said_of(b"abc", &["abc"]), ["abc"], "too short to be known from other text");
    }

    #[test]
    fn endless_lines_are_cut() {
        let lines = said_of(&b"y".repeat(10 * LONGEST), &[]);
        assert_eq!(lines.iter().map(String::len).sum::<usize>(), 10 * LONGEST);
        assert!(lines.iter().all(|line| line.len() <= LONGEST), "{lines:?}");
    }
}
