//! From text to a condition: one function a level of precedence, loosest first.

use serde_json::Value;

use super::{Comparison, Node, Path, Step, WhenFault};

/// The longest condition, bytes: a person reads it in one look.
const MAX_BYTES: usize = 1024;

/// The deepest nesting of parentheses, lists and `not`.
const MAX_DEPTH: usize = 16;

const EXAMPLE: &str =
    "write a condition such as machine.facts.memoryBytes >= 8589934592 and params.release in [\"a\", \"b\"]";

/// Words that are no names of paths.
const WORDS: [&str; 8] = ["and", "or", "not", "in", "is", "defined", "true", "false"];

/// Longer signs first, so that `<=` is not read as `<`.
const SIGNS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

pub(super) fn parse(text: &str) -> Result<Node, WhenFault> {
    if text.len() > MAX_BYTES {
        let message = format!("the condition has {} bytes; the limit is {MAX_BYTES}", text.len());
        return Err(WhenFault::new(message, "put what decides into a label or a parameter"));
    }
    if text.contains("{{") || text.contains("{%") {
        return Err(WhenFault::new("a condition stands without braces", "remove {{ and }}"));
    }
    let mut reader = Reader { rest: text.trim(), depth: 0 };
    let node = reader.any_of()?;
    if reader.rest.is_empty() { Ok(node) } else { Err(reader.unexpected("the end")) }
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn any_of(&mut self) -> Result<Node, WhenFault> {
        let mut node = self.all_of()?;
        while self.word("or") {
            node = Node::Or(Box::new(node), Box::new(self.all_of()?));
        }
        Ok(node)
    }

    fn all_of(&mut self) -> Result<Node, WhenFault> {
        let mut node = self.negated()?;
        while self.word("and") {
            node = Node::And(Box::new(node), Box::new(self.negated()?));
        }
        Ok(node)
    }

    fn negated(&mut self) -> Result<Node, WhenFault> {
        if !self.word("not") {
            return self.compared();
        }
        self.deeper(|reader| Ok(Node::Not(Box::new(reader.negated()?))))
    }

    fn compared(&mut self) -> Result<Node, WhenFault> {
        let left = self.operand()?;
        if let Some(how) = SIGNS.iter().find_map(|(sign, how)| self.sign(sign).then_some(*how)) {
            return Ok(Node::Compare(how, Box::new(left), Box::new(self.operand()?)));
        }
        if self.word("in") {
            return Ok(Node::In(Box::new(left), Box::new(self.operand()?)));
        }
        if self.word("is") {
            let not = self.word("not");
            let Node::Path(path) = left else { return Err(self.unexpected("a comparison")) };
            if !self.word("defined") {
                return Err(self.unexpected("defined"));
            }
            let defined = Node::Defined(path);
            return Ok(if not { Node::Not(Box::new(defined)) } else { defined });
        }
        let before = self.rest;
        if self.word("not") {
            if self.word("in") {
                let inside = Node::In(Box::new(left), Box::new(self.operand()?));
                return Ok(Node::Not(Box::new(inside)));
            }
            self.rest = before;
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Node, WhenFault> {
        if self.sign("(") {
            return self.deeper(|reader| {
                let inner = reader.any_of()?;
                if reader.sign(")") { Ok(inner) } else { Err(reader.unexpected(")")) }
            });
        }
        if self.sign("[") {
            return self.deeper(Self::list);
        }
        match self.rest.chars().next() {
            Some('"' | '\'') => Ok(Node::Literal(Value::String(self.text()?))),
            Some('0'..='9' | '-') => self.number(),
            Some('a'..='z' | 'A'..='Z' | '_') if self.word("true") => Ok(Node::Literal(true.into())),
            Some('a'..='z' | 'A'..='Z' | '_') if self.word("false") => Ok(Node::Literal(false.into())),
            Some('a'..='z' | 'A'..='Z' | '_') => self.path(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn list(&mut self) -> Result<Node, WhenFault> {
        let mut items = Vec::new();
        while !self.sign("]") {
            if !items.is_empty() && !self.sign(",") {
                return Err(self.unexpected("] or ,"));
            }
            items.push(self.operand()?);
        }
        Ok(Node::List(items))
    }

    fn path(&mut self) -> Result<Node, WhenFault> {
        let begin = self.rest;
        let name = self.name()?;
        if WORDS.contains(&name.as_str()) {
            self.rest = begin;
            return Err(self.unexpected("a value"));
        }
        let mut steps = vec![Step::Field(name)];
        let mut end = self.rest;
        loop {
            self.space();
            if self.sign(".") {
                steps.push(Step::Field(self.name()?));
            } else if self.sign("[") {
                let step = match self.rest.chars().next() {
                    Some('"' | '\'') => Step::Field(self.text()?),
                    _ => match self.number()? {
                        Node::Literal(Value::Number(index)) if index.as_u64().is_some() => {
                            Step::Item(usize::try_from(index.as_u64().unwrap_or_default()).unwrap_or(usize::MAX))
                        }
                        _ => return Err(self.unexpected("an index or a name in quotes")),
                    },
                };
                if !self.sign("]") {
                    return Err(self.unexpected("]"));
                }
                steps.push(step);
            } else if self.rest.starts_with('(') {
                return Err(WhenFault::new("functions are not supported", EXAMPLE));
            } else {
                break;
            }
            end = self.rest;
        }
        let written = begin.get(..begin.len() - end.len()).unwrap_or(begin).trim_end().to_owned();
        Ok(Node::Path(Path { written, steps }))
    }

    fn name(&mut self) -> Result<String, WhenFault> {
        let length = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        if length == 0 {
            return Err(self.unexpected("a name"));
        }
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// Text in quotes; a backslash keeps the next character.
    fn text(&mut self) -> Result<String, WhenFault> {
        let mut characters = self.rest.char_indices();
        let quote = characters.next().map(|(_, quote)| quote);
        let mut out = String::new();
        while let Some((at, c)) = characters.next() {
            if Some(c) == quote {
                self.rest = self.rest.get(at + 1..).unwrap_or_default();
                self.space();
                return Ok(out);
            }
            if c == '\\' {
                out.extend(characters.next().map(|(_, kept)| kept));
            } else {
                out.push(c);
            }
        }
        Err(WhenFault::new(format!("a quote is not closed: {}", self.rest), EXAMPLE))
    }

    fn number(&mut self) -> Result<Node, WhenFault> {
        let length = self.rest.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(length);
        let Ok(number) = digits.parse::<i64>() else { return Err(self.unexpected("a whole number of 64 bits")) };
        self.rest = rest;
        self.space();
        Ok(Node::Literal(number.into()))
    }

    fn deeper(&mut self, read: impl FnOnce(&mut Self) -> Result<Node, WhenFault>) -> Result<Node, WhenFault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("the condition is nested deeper than {MAX_DEPTH}");
            return Err(WhenFault::new(message, "remove parentheses that change nothing"));
        }
        let node = read(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes a sign, if it is next.
    fn sign(&mut self, sign: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(sign) else { return false };
        self.rest = rest;
        self.space();
        true
    }

    /// Takes a word, if it is next and no longer.
    fn word(&mut self, word: &str) -> bool {
        let rest = self.rest.strip_prefix(word);
        let rest = rest.filter(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
        let Some(rest) = rest else { return false };
        self.rest = rest;
        self.space();
        true
    }

    fn unexpected(&self, wanted: &str) -> WhenFault {
        let found = match self.rest.chars().take(20).collect::<String>() {
            none if none.is_empty() => "the condition ends here".to_owned(),
            rest => format!("\"{rest}\" stands here"),
        };
        WhenFault::new(format!("{wanted} is expected, and {found}"), EXAMPLE)
    }
}
