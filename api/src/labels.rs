//! Label selectors: they select documents by labels, in kubectl's syntax.
//!
//! `rack=r7,env!=prod,zone in (a,b),tier notin (x),gpu,!retired`: every requirement must hold. Parsing is pure and
//! bounded; a syntax error is reported with its column.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// Longest selector that is read, bytes: it travels in a URL.
const MAX_BYTES: usize = 4096;
/// Most requirements in one selector.
const MAX_REQUIREMENTS: usize = 64;

/// Requirements for a document's labels. The empty selector matches every document.
///
/// A name or value that holds a space or one of `,=!()"\` is written in double quotes, with `\` before `"` and `\`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    label: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    /// The label is there.
    Present,
    /// It is not.
    Absent,
    /// The label exists, with one of these values.
    In(Vec<String>),
    /// The label is missing, or has none of these values, as in Kubernetes.
    NotIn(Vec<String>),
}

/// A selector that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of \"{selector}\": {what}")]
pub struct LabelSelectorError {
    /// The selector as it was written; its beginning, where it is too long.
    pub selector: String,
    /// The column, in characters from 1; one more than the length for the end.
    pub column: usize,
    /// What is wrong there, and what would be right.
    pub what: String,
}

impl LabelSelector {
    /// Whether every requirement holds.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.label);
            match &requirement.test {
                Test::Present => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|v| values.contains(v)),
                Test::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            }
        })
    }

    /// Whether it matches every document.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for LabelSelector {
    type Err = LabelSelectorError;
    fn from_str(text: &str) -> Result<Self, LabelSelectorError> {
        if text.len() > MAX_BYTES {
            let selector = text.chars().take(40).collect::<String>() + "…";
            let what = format!("a selector has at most {MAX_BYTES} bytes");
            return Err(LabelSelectorError { selector, column: MAX_BYTES, what });
        }
        Parser { text, at: 0 }.selector().map(Self)
    }
}

/// Where a parser stands; `at` is always on a character's boundary.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

const SPECIAL: [char; 7] = [',', '=', '!', '(', ')', '"', '\\'];

fn is_plain(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !SPECIAL.contains(&c)
}

impl Parser<'_> {
    fn selector(mut self) -> Result<Vec<Requirement>, LabelSelectorError> {
        let mut out = Vec::new();
        if self.peek().is_none() {
            return Ok(out);
        }
        loop {
            if out.len() == MAX_REQUIREMENTS {
                return Err(self.error(format!("a selector has at most {MAX_REQUIREMENTS} requirements")));
            }
            out.push(self.requirement()?);
            match self.peek() {
                None => return Ok(out),
                Some(',') => self.skip(1),
                Some(_) => return Err(self.error("a comma is missing between requirements")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, LabelSelectorError> {
        if self.peek() == Some('!') {
            self.skip(1);
            let label = self.label()?;
            return Ok(Requirement { label, test: Test::Absent });
        }
        let label = self.label()?;
        let test = match self.peek() {
            None | Some(',') => Test::Present,
            Some('=') => {
                self.skip(if self.rest().starts_with("==") { 2 } else { 1 });
                Test::In(vec![self.value()?])
            }
            Some('!') if self.rest().starts_with("!=") => {
                self.skip(2);
                Test::NotIn(vec![self.value()?])
            }
            Some(_) => {
                let before = self.at;
                match self.word()?.as_deref() {
                    Some("in") => Test::In(self.values()?),
                    Some("notin") => Test::NotIn(self.values()?),
                    _ => {
                        self.at = before;
                        let what = format!("after \"{label}\" write one of = != in notin, a comma, or nothing");
                        return Err(self.error(what));
                    }
                }
            }
        };
        Ok(Requirement { label, test })
    }

    fn label(&mut self) -> Result<String, LabelSelectorError> {
        self.peek();
        let before = self.at;
        match self.word()? {
            Some(label) if !label.is_empty() => Ok(label),
            _ => {
                self.at = before;
                Err(self.error("a label's name is missing"))
            }
        }
    }

    /// One value; nothing at all is the empty one.
    fn value(&mut self) -> Result<String, LabelSelectorError> {
        self.peek();
        Ok(self.word()?.unwrap_or_default())
    }

    fn values(&mut self) -> Result<Vec<String>, LabelSelectorError> {
        if self.peek() != Some('(') {
            return Err(self.error("values in parentheses are missing, such as (a,b)"));
        }
        self.skip(1);
        let mut out = Vec::new();
        loop {
            self.peek();
            match self.word()? {
                Some(value) => out.push(value),
                None => return Err(self.error("a value is missing; write the empty one as \"\"")),
            }
            match self.peek() {
                Some(',') => self.skip(1),
                Some(')') => {
                    self.skip(1);
                    return Ok(out);
                }
                _ => return Err(self.error("a comma or ) is missing")),
            }
        }
    }

    /// A plain or quoted word, or `None` where there is none.
    fn word(&mut self) -> Result<Option<String>, LabelSelectorError> {
        if self.rest().starts_with('"') {
            return self.quoted().map(Some);
        }
        let rest = self.rest();
        let end = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default().to_owned();
        self.at += end;
        Ok((!word.is_empty()).then_some(word))
    }

    fn quoted(&mut self) -> Result<String, LabelSelectorError> {
        let begin = self.at;
        self.at += 1;
        let mut out = String::new();
        while let Some(c) = self.rest().chars().next() {
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\\' => match self.rest().chars().next() {
                    Some(escaped @ ('"' | '\\')) => {
                        self.at += 1;
                        out.push(escaped);
                    }
                    _ => return Err(self.error("only \\\" and \\\\ are escapes")),
                },
                c => out.push(c),
            }
        }
        self.at = begin;
        Err(self.error("this quote is not closed"))
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next character that is no space.
    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next()
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    fn error(&self, what: impl Into<String>) -> LabelSelectorError {
        let column = self.text.get(..self.at).unwrap_or_default().chars().count() + 1;
        LabelSelectorError { selector: self.text.to_owned(), column, what: what.into() }
    }
}

/// A word as it is written in a selector.
struct Word<'a>(&'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.chars().all(is_plain) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Requirement { label, test }) in self.0.iter().enumerate() {
            let (comma, label) = (if i > 0 { "," } else { "" }, Word(label));
            let list = |values: &[String]| values.iter().map(|v| Word(v).to_string()).collect::<Vec<_>>().join(",");
            match test {
                Test::Present => write!(f, "{comma}{label}")?,
                Test::Absent => write!(f, "{comma}!{label}")?,
                Test::In(values) => match values.as_slice() {
                    [one] => write!(f, "{comma}{label}={}", Word(one))?,
                    several => write!(f, "{comma}{label} in ({})", list(several))?,
                },
                Test::NotIn(values) => match values.as_slice() {
                    [one] => write!(f, "{comma}{label}!={}", Word(one))?,
                    several => write!(f, "{comma}{label} notin ({})", list(several))?,
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn each_operator_means_what_kubectls_users_expect() {
        let node = labels(&[("rack", "r7"), ("env", "lab"), ("owner", "ann b"), ("note", "")]);
        for (selector, holds) in [
            ("", true),
            ("rack", true),
            ("!rack", false),
            ("gone", false),
            ("! gone", true),
            ("rack=r7", true),
            ("rack == r7", true),
            ("rack=r8", false),
            ("rack!=r8", true),
            ("gone!=x", true),
            ("gone=x", false),
            ("rack in (r6, r7)", true),
            ("gone in (a)", false),
            ("env notin (prod,stage)", true),
            ("env notin (lab)", false),
            ("gone notin (a)", true),
            ("rack=r7,env!=prod,!gone,note", true),
            ("rack=r7,env=prod", false),
            ("owner=\"ann b\"", true),
            ("note=", true),
            ("note=,rack", true),
            ("rack=", false),
            ("in in (in)", false),
        ] {
            assert_eq!(selector.parse::<LabelSelector>().unwrap().matches(&node), holds, "{selector}");
        }
    }

    #[test]
    fn a_syntax_error_is_reported_with_its_column() {
        for (selector, column) in [
            (",", 1),
            ("a,,b", 3),
            ("a=b,", 5),
            ("=b", 1),
            ("a b", 3),
            ("a in b", 6),
            ("a in (b", 8),
            ("a in ()", 7),
            ("a in (b,)", 9),
            ("a=b c", 5),
            ("a=b=c", 4),
            ("!", 2),
            ("!a=b", 3),
            ("é=\"x", 3),
            ("a=\"\\n\"", 5),
            ("\"\"=x", 1),
        ] {
            match selector.parse::<LabelSelector>() {
                Err(error) => assert_eq!(error.column, column, "{error}"),
                Ok(parsed) => panic!("{selector} read as {parsed}"),
            }
        }
        assert!("x".repeat(MAX_BYTES + 1).parse::<LabelSelector>().is_err());
        assert!(vec!["x"; MAX_REQUIREMENTS + 1].join(",").parse::<LabelSelector>().is_err());
        assert!(vec!["x"; MAX_REQUIREMENTS].join(",").parse::<LabelSelector>().is_ok());
    }

    fn test() -> impl Strategy<Value = Test> {
        let values = || prop::collection::vec(".{0,6}", 1..4);
        prop_oneof![
            Just(Test::Present),
            Just(Test::Absent),
            values().prop_map(Test::In),
            values().prop_map(Test::NotIn),
        ]
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_as_the_same_selector(all in prop::collection::vec((".{1,6}", test()), 0..6)) {
            let selector = LabelSelector(all.into_iter().map(|(label, test)| Requirement { label, test }).collect());
            prop_assert_eq!(selector.to_string().parse::<LabelSelector>(), Ok(selector));
        }

        #[test]
        fn whatever_is_written_is_read_or_refused_within_the_text(text in "[ab,=!()\" \\\\é]{0,24}") {
            if let Err(error) = text.parse::<LabelSelector>() {
                prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{}", error);
            }
        }

        #[test]
        fn a_label_is_never_both_in_and_notin(value in "[a-c]{0,2}", set in prop::collection::vec("[a-c]{0,2}", 1..3)) {
            let node = labels(&[("k", &value)]);
            let of = |test: Test| LabelSelector(vec![Requirement { label: "k".into(), test }]);
            prop_assert_ne!(of(Test::In(set.clone())).matches(&node), of(Test::NotIn(set)).matches(&node));
        }
    }
}
