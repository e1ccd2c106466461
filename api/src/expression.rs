//! What an expression of a template or a rule may be: paths, literals, comparisons, and a list of filters.
//!
//! Every such expression costs no more than the values that it names. The language of the renderer has more: products of
//! lists, functions and loops make gigabytes of a few characters, some of them while it parses. So this looks at an
//! expression's tokens before the renderer sees it.

/// The most tokens in the expressions of one text: each may name a value of some size.
const MAX_TOKENS: usize = 256;

/// The longest text given to a filter, bytes: `join` puts it between all items of a list.
const MAX_ARGUMENT: usize = 64;

/// Filters whose result is no larger than what goes in, but for the argument of `default` and `join`.
const FILTERS: [&str; 21] = [
    "abs", "capitalize", "count", "d", "default", "first", "float", "int", "join", "last", "length", "lower", "max",
    "min", "reverse", "round", "sort", "string", "title", "trim", "upper",
];

/// Words that may stand before a parenthesis without being called.
const WORDS: [&str; 7] = ["and", "else", "if", "in", "is", "not", "or"];

/// Why an expression is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the expression \"{expression}\" is not taken: {what}")]
pub struct ExpressionError {
    /// The expression, without its braces; cut where it is long.
    expression: String,
    what: String,
}

impl ExpressionError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        format!(
            "an expression may hold paths such as machine.name, literals, comparisons, + - / % ~ and the filters {}",
            FILTERS.join(", ")
        )
    }
}

/// Checks every expression in `text`, and counts their parts. One that is not closed is the parser's to refuse.
///
/// # Errors
/// [`ExpressionError`] for the first that may not stand there.
pub fn check_expressions(text: &str) -> Result<usize, ExpressionError> {
    let refused = |expression: &str, what: String| ExpressionError {
        expression: expression.chars().take(100).collect::<String>().trim().to_owned(),
        what,
    };
    if let Some(at) = text.find("{%").or_else(|| text.find("{#")) {
        let rest = text.get(at..).unwrap_or_default();
        return Err(refused(rest, "statements and comments are not supported here".into()));
    }
    let (mut rest, mut tokens) = (text, 0);
    while let Some((_, inside)) = rest.split_once("{{") {
        let mut checker = Checker::new(inside);
        checker.run().map_err(|what| refused(inside.split("}}").next().unwrap_or_default(), what))?;
        tokens += checker.tokens;
        if tokens > MAX_TOKENS {
            return Err(refused(inside, format!("the expressions of one text have more than {MAX_TOKENS} parts")));
        }
        rest = checker.rest;
    }
    Ok(tokens)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    Number,
    /// With how many bytes between its quotes.
    Text(usize),
    Sign(char),
}

/// Reads one expression up to its `}}`.
struct Checker<'a> {
    rest: &'a str,
    tokens: usize,
    before: Option<Token<'a>>,
    /// Open parentheses and brackets: for each whether it holds a filter's arguments, and whether these may be paths.
    open: Vec<Option<bool>>,
}

impl<'a> Checker<'a> {
    fn new(inside: &'a str) -> Self {
        Self { rest: inside, tokens: 0, before: None, open: Vec::new() }
    }

    fn run(&mut self) -> Result<(), String> {
        // A filter's name, until its arguments begin.
        let mut filter: Option<&str> = None;
        loop {
            self.rest = self.rest.trim_start();
            if let Some(after) = self.rest.strip_prefix("}}") {
                self.rest = after;
                return Ok(());
            }
            let Some(token) = self.next()? else { return Ok(()) };
            self.tokens += 1;
            if self.tokens > MAX_TOKENS {
                return Err(format!("it has more than {MAX_TOKENS} parts"));
            }
            let arguments = self.open.iter().rev().find_map(|open| *open);
            let begins = filter.take();
            match token {
                Token::Name(name) if self.before == Some(Token::Sign('|')) => {
                    if !FILTERS.contains(&name) {
                        return Err(format!("{name} is not among its filters"));
                    }
                    filter = Some(name);
                }
                Token::Name(name) if arguments == Some(false) && !matches!(name, "true" | "false") => {
                    return Err(format!("a filter's argument is a literal, not {name}"));
                }
                Token::Text(bytes) if arguments.is_some() && bytes > MAX_ARGUMENT => {
                    return Err(format!("a filter's argument has at most {MAX_ARGUMENT} bytes"));
                }
                Token::Sign('(') => match (begins, self.before) {
                    (Some(name), _) => self.open.push(Some(matches!(name, "default" | "d"))),
                    (None, Some(Token::Name(name))) if !WORDS.contains(&name) => {
                        return Err(format!("{name} is called, and functions are not"));
                    }
                    (None, Some(Token::Sign(')' | ']') | Token::Text(_) | Token::Number)) => {
                        return Err("a value is called".into());
                    }
                    _ => self.open.push(None),
                },
                Token::Sign('[') => self.open.push(None),
                Token::Sign(')' | ']') => {
                    self.open.pop();
                }
                _ => {}
            }
            self.before = Some(token);
        }
    }

    /// The next token; `None` at the text's end.
    fn next(&mut self) -> Result<Option<Token<'a>>, String> {
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let run = |fits: fn(char) -> bool| self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len());
        let (token, length) = match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                let length = run(|c| c.is_ascii_alphanumeric() || c == '_');
                (Token::Name(self.rest.get(..length).unwrap_or_default()), length)
            }
            '0'..='9' => (Token::Number, run(|c| c.is_ascii_alphanumeric() || c == '_')),
            '"' | '\'' => {
                let mut escaped = false;
                let end = self.rest.char_indices().skip(1).find(|(_, c)| {
                    let ends = *c == first && !escaped;
                    escaped = *c == '\\' && !escaped;
                    ends
                });
                // The parser says that it is not closed.
                let Some((end, _)) = end else { return Ok(None) };
                (Token::Text(end - 1), end + 1)
            }
            '.' | '|' | '(' | ')' | '[' | ']' | ',' | ':' | '=' | '!' | '<' | '>' | '+' | '-' | '/' | '%' | '~' => {
                (Token::Sign(first), 1)
            }
            other => return Err(format!("\"{other}\" may not stand in it")),
        };
        self.rest = self.rest.get(length..).unwrap_or_default();
        Ok(Some(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_much_of_little_is_refused() {
        for text in [
            "{{ (1,) * 100000000 }}", "{{ (\"a\"*100000)|replace(\"a\",\"b\"*100000) }}",
            "{{ ([[1]*10000]*10000)|string }}", "{{ lipsum() }}", "{{ lipsum(100) }}", "x {{ range(90000) | list }}",
            "{{ params.a | replace('a', params.a) }}", "{{ machine.macs | join(params.a) }}",
            "{{ machine.macs | join((params.a)) }}", "{{ params.x.y() }}", "{{ (params.x)(1) }}",
            "{{ params['x'](1) }}", "{{ 'a'(1) }}", "{{ params.a ** 9 }}", "{{ {'a': 1} }}",
            "{{ machine.name }}{{ 2 * 3 }}", "{% if x", "{% for a in range(9) %}{% endfor %}", "{# a #}",
        ] {
            let refused = check_expressions(text).unwrap_err();
            assert!(refused.to_string().contains("is not taken"), "{text}: {refused}");
        }
        assert!(check_expressions(&"{{ params.a }}".repeat(200)).is_err());
        assert!(check_expressions(&format!("{{{{ params.a{} }}}}", " ~ params.a".repeat(200))).is_err());
        assert!(check_expressions(&format!("{{{{ machine.macs | join('{}') }}}}", "x".repeat(65))).is_err());
    }

    #[test]
    fn paths_filters_literals_and_comparisons_are_taken() {
        for text in [
            "{{ machine.name }}-{{ machine.labels['rack'] }}",
            "{{ params.n + 1 }}",
            "{{ params.list[0] }}{{ (params.text | string)[:4] }}",
            "{{ [secrets.db.pw, 1] }}",
            "{{ secrets[\"my-db\"].pw ~ '}}*' }}",
            "{{ params.a | default(machine.name) | lower | trim }}",
            "{{ machine.macs | join(', ') }}",
            "{{ 'a' if machine.facts.memoryBytes >= 1024 and not (params.b == true) else 'b' }}",
            "{{ params.a is defined }}",
            "{{- params.a -}}",
            "{{ not closed",
        ] {
            assert!(check_expressions(text).is_ok_and(|parts| parts > 0), "{text}");
        }
        assert_eq!(check_expressions("plain"), Ok(0));
        assert_eq!(check_expressions("{{ machine.name }}: {{ params.n + 1 }}"), Ok(8));
    }
}
