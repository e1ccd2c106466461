//! Names that documents take, made of names that others took.

use std::collections::BTreeSet;

/// The longest name of a document or an action.
const MAX_LABEL: usize = 63;
/// The longest name of a partition or an array.
const MAX_DEVICE: usize = 32;

/// A DNS label: lower-case letters, digits and dashes; `otherwise` if nothing of the text can stay.
pub(crate) fn label(text: &str, otherwise: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_lowercase() || c.is_ascii_digit() => out.push(c),
            _ if out.is_empty() || out.ends_with('-') => {}
            _ => out.push('-'),
        }
        if out.len() == MAX_LABEL {
            break;
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() { otherwise.to_owned() } else { out.to_owned() }
}

/// A name for expressions: letters, digits and underscores.
pub(crate) fn identifier(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => out.push(c),
            _ if out.is_empty() || out.ends_with('_') => {}
            _ => out.push('_'),
        }
    }
    let out: String = out.trim_end_matches('_').chars().take(MAX_LABEL).collect();
    if out.starts_with(|c: char| c.is_ascii_alphabetic()) { out } else { format!("p_{out}") }
}

/// A device's name: letters, digits, `-`, `_` and `.`.
pub(crate) fn device(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let out: String = text.chars().map(plain).take(MAX_DEVICE).collect();
    let out = out.trim_start_matches(['-', '_', '.']);
    if out.is_empty() { "device".to_owned() } else { out.to_owned() }
}

/// Gives each name once: the second `a` becomes `a-2`.
#[derive(Debug, Default)]
pub(crate) struct Unique {
    given: BTreeSet<String>,
    most: usize,
}

impl Unique {
    /// Of DNS labels.
    pub(crate) fn labels() -> Self {
        Self { given: BTreeSet::new(), most: MAX_LABEL }
    }

    /// Of devices.
    pub(crate) fn devices() -> Self {
        Self { given: BTreeSet::new(), most: MAX_DEVICE }
    }

    /// The name, or with a number behind it.
    pub(crate) fn give(&mut self, name: String) -> String {
        let mut unique = name.clone();
        let mut number = 2;
        while !self.given.insert(unique.clone()) {
            let suffix = format!("-{number}");
            let kept = name.get(..self.most.saturating_sub(suffix.len()).min(name.len())).unwrap_or_default();
            unique = format!("{kept}{suffix}");
            number += 1;
        }
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_becomes_one_that_documents_take() {
        assert_eq!(label("Stream Ubuntu (22.04) image!", "x"), "stream-ubuntu-22-04-image");
        assert_eq!(label("日本", "action"), "action");
        assert_eq!(identifier(".Hardware.Metadata.Facility"), "hardware_metadata_facility");
        assert_eq!(identifier("1x"), "p_1x");
        assert_eq!(device("main disk/1"), "main-disk-1");
        assert_eq!(device("..."), "device");
    }

    #[test]
    fn a_name_is_given_once() {
        let mut names = Unique::labels();
        let long = "a".repeat(63);
        assert_eq!([names.give("a".into()), names.give("a".into()), names.give("a-2".into())], ["a", "a-2", "a-2-2"]);
        assert_eq!((names.give(long.clone()), names.give(long.clone()).len()), (long.clone(), 63));
    }
}
