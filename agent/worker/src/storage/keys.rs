//! Passphrases that a person can type when the installed system starts.

use std::collections::BTreeMap;

use landfall_api::{ErrorCode, Problem, SecretText};
use landfall_plan::Step;

use crate::Failure;

/// What cryptsetup takes from a terminal, bytes (cryptsetup --help, "Maximum interactive passphrase length").
const MAX: usize = 512;

/// The passphrase of this name. An end of line at its end, which a secret from a file has, is no part of it: none can be typed.
///
/// # Errors
/// It is missing, or no terminal takes it.
pub(super) fn passphrase(keys: &BTreeMap<String, SecretText>, name: &str) -> Result<SecretText, Failure> {
    let refused = |what: &str, hint: &str| {
        let message = format!("the key {name} of the storage layout {what}");
        Failure::last(Problem::new(ErrorCode::InvalidDocument, message).hint(hint))
    };
    let text = keys.get(name).map(SecretText::expose).unwrap_or_default();
    let typed = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if typed.is_empty() {
        Err(refused("is missing or empty", "state it in storage.keys"))
    } else if typed.len() > MAX || typed.contains(char::is_control) {
        let hint = format!("use a secret of one line, of 1 to {MAX} bytes without control characters");
        Err(refused("cannot be typed as a passphrase", &hint))
    } else {
        Ok(SecretText::new(typed))
    }
}

/// Whether all keys of these steps can be used: what is found later is found when the disks are destroyed.
///
/// # Errors
/// As of [`passphrase`].
pub(super) fn check(steps: &[Step], keys: &BTreeMap<String, SecretText>) -> Result<(), Failure> {
    steps.iter().try_for_each(|step| match step {
        Step::Encrypt { key, .. } => passphrase(keys, key).map(drop),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        let keys = [("disk".to_owned(), SecretText::new(text))].into();
        let found = passphrase(&keys, "disk");
        found.map(|key| key.expose().to_owned()).map_err(|failure| failure.problem.to_string())
    }

    #[test]
    fn an_end_of_line_is_no_part_of_a_passphrase() {
        for text in ["geheim", "geheim\n", "geheim\r\n"] {
            assert_eq!(of(text).as_deref(), Ok("geheim"), "{text:?}");
        }
        assert_eq!(of(" two words ").as_deref(), Ok(" two words "));
    }

    #[test]
    fn what_no_terminal_takes_is_refused_and_not_shown() {
        let long = "geheim".repeat(100);
        for text in ["", "\n", "geheim\n\n", "ge\theim", "geheim\0", &long] {
            let refused = of(text).unwrap_err();
            assert!(refused.contains("the key disk") && !refused.contains("geheim"), "{text:?}: {refused}");
        }
        assert!(passphrase(&BTreeMap::new(), "disk").is_err());
    }
}
