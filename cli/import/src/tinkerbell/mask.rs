//! Go's template expressions in YAML: each is replaced by a mark before the YAML is read, because `{{` begins a mapping
//! there.

use landfall_api::{ErrorCode, Problem};

use crate::report::Report;

/// Begins a mark; private use, so no file has it.
const OPEN: char = '\u{e000}';
/// Ends it.
const CLOSE: char = '\u{e001}';
/// A line of it alone is not there: a statement stood there, or what a statement leaves out.
const GONE: char = '\u{e002}';

/// Statements of Go's templates; everything else gives a value.
const STATEMENTS: [&str; 10] =
    ["if", "else", "end", "range", "with", "define", "template", "block", "break", "continue"];

/// The expressions that marks stand for.
#[derive(Debug, Default)]
pub(super) struct Expressions {
    list: Vec<String>,
}

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// As it stands.
    Plain(&'a str),
    /// An expression, without its braces.
    Expression(&'a str),
}

impl Expressions {
    /// The text with marks in place of expressions; as many lines as before.
    pub(super) fn mask(&mut self, file: &str, text: &str) -> Result<String, Box<Problem>> {
        if let Some(at) = text.find([OPEN, CLOSE, GONE]) {
            let line = text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
            let problem = Problem::new(ErrorCode::InvalidDocument, "the file has characters of private use (U+E000)");
            return Err(Box::new(problem.at(format!("{file}:{line}")).hint("remove them")));
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some(end) = closing(after) else { break };
            let (inside, after) = after.split_at(end);
            out.push_str(before);
            out.push_str(&format!("{OPEN}{}{CLOSE}", self.list.len()));
            self.list.push(inside.trim_matches('-').trim().to_owned());
            rest = after.get(2..).unwrap_or_default();
            // The lines of a long expression follow behind the line on which it ends.
            let lines = inside.matches('\n').count();
            if lines > 0 {
                let line = rest.split_inclusive('\n').next().unwrap_or_default();
                out.push_str(line);
                out.push_str(&"\n".repeat(lines));
                rest = rest.get(line.len()..).unwrap_or_default();
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The pieces of a masked text.
    pub(super) fn pieces<'a>(&'a self, text: &'a str) -> Vec<Piece<'a>> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            if !before.is_empty() {
                out.push(Piece::Plain(before));
            }
            let Some((number, after)) = after.split_once(CLOSE) else { return out };
            let known = number.parse().ok().and_then(|number: usize| self.list.get(number));
            out.extend(known.map(|expression| Piece::Expression(expression)));
            rest = after;
        }
        if !rest.is_empty() {
            out.push(Piece::Plain(rest));
        }
        out
    }

    /// The text as the file has it.
    pub(super) fn unmask(&self, text: &str) -> String {
        let shown = |piece: &Piece<'_>| match piece {
            Piece::Plain(text) => (*text).to_owned(),
            Piece::Expression(source) => format!("{{{{ {source} }}}}"),
        };
        self.pieces(text).iter().map(shown).collect()
    }

    /// A template's text without statements that have a line of their own. Of a condition the first branch stays, of a loop
    /// its text once; `line` is that of the text's first line.
    pub(super) fn without_statements(&self, text: &str, line: u64, report: &mut Report) -> String {
        let lines: Vec<&str> = text.split('\n').collect();
        let kept: Vec<bool> = self.kept(&lines, line, report);
        let mut out = Vec::with_capacity(lines.len());
        for (index, stays) in kept.iter().enumerate() {
            let Some(text) = lines.get(index) else { continue };
            if *stays {
                out.push((*text).to_owned());
                continue;
            }
            // As far in as the next line: in a block of text less would end it, and more would set its indentation.
            let further = lines.iter().zip(&kept).skip(index);
            let next = further.filter(|(line, stays)| **stays && !line.trim().is_empty()).map(|(line, _)| *line).next();
            let indent = next.map_or(0, |line| line.len() - line.trim_start_matches(' ').len());
            out.push(format!("{}#{GONE}", " ".repeat(indent)));
        }
        out.join("\n")
    }

    /// Whether each line stays.
    fn kept(&self, lines: &[&str], first: u64, report: &mut Report) -> Vec<bool> {
        struct Open {
            line: u64,
            statement: String,
            /// From this line on nothing stays until the end.
            left_out: Option<u64>,
        }
        let mut open: Vec<Open> = Vec::new();
        let mut kept = Vec::with_capacity(lines.len());
        for (text, line) in lines.iter().zip(first..) {
            let Some(statements) = self.statements(text) else {
                kept.push(open.iter().all(|open| open.left_out.is_none()));
                continue;
            };
            kept.push(false);
            for statement in statements {
                match statement.split_whitespace().next().unwrap_or_default() {
                    "if" | "range" | "with" | "define" | "block" => {
                        open.push(Open { line, statement: statement.to_owned(), left_out: None });
                    }
                    "else" => {
                        if let Some(open) = open.last_mut() {
                            open.left_out.get_or_insert(line + 1);
                        }
                    }
                    "end" => {
                        let Some(Open { line: at, statement, left_out }) = open.pop() else { continue };
                        let message = match left_out {
                            Some(from) => format!(
                                "\"{statement}\" is not decided here: its first branch is kept, and lines {from} to {} \
                                 are left out; use when: on the actions, or import once more with the other branch",
                                line.saturating_sub(1)
                            ),
                            None => format!(
                                "\"{statement}\" is not decided here: what it encloses, to line {line}, is kept once; \
                                 check whether it is to be there"
                            ),
                        };
                        report.todo(at, message);
                    }
                    _ => report.todo(line, format!("\"{statement}\" has no counterpart; write what it stands for")),
                }
            }
        }
        for Open { line, statement, .. } in open {
            report.todo(line, format!("\"{statement}\" has no end; what follows is kept as it stands"));
        }
        kept
    }

    /// The statements of a line that has nothing else.
    fn statements<'a>(&'a self, line: &'a str) -> Option<Vec<&'a str>> {
        let mut found = Vec::new();
        for piece in self.pieces(line) {
            match piece {
                Piece::Plain(text) if text.trim().is_empty() => {}
                Piece::Expression(source) if is_comment(source) => {}
                Piece::Expression(source) if is_statement(source) => found.push(source),
                _ => return None,
            }
        }
        (line.contains(OPEN)).then_some(found)
    }
}

/// A text without the lines that [`Expressions::without_statements`] emptied.
pub(super) fn without_gone(text: &str) -> String {
    if !text.contains(GONE) {
        return text.to_owned();
    }
    text.split_inclusive('\n').filter(|line| !line.contains(GONE)).collect()
}

/// Where the braces end that were opened before the text; quoted text may hold such braces.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), c) if open == c && !escaped => quote = None,
            (None, '"' | '`') => quote = Some(c),
            (None, '}') if text.get(at..at + 2) == Some("}}") => return Some(at),
            _ => {}
        }
        escaped = false;
    }
    None
}

fn is_comment(source: &str) -> bool {
    source.starts_with("/*")
}

pub(super) fn is_statement(source: &str) -> bool {
    let word = source.split_whitespace().next().unwrap_or_default();
    STATEMENTS.contains(&word) || (source.starts_with('$') && source.contains('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_text_has_its_lines_and_comes_back() {
        let mut expressions = Expressions::default();
        let text = "a: {{ index .Hardware.Disks 0 }}\nb: {{ printf \"}}\" }}x\nc: {{ .d }} {{ unclosed\n";
        let masked = expressions.mask("f", text).unwrap();
        assert!(!masked.contains("index") && masked.ends_with("{{ unclosed\n"), "{masked:?}");
        assert_eq!(masked.lines().count(), text.lines().count());
        assert_eq!(expressions.unmask(&masked), text);
        let long = expressions.mask("f", "{{/* a\nb */}}x\ny").unwrap();
        assert!(long.ends_with("x\n\ny"), "{long:?}");
        assert!(expressions.mask("f", "a\n\u{e000}").unwrap_err().subject.contains("f:2"));
    }

    #[test]
    fn the_first_branch_of_a_condition_stays() {
        let mut expressions = Expressions::default();
        let text = "a:\n{{- if .x }}\n  b: 1\n{{- else }}\n  b: 2\n{{- end }}\n  c: 3\n";
        let masked = expressions.mask("f", text).unwrap();
        let mut report = Report::default();
        let kept = expressions.without_statements(&masked, 10, &mut report);
        assert_eq!(without_gone(&kept), "a:\n  b: 1\n  c: 3\n");
        assert_eq!(kept.lines().count(), text.lines().count());
        let import = report.into_import(&[], crate::Import::default());
        let finding = &import.findings[0];
        assert_eq!(finding.line, 11);
        assert!(finding.message.contains("lines 14 to 14 are left out"), "{finding}");
    }
}
