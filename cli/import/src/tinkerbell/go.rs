//! Expressions of Go's templates: paths of values, and the few functions that have a meaning here.

/// What an expression names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Go {
    /// A value by its path: `.Hardware.Disks` with `index … 0` is `Hardware`, `Disks`, `0`.
    Path(Vec<String>),
    /// `formatPartition`: the partition of a disk.
    Partition(Vec<String>, u32),
}

/// Reads an expression; `None` if it is more than a path.
pub(super) fn parse(source: &str) -> Option<Go> {
    let mut parser = Parser { rest: source, depth: 0 };
    let found = parser.expression()?;
    parser.rest.trim().is_empty().then_some(found)
}

/// Parentheses in parentheses; more than any template has.
const MAX_DEPTH: usize = 16;

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

enum Term {
    Value(Go),
    Index(String),
}

impl<'a> Parser<'a> {
    fn expression(&mut self) -> Option<Go> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let found = match self.word() {
            Some("index") => {
                let Term::Value(Go::Path(mut path)) = self.term()? else { return None };
                while !self.at_end() {
                    let Term::Index(index) = self.term()? else { return None };
                    path.push(index);
                }
                Go::Path(path)
            }
            Some("formatPartition") => {
                let Term::Value(Go::Path(path)) = self.term()? else { return None };
                let Term::Index(number) = self.term()? else { return None };
                Go::Partition(path, number.parse().ok()?)
            }
            Some(_) => return None,
            None => match self.term()? {
                Term::Value(value) => value,
                Term::Index(_) => return None,
            },
        };
        self.depth -= 1;
        Some(found)
    }

    fn at_end(&self) -> bool {
        let rest = self.rest.trim_start();
        rest.is_empty() || rest.starts_with(')')
    }

    /// A function's name.
    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let word = rest.get(..end).filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))?;
        self.rest = rest.get(end..)?;
        Some(word)
    }

    fn term(&mut self) -> Option<Term> {
        self.rest = self.rest.trim_start();
        if let Some(rest) = self.rest.strip_prefix('(') {
            self.rest = rest;
            let inner = self.expression()?;
            self.rest = self.rest.trim_start().strip_prefix(')')?;
            return Some(Term::Value(match inner {
                Go::Path(path) => Go::Path(self.fields(path)),
                partition => partition,
            }));
        }
        if let Some(rest) = self.rest.strip_prefix('"') {
            let (text, rest) = rest.split_once('"')?;
            self.rest = rest;
            return Some(Term::Index(text.to_owned()));
        }
        let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 {
            let (number, rest) = self.rest.split_at(digits);
            self.rest = rest;
            return Some(Term::Index(number.to_owned()));
        }
        let path = self.fields(Vec::new());
        (!path.is_empty()).then_some(Term::Value(Go::Path(path)))
    }

    /// `.A.B`
    fn fields(&mut self, mut path: Vec<String>) -> Vec<String> {
        while let Some(rest) = self.rest.strip_prefix('.') {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            if name.is_empty() {
                break;
            }
            path.push(name.to_owned());
            self.rest = rest;
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_partitions_are_read_and_the_rest_is_not() {
        let path = |names: &[&str]| Some(Go::Path(names.iter().map(ToString::to_string).collect()));
        assert_eq!(parse(".device_1"), path(&["device_1"]));
        assert_eq!(parse("index .Hardware.Disks 0"), path(&["Hardware", "Disks", "0"]));
        assert_eq!(
            parse("(index .Hardware.Interfaces 0).DHCP.IP.Address"),
            path(&["Hardware", "Interfaces", "0", "DHCP", "IP", "Address"])
        );
        let Some(Go::Partition(disk, 1)) = parse("formatPartition ( index .Hardware.Disks 0 ) 1") else {
            panic!("no partition")
        };
        assert_eq!(disk, ["Hardware", "Disks", "0"]);
        for other in ["", ".", "1", "lower .x", ".x | b64dec", "index .x .y", "if .x", "((", "formatPartition .x \"y\""]
        {
            assert_eq!(parse(other), None, "{other}");
        }
        assert_eq!(parse(&"(".repeat(10_000)), None);
    }
}
