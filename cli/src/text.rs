//! Text for people. Text from machines and other people may contain control characters, which a terminal executes: they
//! could forge lines, hide them, or answer for the person. So they are printed as visible escapes.

use std::borrow::Cow;

/// What changes how the text around it is shown: the controls of bidirectional text (Unicode TR 9) turn a line around, and
/// the two separators end it.
pub(crate) fn rearranges(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Shows C0, DEL and C1 as `\x1b`, and what [`rearranges`] as `\u{202e}`. Tabs and ends of lines stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| (c.is_control() && !matches!(c, '\t' | '\n')) || rearranges(c);
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !obeyed(c) => out.push(c),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push_str(&c.escape_unicode().to_string()),
        }
    }
    Cow::Owned(out)
}

/// The same for what is one value among others of a line: ends of lines and tabs are shown too.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    match visible(text) {
        shown if shown.contains(['\n', '\t']) => shown.replace('\n', "\\n").replace('\t', "\\t").into(),
        shown => shown,
    }
}

/// The same, with further lines set in: none of them can look like a line of the command itself.
pub(crate) fn set_in(text: &str, by: &str) -> String {
    visible(text).replace('\n', &format!("\n{by}"))
}

/// Text that holds no control characters but the colours put there by this command. Made only here, so nothing else
/// reaches a terminal; it cannot be formatted into a string, which would be shown with its colours as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text(String);

impl Text {
    /// Text in one of the colours of [`crate::output`]; none where that is empty.
    pub(crate) fn painted(text: &str, colour: &str) -> Self {
        let text = visible(text);
        Self(if colour.is_empty() { text.into_owned() } else { format!("\x1b[{colour}m{text}\x1b[0m") })
    }

    /// This, and then that.
    pub(crate) fn then(mut self, next: impl Into<Self>) -> Self {
        self.0.push_str(&next.into().0);
        self
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(visible(text).into_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_escapes() {
        for (text, shown) in [
            ("plain ö 日 🦀\tx\ny", "plain ö 日 🦀\tx\ny"),
            ("\x1b[2Jx\r\x07\x08", "\\x1b[2Jx\\x0d\\x07\\x08"),
            ("a\x7f\u{9b}31m\u{85}\0", "a\\x7f\\x9b31m\\x85\\x00"),
        ] {
            assert_eq!(visible(text), shown);
        }
        assert_eq!(set_in("a\nb\x1b", "  "), "a\n  b\\x1b");
        assert_eq!(visible("a\u{202e}b\u{2069}\u{2028}\u{200f}"), "a\\u{202e}b\\u{2069}\\u{2028}\\u{200f}");
        assert_eq!(one_line("a\nName:\tb\u{85}"), "a\\nName:\\tb\\x85");
    }

    #[test]
    fn only_the_commands_own_colours_pass() {
        let text = Text::painted("a\x1b[31mb", "32").then("\x1b[0m");
        assert_eq!(text.as_str(), "\x1b[32ma\\x1b[31mb\x1b[0m\\x1b[0m");
        assert_eq!(Text::painted("a", "").as_str(), "a");
    }
}
