//! A file of CSV as rows with their lines. What a cell means is not known here.

use std::str;

use landfall_api::{ErrorCode, Problem};

/// Largest file of CSV, bytes: 100,000 machines, more than one coordinator has, at 160 bytes a row. A whole file is held in memory.
pub const MAX_CSV_BYTES: usize = 16 << 20;

/// A file's name, for findings, and its bytes: spreadsheets write other encodings than UTF-8.
#[derive(Debug, Clone, Copy)]
pub struct CsvFile<'a> {
    /// As it is shown.
    pub name: &'a str,
    /// The whole content.
    pub content: &'a [u8],
}

/// A row that is not blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Its first line, from 1.
    pub(super) line: u64,
    /// The cells as written, with the spaces around them.
    pub(super) cells: Vec<String>,
}

/// The rows of a file, the header first. Blank rows and comments are passed over.
///
/// # Errors
/// A [`Problem`] that names the file, and the line if there is one: the file is too long, or not UTF-8.
pub(super) fn rows(file: &CsvFile<'_>) -> Result<Vec<Row>, Problem> {
    let text = text(file)?;
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .delimiter(delimiter(text))
        .comment(Some(b'#'))
        // A row with too few cells is a fault among others, and not the end of the file.
        .flexible(true)
        .from_reader(text.as_bytes());
    let (mut rows, mut lines) = (Vec::new(), Lines { text: text.as_bytes(), at: 0, line: 1 });
    for record in reader.records() {
        let record = record.map_err(|error| problem(file.name, format!("the file is not CSV: {error}")))?;
        let begin = record.position().map_or(0, csv::Position::byte);
        let line = lines.of_row(usize::try_from(begin).unwrap_or(usize::MAX));
        // Spreadsheets write a blank row with all its delimiters.
        if record.iter().any(|cell| !cell.trim().is_empty()) {
            rows.push(Row { line, cells: record.iter().map(str::to_owned).collect() });
        }
    }
    Ok(rows)
}

fn problem(place: impl Into<String>, message: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidDocument, message).at(place)
}

/// The text without the mark that Excel writes before UTF-8.
fn text<'a>(file: &CsvFile<'a>) -> Result<&'a str, Problem> {
    let save = "save it as UTF-8, which Excel calls \"CSV UTF-8\"";
    let CsvFile { name, content } = *file;
    if content.len() > MAX_CSV_BYTES {
        let message = format!("the file has more than {MAX_CSV_BYTES} bytes, which is the limit");
        return Err(problem(name, message).hint("split it, with a header in each part"));
    }
    if content.starts_with(&[0xff, 0xfe]) || content.starts_with(&[0xfe, 0xff]) {
        return Err(problem(format!("{name}:1"), "the file is UTF-16").hint(save));
    }
    let content = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(content);
    str::from_utf8(content).map_err(|error| {
        let before = content.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        problem(format!("{name}:{line}"), "the line is not UTF-8").hint(save)
    })
}

/// What the header has most of: Excel separates with semicolons where the comma is the decimal point, and copies with tabs.
fn delimiter(text: &str) -> u8 {
    let header = text.split(['\n', '\r']).find(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let count = |delimiter: u8| header.unwrap_or_default().bytes().filter(|byte| *byte == delimiter).count();
    // Of equal counts the last is taken.
    [b'\t', b';', b','].into_iter().max_by_key(|delimiter| count(*delimiter)).unwrap_or(b',')
}

/// Counts lines. The reader's own count is that of the first blank line or comment before a row.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line of the row whose reading began there; rows come in their order.
    fn of_row(&mut self, begin: usize) -> u64 {
        while self.at < begin {
            self.step();
        }
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'\n' | b'\r' => self.step(),
                b'#' => {
                    while self.text.get(self.at).is_some_and(|byte| *byte != b'\n') {
                        self.step();
                    }
                }
                _ => break,
            }
        }
        self.line
    }

    fn step(&mut self) {
        self.line += u64::from(self.text.get(self.at) == Some(&b'\n'));
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<Vec<(u64, String)>, String> {
        let rows = rows(&CsvFile { name: "r.csv", content }).map_err(|p| format!("{}: {}", p.subject, p.message))?;
        Ok(rows.into_iter().map(|row| (row.line, row.cells.join("|"))).collect())
    }

    #[test]
    fn every_usual_spelling_of_a_table_is_read() {
        for (text, rows) in [
            ("a,b\n1,2\n", &[(1, "a|b"), (2, "1|2")][..]),
            ("a,b\r\n1,2", &[(1, "a|b"), (2, "1|2")]),
            ("\u{feff}a;b\r\n\"1;2\";3\r\n", &[(1, "a|b"), (2, "1;2|3")]),
            ("\u{feff}# c;;\n\na,b\n", &[(3, "a|b")]),
            ("a\tb\n1,2\t\n", &[(1, "a|b"), (2, "1,2|")]),
            ("# x; y; z\n\n#,\na,b\n\n\n# c\r\n1,2\n  \n,\n3,4\n", &[(4, "a|b"), (8, "1|2"), (11, "3|4")]),
            ("a,b\r\n\r\n#\r\n1,\"2\r\n2\"\r\n3,4\r\n", &[(1, "a|b"), (4, "1|2\r\n2"), (6, "3|4")]),
            ("a\n\"#1\"\n", &[(1, "a"), (2, "#1")]),
            ("a,b\n1\n1,2,3\n", &[(1, "a|b"), (2, "1"), (3, "1|2|3")]),
            ("", &[]),
            ("# only\n\n", &[]),
        ] {
            let rows = rows.iter().map(|(line, text)| (*line, (*text).to_owned())).collect();
            assert_eq!(read(text.as_bytes()), Ok(rows), "{text:?}");
        }
    }

    #[test]
    fn another_encoding_is_refused_with_its_line() {
        for (content, said) in [
            (&b"\xff\xfea\0"[..], "r.csv:1: the file is UTF-16"),
            (b"\xfe\xff\0a", "r.csv:1: the file is UTF-16"),
            (b"\xef\xbb\xbfname\nk\xf6ln\n", "r.csv:2: the line is not UTF-8"),
        ] {
            assert_eq!(read(content), Err(said.to_owned()));
        }
        let long = vec![b'a'; MAX_CSV_BYTES + 1];
        assert!(read(&long).is_err_and(|said| said.contains("the limit")));
        assert!(read(&long[1..]).is_ok());
    }
}
