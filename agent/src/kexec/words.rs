//! A line of a boot loader's configuration as words, as GRUB reads them: quotes are taken away, variables are put in.

use std::collections::BTreeMap;

/// What variables may add to one line, bytes: twice the longest command line. A variable may be made of others, so
/// that each line of a file doubles it.
const ROOM: usize = 4 << 10;

/// Variables by name.
pub(super) type Variables = BTreeMap<String, String>;

/// One word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Its text.
    pub(super) text: String,
    /// Every variable in it was known and fits; GRUB replaces an unknown one with nothing.
    pub(super) whole: bool,
}

/// The words of a line, up to a comment or the command's end.
pub(super) fn words(line: &str, variables: &Variables) -> Vec<Word> {
    let mut reader = Reader { variables, room: ROOM, done: Vec::new(), word: None };
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                reader.word();
            }
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => match chars.next() {
                // Inside double quotes a backslash stands for itself before anything but these.
                Some(next) if quote.is_none() || "\"\\$".contains(next) => reader.push(next),
                Some(next) => ['\\', next].into_iter().for_each(|c| reader.push(c)),
                None => {}
            },
            ('$', None | Some('"')) => {
                let braced = chars.next_if_eq(&'{').is_some();
                let mut name = String::new();
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                if braced {
                    chars.next_if_eq(&'}');
                }
                reader.variable(&name, quote.is_some());
            }
            (c, None) if c.is_whitespace() => reader.end(),
            ('#', None) if reader.word.is_none() => break,
            (';', None) => break,
            (c, _) => reader.push(c),
        }
    }
    reader.end();
    reader.done
}

struct Reader<'v> {
    variables: &'v Variables,
    /// What variables may still add.
    room: usize,
    done: Vec<Word>,
    /// The word under way.
    word: Option<Word>,
}

impl Reader<'_> {
    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert(Word { text: String::new(), whole: true })
    }

    fn push(&mut self, c: char) {
        self.word().text.push(c);
    }

    fn end(&mut self) {
        self.done.extend(self.word.take());
    }

    fn variable(&mut self, name: &str, quoted: bool) {
        let value = self.variables.get(name).filter(|value| value.len() <= self.room);
        self.room -= value.map_or(0, String::len);
        match value {
            None => self.word().whole = false,
            Some(value) if quoted => self.word().text.push_str(value),
            // Outside quotes blanks of the value part words.
            Some(value) => {
                for (n, piece) in value.split_whitespace().enumerate() {
                    if n > 0 {
                        self.end();
                    }
                    self.word().text.push_str(piece);
                }
            }
        }
    }
}

/// The words as one kernel command line. A blank inside a word is kept by quotes, which the kernel understands.
pub(super) fn joined(words: impl IntoIterator<Item = String>) -> String {
    let quoted = |word: String| if word.contains(char::is_whitespace) { format!("\"{word}\"") } else { word };
    words.into_iter().filter(|word| !word.is_empty()).map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<(String, bool)> {
        let variables = [("opts", "root=UUID=1 ro"), ("v", "x"), ("none", "")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        words(line, &variables).into_iter().map(|w| (w.text, w.whole)).collect()
    }

    #[test]
    fn quotes_escapes_and_variables_are_read_as_grub_reads_them() {
        for (line, want) in [
            ("  linux\t/vmlinuz ro ", vec![("linux", true), ("/vmlinuz", true), ("ro", true)]),
            ("a 'b $v c' \"d $v\" e\\ f", vec![("a", true), ("b $v c", true), ("d x", true), ("e f", true)]),
            ("$opts quiet", vec![("root=UUID=1", true), ("ro", true), ("quiet", true)]),
            ("a=${v}y $none z", vec![("a=xy", true), ("z", true)]),
            ("root=UUID=$uuid $handoff ro", vec![("root=UUID=", false), ("", false), ("ro", true)]),
            ("ro # a comment", vec![("ro", true)]),
            ("a#b; c", vec![("a#b", true)]),
            ("\"a\\q\\\"\" 'open", vec![("a\\q\"", true), ("open", true)]),
            ("", vec![]),
        ] {
            let want: Vec<_> = want.into_iter().map(|(text, whole)| (text.to_owned(), whole)).collect();
            assert_eq!(read(line), want, "{line}");
        }
    }

    #[test]
    fn a_word_with_a_blank_keeps_it() {
        let words = ["root=1", "dyndbg=file a +p", "", "ro"].map(str::to_owned);
        assert_eq!(joined(words), "root=1 \"dyndbg=file a +p\" ro");
    }
}
