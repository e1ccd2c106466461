//! Removes secrets from texts that people see: the values of a workflow, also as JSON, URLs and base64 have them, and text with the
//! form of a credential.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::shorten::cut;

/// A shorter value is not searched for: removing every "on" and "42" would hide the text, not the secret.
const SHORTEST: usize = 4;
/// The same of base64, of which parts of words are more often the same.
const SHORTEST_BASE64: usize = 8;
/// What URLs and forms encode: all but RFC 3986's unreserved characters (2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What stands in a secret's place.
const BLOT: &str = "[secret]";

/// What must not be shown.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// Longest first, so that a secret that holds another one goes as a whole.
    secrets: Vec<String>,
}

impl Redactor {
    /// Adds values. Of one with several lines each is a secret: a log line holds one. What a server answers may hold one in another form.
    pub(super) fn learn(&mut self, secrets: impl IntoIterator<Item = String>) {
        for secret in secrets {
            let lines = secret.lines().map(str::trim).filter(|line| line.len() >= SHORTEST);
            self.secrets.extend(lines.flat_map(|line| [line.to_owned(), in_json(line), in_url(line)]));
            if secret.trim().len() >= SHORTEST {
                self.secrets.push(in_json(&secret));
                self.secrets.extend(in_base64(secret.as_bytes()));
            }
        }
        self.secrets.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.secrets.dedup();
    }

    /// Keeps no more of a text than its first `bytes`, without what [`Self::clean`] takes out, and without what may be the
    /// first part of it where the text was cut.
    pub(super) fn clean_start(&self, text: &mut String, bytes: usize) {
        if text.len() <= bytes {
            return self.clean(text);
        }
        cut(text, bytes);
        self.clean_cut(text);
    }

    /// The same of a text that was cut already.
    pub(super) fn clean_cut(&self, text: &mut String) {
        self.clean(text);
        loop {
            let begun = self.secrets.iter().map(|secret| begun_at_end(text, secret)).max().unwrap_or_default();
            if begun == 0 {
                break;
            }
            // What stood before it may be the first part of another one.
            let end = text.len() - begun;
            cut(text, end);
        }
    }

    /// Takes them out of a text, and with them passwords in URLs, bearer tokens and boot tokens.
    pub(super) fn clean(&self, text: &mut String) {
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), BLOT);
            }
        }
        blot_user_info(text);
        for before in ["Bearer ", "bearer ", "landfall.token="] {
            blot_word_after(text, before);
        }
    }
}

/// How many bytes at the end of a text are the first of a secret, and not all of it.
fn begun_at_end(text: &str, secret: &str) -> usize {
    let (text, secret) = (text.as_bytes(), secret.as_bytes());
    let longest = text.len().min(secret.len().saturating_sub(1));
    (1..=longest).rev().find(|length| text.ends_with(&secret[..*length])).unwrap_or_default()
}

fn in_json(secret: &str) -> String {
    let quoted = serde_json::Value::from(secret).to_string();
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
}

fn in_url(secret: &str) -> String {
    utf8_percent_encode(secret, RESERVED).to_string()
}

/// As it stands in the base64 of a text that it is a part of (`user:password`): one form for each of the three places of a group of three
/// bytes where it may begin, without the characters that its neighbours have a part in; in both alphabets.
fn in_base64(secret: &[u8]) -> impl Iterator<Item = String> {
    let forms = (0..3).flat_map(move |before| {
        let bytes = [&[0; 2][..before], secret].concat();
        // Six bits a character: the first of the secret alone, and the last.
        let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        [BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD].map(|alphabet| alphabet.encode(&bytes)[from..to].to_owned())
    });
    forms.filter(|form| form.len() >= SHORTEST_BASE64)
}

/// `https://user:password@host` keeps its host.
fn blot_user_info(text: &mut String) {
    let mut from = 0;
    while let Some(found) = text[from..].find("://") {
        let begin = from + found + 3;
        let rest = &text[begin..];
        let end = rest.find(|c: char| c == '/' || c == '"' || c == '?' || c.is_whitespace()).unwrap_or(rest.len());
        from = match rest[..end].rfind('@') {
            Some(at) => {
                text.replace_range(begin..begin + at, BLOT);
                begin + BLOT.len()
            }
            None => begin,
        };
    }
}

fn blot_word_after(text: &mut String, before: &str) {
    let mut from = 0;
    while let Some(found) = text[from..].find(before) {
        let begin = from + found + before.len();
        let rest = &text[begin..];
        let end = rest.find(|c: char| c.is_whitespace() || c == '"' || c == '\'').unwrap_or(rest.len());
        if end > 0 {
            text.replace_range(begin..begin + end, BLOT);
            from = begin + BLOT.len();
        } else {
            from = begin;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cleaned(secrets: &[&str], text: &str) -> String {
        let mut redactor = Redactor::default();
        redactor.learn(secrets.iter().map(|s| (*s).to_owned()));
        let mut text = text.to_owned();
        redactor.clean(&mut text);
        text
    }

    #[test]
    fn what_looks_like_a_credential_goes_and_the_rest_stays() {
        for (text, expected) in [
            ("GET https://ann:pw@host/a?b@c failed", "GET https://[secret]@host/a?b@c failed"),
            ("https://host/a@b", "https://host/a@b"),
            ("Authorization: Bearer abc.def\" sent", "Authorization: Bearer [secret]\" sent"),
            ("landfall.token=abc landfall.ca=def", "landfall.token=[secret] landfall.ca=def"),
            ("http://a:b@c http://d:e@f", "http://[secret]@c http://[secret]@f"),
        ] {
            assert_eq!(cleaned(&[], text), expected);
        }
    }

    #[test]
    fn nested_and_multiline_secrets_are_removed_completely() {
        assert_eq!(cleaned(&["pass", "password"], "a password"), "a [secret]");
        assert_eq!(cleaned(&["line one\nline two"], "read line two"), "read [secret]");
        assert_eq!(cleaned(&["on"], "carry on"), "carry on");
    }

    #[test]
    fn of_a_cut_text_only_a_begun_secret_goes() {
        let mut redactor = Redactor::default();
        redactor.learn(["hunter2-and-a-very-long-tail".to_owned()]);
        for (cut, kept) in
            [("password: hunter2-an", "password: "), ("password: s", "password: s"), ("to each", "to eac")]
        {
            let mut text = cut.to_owned();
            redactor.clean_cut(&mut text);
            assert_eq!(text, kept);
        }
    }

    #[test]
    fn a_secret_is_found_in_the_forms_that_servers_answer() {
        let secret = "pa\"ss/w\u{f6}rd\n2nd";
        let line = "pa\"ss/w\u{f6}rd";
        for text in [
            serde_json::json!({"echo": secret}).to_string(),
            format!("token={}&x", utf8_percent_encode(line, RESERVED)),
            format!("\"{}\"", BASE64_STANDARD_NO_PAD.encode(secret)),
        ] {
            let shown = cleaned(&[secret], &text);
            assert!(shown.contains(BLOT) && !shown.contains("rd"), "{text}: {shown}");
        }
        for user in ["a", "ab", "abc", "abcd"] {
            let basic = BASE64_STANDARD_NO_PAD.encode(format!("{user}:{line}:more"));
            let shown = cleaned(&[line], &basic);
            assert!(shown.contains(BLOT) && shown.len() < BLOT.len() + 16, "{user}: {shown}");
        }
        assert_eq!(cleaned(&["abcd"], "YWJj"), "YWJj", "too little to be known by");
    }

    proptest! {
        #[test]
        fn redaction_always_ends_and_no_secret_survives(
            before in "\\PC*", secret in "[a-z]{8}", after in "(Bearer |landfall.token=|://|@|\\PC)*"
        ) {
            let text = cleaned(&[&secret], &format!("{before}{secret}{after}"));
            prop_assert!(!text.contains(&secret));
        }
    }
}
